// One unary call between gRPC and the core; the same for both protocols.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/byte_buffer.h"
#include "proto/payload_split.h"
#include "server/core.h"
#include "server/rpc/call_gate.h"

namespace scanserve {

// A call as its protocol's reader fills it. On failure `call.model` is set as far as it is known.
struct IncomingCall {
  // Without method, times and size, which StartCall knows.
  Call call;
  // The serialized reply; its external bytes are in the result. Called at most once.
  absl::AnyInvocable<absl::StatusOr<std::vector<MessagePiece>>(const CallResult&)> encode;
};

// Makes a call of a message, or says why not. `message` goes into Call::keep_alive.
using ReadCall = absl::FunctionRef<absl::Status(ReceivedBytes message, IncomingCall& incoming)>;

// Reads `request`, submits it to the core and answers into `response` when it is done. The
// reactor that it returns owns itself. Cancellation by the client and the passing of its deadline
// cancel the call in the core. The call is inside `gate` until the reply is on its way; UNAVAILABLE
// when that is closed. `method` is the label in metrics.
grpc::ServerUnaryReactor* StartCall(Core& core, CallGate& gate, absl::string_view method,
                                    grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
                                    ReadCall read);

// Ends an rpc that is no call of the core: with the reply that was filled in, or with an error,
// which is counted.
grpc::ServerUnaryReactor* FinishNow(Core& core, absl::string_view method,
                                    grpc::CallbackServerContext* context,
                                    const absl::Status& status);

// Makes one input of a call. INVALID_ARGUMENT when the payload has not the size that dtype and
// shape need, in the words that Triton's clients know.
absl::StatusOr<CallInput> MakeInput(const Model& model, const std::string& name, TensorMeta meta,
                                    Payload payload);

}  // namespace scanserve

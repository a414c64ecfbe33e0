#include "server/rpc/call_reactor.h"

#include <grpcpp/server_context.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "proto/convert.h"
#include "server/rpc/rpc_status.h"

namespace scanserve {
namespace {

// The client's deadline on our clock, which nobody sets back.
TimePoint DeadlineOf(const grpc::CallbackServerContext& context, TimePoint now) {
  using std::chrono::system_clock;
  const system_clock::time_point deadline = context.deadline();
  if (deadline == system_clock::time_point::max()) return kNever;
  const auto left = deadline - system_clock::now();
  if (left >= kNever - now) return kNever;
  return now + std::chrono::duration_cast<TimePoint::duration>(left);
}

absl::Status Read(const grpc::ByteBuffer& request, ReadCall& read, IncomingCall& incoming) {
  if (!request.Valid()) {  // the message never became complete
    if (incoming.call.received >= incoming.call.deadline) {
      return absl::DeadlineExceededError("the deadline passed before the message was complete");
    }
    return absl::CancelledError("the client cancelled the call before its message was complete");
  }
  SCANSERVE_ASSIGN_OR_RETURN(ReceivedBytes message, ReceivedBytes::From(request));
  incoming.call.request_bytes = message.size();
  return read(std::move(message), incoming);
}

// Deletes itself. gRPC calls OnCancel and OnDone only after the rpc's handler has returned the
// reactor, and OnDone only after Finish and after OnCancel has returned. So `handle_`, which is set
// in the handler, needs no lock, and a call that is done before Submit returns is no special case.
class CallReactor final : public grpc::ServerUnaryReactor {
 public:
  // The caller has entered `gate`.
  CallReactor(Core& core, CallGate& gate, grpc::ByteBuffer* response)
      : core_(core), gate_(gate), response_(response) {}

  void Start(IncomingCall incoming) {
    model_ = incoming.call.model;
    encode_ = std::move(incoming.encode);
    handle_ =
        core_.Submit(std::move(incoming.call), [this](absl::Status status, CallResult result) {
          if (status.ok()) status = Reply(std::move(result));
          Finish(ToGrpcStatus(status));  // nothing of `this` may be touched after this
        });
  }

 private:
  void OnCancel() override {
    if (handle_.has_value()) handle_->Cancel();
  }
  void OnDone() override {
    CallGate& gate = gate_;
    delete this;
    gate.Leave();
  }

  absl::Status Reply(CallResult result) {
    const auto owner = std::make_shared<const CallResult>(std::move(result));
    SCANSERVE_ASSIGN_OR_RETURN(const std::vector<MessagePiece> pieces, encode_(*owner));
    core_.CountResponse(*model_, TotalSize(pieces));
    *response_ = ToByteBuffer(pieces, owner);
    return absl::OkStatus();
  }

  Core& core_;
  CallGate& gate_;
  grpc::ByteBuffer* const response_;
  const Model* model_ = nullptr;
  decltype(IncomingCall::encode) encode_;
  std::optional<CallHandle> handle_;
};

}  // namespace

grpc::ServerUnaryReactor* StartCall(Core& core, CallGate& gate, absl::string_view method,
                                    grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
                                    ReadCall read) {
  if (!gate.Enter()) {
    return FinishNow(core, method, context, absl::UnavailableError("the server is shutting down"));
  }
  IncomingCall incoming;
  Call& call = incoming.call;
  call.method = std::string(method);
  call.received = std::chrono::steady_clock::now();
  call.deadline = DeadlineOf(*context, call.received);
  const absl::Status status = Read(*request, read, incoming);
  auto* const reactor = new CallReactor(core, gate, response);
  if (status.ok()) {
    reactor->Start(std::move(incoming));
  } else {
    core.CountRejected(call.model, method, status);
    reactor->Finish(ToGrpcStatus(status));
  }
  return reactor;
}

grpc::ServerUnaryReactor* FinishNow(Core& core, absl::string_view method,
                                    grpc::CallbackServerContext* context,
                                    const absl::Status& status) {
  if (!status.ok()) core.CountRejected(nullptr, method, status);
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

absl::StatusOr<CallInput> MakeInput(const Model& model, const std::string& name, TensorMeta meta,
                                    Payload payload) {
  const auto expected = static_cast<size_t>(meta.ByteSize());
  if (payload.size != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat(model.name, ": input byte size mismatch for input '", Printable(name),
                     "', expected ", expected, ", got ", payload.size));
  }
  return CallInput{name, std::move(meta), std::move(payload)};
}

}  // namespace scanserve

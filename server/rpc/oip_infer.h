// ModelInfer of the Open Inference Protocol: from message to call and from result to message.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/rpc/call_reactor.h"

namespace scanserve {

// Version "" or "1". NOT_FOUND, in the words that Triton's clients know, or INVALID_ARGUMENT for a
// version that is no number.
absl::StatusOr<const Model*> FindModelVersion(const Catalog& catalog, absl::string_view name,
                                              absl::string_view version);

// Reads a ModelInferRequest. Tensors come either raw (raw_input_contents) or typed (contents);
// neither is copied. INVALID_ARGUMENT, NOT_FOUND, UNIMPLEMENTED (shared memory, and the options of
// proto/convert.h that are not served).
absl::Status ReadInfer(const Catalog& catalog, ReceivedBytes message, IncomingCall& incoming);

}  // namespace scanserve

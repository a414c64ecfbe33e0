// absl::Status as gRPC carries it.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace scanserve {

// The same code and the message, cut and cleaned so that it fits into a trailer whatever text of
// the client it quotes. Errors carry a google.rpc.Status in grpc-status-details-bin: ErrorInfo
// always, RetryInfo where the same call may succeed later (UNAVAILABLE, RESOURCE_EXHAUSTED).
grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace scanserve

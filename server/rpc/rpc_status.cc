#include "server/rpc/rpc_status.h"

#include <chrono>
#include <string>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "proto/convert.h"

namespace scanserve {
namespace {

// A trailer has 8 KiB for everything, and the message stands in it twice.
constexpr size_t kMaxMessageBytes = 2048;
constexpr std::chrono::milliseconds kRetryDelay{100};

bool MaySucceedLater(absl::StatusCode code) {
  return code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kResourceExhausted;
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const std::string message = Printable(status.message(), kMaxMessageBytes);
  google::rpc::Status details;
  details.set_code(static_cast<int>(status.code()));
  details.set_message(message);
  google::rpc::ErrorInfo info;
  info.set_reason(absl::StatusCodeToString(status.code()));
  info.set_domain("scanserve");
  details.add_details()->PackFrom(info);
  if (MaySucceedLater(status.code())) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_nanos(
        static_cast<int32_t>(std::chrono::nanoseconds(kRetryDelay).count()));
    details.add_details()->PackFrom(retry);
  }
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), message,
                      details.SerializeAsString());
}

}  // namespace scanserve

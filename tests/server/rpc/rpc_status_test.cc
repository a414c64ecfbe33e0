#include "server/rpc/rpc_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace scanserve {
namespace {

google::rpc::Status DetailsOf(const grpc::Status& status) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  return details;
}

template <typename Detail>
bool Find(const google::rpc::Status& status, Detail* found) {
  for (const auto& any : status.details()) {
    if (any.UnpackTo(found)) return true;
  }
  return false;
}

TEST(RpcStatus, OfSuccessIsOk) {
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).error_details().empty());
}

TEST(RpcStatus, KeepsEveryCode) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "text");
    const grpc::Status rpc = ToGrpcStatus(status);
    EXPECT_EQ(static_cast<int>(rpc.error_code()), code);
    EXPECT_EQ(rpc.error_message(), "text");
  }
}

TEST(RpcStatus, RepeatsItselfInTheDetails) {
  const google::rpc::Status details = DetailsOf(ToGrpcStatus(absl::NotFoundError("no model")));
  EXPECT_EQ(details.code(), 5);
  EXPECT_EQ(details.message(), "no model");
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(Find(details, &info));
  EXPECT_EQ(info.reason(), "NOT_FOUND");
  EXPECT_EQ(info.domain(), "scanserve");
}

TEST(RpcStatus, InvitesToRetryOnlyWhatMaySucceedLater) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "text");
    google::rpc::RetryInfo retry;
    const bool invites = Find(DetailsOf(ToGrpcStatus(status)), &retry);
    EXPECT_EQ(invites, absl::IsUnavailable(status) || absl::IsResourceExhausted(status)) << code;
    EXPECT_EQ(retry.retry_delay().nanos() > 0, invites);
  }
}

TEST(RpcStatus, FitsIntoATrailerWhateverItQuotes) {
  const grpc::Status status =
      ToGrpcStatus(absl::InvalidArgumentError(std::string(1 << 20, '\xff') + "\r\n"));
  // gRPC writes a byte that is not printable as three and base64 adds a third.
  EXPECT_EQ(status.error_message().find_first_not_of("?."), std::string::npos);
  EXPECT_LT(status.error_message().size() + status.error_details().size() * 4 / 3, 6000u);
}

}  // namespace
}  // namespace scanserve

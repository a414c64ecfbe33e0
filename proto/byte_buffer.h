// gRPC messages as raw bytes, without copying payloads.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/payload_split.h"

namespace scanserve {

// A message to send. gRPC refers to the external bytes of `pieces` until it has sent them, and
// keeps `owner` alive until then (it may be released by any thread).
grpc::ByteBuffer ToByteBuffer(absl::Span<const MessagePiece> pieces,
                              const std::shared_ptr<const void>& owner);

// A received message: keeps its slices alive and shows them as spans.
class ReceivedBytes {
 public:
  // INVALID_ARGUMENT when the buffer cannot be read (a compressed message).
  static absl::StatusOr<ReceivedBytes> From(const grpc::ByteBuffer& buffer);

  // Not copied: a short slice holds its bytes itself.
  ReceivedBytes(ReceivedBytes&&) = default;
  ReceivedBytes& operator=(ReceivedBytes&&) = default;

  // Valid as long as this object, wherever it is moved.
  absl::Span<const absl::Span<const char>> spans() const { return spans_; }
  size_t size() const { return size_; }

 private:
  ReceivedBytes() = default;

  std::vector<grpc::Slice> slices_;
  std::vector<absl::Span<const char>> spans_;  // into slices_
  size_t size_ = 0;
};

}  // namespace scanserve

#include "proto/byte_buffer.h"

#include <utility>

#include "absl/status/status.h"

namespace scanserve {

grpc::ByteBuffer ToByteBuffer(absl::Span<const MessagePiece> pieces,
                              const std::shared_ptr<const void>& owner) {
  using Owner = std::shared_ptr<const void>;
  std::vector<grpc::Slice> slices;
  slices.reserve(2 * pieces.size());
  for (const MessagePiece& piece : pieces) {
    if (!piece.own.empty()) slices.emplace_back(piece.own);
    if (piece.external.empty()) continue;
    // gRPC only reads, but its signature wants a mutable pointer.
    slices.emplace_back(
        const_cast<char*>(piece.external.data()), piece.external.size(),
        [](void* kept) { delete static_cast<Owner*>(kept); }, new Owner(owner));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

absl::StatusOr<ReceivedBytes> ReceivedBytes::From(const grpc::ByteBuffer& buffer) {
  ReceivedBytes received;
  if (!buffer.Valid()) return absl::InvalidArgumentError("message: there is none");
  if (const grpc::Status status = buffer.Dump(&received.slices_); !status.ok()) {
    return absl::InvalidArgumentError("message: cannot be read");
  }
  received.spans_.reserve(received.slices_.size());
  for (const grpc::Slice& slice : received.slices_) {
    received.spans_.emplace_back(reinterpret_cast<const char*>(slice.begin()), slice.size());
    received.size_ += slice.size();
  }
  return received;
}

}  // namespace scanserve

// How a tensor call is written in each of the two protocols.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/cpp/client.h"
#include "proto/payload_split.h"

namespace scanserve {

// Stateless; thread-safe.
class Codec {
 public:
  virtual ~Codec() = default;

  // Full name of the rpc, "/package.Service/Method".
  virtual std::string MethodOf(Direction direction) const = 0;

  // The request as pieces that refer to the memory of `inputs`.
  virtual absl::StatusOr<std::vector<MessagePiece>> Encode(absl::string_view op,
                                                           Direction direction,
                                                           absl::Span<const InputTensor> inputs,
                                                           const CallSettings& settings) const = 0;

  // Copies the tensors out of a reply. INTERNAL when the reply does not keep the protocol.
  virtual absl::StatusOr<CallReply> Decode(
      absl::Span<const absl::Span<const char>> reply) const = 0;
};

std::unique_ptr<Codec> MakeKernelCodec();
std::unique_ptr<Codec> MakeOipCodec();

// For both: the bytes of an input, and an output made of a received payload.
absl::Span<const char> BytesOf(const InputTensor& input);
absl::StatusOr<NamedTensor> MakeOutput(std::string name, TensorMeta meta, const Payload& payload);
// A reply that cannot be read is the server's fault, whatever code the reader gave.
absl::Status UnreadableReply(const absl::Status& status);

}  // namespace scanserve

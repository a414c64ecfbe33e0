// Takes large byte fields out of a serialized protobuf message, and puts them back, without copying
// them. No gRPC, no protobuf: what is left over (the header) is parsed by protobuf afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/payload.h"

namespace scanserve {

// Which byte field of a message is large.
struct PayloadField {
  uint32_t field = 0;   // of the message: the bytes themselves, or the submessage that has them
  uint32_t nested = 0;  // of that submessage: the bytes; 0 when `field` itself is the bytes
};

inline constexpr PayloadField kRawInputContents{7};      // inference.ModelInferRequest
inline constexpr PayloadField kRawOutputContents{6};     // inference.ModelInferResponse
inline constexpr PayloadField kRequestTensorData{2, 4};  // scanserve.v1.KernelRequest.inputs.data
inline constexpr PayloadField kResponseTensorData{2,
                                                  4};  // scanserve.v1.KernelResponse.outputs.data

// Bounds of what a header may make protobuf allocate.
struct SplitLimits {
  size_t max_header_bytes = size_t{16} << 20;
  size_t max_fields = 10'000;  // of the message, and of the submessages that are looked into
};

struct SplitMessage {
  // The message with every payload replaced by an empty one at the same place: parsing it gives
  // what parsing the whole message would, less the payload bytes. So a payload that a later member
  // of its oneof replaces, or the other way round, needs no rule of its own here.
  std::string header;
  // Field of the message: one per occurrence, in their order. Nested: one per occurrence of the
  // submessage; when it has the field several times the last counts, as in protobuf, and when it
  // does not have it the payload is empty. Spans into the slices.
  std::vector<Payload> payloads;
};

// Splits the message whose bytes are `slices`, one after the other; field and slice borders are
// independent. Fields may come in any order. Accepts what protobuf accepts, within the limits;
// whatever is not checked here (UTF-8, values of known fields) protobuf checks in the header.
// INVALID_ARGUMENT: not a well-formed message, or beyond the limits.
absl::StatusOr<SplitMessage> SplitPayloads(absl::Span<const absl::Span<const char>> slices,
                                           PayloadField where, const SplitLimits& limits = {});

// One payload to send.
struct OutgoingPayload {
  std::string envelope;          // nested: the serialized submessage without the payload
  absl::Span<const char> bytes;  // owned by the caller
};

// A stretch of a serialized message: bytes of its own, then bytes that the caller owns.
struct MessagePiece {
  std::string own;
  absl::Span<const char> external;
};

// The serialized message made of `header` (the serialized message without the payload field) and
// the payloads, as pieces in order. Also right for empty payloads and for none.
// RESOURCE_EXHAUSTED: the message would be 2 GiB or more, which no gRPC message can be.
absl::StatusOr<std::vector<MessagePiece>> JoinPayloads(std::string header, PayloadField where,
                                                       absl::Span<const OutgoingPayload> payloads);

// Bytes of all pieces together.
size_t TotalSize(absl::Span<const MessagePiece> pieces);

}  // namespace scanserve

#include "proto/payload_split.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"

namespace scanserve {
namespace {

// Wire format of protobuf: a field is a tag (number << 3 | wire type) and a value.
enum WireType : uint32_t {
  kVarint = 0,
  kFixed64 = 1,
  kLengthDelimited = 2,
  kStartGroup = 3,
  kEndGroup = 4,
  kFixed32 = 5,
};
constexpr int kMaxVarintBytes = 10;
constexpr int kMaxTagBytes = 5;
constexpr int kMaxLengthBytes = 5;
constexpr size_t kMaxGroupDepth = 100;  // protobuf's own limit
constexpr size_t kMaxMessageBytes = (size_t{1} << 31) - 1;

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("malformed message: ", what));
}

// Reads through the slices and never past the end: what is missing is an error. Cheap to copy.
class Cursor {
 public:
  explicit Cursor(absl::Span<const absl::Span<const char>> slices) : slices_(slices) {
    for (const absl::Span<const char> slice : slices) remaining_ += slice.size();
  }

  size_t remaining() const { return remaining_; }

  // Reads a varint of at most `max_bytes` and appends its bytes as they came to `raw`.
  absl::StatusOr<uint64_t> ReadVarint(int max_bytes, std::string& raw) {
    uint64_t value = 0;
    for (int i = 0; i < max_bytes; ++i) {
      if (remaining_ == 0) return Malformed("it ends inside a number");
      uint8_t byte = 0;
      Read(1, [&](absl::Span<const char> stretch) { byte = static_cast<uint8_t>(stretch[0]); });
      raw.push_back(static_cast<char>(byte));
      value |= uint64_t{byte & 0x7fu} << (7 * i);
      if (byte < 0x80) return value;
    }
    return Malformed("a number is too long");
  }

  // The next `size` bytes, at most remaining(), go to `take(span)` in one or more stretches.
  template <typename Take>
  void Read(size_t size, Take take) {
    remaining_ -= size;
    while (size > 0) {
      const absl::Span<const char> stretch = slices_.front().subspan(offset_, size);
      if (!stretch.empty()) take(stretch);
      size -= stretch.size();
      offset_ += stretch.size();
      if (offset_ == slices_.front().size()) {
        slices_.remove_prefix(1);
        offset_ = 0;
      }
    }
  }

  // A cursor over the next `size` bytes, at most remaining(); this one moves behind them.
  Cursor Cut(size_t size) {
    Cursor cut = *this;
    cut.remaining_ = size;
    Read(size, [](absl::Span<const char>) {});
    return cut;
  }

 private:
  absl::Span<const absl::Span<const char>> slices_;
  size_t offset_ = 0;  // into the first slice
  size_t remaining_ = 0;
};

struct Tag {
  uint32_t value = 0;
  std::string raw;  // as it came

  uint32_t field() const { return value >> 3; }
  uint32_t wire_type() const { return value & 7; }
};

absl::StatusOr<Tag> ReadTag(Cursor& in) {
  Tag tag;
  SCANSERVE_ASSIGN_OR_RETURN(const uint64_t value, in.ReadVarint(kMaxTagBytes, tag.raw));
  tag.value = static_cast<uint32_t>(value);
  if (tag.field() == 0) return Malformed("field number 0");
  return tag;
}

absl::StatusOr<size_t> ReadLength(Cursor& in, std::string& raw) {
  SCANSERVE_ASSIGN_OR_RETURN(const uint64_t length, in.ReadVarint(kMaxLengthBytes, raw));
  if (length > in.remaining()) return Malformed("a field is longer than what encloses it");
  return static_cast<size_t>(length);
}

void AppendVarint(uint64_t value, std::string& out) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

void AppendTag(uint32_t field, std::string& out) {
  AppendVarint(field << 3 | kLengthDelimited, out);
}

class Splitter {
 public:
  Splitter(PayloadField where, const SplitLimits& limits) : where_(where), limits_(limits) {}

  absl::StatusOr<SplitMessage> Split(Cursor in) {
    SplitMessage message;
    SCANSERVE_RETURN_IF_ERROR(
        Walk(in, where_.field, message.header, [&](const Tag& tag, Cursor value) -> absl::Status {
          Payload& payload = message.payloads.emplace_back();
          message.header += tag.raw;
          if (where_.nested == 0) {
            TakePayload(value, payload, message.header);
            return absl::OkStatus();
          }
          SCANSERVE_ASSIGN_OR_RETURN(const std::string envelope, SplitSubmessage(value, payload));
          AppendVarint(envelope.size(), message.header);
          message.header += envelope;
          return CheckHeaderSize(message.header.size());
        }));
    return message;
  }

 private:
  // Copies the fields of one message to `header`; those that are `field` go to `take`, which gets
  // the tag and a cursor over the value. The same number with another wire type is, as in
  // protobuf, an unknown field.
  template <typename Take>
  absl::Status Walk(Cursor in, uint32_t field, std::string& header, Take take) {
    while (in.remaining() > 0) {
      if (++fields_ > limits_.max_fields) {
        return absl::InvalidArgumentError(
            absl::StrCat("message: it has more than ", limits_.max_fields, " fields"));
      }
      SCANSERVE_ASSIGN_OR_RETURN(Tag tag, ReadTag(in));
      if (tag.field() != field || tag.wire_type() != kLengthDelimited) {
        SCANSERVE_RETURN_IF_ERROR(CopyField(in, std::move(tag), header));
        continue;
      }
      std::string raw_length;
      SCANSERVE_ASSIGN_OR_RETURN(const size_t size, ReadLength(in, raw_length));
      SCANSERVE_RETURN_IF_ERROR(take(tag, in.Cut(size)));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> SplitSubmessage(Cursor in, Payload& payload) {
    std::string envelope;
    SCANSERVE_RETURN_IF_ERROR(
        Walk(in, where_.nested, envelope, [&](const Tag& tag, Cursor value) -> absl::Status {
          payload = Payload();  // the last one counts
          envelope += tag.raw;
          TakePayload(value, payload, envelope);
          return absl::OkStatus();
        }));
    return envelope;
  }

  // The tag stands in `header` already.
  static void TakePayload(Cursor value, Payload& payload, std::string& header) {
    value.Read(value.remaining(), [&](absl::Span<const char> piece) { payload.Append(piece); });
    AppendVarint(0, header);
  }

  // Copies the value that follows `tag`, with the tag; a group up to its end.
  absl::Status CopyField(Cursor& in, Tag tag, std::string& out) {
    std::vector<uint32_t> open_groups;
    while (true) {
      out += tag.raw;
      SCANSERVE_RETURN_IF_ERROR(CopyValue(in, tag, open_groups, out));
      SCANSERVE_RETURN_IF_ERROR(CheckHeaderSize(out.size()));
      if (open_groups.empty()) return absl::OkStatus();
      SCANSERVE_ASSIGN_OR_RETURN(tag, ReadTag(in));
    }
  }

  absl::Status CopyValue(Cursor& in, const Tag& tag, std::vector<uint32_t>& open_groups,
                         std::string& out) const {
    switch (tag.wire_type()) {
      case kVarint:
        return in.ReadVarint(kMaxVarintBytes, out).status();
      case kFixed64:
        return CopyBytes(in, 8, out);
      case kFixed32:
        return CopyBytes(in, 4, out);
      case kLengthDelimited: {
        SCANSERVE_ASSIGN_OR_RETURN(const size_t size, ReadLength(in, out));
        return CopyBytes(in, size, out);
      }
      case kStartGroup:
        if (open_groups.size() == kMaxGroupDepth) return Malformed("groups are nested too deeply");
        open_groups.push_back(tag.field());
        return absl::OkStatus();
      case kEndGroup:
        if (open_groups.empty() || open_groups.back() != tag.field()) {
          return Malformed("a group ends that was not open");
        }
        open_groups.pop_back();
        return absl::OkStatus();
      default:
        return Malformed("unknown wire type");
    }
  }

  absl::Status CopyBytes(Cursor& in, size_t size, std::string& out) const {
    if (size > in.remaining()) return Malformed("it ends inside a field");
    SCANSERVE_RETURN_IF_ERROR(CheckHeaderSize(out.size() + size));
    in.Read(size, [&](absl::Span<const char> piece) { out.append(piece.data(), piece.size()); });
    return absl::OkStatus();
  }

  absl::Status CheckHeaderSize(size_t size) const {
    if (size <= limits_.max_header_bytes) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("message: what is not raw tensor bytes takes more than ",
                     limits_.max_header_bytes, " bytes"));
  }

  const PayloadField where_;
  const SplitLimits limits_;
  size_t fields_ = 0;
};

}  // namespace

absl::StatusOr<SplitMessage> SplitPayloads(absl::Span<const absl::Span<const char>> slices,
                                           PayloadField where, const SplitLimits& limits) {
  return Splitter(where, limits).Split(Cursor(slices));
}

absl::StatusOr<std::vector<MessagePiece>> JoinPayloads(std::string header, PayloadField where,
                                                       absl::Span<const OutgoingPayload> payloads) {
  std::vector<MessagePiece> pieces(1);
  pieces.front().own = std::move(header);
  for (const OutgoingPayload& payload : payloads) {
    std::string& own =
        pieces.back().external.empty() ? pieces.back().own : pieces.emplace_back().own;
    AppendTag(where.field, own);
    if (where.nested != 0) {
      std::string inner = payload.envelope;
      AppendTag(where.nested, inner);
      AppendVarint(payload.bytes.size(), inner);
      AppendVarint(inner.size() + payload.bytes.size(), own);
      own += inner;
    } else {
      AppendVarint(payload.bytes.size(), own);
    }
    pieces.back().external = payload.bytes;
  }
  if (TotalSize(pieces) > kMaxMessageBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("message: ", TotalSize(pieces),
                                                     " bytes; a message has at most ",
                                                     kMaxMessageBytes, " bytes"));
  }
  return pieces;
}

size_t TotalSize(absl::Span<const MessagePiece> pieces) {
  size_t size = 0;
  for (const MessagePiece& piece : pieces) size += piece.own.size() + piece.external.size();
  return size;
}

}  // namespace scanserve

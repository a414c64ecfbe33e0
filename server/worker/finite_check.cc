#include "server/worker/finite_check.h"

#include <algorithm>
#include <cstring>

namespace scanserve {
namespace {

// A floating-point number is finite unless its exponent is all ones.
template <typename Bits>
class Scanner {
 public:
  explicit Scanner(Bits exponent) : exponent_(exponent) {}

  std::optional<int64_t> Scan(const Payload& payload) {
    for (const absl::Span<const char> piece : payload.pieces) {
      if (ScanPiece(piece)) return FirstIn(found_);
    }
    return std::nullopt;
  }

 private:
  static constexpr size_t kBlock = 4096;  // elements between two looks at the result

  bool IsFinite(const char* at) const {
    Bits bits;
    std::memcpy(&bits, at, sizeof(bits));
    return (bits & exponent_) != exponent_;
  }

  // True when the piece, with what the last one left over, has such an element: found_ is then
  // where to look for it.
  bool ScanPiece(absl::Span<const char> piece) {
    if (carried_ > 0) {
      const size_t missing = std::min(sizeof(Bits) - carried_, piece.size());
      std::memcpy(carry_ + carried_, piece.data(), missing);
      carried_ += missing;
      piece.remove_prefix(missing);
      if (carried_ < sizeof(Bits)) return false;
      carried_ = 0;
      if (!IsFinite(carry_)) {
        found_ = {carry_, sizeof(Bits)};
        return true;
      }
      ++index_;
    }
    while (piece.size() >= sizeof(Bits)) {
      const size_t count = std::min(kBlock, piece.size() / sizeof(Bits));
      const absl::Span<const char> block = piece.subspan(0, count * sizeof(Bits));
      if (!IsBlockFinite(block)) {
        found_ = block;
        return true;
      }
      index_ += static_cast<int64_t>(count);
      piece.remove_prefix(block.size());
    }
    std::memcpy(carry_, piece.data(), piece.size());
    carried_ = piece.size();
    return false;
  }

  // Without an early exit, so that the loop is vectorised.
  bool IsBlockFinite(absl::Span<const char> block) const {
    Bits bad = 0;
    for (size_t i = 0; i < block.size(); i += sizeof(Bits)) {
      bad |= static_cast<Bits>(IsFinite(block.data() + i) ? 0 : 1);
    }
    return bad == 0;
  }

  int64_t FirstIn(absl::Span<const char> block) const {
    int64_t index = index_;
    for (const char* at = block.data(); IsFinite(at); at += sizeof(Bits)) ++index;
    return index;
  }

  const Bits exponent_;
  int64_t index_ = 0;  // elements known to be finite
  char carry_[sizeof(Bits)] = {};
  size_t carried_ = 0;
  absl::Span<const char> found_;
};

}  // namespace

std::optional<int64_t> FindNonFinite(const Payload& payload, DType dtype) {
  switch (dtype) {
    case DType::kFP64:
      return Scanner<uint64_t>(0x7ff0000000000000u).Scan(payload);
    case DType::kFP32:
      return Scanner<uint32_t>(0x7f800000u).Scan(payload);
    case DType::kFP16:
      return Scanner<uint16_t>(0x7c00u).Scan(payload);
    case DType::kBF16:
      return Scanner<uint16_t>(0x7f80u).Scan(payload);
    case DType::kINT64:
    case DType::kINT32:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace scanserve

// Bytes of one tensor as they arrived: possibly in many pieces, never copied until they are placed.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include "absl/types/span.h"

namespace scanserve {

// Does not own the pieces; whoever hands a Payload on keeps their memory alive.
struct Payload {
  std::vector<absl::Span<const char>> pieces;
  size_t size = 0;  // sum of the pieces

  void Append(absl::Span<const char> piece) {
    if (piece.empty()) return;
    pieces.push_back(piece);
    size += piece.size();
  }

  // `destination` has room for `size` bytes.
  void CopyTo(void* destination) const {
    auto* out = static_cast<char*>(destination);
    for (const absl::Span<const char> piece : pieces) {
      std::memcpy(out, piece.data(), piece.size());
      out += piece.size();
    }
  }
};

}  // namespace scanserve

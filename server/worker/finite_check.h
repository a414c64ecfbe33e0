// Looks for NaN and infinity in a tensor that arrived in pieces.
#pragma once

#include <cstdint>
#include <optional>

#include "common/payload.h"
#include "kernels/spec/dtype.h"

namespace scanserve {

// Index of the first element of `payload` that is not finite. Pieces may end inside an element.
// Integers are always finite.
std::optional<int64_t> FindNonFinite(const Payload& payload, DType dtype);

}  // namespace scanserve

// Element types of tensors.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace scanserve {

enum class DType : uint8_t { kFP64, kFP32, kFP16, kBF16, kINT64, kINT32 };

inline constexpr DType kAllDTypes[] = {DType::kFP64, DType::kFP32,  DType::kFP16,
                                       DType::kBF16, DType::kINT64, DType::kINT32};

// Bytes of one element.
size_t SizeOf(DType dtype);

// The name on the wire: "FP32", "BF16", "INT64" ...
absl::string_view NameOf(DType dtype);

// Reads the wire name in any case, and the names that PyTorch and JAX users type ("float32").
// INVALID_ARGUMENT for anything else.
absl::StatusOr<DType> ParseDType(absl::string_view name);

// True for FP64, FP32, FP16 and BF16.
bool IsFloat(DType dtype);

}  // namespace scanserve

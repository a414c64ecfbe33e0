// Tensors in `.safetensors` files: an 8-byte little-endian header length, a JSON header that names
// every tensor with dtype, shape and byte range, then the bytes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/spec/tensor.h"

namespace scanserve {

struct TensorFile {
  std::map<std::string, std::string> metadata;
  std::vector<NamedTensor> tensors;  // sorted by name

  // Null when the file has no such tensor.
  const Tensor* Find(absl::string_view name) const;
};

// Reads dtypes F64 F32 F16 BF16 I64 I32. NOT_FOUND when the file cannot be opened,
// INVALID_ARGUMENT naming what is wrong with it when its header is malformed, when byte ranges
// overlap, leave gaps or do not fit the shapes, or when a dtype is another one. Nothing is sized
// before the file is known to hold that many bytes.
absl::StatusOr<TensorFile> ReadSafetensors(const std::string& path);

// Writes the same bytes for the same tensors in any order: larger elements first, then by name, so
// that every tensor is aligned. INVALID_ARGUMENT for a name that occurs twice, is "__metadata__" or
// is not UTF-8; UNAVAILABLE when the file cannot be written.
absl::Status WriteSafetensors(const std::string& path,
                              const std::map<std::string, std::string>& metadata,
                              absl::Span<const NamedTensor> tensors);

}  // namespace scanserve

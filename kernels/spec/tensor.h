// Shapes, views of memory as tensors, and tensors that own host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/spec/dtype.h"

namespace scanserve {

// Sizes from the outermost to the innermost dimension; row-major.
using Shape = absl::InlinedVector<int64_t, 5>;

// "[2,128,64]"
std::string ToString(absl::Span<const int64_t> shape);

// The largest rank and the largest size of one dimension that any tensor may have.
inline constexpr int kMaxRank = 8;
inline constexpr int64_t kMaxDim = int64_t{1} << 40;

// Number of elements times `element_size`. INVALID_ARGUMENT, saying why, when the rank is above
// kMaxRank, a dimension is negative or above kMaxDim, or the product does not fit in 63 bits.
absl::StatusOr<int64_t> CheckedByteSize(absl::Span<const int64_t> shape, size_t element_size);

// Product of the dimensions of a shape that CheckedByteSize accepts.
int64_t NumElements(absl::Span<const int64_t> shape);

struct TensorMeta {
  DType dtype = DType::kFP32;
  Shape shape;

  int64_t ByteSize() const;
  friend bool operator==(const TensorMeta& a, const TensorMeta& b) {
    return a.dtype == b.dtype && a.shape == b.shape;
  }
};

// Contiguous row-major memory that somebody else owns. `data` may be null where only the shape is
// known yet.
struct TensorView {
  TensorMeta meta;
  void* data = nullptr;

  template <typename T>
  T* As() const {
    return static_cast<T*>(data);
  }
};

// Owns 64-byte aligned host memory. Move-only; Clone() copies.
class Tensor {
 public:
  Tensor() = default;
  // The elements are uninitialised. The meta's size must be one that CheckedByteSize accepts.
  // Throws std::bad_alloc where there is no memory; Allocate is for sizes that others choose.
  explicit Tensor(TensorMeta meta);
  Tensor(DType dtype, Shape shape) : Tensor(TensorMeta{dtype, std::move(shape)}) {}
  Tensor(Tensor&&) noexcept = default;
  Tensor& operator=(Tensor&&) noexcept = default;

  // Uninitialised elements. INVALID_ARGUMENT as CheckedByteSize, RESOURCE_EXHAUSTED when there is
  // no memory.
  static absl::StatusOr<Tensor> Allocate(TensorMeta meta);

  // Copies `values`, converting each to `dtype`. Their number must be the shape's.
  static Tensor FromDoubles(DType dtype, Shape shape, absl::Span<const double> values);
  static Tensor FromInts(DType dtype, Shape shape, absl::Span<const int64_t> values);

  // Sets the elements from index `begin` on, converting each.
  void SetDoubles(int64_t begin, absl::Span<const double> values);

  const TensorMeta& meta() const { return meta_; }
  DType dtype() const { return meta_.dtype; }
  const Shape& shape() const { return meta_.shape; }
  int64_t num_elements() const { return NumElements(meta_.shape); }
  int64_t byte_size() const { return meta_.ByteSize(); }
  void* data() const { return data_.get(); }
  TensorView view() const { return {meta_, data_.get()}; }

  template <typename T>
  absl::Span<T> span() const {
    return {static_cast<T*>(data_.get()), static_cast<size_t>(num_elements())};
  }

  // Every element as a double; INT64 beyond 2^53 rounds.
  std::vector<double> ToDoubles() const;
  Tensor Clone() const;
  // The same values in another dtype, rounded to nearest even.
  Tensor Cast(DType dtype) const;

 private:
  struct Free {
    void operator()(void* p) const;
  };
  TensorMeta meta_;
  std::unique_ptr<void, Free> data_;
};

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

}  // namespace scanserve

#include "kernels/spec/tensor.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/host_memory.h"
#include "kernels/spec/half.h"

namespace scanserve {
namespace {

double Load(DType dtype, const void* data, int64_t i) {
  switch (dtype) {
    case DType::kFP64:
      return static_cast<const double*>(data)[i];
    case DType::kFP32:
      return static_cast<const float*>(data)[i];
    case DType::kFP16:
      return Float16ToFloat(static_cast<const uint16_t*>(data)[i]);
    case DType::kBF16:
      return BFloat16ToFloat(static_cast<const uint16_t*>(data)[i]);
    case DType::kINT64:
      return static_cast<double>(static_cast<const int64_t*>(data)[i]);
    case DType::kINT32:
      return static_cast<const int32_t*>(data)[i];
  }
  std::abort();
}

void Store(DType dtype, void* data, int64_t i, double value) {
  switch (dtype) {
    case DType::kFP64:
      static_cast<double*>(data)[i] = value;
      return;
    case DType::kFP32:
      static_cast<float*>(data)[i] = static_cast<float>(value);
      return;
    case DType::kFP16:
      static_cast<uint16_t*>(data)[i] = FloatToFloat16(static_cast<float>(value));
      return;
    case DType::kBF16:
      static_cast<uint16_t*>(data)[i] = FloatToBFloat16(static_cast<float>(value));
      return;
    case DType::kINT64:
      static_cast<int64_t*>(data)[i] = static_cast<int64_t>(value);
      return;
    case DType::kINT32:
      static_cast<int32_t*>(data)[i] = static_cast<int32_t>(value);
      return;
  }
}

}  // namespace

std::string ToString(absl::Span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ","), "]");
}

absl::StatusOr<int64_t> CheckedByteSize(absl::Span<const int64_t> shape, size_t element_size) {
  if (shape.size() > kMaxRank) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank is ", shape.size(), ", at most ", kMaxRank, " is allowed"));
  }
  auto bytes = static_cast<int64_t>(element_size);
  for (const int64_t dim : shape) {
    if (dim < 0 || dim > kMaxDim) {
      return absl::InvalidArgumentError(
          absl::StrCat("a dimension is ", dim, ", expected 0 to ", kMaxDim));
    }
    if (__builtin_mul_overflow(bytes, dim, &bytes)) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape ", ToString(shape), " has more bytes than can be addressed"));
    }
  }
  return bytes;
}

int64_t NumElements(absl::Span<const int64_t> shape) {
  int64_t n = 1;
  for (const int64_t dim : shape) n *= dim;
  return n;
}

int64_t TensorMeta::ByteSize() const {
  return NumElements(shape) * static_cast<int64_t>(SizeOf(dtype));
}

void Tensor::Free::operator()(void* p) const { std::free(p); }

Tensor::Tensor(TensorMeta meta) : meta_(std::move(meta)) {
  void* p = AllocateHost(static_cast<size_t>(meta_.ByteSize()));
  if (p == nullptr) throw std::bad_alloc();
  data_.reset(p);
}

absl::StatusOr<Tensor> Tensor::Allocate(TensorMeta meta) {
  const absl::StatusOr<int64_t> bytes = CheckedByteSize(meta.shape, SizeOf(meta.dtype));
  if (!bytes.ok()) return bytes.status();
  Tensor tensor;
  tensor.data_.reset(AllocateHost(static_cast<size_t>(*bytes)));
  if (tensor.data_ == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for a tensor of ", *bytes, " bytes"));
  }
  tensor.meta_ = std::move(meta);
  return tensor;
}

Tensor Tensor::FromDoubles(DType dtype, Shape shape, absl::Span<const double> values) {
  Tensor tensor(dtype, std::move(shape));
  tensor.SetDoubles(0, values);
  return tensor;
}

void Tensor::SetDoubles(int64_t begin, absl::Span<const double> values) {
  for (const double value : values) Store(dtype(), data(), begin++, value);
}

Tensor Tensor::FromInts(DType dtype, Shape shape, absl::Span<const int64_t> values) {
  Tensor tensor(dtype, std::move(shape));
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    Store(dtype, tensor.data(), i, static_cast<double>(values[i]));
  }
  return tensor;
}

std::vector<double> Tensor::ToDoubles() const {
  std::vector<double> values(num_elements());
  for (int64_t i = 0; i < num_elements(); ++i) values[i] = Load(dtype(), data(), i);
  return values;
}

Tensor Tensor::Clone() const {
  Tensor copy(meta_);
  std::memcpy(copy.data(), data(), byte_size());
  return copy;
}

Tensor Tensor::Cast(DType dtype) const {
  Tensor result(dtype, shape());
  for (int64_t i = 0; i < num_elements(); ++i) {
    Store(dtype, result.data(), i, Load(meta_.dtype, data(), i));
  }
  return result;
}

}  // namespace scanserve

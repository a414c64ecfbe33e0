#include "kernels/spec/dtype.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace scanserve {
namespace {

struct DTypeRow {
  DType dtype;
  size_t size;
  absl::string_view name;
  absl::string_view alias;
  bool is_float;
};

constexpr DTypeRow kRows[] = {
    {DType::kFP64, 8, "FP64", "FLOAT64", true}, {DType::kFP32, 4, "FP32", "FLOAT32", true},
    {DType::kFP16, 2, "FP16", "FLOAT16", true}, {DType::kBF16, 2, "BF16", "BFLOAT16", true},
    {DType::kINT64, 8, "INT64", "I64", false},  {DType::kINT32, 4, "INT32", "I32", false},
};

const DTypeRow& Row(DType dtype) { return kRows[static_cast<size_t>(dtype)]; }

}  // namespace

size_t SizeOf(DType dtype) { return Row(dtype).size; }
absl::string_view NameOf(DType dtype) { return Row(dtype).name; }
bool IsFloat(DType dtype) { return Row(dtype).is_float; }

absl::StatusOr<DType> ParseDType(absl::string_view name) {
  const std::string upper = absl::AsciiStrToUpper(name);
  for (const DTypeRow& row : kRows) {
    if (upper == row.name || upper == row.alias) return row.dtype;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("datatype '", name.substr(0, 32),
                   "' is not known, expected FP64, FP32, FP16, BF16, INT64 or INT32"));
}

}  // namespace scanserve

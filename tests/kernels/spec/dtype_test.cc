#include "kernels/spec/dtype.h"

#include <gtest/gtest.h>

namespace scanserve {
namespace {

TEST(DTypeTest, EveryNameParsesBackToItsDType) {
  for (const DType dtype : kAllDTypes) {
    const absl::StatusOr<DType> parsed = ParseDType(NameOf(dtype));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, dtype);
  }
}

TEST(DTypeTest, NamesOfTheFrameworksAreUnderstood) {
  EXPECT_EQ(ParseDType("float32").value(), DType::kFP32);
  EXPECT_EQ(ParseDType("bfloat16").value(), DType::kBF16);
  EXPECT_EQ(ParseDType("fp64").value(), DType::kFP64);
}

TEST(DTypeTest, AnUnknownNameIsRefusedByName) {
  const absl::Status status = ParseDType("FP8").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("FP8"), absl::string_view::npos);
}

TEST(DTypeTest, SizesAreThoseOfTheWire) {
  EXPECT_EQ(SizeOf(DType::kFP64), 8u);
  EXPECT_EQ(SizeOf(DType::kFP32), 4u);
  EXPECT_EQ(SizeOf(DType::kFP16), 2u);
  EXPECT_EQ(SizeOf(DType::kBF16), 2u);
  EXPECT_EQ(SizeOf(DType::kINT64), 8u);
  EXPECT_EQ(SizeOf(DType::kINT32), 4u);
  EXPECT_TRUE(IsFloat(DType::kBF16));
  EXPECT_FALSE(IsFloat(DType::kINT32));
}

}  // namespace
}  // namespace scanserve

#include "kernels/spec/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/spec/half.h"

namespace scanserve {
namespace {

TEST(CheckedByteSizeTest, MultipliesDimensionsAndElementSize) {
  EXPECT_EQ(CheckedByteSize({2, 3, 5}, 4).value(), 120);
  EXPECT_EQ(CheckedByteSize({}, 8).value(), 8);
  EXPECT_EQ(CheckedByteSize({7, 0}, 4).value(), 0);
}

TEST(CheckedByteSizeTest, RefusesWhatCannotBeAddressed) {
  const int64_t huge = int64_t{1} << 32;
  EXPECT_FALSE(CheckedByteSize({huge, huge}, 4).ok());
  EXPECT_FALSE(CheckedByteSize({int64_t{1} << 40, int64_t{1} << 21}, 4).ok());
  EXPECT_TRUE(CheckedByteSize({int64_t{1} << 40, int64_t{1} << 20}, 4).ok());
  EXPECT_FALSE(CheckedByteSize({-1}, 4).ok());
  EXPECT_FALSE(CheckedByteSize({std::numeric_limits<int64_t>::min()}, 4).ok());
  EXPECT_FALSE(CheckedByteSize({std::numeric_limits<int64_t>::max()}, 4).ok());
  EXPECT_FALSE(CheckedByteSize(std::vector<int64_t>(9, 1), 4).ok());
}

TEST(HalfTest, EveryBFloat16AndFloat16SurvivesARoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float brain = BFloat16ToFloat(half);
    if (!std::isnan(brain)) {
      EXPECT_EQ(FloatToBFloat16(brain), half);
    }
    const float value = Float16ToFloat(half);
    if (!std::isnan(value)) {
      EXPECT_EQ(FloatToFloat16(value), half);
    }
    EXPECT_EQ(std::isnan(value), std::isnan(Float16ToFloat(FloatToFloat16(value))));
  }
}

TEST(HalfTest, RoundsToNearestEven) {
  EXPECT_EQ(FloatToBFloat16(1.0f + 0x1p-8f), FloatToBFloat16(1.0f));
  EXPECT_EQ(FloatToBFloat16(1.0f + 3 * 0x1p-8f), FloatToBFloat16(1.0f + 4 * 0x1p-8f));
  EXPECT_EQ(FloatToFloat16(1.0f + 0x1p-11f), FloatToFloat16(1.0f));
  EXPECT_EQ(FloatToFloat16(1.0f + 3 * 0x1p-11f), FloatToFloat16(1.0f + 4 * 0x1p-11f));
  EXPECT_EQ(FloatToFloat16(65519.0f), 0x7bff);
  EXPECT_EQ(FloatToFloat16(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToFloat16(0x1p-25f), 0);
  EXPECT_EQ(FloatToFloat16(0x1.8p-25f), 1);
}

TEST(TensorTest, CastAndCloneKeepValues) {
  const Tensor tensor = Tensor::FromDoubles(DType::kFP64, {2, 2}, {0.5, -1, 2, 1e300});
  EXPECT_EQ(tensor.Clone().ToDoubles(), tensor.ToDoubles());
  const Tensor narrow = tensor.Cast(DType::kBF16);
  EXPECT_EQ(narrow.byte_size(), 8);
  EXPECT_EQ(narrow.ToDoubles()[1], -1);
  EXPECT_TRUE(std::isinf(narrow.ToDoubles()[3]));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(narrow.data()) % 64, 0u);
}

}  // namespace
}  // namespace scanserve

#include "server/worker/finite_check.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace scanserve {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Cuts memory into pieces of `piece` bytes.
template <typename T>
Payload Cut(const std::vector<T>& values, size_t piece) {
  Payload payload;
  absl::Span<const char> rest(reinterpret_cast<const char*>(values.data()),
                              values.size() * sizeof(T));
  while (!rest.empty()) {
    payload.Append(rest.subspan(0, piece));
    rest.remove_prefix(std::min(piece, rest.size()));
  }
  return payload;
}

TEST(FiniteCheckTest, FindsTheFirstWhereverThePiecesAreCut) {
  for (const size_t bad : {0, 1, 7, 499, 9998, 9999}) {
    for (const size_t piece : {1, 3, 4, 5, 64, 4097, 100000}) {
      std::vector<float> values(10000, 1.5f);
      values[bad] = static_cast<float>(kNan);
      values[9999] = static_cast<float>(-kInf);
      EXPECT_EQ(FindNonFinite(Cut(values, piece), DType::kFP32), static_cast<int64_t>(bad))
          << "pieces of " << piece;
    }
  }
}

TEST(FiniteCheckTest, TakesTheLargestAndTheSmallestNumbersForFinite) {
  const std::vector<float> values = {std::numeric_limits<float>::max(),
                                     std::numeric_limits<float>::lowest(),
                                     std::numeric_limits<float>::denorm_min(), -0.0f};
  EXPECT_EQ(FindNonFinite(Cut(values, 3), DType::kFP32), std::nullopt);
}

TEST(FiniteCheckTest, KnowsEveryFloatingPointType) {
  EXPECT_EQ(FindNonFinite(Cut(std::vector<double>{1, kInf}, 5), DType::kFP64), 1);
  EXPECT_EQ(FindNonFinite(Cut(std::vector<uint16_t>{0x7bff, 0xfc00}, 1), DType::kFP16), 1);
  EXPECT_EQ(FindNonFinite(Cut(std::vector<uint16_t>{0x7f7f, 0x7c00, 0x7fc1}, 1), DType::kBF16), 2);
}

TEST(FiniteCheckTest, EveryIntegerIsFinite) {
  EXPECT_EQ(FindNonFinite(Cut(std::vector<int32_t>{-1, 0x7f800000}, 4), DType::kINT32),
            std::nullopt);
}

TEST(FiniteCheckTest, NothingIsFinite) {
  EXPECT_EQ(FindNonFinite(Payload(), DType::kFP32), std::nullopt);
}

}  // namespace
}  // namespace scanserve

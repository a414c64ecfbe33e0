// The vector functions against double precision, on every instruction set of this machine.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

// Before foreach_target.h.
#include "kernels/common/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/kernels/common/vector_math_test.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/common/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace scanserve {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// values[i] = f(values[i]), four at a time.
void Apply(int function, float* values, size_t size) {
  const hn::CappedTag<float, 4> d;
  for (size_t i = 0; i + hn::Lanes(d) <= size; i += hn::Lanes(d)) {
    auto x = hn::LoadU(d, values + i);
    if (function == 0) x = vector_math::Exp2(d, vector_math::Canonical(d, x));
    if (function == 1) x = vector_math::ExpNonPositive(d, x);
    if (function == 2) x = vector_math::Softplus(d, x);
    if (function == 3) x = vector_math::Sigmoid(d, x);
    hn::StoreU(x, d, values + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace scanserve
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace scanserve {
namespace {

HWY_EXPORT(Apply);

enum Function { kExp2, kExpNonPositive, kSoftplus, kSigmoid };

std::vector<float> Of(Function function, std::vector<float> values) {
  const size_t size = values.size();
  values.resize((size + 3) / 4 * 4);
  HWY_DYNAMIC_DISPATCH(Apply)(function, values.data(), values.size());
  values.resize(size);
  return values;
}

std::vector<float> Range(double from, double to, int count) {
  std::vector<float> values;
  for (int i = 0; i <= count; ++i) {
    values.push_back(static_cast<float>(from + (to - from) * i / count));
  }
  return values;
}

template <class F>
double LargestRelativeError(Function function, const std::vector<float>& at, const F& want) {
  const std::vector<float> got = Of(function, at);
  double largest = 0;
  for (size_t i = 0; i < at.size(); ++i) {
    const double expected = want(static_cast<double>(at[i]));
    largest = std::max(largest, std::abs(got[i] - expected) / std::abs(expected));
  }
  return largest;
}

template <class F>
void OnEveryTarget(const F& f) {
  for (int bit = 0; bit < 63; ++bit) {
    const int64_t target = int64_t{1} << bit;
    if ((hwy::SupportedTargets() & target) == 0) continue;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    f();
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
}

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(VectorMath, Exp2IsAccurateOverItsWholeRange) {
  OnEveryTarget([] {
    const auto exp2 = [](double x) { return std::exp2(x); };
    EXPECT_LE(LargestRelativeError(kExp2, Range(-126, 127.99, 200'000), exp2), 2e-7);
    EXPECT_LE(LargestRelativeError(kExp2, Range(-1, 1, 200'000), exp2), 2e-7);
  });
}

TEST(VectorMath, Exp2IsOneAtZeroAndUnbiasedBesideIt) {
  OnEveryTarget([] {
    EXPECT_EQ(Of(kExp2, {0.0f, -0.0f}), (std::vector<float>{1, 1}));
    double sum = 0;
    const std::vector<float> at = Range(-2e-3, -1e-3, 100'000);
    const std::vector<float> got = Of(kExp2, at);
    for (size_t i = 0; i < at.size(); ++i) sum += got[i] - std::exp2(static_cast<double>(at[i]));
    EXPECT_LE(std::abs(sum) / static_cast<double>(at.size()), 1e-9);
  });
}

TEST(VectorMath, Exp2IsZeroBelowAndInfiniteAbove) {
  OnEveryTarget([] {
    const std::vector<float> got =
        Of(kExp2, {-127, -127.4f, -150, -1e30f, -kInf, 128, 129, 1e30f, kInf});
    EXPECT_EQ(got, (std::vector<float>{0, 0, 0, 0, 0, kInf, kInf, kInf, kInf}));
    for (const float x : Of(kExp2, Range(-127, -126, 1000))) EXPECT_LE(std::abs(x), 0x1p-125f);
  });
}

TEST(VectorMath, NaNPassesThroughEveryFunction) {
  OnEveryTarget([] {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const Function function : {kExp2, kExpNonPositive, kSoftplus, kSigmoid}) {
      for (const float x : Of(function, {nan, -nan, std::nanf("0x1235")})) {
        EXPECT_TRUE(std::isnan(x)) << function;
      }
    }
  });
}

TEST(VectorMath, ExpSoftplusAndSigmoidKeepRelativeAccuracyAtBothEnds) {
  OnEveryTarget([] {
    const std::vector<float> below = Range(-86, 0, 200'000);
    const std::vector<float> above = Range(0, 90, 200'000);
    const auto exp = [](double x) { return std::exp(x); };
    const auto softplus = [](double x) { return std::log1p(std::exp(x)); };
    const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
    EXPECT_LE(LargestRelativeError(kExpNonPositive, below, exp), 3e-7);
    EXPECT_LE(LargestRelativeError(kSoftplus, below, softplus), 4e-7);
    EXPECT_LE(LargestRelativeError(kSoftplus, above, softplus), 4e-7);
    EXPECT_LE(LargestRelativeError(kSigmoid, below, sigmoid), 4e-7);
    EXPECT_LE(LargestRelativeError(kSigmoid, above, sigmoid), 4e-7);
    EXPECT_EQ(Of(kSoftplus, {20, 1e30f, kInf, -1e30f, -kInf}),
              (std::vector<float>{20, 1e30f, kInf, 0, 0}));
    EXPECT_EQ(Of(kSigmoid, {1e30f, kInf, -1e30f, -kInf}), (std::vector<float>{1, 1, 0, 0}));
  });
}

}  // namespace
}  // namespace scanserve
#endif  // HWY_ONCE

#include "client/demo/metrics_page.h"

#include <gtest/gtest.h>

namespace scanserve::demo {
namespace {

constexpr char kPage[] = R"(# HELP h Help with h_bucket{model="a",le="0.1"} 99
# TYPE h histogram
h_count{model="a"} 10
h_sum{model="a"} 3
h_bucket{model="a",le="0.1"} 2
h_bucket{model="a",le="0.5"} 6
h_bucket{model="a",le="1"} 8
h_bucket{model="a",le="+Inf"} 10
h_bucket{model="ab",le="0.1"} 1000
h_bucket{model="b",le="+Inf"} 0
)";

double Quantile(double quantile) {
  const auto value = HistogramQuantile(kPage, "h", "model=\"a\"", quantile);
  EXPECT_TRUE(value.ok()) << value.status();
  return value.ok() ? *value : -1;
}

TEST(HistogramQuantileTest, IsLinearWithinItsBucket) {
  EXPECT_DOUBLE_EQ(Quantile(0.5), 0.1 + 0.75 * 0.4);
  EXPECT_DOUBLE_EQ(Quantile(0.1), 0.05);
  EXPECT_DOUBLE_EQ(Quantile(0.6), 0.5);
}

TEST(HistogramQuantileTest, BeyondTheLastBoundItIsThatBound) {
  EXPECT_DOUBLE_EQ(Quantile(0.99), 1);
}

TEST(HistogramQuantileTest, AMissingOrEmptyHistogramIsNotFound) {
  for (const char* label : {"model=\"b\"", "model=\"c\""}) {
    EXPECT_EQ(HistogramQuantile(kPage, "h", label, 0.5).status().code(),
              absl::StatusCode::kNotFound);
  }
  EXPECT_EQ(HistogramQuantile(kPage, "g", "model=\"a\"", 0.5).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(FetchMetricsTest, NobodyThereIsUnavailable) {
  EXPECT_EQ(FetchMetrics("127.0.0.1:1").status().code(), absl::StatusCode::kUnavailable);
}

TEST(FetchMetricsTest, AnAddressWithoutAPortIsInvalid) {
  EXPECT_EQ(FetchMetrics("127.0.0.1").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace scanserve::demo

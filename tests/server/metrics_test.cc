#include "server/metrics/metrics.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/metrics/metric_table.h"
#include "tests/server/server_fixture.h"

namespace scanserve {
namespace {

using ::testing::HasSubstr;

Metrics::Sample FixedSample() {
  Metrics::Sample sample;
  sample.pool = {.budget_bytes = 1000,
                 .used_bytes = 300,
                 .reserved_bytes = 500,
                 .peak_used_bytes = 400,
                 .allocation_failures = 2};
  sample.admitted_bytes = 77;
  sample.ready = true;
  return sample;
}

class MetricsTest : public ::testing::Test {
 protected:
  double Series(const std::string& name) {
    return SeriesValue(metrics_.Serialize(), name).value_or(-1);
  }
  const Model* model() const { return *Catalog::Default().FindModel("selective_scan_bwd"); }

  Metrics metrics_{Catalog::Default(), "cpu", FixedSample};
};

TEST(MetricTableTest, RowsStandInTheOrderOfTheirIds) {
  for (size_t i = 0; i < MetricTable().size(); ++i) {
    EXPECT_EQ(static_cast<size_t>(MetricTable()[i].id), i) << MetricTable()[i].name;
  }
}

TEST(MetricTableTest, NamesAreUniqueValidAndPrefixed) {
  std::set<std::string> names;
  for (const MetricRow& row : MetricTable()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name << " is there twice";
    EXPECT_TRUE(absl::StartsWith(row.name, "scanserve_") || absl::StartsWith(row.name, "process_"))
        << row.name;
    EXPECT_TRUE(std::all_of(row.name.begin(), row.name.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    })) << row.name;
    EXPECT_TRUE(absl::EndsWith(row.help, ".")) << row.name;
    for (const std::string& label : row.labels) {
      EXPECT_TRUE(label != "le" && !label.empty() && islower(label[0])) << row.name;
    }
  }
}

TEST(MetricTableTest, SuffixesTellUnitAndType) {
  for (const MetricRow& row : MetricTable()) {
    absl::string_view stem = row.name;
    const bool is_counter = row.type == MetricType::kCounter;
    EXPECT_EQ(is_counter, absl::EndsWith(stem, "_total")) << row.name;
    if (is_counter) stem.remove_suffix(6);
    EXPECT_EQ(row.unit == MetricUnit::kSeconds, absl::EndsWith(stem, "_seconds")) << row.name;
    EXPECT_EQ(row.unit == MetricUnit::kBytes, absl::EndsWith(stem, "_bytes")) << row.name;
  }
}

TEST(MetricTableTest, HistogramsAloneHaveBucketsAndTheseAscend) {
  for (const MetricRow& row : MetricTable()) {
    EXPECT_EQ(row.type == MetricType::kHistogram, !row.buckets.empty()) << row.name;
    EXPECT_TRUE(std::is_sorted(row.buckets.begin(), row.buckets.end(), std::less_equal<>()))
        << row.name;
  }
}

TEST_F(MetricsTest, EveryRowIsExportedFromTheStartAndNothingElse) {
  const std::string text = metrics_.Serialize();
  for (const MetricRow& row : MetricTable()) {
    const char* type = row.type == MetricType::kCounter ? "counter"
                       : row.type == MetricType::kGauge ? "gauge"
                                                        : "histogram";
    EXPECT_THAT(text, HasSubstr(absl::StrCat("# TYPE ", row.name, " ", type, "\n", row.name)));
  }
  size_t types = 0;
  for (size_t at = text.find("# TYPE "); at != std::string::npos;
       at = text.find("# TYPE ", at + 1)) {
    ++types;
  }
  EXPECT_EQ(types, MetricTable().size());
}

TEST_F(MetricsTest, EveryModelHasItsSeriesFromTheStart) {
  const std::string text = metrics_.Serialize();
  for (const auto& entry : Catalog::Default().models()) {
    for (const char* code : {"OK", "INVALID_ARGUMENT", "UNAUTHENTICATED"}) {
      EXPECT_EQ(
          SeriesValue(text, absl::StrCat("scanserve_requests_total{code=\"", code,
                                         "\",method=\"Backward\",model=\"", entry->name, "\"}")),
          0);
    }
    EXPECT_EQ(SeriesValue(text, absl::StrCat("scanserve_phase_duration_seconds_count{model=\"",
                                             entry->name, "\",phase=\"kernel\"}")),
              0);
  }
}

TEST_F(MetricsTest, UnknownModelsAndMethodsFoldIntoOneLabel) {
  const Model stranger;
  metrics_.CountRequest(nullptr, "ModelInfer", absl::StatusCode::kNotFound);
  metrics_.CountRequest(&stranger, "Frobnicate", absl::StatusCode::kNotFound);
  EXPECT_EQ(Series("scanserve_requests_total{code=\"NOT_FOUND\",method=\"ModelInfer\","
                   "model=\"_unknown\"}"),
            1);
  EXPECT_EQ(Series("scanserve_requests_total{code=\"NOT_FOUND\",method=\"_unknown\","
                   "model=\"_unknown\"}"),
            1);
}

TEST_F(MetricsTest, EachRecordMovesItsOwnSeries) {
  const std::string of_model = "{model=\"selective_scan_bwd\"}";
  metrics_.BeginRequest(model(), 5000);
  metrics_.EnterQueue(model(), 100);
  EXPECT_EQ(Series("scanserve_requests_in_flight" + of_model), 1);
  EXPECT_EQ(Series("scanserve_queue_depth" + of_model), 1);
  EXPECT_EQ(Series("scanserve_queue_bytes" + of_model), 100);
  EXPECT_EQ(Series("scanserve_request_bytes_sum" + of_model), 5000);
  metrics_.LeaveQueue(model(), 100, std::chrono::milliseconds(3));
  metrics_.Execute(model());
  metrics_.EndRequest(model(), std::chrono::milliseconds(40));
  EXPECT_EQ(Series("scanserve_requests_in_flight" + of_model), 0);
  EXPECT_EQ(Series("scanserve_queue_depth" + of_model), 0);
  EXPECT_EQ(Series("scanserve_queue_bytes" + of_model), 0);
  EXPECT_EQ(Series("scanserve_executions_total" + of_model), 1);
  EXPECT_EQ(Series("scanserve_queue_duration_seconds_bucket{model=\"selective_scan_bwd\","
                   "le=\"0.005\"}"),
            1);
  EXPECT_EQ(Series("scanserve_request_duration_seconds_sum" + of_model), 0.04);
  metrics_.RecordPhases(model(), {.parse = std::chrono::seconds(1),
                                  .h2d = std::chrono::seconds(2),
                                  .kernel = std::chrono::seconds(3),
                                  .d2h = std::chrono::seconds(4)});
  double expected = 1;
  for (const char* phase : {"parse", "h2d", "kernel", "d2h"}) {
    EXPECT_EQ(Series(absl::StrCat("scanserve_phase_duration_seconds_sum{model=\""
                                  "selective_scan_bwd\",phase=\"",
                                  phase, "\"}")),
              expected++);
  }
  metrics_.RecordResponse(model(), 2048);
  EXPECT_EQ(Series("scanserve_response_bytes_sum" + of_model), 2048);
}

TEST_F(MetricsTest, EachRejectReasonHasItsSeries) {
  const char* const kNames[] = {"invalid",    "unsupported", "draining", "deadline",
                                "queue_full", "bytes",       "memory"};
  for (size_t i = 0; i < kNumRejectReasons; ++i) {
    metrics_.CountRejected(model(), static_cast<RejectReason>(i));
    for (size_t j = 0; j < kNumRejectReasons; ++j) {
      EXPECT_EQ(Series(absl::StrCat("scanserve_rejected_total{model=\"selective_scan_bwd\","
                                    "reason=\"",
                                    kNames[j], "\"}")),
                j <= i ? 1 : 0);
    }
  }
}

TEST_F(MetricsTest, PoolAndReadinessAreReadAtEachScrape) {
  EXPECT_EQ(Series("scanserve_device_memory_bytes{device=\"cpu\",kind=\"pool_used\"}"), 300);
  EXPECT_EQ(Series("scanserve_device_memory_bytes{device=\"cpu\",kind=\"pool_cached\"}"), 200);
  EXPECT_EQ(Series("scanserve_pool_budget_bytes{device=\"cpu\"}"), 1000);
  EXPECT_EQ(Series("scanserve_pool_high_watermark_bytes{device=\"cpu\"}"), 400);
  EXPECT_EQ(Series("scanserve_pool_alloc_failures_total{device=\"cpu\"}"), 2);
  EXPECT_EQ(Series("scanserve_admitted_memory_bytes{device=\"cpu\"}"), 77);
  EXPECT_EQ(Series("scanserve_ready"), 1);
  EXPECT_EQ(Series("scanserve_draining"), 0);
}

TEST_F(MetricsTest, ProcessFiguresArePlausible) {
  EXPECT_GT(Series("process_resident_memory_bytes"), 1e6);
  EXPECT_GE(Series("process_cpu_seconds_total"), 0);
  EXPECT_GE(Series("process_open_fds"), 3);
  EXPECT_GT(Series("process_max_fds"), Series("process_open_fds"));
  const auto now = static_cast<double>(std::time(nullptr));
  EXPECT_NEAR(Series("process_start_time_seconds"), now, 600);
}

TEST_F(MetricsTest, PromtoolHasNoComplaint) {
  if (std::system("command -v promtool >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "promtool is not installed (Debian package prometheus)";
  }
  metrics_.RecordResponse(model(), 2048);
  const std::string path = absl::StrCat(::testing::TempDir(), "/metrics.txt");
  std::ofstream(path) << metrics_.Serialize();
  std::FILE* pipe = popen(absl::StrCat("promtool check metrics < '", path, "' 2>&1").c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string output;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) output += static_cast<char>(c);
  EXPECT_EQ(pclose(pipe), 0);
  EXPECT_EQ(output, "");
}

}  // namespace
}  // namespace scanserve

// The demo program on a small problem.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/client/program.h"

namespace scanserve {
namespace {

using ::testing::HasSubstr;

constexpr char kSize[] = " --batch 1 --seqlen 129 --dim 40 --dstate 16 --seed 3";

// `name: value unit` of each line whose value is a number.
std::map<std::string, double> FiguresOf(const std::string& text) {
  std::map<std::string, double> figures;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    std::istringstream rest(line.substr(colon + 2));
    std::string word;
    double value = 0;
    if (rest >> word && absl::SimpleAtod(word, &value)) figures[line.substr(0, colon)] = value;
  }
  return figures;
}

TEST(DemoTest, PrintsEveryFigureAndEachIsFinite) {
  const std::unique_ptr<Server> server = StartServer();
  const Finished demo = RunProgram(absl::StrCat("scanserve_demo --server ", AddressOf(*server),
                                                " --metrics ", MetricsAddressOf(*server), kSize));
  ASSERT_EQ(demo.code, 0) << demo.text;
  EXPECT_THAT(demo.text, HasSubstr("result: ok"));
  const std::map<std::string, double> figures = FiguresOf(demo.text);
  for (const char* name : {"seed",
                           "worst_error_y",
                           "worst_error_final_state",
                           "worst_error_du",
                           "worst_error_ddelta",
                           "worst_error_dA",
                           "worst_error_dB",
                           "worst_error_dC",
                           "worst_error_dD",
                           "worst_error_forward_backward",
                           "remote_forward_ms",
                           "local_forward_ms",
                           "remote_backward_ms",
                           "local_backward_ms",
                           "remote_forward_backward_ms",
                           "local_forward_backward_ms",
                           "request_bytes",
                           "response_bytes",
                           "device_peak_bytes",
                           "floor_fraction_forward",
                           "metrics_forward_p50_ms",
                           "metrics_forward_p99_ms",
                           "metrics_backward_p50_ms",
                           "metrics_backward_p99_ms"}) {
    ASSERT_EQ(figures.count(name), 1u) << name << " is missing in\n" << demo.text;
    EXPECT_TRUE(std::isfinite(figures.at(name))) << name;
  }
  for (const auto& [name, value] : figures) {
    if (name.rfind("worst_error_", 0) == 0) {
      EXPECT_LE(value, 1e-5) << name;
    }
  }
  EXPECT_EQ(figures.at("seed"), 3);
  // u, delta, y-sized tensors of 129 x 40 FP32 and little else.
  EXPECT_GT(figures.at("request_bytes"), 2 * 129 * 40 * 4);
  EXPECT_GT(figures.at("response_bytes"), 129 * 40 * 4);
}

TEST(DemoTest, FailsWithoutItsMetricsPage) {
  const std::unique_ptr<Server> server = StartServer();
  const Finished demo = RunProgram(absl::StrCat("scanserve_demo --server ", AddressOf(*server),
                                                " --metrics 127.0.0.1:1", kSize));
  EXPECT_EQ(demo.code, 1);
  EXPECT_THAT(demo.text, HasSubstr("metrics"));
}

TEST(DemoTest, FailsWithoutAServer) {
  EXPECT_EQ(RunProgram("scanserve_demo --server 127.0.0.1:1").code, 1);
}

TEST(DemoTest, WrongUsageExitsWithTwo) {
  EXPECT_EQ(RunProgram("scanserve_demo --batch 0").code, 2);
  EXPECT_EQ(RunProgram("scanserve_demo --nothing").code, 2);
}

}  // namespace
}  // namespace scanserve

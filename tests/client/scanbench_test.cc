// scanbench as a user runs it. Speed itself is not tested here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "tests/client/program.h"

namespace scanserve {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Small, and content with any spread.
constexpr char kSmall[] = "scanbench matrix --quick --seq 33 --dim 24 --batch 2 --max-spread 1000";

std::vector<nlohmann::json> JsonLines(const std::string& path) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    lines.push_back(nlohmann::json::parse(line, nullptr, false));
  }
  return lines;
}

TEST(ScanbenchTest, EmbeddedRowsHaveThePublishedFieldsAndAreRight) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/scanbench_", getpid(), ".json");
  const Finished run = RunProgram(
      absl::StrCat(kSmall, " --family mamba --impl pallas,reference --json ", path, " --compare ",
                   SCANSERVE_SOURCE_DIR, "/docs/data/published_mamba.csv"));
  ASSERT_EQ(run.code, 0) << run.text;
  EXPECT_THAT(run.text, AllOf(HasSubstr("selective_scan (published: mamba)"),
                              HasSubstr("fused (published: pallas)"), HasSubstr("[RTX 3090]"),
                              HasSubstr("in process")));
  const auto lines = JsonLines(path);
  ASSERT_EQ(lines.size(), 4u);  // two modes, two implementations
  for (const nlohmann::json& line : lines) {
    ASSERT_TRUE(line.is_object());
    for (const char* field : {"compile_s", "inner", "median_ms", "q1_ms", "q3_ms", "temp_mb",
                              "arg_mb", "out_mb", "residual_mb", "peak_mb", "rel_err"}) {
      ASSERT_TRUE(line.contains(field) && line[field].is_number()) << field << " in " << line;
      EXPECT_TRUE(std::isfinite(line[field].get<double>())) << field;
    }
    EXPECT_LE(line["rel_err"].get<double>(), 1e-5) << line;
    EXPECT_GT(line["median_ms"].get<double>(), 0);
  }
}

TEST(ScanbenchTest, AServerIsMeasuredByBothProtocols) {
  const std::unique_ptr<Server> server = StartServer();
  for (const char* protocol : {"kernel", "oip"}) {
    const std::string path = absl::StrCat(::testing::TempDir(), "/scanbench_", getpid(), ".json");
    const Finished run = RunProgram(absl::StrCat(kSmall, " --server ", AddressOf(*server),
                                                 " --protocol ", protocol, " --json ", path));
    ASSERT_EQ(run.code, 0) << run.text;
    const auto lines = JsonLines(path);
    ASSERT_EQ(lines.size(), 2u);
    for (const nlohmann::json& line : lines) {
      EXPECT_EQ(line["transport"], protocol);
      EXPECT_LE(line["rel_err"].get<double>(), 1e-5);
      EXPECT_GT(line["peak_mb"].get<double>(), 0);
    }
  }
}

TEST(ScanbenchTest, BadOptionsExitWithThree) {
  for (const char* command :
       {"scanbench", "scanbench nothing", "scanbench matrix --seq x", "scanbench matrix --seq 0",
        "scanbench matrix --mode step", "scanbench matrix --family nothing",
        "scanbench matrix --impl nothing", "scanbench matrix --compare /nowhere",
        "scanbench matrix --json /nowhere/x", "scanbench matrix --samples 0"}) {
    EXPECT_EQ(RunProgram(command).code, 3) << command;
  }
}

TEST(ScanbenchTest, HelpIsNoError) {
  EXPECT_EQ(RunProgram("scanbench --help").code, 0);
  EXPECT_EQ(RunProgram("scanbench matrix --help").code, 0);
}

TEST(ScanbenchTest, AnUnstableRowExitsWithTwo) {
  // No spread is that small.
  const Finished run = RunProgram(
      "scanbench matrix --quick --mode fwd --seq 33 --dim 24 --batch 2 --samples 5 "
      "--max-spread 1e-9");
  EXPECT_EQ(run.code, 2) << run.text;
  EXPECT_THAT(run.text, HasSubstr("not stable"));
}

TEST(ScanbenchTest, AServerThatIsNotThereExitsWithNinetyNine) {
  EXPECT_EQ(RunProgram("scanbench matrix --quick --server 127.0.0.1:1").code, 99);
}

TEST(ScanbenchTest, AnImplementationThatThisBuildLacksLeavesAFailedRow) {
  const Finished run = RunProgram(absl::StrCat(kSmall, " --mode fwd --impl fused,assoc"));
  EXPECT_THAT(run.text, AllOf(HasSubstr("associative (published: assoc)"), HasSubstr("failed: ")));
  EXPECT_EQ(run.code, 0);
}

}  // namespace
}  // namespace scanserve

// scanctl as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/io/golden.h"
#include "kernels/io/safetensors.h"
#include "kernels/spec/catalog.h"
#include "tests/client/program.h"

namespace scanserve {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ScanctlTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = StartServer().release(); }
  static void TearDownTestSuite() { delete server_; }

  static Finished Scanctl(const std::string& arguments) {
    return RunProgram(absl::StrCat("scanctl --server ", AddressOf(*server_), " ", arguments));
  }
  static std::string Golden(const std::string& name) {
    return absl::StrCat(SCANSERVE_GOLDEN_DIR, "/", name, ".safetensors");
  }
  static std::string Temp(const std::string& name) {
    return absl::StrCat(::testing::TempDir(), "/scanctl_", getpid(), "_", name);
  }

  static Server* server_;
};

Server* ScanctlTest::server_ = nullptr;

TEST_F(ScanctlTest, ListNamesOperatorsModelsAndImplementations) {
  const Finished list = Scanctl("list");
  EXPECT_EQ(list.code, 0);
  EXPECT_THAT(list.text, AllOf(HasSubstr("selective_scan_fwd_bwd"), HasSubstr("fused reference"),
                               HasSubstr("FP32")));
}

TEST_F(ScanctlTest, DescribePrintsTheContract) {
  for (const char* command : {"describe", "describe selective_scan"}) {
    const Finished describe = Scanctl(command);
    EXPECT_EQ(describe.code, 0);
    EXPECT_THAT(describe.text, AllOf(HasSubstr("[batch, seqlen, dim]"), HasSubstr("initial_state"),
                                     HasSubstr("delta_softplus"), HasSubstr("default false"),
                                     HasSubstr("optional, no gradient")));
  }
  const Finished unknown = Scanctl("describe nothing");
  EXPECT_EQ(unknown.code, 1);
  EXPECT_THAT(unknown.text, HasSubstr("nothing"));
}

TEST_F(ScanctlTest, HealthIsServing) {
  const Finished health = Scanctl("health");
  EXPECT_EQ(health.code, 0);
  EXPECT_EQ(health.text, "SERVING\n");
}

TEST_F(ScanctlTest, HealthFailsWhereNobodyAnswers) {
  const Finished health = RunProgram("scanctl health --server 127.0.0.1:1");
  EXPECT_EQ(health.code, 1);
  EXPECT_THAT(health.text, HasSubstr("UNAVAILABLE"));
}

TEST_F(ScanctlTest, VersionNeedsNoServer) {
  const Finished version = RunProgram("scanctl version");
  EXPECT_EQ(version.code, 0);
  EXPECT_THAT(version.text, HasSubstr("scanctl "));
}

TEST_F(ScanctlTest, HelpIsNoError) {
  for (const char* command : {"--help", "run --help", "verify --help"}) {
    EXPECT_EQ(Scanctl(command).code, 0) << command;
  }
}

TEST_F(ScanctlTest, WrongUsageExitsWithTwo) {
  for (const std::string& command :
       {std::string(""), std::string("no_such_command"), std::string("run"),
        absl::StrCat("run no_such_model --inputs ", Golden("selective_scan_L1")),
        std::string("run selective_scan_fwd --inputs /nowhere"),
        absl::StrCat("run selective_scan_fwd --attr x --inputs ", Golden("selective_scan_L1")),
        std::string("verify"), std::string("verify /nowhere"),
        absl::StrCat("verify --dtype FP8 ", Golden("selective_scan_L1")),
        std::string("--protocol http list"), std::string("export-perf-data nonsense /tmp"),
        std::string("export-perf-data selective_scan_fwd:fp32:batch=2 /tmp")}) {
    EXPECT_EQ(Scanctl(command).code, 2) << command;
  }
}

// Every golden vector of the tree, all directions.
TEST_F(ScanctlTest, VerifyPassesOnGoldenVectorsByBothProtocols) {
  for (const char* protocol : {"kernel", "oip"}) {
    for (const char* dtype : {"FP32", "FP64"}) {
      const Finished verify =
          Scanctl(absl::StrCat("--protocol ", protocol, " verify --dtype ", dtype, " ",
                               SCANSERVE_GOLDEN_DIR, "/selective_scan_*.safetensors"));
      EXPECT_EQ(verify.code, 0) << verify.text;
      EXPECT_THAT(verify.text, AllOf(HasSubstr("24 calls"), HasSubstr("0 beyond tolerance")));
    }
  }
}

TEST_F(ScanctlTest, VerifyWithJsonPrintsOneObjectPerTensor) {
  const Finished verify = Scanctl(
      absl::StrCat("verify --json --implementation fused ", Golden("selective_scan_L37_odd")));
  EXPECT_EQ(verify.code, 0) << verify.text;
  int lines = 0;
  std::istringstream text(verify.text);
  for (std::string line; std::getline(text, line); ++lines) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    ASSERT_TRUE(json.is_object()) << line;
    EXPECT_EQ(json["golden"], "selective_scan_L37_odd");
    EXPECT_EQ(json["implementation"], "fused");
    EXPECT_TRUE(json["ok"]);
    EXPECT_LE(json["error"].get<double>(), json["tolerance"].get<double>());
  }
  EXPECT_EQ(lines, 2 + 5 + 7);  // fwd, bwd, fwd_bwd
}

TEST_F(ScanctlTest, VerifyFailsBeyondTheTolerance) {
  const std::string tolerances = Temp("strict.json");
  std::ofstream(tolerances) << R"({"default":{"FP32":{"outputs":1e-12,"gradients":1e-12}}})";
  const Finished verify = Scanctl(
      absl::StrCat("verify --tolerances ", tolerances, " ", Golden("selective_scan_L37_odd")));
  EXPECT_EQ(verify.code, 1);
  EXPECT_THAT(verify.text, HasSubstr("BEYOND TOLERANCE"));
}

TEST_F(ScanctlTest, VerifyingNothingIsAFailure) {
  const Finished verify = Scanctl(absl::StrCat("verify ", Golden("selective_scan_step_opts")));
  EXPECT_EQ(verify.code, 1);
  EXPECT_THAT(verify.text, HasSubstr("skipped"));
}

// Inputs of a golden vector in a file of their own.
std::string InputsFile(const std::string& golden_path, const std::string& path) {
  const auto golden = ReadGolden(golden_path);
  const Model& model = **Catalog::Default().FindModel("selective_scan_fwd");
  EXPECT_TRUE(WriteSafetensors(path, {}, GoldenInputs(*golden, model, DType::kFP32)).ok());
  return path;
}

TEST_F(ScanctlTest, RunWritesTheOutputsAndPrintsTheTiming) {
  const std::string golden_path = Golden("selective_scan_L64_allopts");
  const std::string inputs = InputsFile(golden_path, Temp("in.safetensors"));
  const std::string outputs = Temp("out.safetensors");
  for (const char* protocol : {"kernel", "oip"}) {
    const Finished run = Scanctl(absl::StrCat(
        "--protocol ", protocol, " run selective_scan_fwd --inputs ", inputs, " --outputs ",
        outputs, " --attr delta_softplus=true --implementation reference --timing"));
    ASSERT_EQ(run.code, 0) << run.text;
    EXPECT_THAT(run.text, AllOf(HasSubstr("FP32 [1,64,4]"), HasSubstr("compute"),
                                HasSubstr("implementation   reference")));
    const auto written = ReadSafetensors(outputs);
    ASSERT_TRUE(written.ok()) << written.status();
    const auto golden = ReadGolden(golden_path);
    const auto tolerances =
        Tolerances::Read(absl::StrCat(SCANSERVE_GOLDEN_DIR, "/tolerances.json"));
    for (const TensorError& row :
         CheckGolden(*golden, *tolerances, **Catalog::Default().FindModel("selective_scan_fwd"),
                     DType::kFP32, written->tensors)) {
      EXPECT_TRUE(row.ok) << row.tensor << " " << row.error;
    }
    std::filesystem::remove(outputs);
  }
}

TEST_F(ScanctlTest, RunReportsAServerErrorWithItsSentence) {
  const std::string inputs = InputsFile(Golden("selective_scan_L1"), Temp("in1.safetensors"));
  const Finished attribute =
      Scanctl(absl::StrCat("run selective_scan_fwd --attr nope=1 --inputs ", inputs));
  EXPECT_EQ(attribute.code, 1);
  EXPECT_THAT(attribute.text, HasSubstr("unknown attribute 'nope'"));
  const Finished implementation =
      Scanctl(absl::StrCat("run selective_scan_fwd --implementation nope --inputs ", inputs));
  EXPECT_EQ(implementation.code, 1);
  EXPECT_THAT(implementation.text, HasSubstr("unknown implementation 'nope'"));
}

TEST_F(ScanctlTest, ExportPerfDataWritesEveryInputAndTheCommandThatUsesIt) {
  const std::string folder = Temp("perf data");
  const Finished exported =
      Scanctl(absl::StrCat("export-perf-data selective_scan_bwd:fp32:batch=2,seqlen=4,dim=3,"
                           "dstate=2,delta_softplus=true,with=D '",
                           folder, "'"));
  ASSERT_EQ(exported.code, 0) << exported.text;
  EXPECT_THAT(exported.text,
              AllOf(HasSubstr("perf_analyzer -m selective_scan_bwd -i grpc -u 127.0.0.1:"),
                    HasSubstr(absl::StrCat("--input-data '", folder, "/data.json'")),
                    HasSubstr("--shape u:2,4,3"), HasSubstr("--shape dy:2,4,3"),
                    HasSubstr("--request-parameter delta_softplus:true:bool"),
                    Not(HasSubstr("cu_seqlens"))));
  std::ifstream file(absl::StrCat(folder, "/data.json"));
  const auto json = nlohmann::json::parse(file, nullptr, false);
  ASSERT_TRUE(json.is_object());
  const auto& step = json["data"][0];
  EXPECT_EQ(step["u"]["shape"], (std::vector<int>{2, 4, 3}));
  EXPECT_EQ(step["u"]["content"]["b64"].get<std::string>().size(), 4u * 2 * 4 * 3 * 4 / 3);
  EXPECT_TRUE(step.contains("D"));
}

TEST_F(ScanctlTest, TheExampleProgramRuns) {
  const Finished example = RunProgram(absl::StrCat("selective_scan_example ", AddressOf(*server_)));
  EXPECT_EQ(example.code, 0) << example.text;
  EXPECT_THAT(example.text, HasSubstr("y after 64 steps"));
}

}  // namespace
}  // namespace scanserve

// The golden vectors through a server, by both protocols: within the tolerance, and the same bits
// as each other and as the library in this process.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/client.h"
#include "kernels/io/golden.h"
#include "kernels/runtime/cpu_device.h"
#include "kernels/runtime/planner.h"
#include "kernels/spec/catalog.h"
#include "kernels/spec/op_case.h"
#include "server/server.h"

namespace scanserve {
namespace {

constexpr size_t kCases = 72;  // may never fall

template <typename T>
T OrDie(absl::StatusOr<T> result) {
  if (!result.ok()) {
    std::cerr << result.status() << "\n";
    std::abort();
  }
  return *std::move(result);
}

struct GoldenRun {
  std::string file;
  DType dtype;
  const char* implementation;
  Direction direction;
};

void PrintTo(const GoldenRun& run, std::ostream* out) { *out << run.file; }

std::string NameOf(const GoldenRun& run) {
  return absl::StrCat(std::filesystem::path(run.file).stem().string(), "_",
                      absl::AsciiStrToLower(NameOf(run.dtype)), "_", run.implementation, "_",
                      NameOf(run.direction));
}

std::vector<GoldenRun> AllRuns() {
  std::vector<GoldenRun> runs;
  for (const auto& entry : std::filesystem::directory_iterator(SCANSERVE_GOLDEN_DIR)) {
    if (entry.path().extension() != ".safetensors") continue;
    if (!Catalog::Default().FindOp(OrDie(ReadGolden(entry.path())).op).ok()) continue;
    for (const auto& [dtype, implementation] :
         {std::pair(DType::kFP64, "reference"), std::pair(DType::kFP32, "reference"),
          std::pair(DType::kFP32, "fused")}) {
      for (const Direction direction : kAllDirections) {
        runs.push_back({entry.path(), dtype, implementation, direction});
      }
    }
  }
  std::sort(runs.begin(), runs.end(),
            [](const GoldenRun& a, const GoldenRun& b) { return NameOf(a) < NameOf(b); });
  return runs;
}

// One server and a client of each protocol for all tests.
struct Fixture {
  std::unique_ptr<Server> server;
  std::unique_ptr<Client> kernel;
  std::unique_ptr<Client> oip;
  std::unique_ptr<Device> device = std::make_unique<CpuDevice>(CpuDeviceOptions{});

  Fixture() {
    ServerOptions options;
    options.grpc_port = 0;
    options.allow_metrics = false;
    options.device = "cpu";
    server = OrDie(Server::Create(options));
    const std::string address = absl::StrCat("127.0.0.1:", server->grpc_port());
    ClientOptions client;
    kernel = OrDie(Client::Connect(address, client));
    client.protocol = Protocol::kOip;
    oip = OrDie(Client::Connect(address, client));
  }
};

class GoldenRemoteTest : public ::testing::TestWithParam<GoldenRun> {
 protected:
  static void SetUpTestSuite() { fixture_ = new Fixture; }
  static void TearDownTestSuite() { delete fixture_; }
  static Fixture* fixture_;
};

Fixture* GoldenRemoteTest::fixture_ = nullptr;

void ExpectSameBits(const std::vector<NamedTensor>& got, const std::vector<NamedTensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].name, want[i].name);
    ASSERT_EQ(got[i].tensor.meta(), want[i].tensor.meta()) << want[i].name;
    EXPECT_EQ(std::memcmp(got[i].tensor.data(), want[i].tensor.data(),
                          static_cast<size_t>(want[i].tensor.byte_size())),
              0)
        << want[i].name;
  }
}

TEST_P(GoldenRemoteTest, IsWithinToleranceAndTheSameBitsByEveryRoute) {
  const auto& [file, dtype, implementation, direction] = GetParam();
  const GoldenCase golden = OrDie(ReadGolden(file));
  const Tolerances tolerances =
      OrDie(Tolerances::Read(absl::StrCat(SCANSERVE_GOLDEN_DIR, "/tolerances.json")));
  const Model& model = *OrDie(Catalog::Default().FindModel(golden.op, direction));
  const std::vector<NamedTensor> inputs = GoldenInputs(golden, model, dtype);
  CallSettings settings;
  settings.attributes = golden.attributes;
  settings.options.implementation = implementation;
  settings.options.timing = true;

  const auto kernel = fixture_->kernel->Call(golden.op, direction, ViewsOf(inputs), settings);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  const auto oip = fixture_->oip->Call(golden.op, direction, ViewsOf(inputs), settings);
  ASSERT_TRUE(oip.ok()) << oip.status();
  const auto local =
      RunLocal(model, ViewsOf(inputs), golden.attributes, {}, implementation, *fixture_->device);
  ASSERT_TRUE(local.ok()) << local.status();

  EXPECT_EQ(kernel->report.implementation, implementation);
  EXPECT_EQ(oip->report.implementation, implementation);
  const auto table = CheckGolden(golden, tolerances, model, dtype, kernel->outputs);
  EXPECT_EQ(table.size(), kernel->outputs.size()) << "an output is not checked";
  for (const TensorError& row : table) {
    EXPECT_TRUE(row.ok) << row.tensor << ": error " << row.error << ", allowed " << row.tolerance;
  }
  ExpectSameBits(oip->outputs, kernel->outputs);
  ExpectSameBits(local->outputs, kernel->outputs);
}

INSTANTIATE_TEST_SUITE_P(Vectors, GoldenRemoteTest, ::testing::ValuesIn(AllRuns()),
                         [](const auto& run) { return NameOf(run.param); });

TEST(GoldenRemoteCountTest, NoCaseHasGoneMissing) {
  const size_t cases = AllRuns().size();
  std::cout << "golden cases by each of 2 protocols: " << cases << "\n";
  EXPECT_GE(cases, kCases);
}

}  // namespace
}  // namespace scanserve

// The golden vectors of every operator in the catalog, and the contract cases of invalid.json,
// through the library.
#include "kernels/io/golden.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/runtime/cpu_device.h"
#include "kernels/runtime/planner.h"
#include "kernels/spec/catalog.h"
#include "kernels/spec/op_case.h"

namespace scanserve {
namespace {

using ::testing::HasSubstr;

// Neither may ever fall.
constexpr size_t kGoldenCases = 72;
constexpr size_t kContractCases = 30;

Device& SharedDevice() {
  static auto* const device = new CpuDevice(CpuDeviceOptions{});
  return *device;
}

// The lists of cases are made before the tests run: an unreadable file ends the program there.
template <typename T>
T OrDie(absl::StatusOr<T> result) {
  if (!result.ok()) {
    std::cerr << result.status() << "\n";
    std::abort();
  }
  return *std::move(result);
}

std::vector<GoldenCase> LoadAllGolden() {
  std::vector<GoldenCase> all;
  for (const auto& entry : std::filesystem::directory_iterator(SCANSERVE_GOLDEN_DIR)) {
    if (entry.path().extension() != ".safetensors") continue;
    GoldenCase golden = OrDie(ReadGolden(entry.path()));
    if (Catalog::Default().FindOp(golden.op).ok()) all.push_back(std::move(golden));
  }
  std::sort(all.begin(), all.end(),
            [](const GoldenCase& a, const GoldenCase& b) { return a.name < b.name; });
  return all;
}

const std::vector<GoldenCase>& AllGolden() {
  static const auto* const all = new std::vector<GoldenCase>(LoadAllGolden());
  return *all;
}

struct GoldenRun {
  const GoldenCase* golden;
  DType dtype;
  const char* implementation;
  Direction direction;

  std::string Name() const {
    return absl::StrCat(golden->name, "_", absl::AsciiStrToLower(NameOf(dtype)), "_",
                        implementation, "_", NameOf(direction));
  }
};

void PrintTo(const GoldenRun& run, std::ostream* out) { *out << run.Name(); }

std::vector<GoldenRun> AllGoldenRuns() {
  constexpr std::pair<DType, const char*> kConfigurations[] = {
      {DType::kFP64, "reference"}, {DType::kFP32, "reference"}, {DType::kFP32, "fused"}};
  std::vector<GoldenRun> runs;
  for (const GoldenCase& golden : AllGolden()) {
    for (const auto& [dtype, implementation] : kConfigurations) {
      for (const Direction direction : kAllDirections) {
        runs.push_back({&golden, dtype, implementation, direction});
      }
    }
  }
  return runs;
}

class GoldenTest : public ::testing::TestWithParam<GoldenRun> {};

TEST_P(GoldenTest, IsReproducedWithinTheTolerance) {
  const auto& [golden, dtype, implementation, direction] = GetParam();
  const auto tolerances = Tolerances::Read(absl::StrCat(SCANSERVE_GOLDEN_DIR, "/tolerances.json"));
  ASSERT_TRUE(tolerances.ok()) << tolerances.status();
  const Model& model = **Catalog::Default().FindModel(golden->op, direction);
  const std::vector<NamedTensor> inputs = GoldenInputs(*golden, model, dtype);

  const auto result =
      RunLocal(model, ViewsOf(inputs), golden->attributes, {}, implementation, SharedDevice());

  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->implementation, implementation);
  const auto table = CheckGolden(*golden, *tolerances, model, dtype, result->outputs);
  EXPECT_EQ(table.size(), result->outputs.size()) << "an output is not checked";
  for (const TensorError& row : table) {
    EXPECT_TRUE(row.ok) << row.tensor << ": error " << row.error << ", allowed " << row.tolerance;
  }
}

INSTANTIATE_TEST_SUITE_P(Vectors, GoldenTest, ::testing::ValuesIn(AllGoldenRuns()),
                         [](const auto& run) { return run.param.Name(); });

struct ContractRun {
  ContractCase row;
  const Model* model;
};

void PrintTo(const ContractRun& run, std::ostream* out) {
  *out << run.model->name << ": " << run.row.why;
}

std::vector<std::shared_ptr<ContractRun>> AllContractRuns() {
  std::vector<std::shared_ptr<ContractRun>> runs;
  const std::string path = absl::StrCat(SCANSERVE_GOLDEN_DIR, "/invalid.json");
  for (const Direction direction : kAllDirections) {
    for (ContractCase& row : OrDie(ReadContractCases(path))) {
      const auto model = Catalog::Default().FindModel(row.op, direction);
      if (!model.ok()) continue;
      runs.push_back(std::make_shared<ContractRun>(ContractRun{std::move(row), *model}));
    }
  }
  return runs;
}

// What the sentence of a rejection must contain. The file says what is wrong in words only.
std::string OffenderOf(const ContractCase& row) {
  static const auto* const offenders = new std::map<std::string, std::string>{
      {"delta length differs from u", "'delta'"},
      {"A given as [N,D]", "'A'"},
      {"B groups do not divide D", "'B'"},
      {"L = 0", "'u'"},
      {"cu_seqlens with batch 2", "'cu_seqlens'"},
      {"missing C", "'C'"},
      {"integer u", "'u'"},
      {"unknown attribute", "'delta_softpluss'"},
      {"initial_state for wrong number of sequences", "'initial_state'"},
  };
  const auto it = offenders->find(row.why);
  return it == offenders->end() ? "(no name is listed for this row)" : it->second;
}

// The rows are forward calls; the other directions need an upstream gradient besides: one of the
// shape of the operator's first tensor, which is checked after everything that a row can break.
std::optional<NamedTensor> UpstreamOf(const ContractCase& row, const Model& model) {
  const auto upstream = std::find_if(model.inputs.begin(), model.inputs.end(), [](const auto& r) {
    return r.slot.is_gradient && r.required;
  });
  if (upstream == model.inputs.end()) return std::nullopt;
  for (const NamedTensor& input : row.inputs) {
    if (input.name == model.spec->tensors[0].name) {
      return NamedTensor{upstream->name, input.tensor.Cast(DType::kFP32)};
    }
  }
  return std::nullopt;
}

class ContractTest : public ::testing::TestWithParam<std::shared_ptr<ContractRun>> {};

TEST_P(ContractTest, IsAcceptedAndRunsOrIsRejectedByName) {
  const auto& [row, model] = *GetParam();
  std::vector<InputTensor> inputs = ViewsOf(row.inputs);
  const std::optional<NamedTensor> upstream = UpstreamOf(row, *model);
  if (upstream) inputs.push_back({upstream->name, upstream->tensor.view()});

  const auto bound = Bind(*model, inputs, row.attributes, {});
  if (!row.accept) {
    EXPECT_EQ(bound.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(bound.status().message(), HasSubstr(OffenderOf(row)));
    return;
  }
  ASSERT_TRUE(bound.ok()) << bound.status();
  for (const char* implementation : {"reference", "fused"}) {
    const auto result =
        RunLocal(*model, inputs, row.attributes, {}, implementation, SharedDevice());
    EXPECT_TRUE(result.ok()) << implementation << ": " << result.status();
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, ContractTest, ::testing::ValuesIn(AllContractRuns()),
                         [](const auto& run) {
                           std::string name =
                               absl::StrCat(run.param->model->name, "_", run.param->row.why);
                           for (char& c : name) {
                             if (!absl::ascii_isalnum(c)) c = '_';
                           }
                           return name;
                         });

TEST(CountTest, NoCaseHasGoneMissing) {
  const size_t golden = AllGoldenRuns().size();
  const size_t contract = AllContractRuns().size();
  std::cout << "golden cases: " << golden << ", contract cases: " << contract << "\n";
  EXPECT_GE(golden, kGoldenCases);
  EXPECT_GE(contract, kContractCases);
}

}  // namespace
}  // namespace scanserve

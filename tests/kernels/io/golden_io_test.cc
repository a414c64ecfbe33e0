// The golden readers and the error metric.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/io/golden.h"
#include "kernels/io/safetensors.h"
#include "kernels/spec/catalog.h"

namespace scanserve {
namespace {

using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

std::string Data(absl::string_view name) { return absl::StrCat(SCANSERVE_GOLDEN_DIR, "/", name); }

// Tests of one program may run at the same time in processes of their own.
std::string Temp(absl::string_view name) {
  return absl::StrCat(::testing::TempDir(), "/golden_io_", getpid(), "_", name);
}

Tensor Values(std::vector<double> values) {
  return Tensor::FromDoubles(DType::kFP64, {static_cast<int64_t>(values.size())}, values);
}

double Error(std::vector<double> got, std::vector<double> want, double floor = 0) {
  return MaxRelativeError(Values(std::move(got)), Values(std::move(want)), floor);
}

const Model& ModelOf(Direction direction) {
  return **Catalog::Default().FindModel("selective_scan", direction);
}

TEST(MaxRelativeErrorTest, DividesTheWorstDifferenceByTheLargestWantedValue) {
  EXPECT_DOUBLE_EQ(Error({1, 2.5, -4}, {1, 2, -4}), 0.125);
}

TEST(MaxRelativeErrorTest, EqualTensorsHaveNoErrorEvenWhereAllIsZero) {
  EXPECT_EQ(Error({0, 0}, {0, 0}), 0);
  EXPECT_EQ(Error({}, {}), 0);
}

TEST(MaxRelativeErrorTest, AnythingButZeroWhereAllShouldBeZeroIsInfinitelyWrong) {
  EXPECT_EQ(Error({1e-30}, {0}), kInf);
}

TEST(MaxRelativeErrorTest, TheFloorKeepsTinyTensorsFromBeingJudgedByThemselves) {
  EXPECT_DOUBLE_EQ(Error({3e-9}, {1e-9}, 1e-6), 2e-3);
}

TEST(MaxRelativeErrorTest, NonFiniteWantedValuesMustBeMatchedAndDoNotCountOtherwise) {
  EXPECT_DOUBLE_EQ(Error({kNan, kInf, 1.5}, {kNan, kInf, 1}), 0.5);
  EXPECT_EQ(Error({1}, {kNan}), kInf);
  EXPECT_EQ(Error({-kInf}, {kInf}), kInf);
  EXPECT_EQ(Error({1}, {kInf}), kInf);
}

TEST(MaxRelativeErrorTest, ANonFiniteValueWhereAFiniteOneIsWantedIsInfinitelyWrong) {
  EXPECT_EQ(Error({kNan, 1}, {2, 1}), kInf);
  EXPECT_EQ(Error({kInf}, {2}), kInf);
}

TEST(MaxRelativeErrorTest, AnotherShapeIsInfinitelyWrong) { EXPECT_EQ(Error({1, 1}, {1}), kInf); }

TEST(TolerancesTest, DefaultsDependOnTheDTypeAndOnWhetherItIsAGradient) {
  const auto tolerances = Tolerances::Read(Data("tolerances.json"));
  ASSERT_TRUE(tolerances.ok()) << tolerances.status();
  EXPECT_EQ(tolerances->Of("selective_scan_L1", "y", false, DType::kFP32), 1e-5);
  EXPECT_EQ(tolerances->Of("selective_scan_L1", "du", true, DType::kFP32), 2e-5);
  EXPECT_EQ(tolerances->Of("selective_scan_L1", "du", true, DType::kFP64), 1e-10);
  EXPECT_EQ(tolerances->Of("selective_scan_L1", "du", true, DType::kINT32), std::nullopt);
}

TEST(TolerancesTest, ExceptionsOfAFileGoFromTheTensorToTheStar) {
  const auto tolerances = Tolerances::Read(Data("tolerances.json"));
  ASSERT_TRUE(tolerances.ok());
  EXPECT_EQ(tolerances->Of("rattention_L2_w0", "dwq", true, DType::kFP32), 0.1);
  EXPECT_EQ(tolerances->Of("rattention_L2_w0", "dwk", true, DType::kFP32), 1e-3);
  EXPECT_EQ(tolerances->Of("kernel_matvec_gauss_offset", "dx", true, DType::kFP32), 2e-5);
  EXPECT_EQ(tolerances->Of("rattention_L2_w0", "dwq", true, DType::kFP64), 1e-10);
}

TEST(TolerancesTest, SkippedFilesHaveNone) {
  const auto tolerances = Tolerances::Read(Data("tolerances.json"));
  ASSERT_TRUE(tolerances.ok());
  EXPECT_EQ(tolerances->Of("mla_L2", "o", false, DType::kBF16), std::nullopt);
  EXPECT_EQ(tolerances->Of("mla_L37_norope", "o", false, DType::kBF16), 0.015);
}

TEST(TolerancesTest, AFileThatIsNoneIsRejected) {
  const std::string path = Temp("tolerances_bad.json");
  for (const char* text : {"", "[]", "{}", R"({"default":1})", R"({"default":{"FP32":1}})",
                           R"({"default":{"FP32":{"outputs":1}}})"}) {
    std::ofstream(path) << text;
    EXPECT_EQ(Tolerances::Read(path).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(GoldenTest, AFileIsSplitIntoInputsOutputsAndTheirGradients) {
  const auto golden = ReadGolden(Data("selective_scan_varlen.safetensors"));
  ASSERT_TRUE(golden.ok()) << golden.status();
  EXPECT_EQ(golden->name, "selective_scan_varlen");
  EXPECT_EQ(golden->op, "selective_scan");
  EXPECT_EQ(std::get<bool>(golden->attributes.at("delta_softplus")), true);
  EXPECT_EQ(golden->inputs.size(), 9u);
  EXPECT_EQ(golden->outputs.size(), 2u);
  EXPECT_EQ(golden->upstream.size(), 2u);
  EXPECT_EQ(golden->gradients.size(), 8u);
}

TEST(GoldenTest, InputsAreCastButOffsetsAreNot) {
  const auto golden = ReadGolden(Data("selective_scan_varlen.safetensors"));
  ASSERT_TRUE(golden.ok());
  const auto forward = GoldenInputs(*golden, ModelOf(Direction::kForward), DType::kFP32);
  EXPECT_EQ(forward.size(), 9u);
  for (const NamedTensor& input : forward) {
    EXPECT_EQ(input.tensor.dtype(), input.name == "cu_seqlens" ? DType::kINT32 : DType::kFP32);
  }
  EXPECT_EQ(GoldenInputs(*golden, ModelOf(Direction::kBackward), DType::kFP64).size(), 11u);
}

TEST(GoldenTest, TheExpectedValuesThemselvesPassAndAMissingTensorFails) {
  const auto golden = ReadGolden(Data("selective_scan_L37_odd.safetensors"));
  const auto tolerances = Tolerances::Read(Data("tolerances.json"));
  ASSERT_TRUE(golden.ok() && tolerances.ok());
  const Model& model = ModelOf(Direction::kForwardBackward);
  std::vector<NamedTensor> got;
  for (const auto* tensors : {&golden->outputs, &golden->gradients}) {
    for (const NamedTensor& named : *tensors) got.push_back({named.name, named.tensor.Clone()});
  }
  auto table = CheckGolden(*golden, *tolerances, model, DType::kFP32, got);
  EXPECT_EQ(table.size(), 7u);
  for (const TensorError& row : table) EXPECT_TRUE(row.ok && row.error == 0) << row.tensor;

  got.pop_back();
  table = CheckGolden(*golden, *tolerances, model, DType::kFP32, got);
  EXPECT_EQ(table.size(), 7u);
  EXPECT_EQ(std::count_if(table.begin(), table.end(), [](const auto& row) { return row.ok; }), 6);
}

TEST(GoldenTest, AGradientFarBelowTheLargestIsJudgedByTheLargest) {
  const auto tolerances = Tolerances::Read(Data("tolerances.json"));
  ASSERT_TRUE(tolerances.ok());
  GoldenCase golden;
  golden.gradients.push_back({"du", Values({100})});
  golden.gradients.push_back({"dA", Values({0})});
  std::vector<NamedTensor> got;
  got.push_back({"du", Values({100})});
  got.push_back({"dA", Values({1e-6})});
  const auto table =
      CheckGolden(golden, *tolerances, ModelOf(Direction::kBackward), DType::kFP32, got);
  ASSERT_EQ(table.size(), 2u);
  EXPECT_DOUBLE_EQ(table[1].error, 1e-6 / (1e-6 * 100));
}

TEST(GoldenTest, OtherTensorFilesAreNotGoldenVectors) {
  const std::string path = Temp("not_golden.safetensors");
  std::vector<NamedTensor> tensors;
  ASSERT_TRUE(WriteSafetensors(path, {}, tensors).ok());
  EXPECT_THAT(ReadGolden(path).status().message(), HasSubstr("'op'"));
  ASSERT_TRUE(WriteSafetensors(path, {{"op", "x"}, {"attributes", "[1]"}}, tensors).ok());
  EXPECT_THAT(ReadGolden(path).status().message(), HasSubstr("attributes"));
  tensors.push_back({"u", Values({1})});
  ASSERT_TRUE(WriteSafetensors(path, {{"op", "x"}, {"attributes", "{}"}}, tensors).ok());
  EXPECT_THAT(ReadGolden(path).status().message(), HasSubstr("'u'"));
}

TEST(ContractCasesTest, EveryWayToWriteAnInputIsRead) {
  const std::string path = Temp("contract_cases.json");
  std::ofstream(path) << R"([{"op": "o", "why": "w", "expect": "accept",
    "attrs": {"flag": true, "n": 3, "x": 0.5, "s": "nan", "list": [1, 2]},
    "inputs": {"a": [2, 3], "b": {"i32": [0, 5]}, "c": {"dtype": "i32", "shape": [4]},
               "d": {"fill": 0.25, "shape": [2]}}}])";
  const auto cases = ReadContractCases(path);
  ASSERT_TRUE(cases.ok()) << cases.status();
  ASSERT_EQ(cases->size(), 1u);
  const ContractCase& row = (*cases)[0];
  EXPECT_TRUE(row.accept);
  EXPECT_EQ(std::get<int64_t>(row.attributes.at("n")), 3);
  EXPECT_EQ(std::get<std::string>(row.attributes.at("list")), "[1,2]");
  for (const double value : row.inputs[0].tensor.ToDoubles()) EXPECT_GT(value, 0);
  EXPECT_EQ(row.inputs[1].tensor.ToDoubles(), (std::vector<double>{0, 5}));
  EXPECT_EQ(row.inputs[2].tensor.dtype(), DType::kINT32);
  EXPECT_EQ(row.inputs[3].tensor.ToDoubles(), (std::vector<double>{0.25, 0.25}));
}

TEST(ContractCasesTest, ARowThatIsNotUnderstoodIsRejectedWithItsNumber) {
  const std::string path = Temp("contract_cases_bad.json");
  std::ofstream(path) << R"([{"op": "o", "why": "w", "expect": "maybe", "inputs": {}}])";
  EXPECT_THAT(ReadContractCases(path).status().message(), HasSubstr("row 0 expects neither"));
}

TEST(ContractCasesTest, ThePublishedFileIsUnderstoodWhole) {
  const auto cases = ReadContractCases(Data("invalid.json"));
  ASSERT_TRUE(cases.ok()) << cases.status();
  EXPECT_GE(cases->size(), 37u);
}

}  // namespace
}  // namespace scanserve

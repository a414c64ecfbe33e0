#include "kernels/spec/op_case.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace scanserve {
namespace {

using ::testing::HasSubstr;

OpCase Parse(absl::string_view text) { return ParseCase(text, Catalog::Default()).value(); }

std::string Error(absl::string_view text) {
  return std::string(ParseCase(text, Catalog::Default()).status().message());
}

constexpr char kFull[] =
    "selective_scan_bwd:fp32:batch=2,seqlen=129,dim=6,dstate=4,ngroups=2,delta_softplus=true,"
    "with=D+z,B=grouped:fused:cpu:seed=7";

TEST(OpCaseTest, ACaseStringSurvivesParsingAndPrinting) {
  EXPECT_EQ(ToString(Parse(kFull)), kFull);
  EXPECT_EQ(ToString(Parse("selective_scan_fwd:fp64:batch=1,seqlen=2,dim=3,dstate=4")),
            "selective_scan_fwd:fp64:batch=1,seqlen=2,dim=3,dstate=4:auto:cpu:seed=0");
}

TEST(OpCaseTest, ABoundCallPrintsTheCaseThatMadeIt) {
  const OpCase op_case = Parse(kFull);
  const std::vector<NamedTensor> inputs = MakeInputs(op_case).value();
  const BoundOp bound = Bind(*op_case.model, ViewsOf(inputs), op_case.attributes, {}).value();
  OpCase again = Parse(CaseString(bound, "fused", "cpu"));
  again.seed = 7;
  EXPECT_EQ(ToString(again), kFull);
}

TEST(OpCaseTest, FaultsAreNamed) {
  EXPECT_THAT(Error("selective_scan_fwd"), HasSubstr("expected MODEL:DTYPE:SIZES"));
  EXPECT_THAT(Error("nope_fwd:fp32:batch=1"), HasSubstr("nope_fwd"));
  EXPECT_THAT(Error("selective_scan_fwd:fp8:batch=1"), HasSubstr("fp8"));
  EXPECT_THAT(Error("selective_scan_fwd:fp32:rows=1"), HasSubstr("'rows' is no axis"));
  EXPECT_THAT(Error("selective_scan_fwd:fp32:batch=x"), HasSubstr("needs a whole number"));
  EXPECT_THAT(Error("selective_scan_fwd:fp32:with=u"), HasSubstr("'u' is not an optional input"));
  EXPECT_THAT(Error("selective_scan_fwd:fp32:batch=1:fused:cpu:7"), HasSubstr("no seed=N"));
}

TEST(MakeInputsTest, ReportsAMissingAxisAndABrokenContract) {
  EXPECT_THAT(
      std::string(
          MakeInputs(Parse("selective_scan_fwd:fp32:batch=1,seqlen=2,dim=3")).status().message()),
      HasSubstr("axis 'dstate'"));
  EXPECT_FALSE(MakeInputs(Parse("selective_scan_fwd:fp32:batch=1,seqlen=2,dim=3,dstate=1,"
                                "ngroups=2,B=grouped"))
                   .ok());
  EXPECT_FALSE(
      MakeInputs(Parse("selective_scan_fwd:fp32:batch=1,seqlen=2,dim=3,dstate=1,B=diagonal")).ok());
}

TEST(MakeInputsTest, SizesBeyondTheMemoryAreAStatus) {
  const auto huge =
      MakeInputs(Parse("selective_scan_fwd:fp32:batch=200000,seqlen=200000,dim=64,dstate=16"));
  EXPECT_EQ(huge.status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(MakeInputsTest, ASeedMeansTheSameValuesWhateverElseIsPresentAndWhateverTheDType) {
  const std::string sizes = "batch=1,seqlen=40,dim=3,dstate=2";
  const auto plain = MakeInputs(Parse("selective_scan_fwd:fp32:" + sizes + ":auto:cpu:seed=3"));
  const auto more =
      MakeInputs(Parse("selective_scan_bwd:fp64:" + sizes + ",with=z+D:auto:cpu:seed=3"));
  const auto other = MakeInputs(Parse("selective_scan_fwd:fp32:" + sizes + ":auto:cpu:seed=4"));
  ASSERT_EQ((*plain)[0].name, "u");
  EXPECT_EQ((*plain)[0].tensor.ToDoubles(), (*more)[0].tensor.ToDoubles());
  EXPECT_NE((*plain)[0].tensor.ToDoubles(), (*other)[0].tensor.ToDoubles());
}

TEST(MakeInputsTest, ValuesFollowTheDistributionsOfTheContract) {
  const auto inputs = MakeInputs(
      Parse("selective_scan_fwd:fp32:batch=1,seqlen=4000,dim=4,dstate=2,nseq=5,with=cu_seqlens"));
  for (const NamedTensor& input : *inputs) {
    const std::vector<double> values = input.tensor.ToDoubles();
    double sum = 0, squares = 0;
    for (const double value : values) {
      sum += value;
      squares += value * value;
      if (input.name == "delta") {
        EXPECT_TRUE(value >= 0.001 && value <= 0.1);
      }
      if (input.name == "A") {
        EXPECT_LT(value, 0);
      }
    }
    const double n = static_cast<double>(values.size());
    if (input.name == "u") {
      EXPECT_NEAR(sum / n, 0, 0.05);
      EXPECT_NEAR(squares / n, 1, 0.05);
    }
    if (input.name == "cu_seqlens") {
      EXPECT_EQ(values.size(), 6u);
      EXPECT_EQ(values.front(), 0);
      EXPECT_EQ(values.back(), 4000);
    }
  }
}

}  // namespace
}  // namespace scanserve

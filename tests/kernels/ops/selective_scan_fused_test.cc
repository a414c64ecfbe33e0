// The fused implementation against the float64 reference: sizes, options, decays, long sequences.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "tests/kernels/ops/op_harness.h"

namespace scanserve {
namespace {

constexpr double kTolerance = 1e-5;
constexpr char kAllOptions[] = ",delta_softplus=true,with=D+z+delta_bias+initial_state";

void ExpectMatchesReference(const Problem& problem, double tolerance = kTolerance) {
  ExpectClose(RunGuarded(problem, "fused"), RunGuarded(InFp64(problem), "reference"), tolerance);
}

std::string CaseOf(int64_t batch, int64_t seqlen, int64_t dim, int64_t dstate,
                   absl::string_view more) {
  return absl::StrCat("selective_scan_fwd_bwd:fp32:batch=", batch, ",seqlen=", seqlen, ",dim=", dim,
                      ",dstate=", dstate, more, ":fused:cpu:seed=", seqlen + dim + dstate);
}

void ExpectCaseMatches(const std::string& text) {
  SCOPED_TRACE(text);
  ExpectMatchesReference(MakeProblem(text));
}

constexpr int64_t kLengths[] = {1, 2, 15, 16, 17, 63, 64, 65, 129, 1000, 1025};
constexpr int64_t kDims[] = {1, 3, 5, 16, 17, 40, 64, 129};
constexpr int64_t kStates[] = {1, 3, 4, 7, 8, 16, 17, 33, 64};

TEST(SelectiveScanFused, MatchesTheReferenceAtAwkwardLengths) {
  for (size_t i = 0; i < std::size(kLengths); ++i) {
    const int64_t dim = kDims[(3 * i + 2) % std::size(kDims)];
    const int64_t dstate = kStates[(5 * i + 1) % std::size(kStates)];
    ExpectCaseMatches(CaseOf(2, kLengths[i], dim, dstate, i % 2 == 0 ? "" : kAllOptions));
    ExpectCaseMatches(CaseOf(1, kLengths[i], 5, 3, i % 2 == 1 ? "" : kAllOptions));
  }
}

TEST(SelectiveScanFused, MatchesTheReferenceAtAwkwardWidths) {
  for (const int64_t dim : kDims) {
    for (const int64_t dstate : kStates) {
      ExpectCaseMatches(CaseOf(1, (dim + dstate) % 2 == 0 ? 17 : 34, dim, dstate,
                               dim % 2 == 0 ? "" : kAllOptions));
    }
  }
}

class FormsTest : public testing::TestWithParam<const char*> {};

TEST_P(FormsTest, MatchesTheReference) {
  ExpectCaseMatches(CaseOf(2, 37, 12, 5, GetParam()));
  ExpectCaseMatches(CaseOf(1, 300, 60, 17, GetParam()));
}

INSTANTIATE_TEST_SUITE_P(
    SelectiveScanFused, FormsTest,
    testing::Values(",with=D", ",with=z", ",with=D+z", ",with=delta_bias", ",delta_softplus=true",
                    ",with=initial_state", ",ngroups=2,B=grouped", ",ngroups=3,C=grouped",
                    ",ngroups=6,B=grouped,C=grouped,with=z", ",B=constant,with=D", ",C=constant",
                    ",B=constant,C=constant,with=z", ",ngroups=2,B=constant,C=grouped",
                    ",ngroups=4,B=grouped,C=constant,with=initial_state"));

// delta * A from -1e-4 to far below the -104 where exp(delta A) is zero.
TEST(SelectiveScanFused, MatchesTheReferenceAtEveryStrengthOfDecay) {
  for (const double scale : {0.001, 0.01, 1.0, 10.0, 40.0, 200.0, 1000.0}) {
    SCOPED_TRACE(scale);
    Problem problem = MakeProblem(CaseOf(1, 200, 17, 9, ",with=initial_state"));
    problem.Map("delta", [&](double delta) { return delta * scale; });
    ExpectMatchesReference(problem);
  }
}

TEST(SelectiveScanFused, GrowthIsLegalAndOverflowsToInfinity) {
  Problem problem = MakeProblem(CaseOf(1, 40, 5, 3, ""));
  problem.Map("A", [](double a) { return -a; });
  ExpectMatchesReference(problem, 2e-5);
  problem =
      MakeProblem("selective_scan_fwd:fp32:batch=1,seqlen=40,dim=5,dstate=3,with=initial_state");
  problem.Map("A", [](double) { return 2000.0; });
  problem.Map("B", [](double b) { return std::abs(b) + 1; });
  problem.Map("u", [](double u) { return std::abs(u) + 1; });
  problem.Map("initial_state", [](double h) { return std::abs(h) + 1; });
  const std::vector<double> state = RunGuarded(problem, "fused").at("final_state").ToDoubles();
  for (const double value : state) EXPECT_EQ(value, HUGE_VAL);
}

TEST(SelectiveScanFused, ZeroStepsChangeNothing) {
  Problem problem = MakeProblem(
      "selective_scan_fwd:fp32:batch=1,seqlen=50,dim=20,dstate=5,"
      "with=initial_state");
  problem.Map("delta", [](double) { return 0.0; });
  const Results results = RunGuarded(problem, "fused");
  EXPECT_TRUE(SameBits(results.at("final_state"), problem["initial_state"]));
}

// A long memory multiplies whatever error each step repeats: one step size for all, one sign.
TEST(SelectiveScanFused, KeepsItsAccuracyOverAThousandStepsOfMemory) {
  for (const bool constant : {false, true}) {
    SCOPED_TRACE(constant ? "constant step size" : "random step sizes");
    Problem problem = MakeProblem(CaseOf(1, 8192, 20, 5, ""));
    problem.Map("delta", [&](double delta) { return constant ? 1e-3 : delta / 50; });
    problem.Map("A", [](double a) { return -1 + a / 100; });
    problem.Map("dy", [](double) { return 1.0; });
    problem.Map("dfinal_state", [](double) { return 1.0; });
    const Results want = RunGuarded(InFp64(problem), "reference");
    std::vector<double> all;
    for (const auto& [name, error] : Errors(RunGuarded(problem, "fused"), want)) {
      EXPECT_LE(error, kTolerance) << name;
      RecordProperty(name, absl::StrCat(error));
      all.push_back(error);
    }
    std::sort(all.begin(), all.end());
    EXPECT_LE(all[all.size() / 2], 2e-6);
  }
}

TEST(SelectiveScanFused, AllConstantInputsKeepTheirAccuracyToo) {
  Problem problem = MakeProblem(CaseOf(1, 8192, 17, 3, ""));
  for (const char* name : {"u", "B", "C", "dy", "dfinal_state"}) {
    problem.Map(name, [](double) { return 1.0; });
  }
  problem.Map("delta", [](double) { return 1e-3; });
  problem.Map("A", [](double a) { return -1 + a / 100; });
  ExpectMatchesReference(problem);
}

TEST(SelectiveScanFused, SoftplusKeepsRelativeAccuracyAtBothEnds) {
  for (const double raw : {-60.0, -30.0, -17.0, -5.0, 0.0, 5.0, 19.0, 21.0, 60.0}) {
    SCOPED_TRACE(raw);
    Problem problem = MakeProblem(CaseOf(1, 3, 17, 2, ",delta_softplus=true"));
    problem.Map("delta", [&](double delta) { return raw + delta; });
    ExpectMatchesReference(problem);
  }
}

TEST(SelectiveScanFused, LargeGatesDoNotOverflow) {
  Problem problem = MakeProblem(CaseOf(1, 30, 17, 3, ",with=z+D"));
  problem.Map("z", [](double z) { return 300 * z; });
  ExpectMatchesReference(problem);
}

TEST(SelectiveScanFused, PackedSequencesMatchTheReference) {
  for (const char* more : {"", kAllOptions}) {
    Problem problem = MakeProblem(
        absl::StrCat("selective_scan_fwd_bwd:fp32:batch=1,seqlen=700,dim=20,dstate=5,nseq=8", more,
                     *more == '\0' ? ",with=cu_seqlens" : "+cu_seqlens"));
    problem["cu_seqlens"] =
        Tensor::FromInts(DType::kINT64, {9}, {0, 0, 1, 17, 300, 300, 303, 640, 700});
    ExpectMatchesReference(problem);
  }
}

TEST(SelectiveScanFused, ReturnsOnlyWhatWasAskedFor) {
  const Problem problem = MakeProblem(CaseOf(2, 280, 20, 5, kAllOptions));
  const Results all = RunGuarded(problem, "fused");
  EXPECT_EQ(all.size(), 11u);
  for (const auto& [name, tensor] : all) {
    const Results one = RunGuarded(problem, "fused", 2, {name});
    ASSERT_EQ(one.size(), 1u);
    EXPECT_TRUE(SameBits(one.at(name), tensor)) << name;
  }
}

// Every instruction set that this machine and this build have.
TEST(SelectiveScanFused, EveryInstructionSetMatchesTheReference) {
  const std::string texts[] = {CaseOf(2, 37, 21, 11, kAllOptions), CaseOf(1, 300, 36, 16, ""),
                               CaseOf(1, 40, 12, 7, ",ngroups=2,B=grouped,C=constant,with=z")};
  int tested = 0;
  for (int bit = 0; bit < 63; ++bit) {
    const int64_t target = int64_t{1} << bit;
    if ((hwy::SupportedTargets() & target) == 0) continue;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    for (const std::string& text : texts) ExpectCaseMatches(text);
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    ++tested;
  }
  EXPECT_GE(tested, 2);
}

TEST(SelectiveScanFused, LeavesFp64ToTheReference) {
  const Problem problem = MakeProblem("selective_scan_fwd:fp64:batch=1,seqlen=3,dim=2,dstate=2");
  EXPECT_EQ(RunGuarded(problem, "auto").size(), 2u);
}

}  // namespace
}  // namespace scanserve

// What must hold to the bit: results depend on the request alone.
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/kernels/ops/op_harness.h"

namespace scanserve {
namespace {

constexpr char kOptions[] = ",delta_softplus=true,with=D+z+delta_bias+initial_state";

// Tensors that have no batch axis.
bool IsShared(absl::string_view name) {
  return name == "A" || name == "D" || name == "delta_bias" || name == "dA" || name == "dD" ||
         name == "ddelta_bias";
}

// Batch row `row` as a call of its own.
Problem RowOf(const Problem& problem, int64_t row) {
  Problem result{problem.model, {}, problem.attributes};
  for (const NamedTensor& input : problem.inputs) {
    result.inputs.push_back({input.name, IsShared(input.name) ? input.tensor.Clone()
                                                              : Rows(input.tensor, row, row + 1)});
  }
  return result;
}

class BatchTest : public testing::TestWithParam<const char*> {};

TEST_P(BatchTest, AMergedCallHasTheBitsOfItsSingles) {
  for (const int64_t batch : {2, 7, 33}) {
    SCOPED_TRACE(batch);
    const Problem merged = MakeProblem(absl::StrCat("selective_scan_fwd_bwd:fp32:batch=", batch,
                                                    ",seqlen=275,dim=37,dstate=5", kOptions));
    const Results together = RunGuarded(merged, GetParam());
    for (int64_t row = 0; row < batch; row += batch == 33 ? 8 : 1) {
      for (const auto& [name, tensor] : RunGuarded(RowOf(merged, row), GetParam())) {
        if (IsShared(name)) continue;
        EXPECT_TRUE(SameBits(tensor, Rows(together.at(name), row, row + 1)))
            << name << " of row " << row;
      }
    }
  }
}

TEST_P(BatchTest, TheNumberOfThreadsDoesNotMatter) {
  for (const char* sizes :
       {"batch=1,seqlen=530,dim=129,dstate=9", "batch=3,seqlen=40,dim=64,dstate=16"}) {
    const Problem problem =
        MakeProblem(absl::StrCat("selective_scan_fwd_bwd:fp32:", sizes, kOptions));
    const Results once = RunGuarded(problem, GetParam(), 1);
    ExpectSameBits(RunGuarded(problem, GetParam(), 2), once);
    ExpectSameBits(RunGuarded(problem, GetParam(), 2), once);
  }
}

TEST_P(BatchTest, APackedCallHasTheBitsOfItsSequencesAlone) {
  const std::vector<int64_t> offsets = {0, 5, 5, 40, 360, 376, 377, 700};
  Problem packed = MakeProblem(
      absl::StrCat("selective_scan_fwd_bwd:fp32:batch=1,seqlen=700,dim=20,dstate=5,nseq=7",
                   kOptions, "+cu_seqlens"));
  packed["cu_seqlens"] = Tensor::FromInts(DType::kINT32, {8}, offsets);
  const Results together = RunGuarded(packed, GetParam());
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    const int64_t begin = offsets[s];
    const int64_t end = offsets[s + 1];
    if (begin == end) continue;
    const auto part = [&](const std::string& name, const Tensor& tensor) {
      const bool is_state = name.find("state") != std::string::npos;
      return is_state ? Rows(tensor, s, s + 1) : Steps(tensor, begin, end);
    };
    Problem alone{packed.model, {}, packed.attributes};
    for (const NamedTensor& input : packed.inputs) {
      if (input.name == "cu_seqlens") continue;
      alone.inputs.push_back({input.name, IsShared(input.name) ? input.tensor.Clone()
                                                               : part(input.name, input.tensor)});
    }
    for (const auto& [name, tensor] : RunGuarded(alone, GetParam())) {
      if (IsShared(name)) continue;
      EXPECT_TRUE(SameBits(tensor, part(name, together.at(name)))) << name << " of sequence " << s;
    }
  }
}

TEST_P(BatchTest, ASequenceWithoutStepsPassesStateAndGradientThrough) {
  Problem problem = MakeProblem(
      "selective_scan_fwd_bwd:fp32:batch=1,seqlen=9,dim=17,dstate=5,nseq=3,"
      "with=initial_state+cu_seqlens");
  problem["cu_seqlens"] = Tensor::FromInts(DType::kINT32, {4}, {0, 4, 4, 9});
  Results results = RunGuarded(problem, GetParam());
  EXPECT_TRUE(
      SameBits(Rows(results.at("final_state"), 1, 2), Rows(problem["initial_state"], 1, 2)));
  EXPECT_TRUE(
      SameBits(Rows(results.at("dinitial_state"), 1, 2), Rows(problem["dfinal_state"], 1, 2)));
  problem.Remove("initial_state");
  results = RunGuarded(problem, GetParam());
  for (const double value : Rows(results.at("final_state"), 1, 2).ToDoubles()) EXPECT_EQ(value, 0);
}

TEST_P(BatchTest, DoublingTheInputDoublesTheOutputExactly) {
  Problem problem = MakeProblem(
      "selective_scan_fwd:fp32:batch=2,seqlen=100,dim=33,dstate=7,delta_softplus=true,with=D+z");
  const Results once = RunGuarded(problem, GetParam());
  problem.Map("u", [](double u) { return 2 * u; });
  const Results twice = RunGuarded(problem, GetParam());
  for (const char* name : {"y", "final_state"}) {
    const std::vector<double> a = once.at(name).ToDoubles();
    const std::vector<double> b = twice.at(name).ToDoubles();
    for (size_t i = 0; i < a.size(); ++i) ASSERT_EQ(2 * a[i], b[i]) << name << " " << i;
  }
}

// A quiet NaN with a payload, which integer arithmetic on the bits would lose.
float NanWithPayload() {
  const uint32_t bits = 0x7fc01235;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

TEST_P(BatchTest, ANaNStaysInItsSequenceAndReachesItsOutputs) {
  const Problem clean = MakeProblem(
      absl::StrCat("selective_scan_fwd_bwd:fp32:batch=3,seqlen=290,dim=18,dstate=5", kOptions));
  const Results want = RunGuarded(clean, GetParam());
  for (const char* input : {"u", "delta", "B", "C", "z", "initial_state", "dy", "dfinal_state"}) {
    SCOPED_TRACE(input);
    Problem problem{clean.model, {}, clean.attributes};
    for (const NamedTensor& tensor : clean.inputs) {
      problem.inputs.push_back({tensor.name, tensor.tensor.Clone()});
    }
    const absl::Span<float> values = problem[input].span<float>();
    values[values.size() / 2] = NanWithPayload();  // in row 1
    bool reached = false;
    for (const auto& [name, tensor] : RunGuarded(problem, GetParam())) {
      if (IsShared(name)) continue;
      EXPECT_TRUE(SameBits(Rows(tensor, 0, 1), Rows(want.at(name), 0, 1))) << name;
      EXPECT_TRUE(SameBits(Rows(tensor, 2, 3), Rows(want.at(name), 2, 3))) << name;
      for (const double value : tensor.ToDoubles()) reached |= std::isnan(value);
    }
    EXPECT_TRUE(reached);
  }
}

TEST_P(BatchTest, ANaNStepSizeSpoilsItsChannelFromThereOn) {
  Problem problem = MakeProblem("selective_scan_fwd:fp32:batch=1,seqlen=30,dim=20,dstate=3");
  problem["delta"].span<float>()[10 * 20 + 7] = NanWithPayload();
  const Results results = RunGuarded(problem, GetParam());
  const absl::Span<const float> y = results.at("y").span<const float>();
  for (int t = 0; t < 30; ++t) {
    for (int d = 0; d < 20; ++d) {
      EXPECT_EQ(std::isnan(y[t * 20 + d]), d == 7 && t >= 10) << t << " " << d;
    }
  }
}

TEST_P(BatchTest, ANaNInTheStateMatrixSpoilsItsChannel) {
  Problem problem =
      MakeProblem("selective_scan_fwd:fp32:batch=1,seqlen=30,dim=20,dstate=3,with=initial_state");
  problem["A"].span<float>()[7 * 3 + 1] = NanWithPayload();
  const Results results = RunGuarded(problem, GetParam());
  const absl::Span<const float> y = results.at("y").span<const float>();
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i % 20 == 7) << i;
}

INSTANTIATE_TEST_SUITE_P(SelectiveScan, BatchTest, testing::Values("fused", "reference"));

// The carried state makes a split invisible where slices end.
TEST(SelectiveScanFused, ASplitAtAMultipleOf16StepsKeepsTheBits) {
  const Problem whole =
      MakeProblem("selective_scan_fwd:fp32:batch=1,seqlen=600,dim=20,dstate=5,with=initial_state");
  const Results want = RunGuarded(whole, "fused");
  Tensor state;
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 16}, {16, 336}, {336, 600}}) {
    Problem part{whole.model, {}, whole.attributes};
    for (const NamedTensor& input : whole.inputs) {
      if (input.name == "initial_state") {
        part.inputs.push_back({input.name, begin == 0 ? input.tensor.Clone() : state.Clone()});
      } else {
        part.inputs.push_back({input.name, IsShared(input.name) ? input.tensor.Clone()
                                                                : Steps(input.tensor, begin, end)});
      }
    }
    const Results results = RunGuarded(part, "fused");
    EXPECT_TRUE(SameBits(results.at("y"), Steps(want.at("y"), begin, end))) << begin;
    state = results.at("final_state").Clone();
  }
  EXPECT_TRUE(SameBits(state, want.at("final_state")));
}

}  // namespace
}  // namespace scanserve

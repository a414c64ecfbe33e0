// The oracle against the definition: what it returns must be the derivative of what it computes.
#include <cmath>
#include <random>

#include "gtest/gtest.h"
#include "tests/kernels/ops/op_harness.h"

namespace scanserve {
namespace {

std::vector<double> Normal(size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(count);
  for (double& value : values) value = normal(generator);
  return values;
}

double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

const Model& ModelOf(Direction direction) {
  return **Catalog::Default().FindModel("selective_scan", direction);
}

// <dy, y> + <dfinal_state, final_state> of the forward, at the inputs of a backward problem.
double Loss(const Problem& backward) {
  Problem forward{&ModelOf(Direction::kForward), {}, backward.attributes};
  std::map<std::string, std::vector<double>> upstream;
  for (const NamedTensor& input : backward.inputs) {
    if (forward.model->FindInput(input.name) == nullptr) {
      upstream[input.name] = input.tensor.ToDoubles();
    } else {
      forward.inputs.push_back({input.name, input.tensor.Clone()});
    }
  }
  const Results results = RunGuarded(forward, "reference");
  double loss = 0;
  for (const auto& [name, tensor] : results) {
    if (const auto it = upstream.find("d" + name); it != upstream.end()) {
      loss += Dot(it->second, tensor.ToDoubles());
    }
  }
  return loss;
}

// Central difference of fourth order along `direction`.
double Derivative(Problem& problem, const std::string& input,
                  const std::vector<double>& direction) {
  const Tensor original = problem[input].Clone();
  const std::vector<double> at = original.ToDoubles();
  const double step = 2e-4;
  const auto loss = [&](double distance) {
    std::vector<double> moved = at;
    for (size_t i = 0; i < at.size(); ++i) moved[i] += distance * direction[i];
    problem[input] = Tensor::FromDoubles(original.dtype(), original.shape(), moved);
    return Loss(problem);
  };
  const double result =
      (loss(-2 * step) - 8 * loss(-step) + 8 * loss(step) - loss(2 * step)) / (12 * step);
  problem[input] = original.Clone();
  return result;
}

void ExpectGradientsAreDerivatives(Problem problem) {
  const Results gradients = RunGuarded(problem, "reference");
  EXPECT_GE(gradients.size(), 5u);
  for (const auto& [name, gradient] : gradients) {
    const std::string input = name.substr(1);
    for (unsigned seed = 0; seed < 3; ++seed) {
      const std::vector<double> direction = Normal(gradient.num_elements(), seed);
      const double want = Derivative(problem, input, direction);
      const std::vector<double> values = gradient.ToDoubles();
      const double scale = std::sqrt(Dot(values, values)) + 1e-3;
      EXPECT_NEAR(Dot(values, direction), want, 1e-8 * scale) << name;
    }
  }
}

constexpr char kCase[] = "selective_scan_bwd:fp64:batch=2,seqlen=11,dim=6,dstate=3";

class OptionsTest : public testing::TestWithParam<const char*> {};

TEST_P(OptionsTest, GradientsAreDerivatives) {
  ExpectGradientsAreDerivatives(MakeProblem(std::string(kCase) + GetParam()));
}

INSTANTIATE_TEST_SUITE_P(SelectiveScanReference, OptionsTest,
                         testing::Values("", ",with=D", ",with=z", ",with=D+z", ",with=delta_bias",
                                         ",delta_softplus=true",
                                         ",delta_softplus=true,with=delta_bias",
                                         ",with=initial_state", ",ngroups=2,B=grouped",
                                         ",ngroups=3,C=grouped", ",ngroups=2,B=grouped,C=grouped",
                                         ",B=constant", ",C=constant", ",B=constant,C=constant",
                                         ",ngroups=2,B=constant,C=grouped",
                                         ",delta_softplus=true,with=D+z+delta_bias+initial_state"));

TEST(SelectiveScanReference, GradientsOfPackedSequencesAreDerivatives) {
  Problem problem = MakeProblem(
      "selective_scan_bwd:fp64:batch=1,seqlen=20,dim=4,dstate=3,nseq=5,delta_softplus=true,"
      "with=D+z+delta_bias+initial_state+cu_seqlens");
  problem["cu_seqlens"] = Tensor::FromInts(DType::kINT32, {6}, {0, 0, 7, 8, 8, 20});
  ExpectGradientsAreDerivatives(std::move(problem));
}

TEST(SelectiveScanReference, AbsentUpstreamGradientsCountAsZero) {
  for (const char* absent : {"dy", "dfinal_state"}) {
    Problem without = MakeProblem(std::string(kCase) + ",with=D+z");
    Problem zero = MakeProblem(std::string(kCase) + ",with=D+z");
    without.Remove(absent);
    zero.Map(absent, [](double) { return 0.0; });
    ExpectSameBits(RunGuarded(without, "reference"), RunGuarded(zero, "reference"));
  }
}

TEST(SelectiveScanReference, FollowsTheRecurrenceStepByStep) {
  Problem problem =
      MakeProblem("selective_scan_fwd:fp64:batch=1,seqlen=2,dim=1,dstate=1,with=D+initial_state");
  problem.Set("u", DType::kFP64, {1, 2, 1}, {3, 5});
  problem.Set("delta", DType::kFP64, {1, 2, 1}, {0.5, 2});
  problem.Set("A", DType::kFP64, {1, 1}, {-1});
  problem.Set("B", DType::kFP64, {1, 2, 1}, {2, 4});
  problem.Set("C", DType::kFP64, {1, 2, 1}, {10, 100});
  problem.Set("D", DType::kFP64, {1}, {1000});
  problem.Set("initial_state", DType::kFP64, {1, 1, 1}, {7});
  const double h1 = std::exp(-0.5) * 7 + 0.5 * 3 * 2;
  const double h2 = std::exp(-2.0) * h1 + 2 * 5 * 4;
  const Results results = RunGuarded(problem, "reference");
  const std::vector<double> y = results.at("y").ToDoubles();
  EXPECT_DOUBLE_EQ(y[0], 10 * h1 + 3000);
  EXPECT_DOUBLE_EQ(y[1], 100 * h2 + 5000);
  EXPECT_DOUBLE_EQ(results.at("final_state").ToDoubles()[0], h2);
}

TEST(SelectiveScanReference, ForwardAndBackwardInOneCallEqualTheTwo) {
  const std::string sizes =
      ":fp64:batch=2,seqlen=37,dim=5,dstate=3,delta_softplus=true,with=D+z+delta_bias+initial_"
      "state";
  const Results both = RunGuarded(MakeProblem("selective_scan_fwd_bwd" + sizes), "reference");
  Results apart = RunGuarded(MakeProblem("selective_scan_fwd" + sizes), "reference");
  for (auto& [name, tensor] : RunGuarded(MakeProblem("selective_scan_bwd" + sizes), "reference")) {
    apart.emplace(name, tensor.Clone());
  }
  ExpectSameBits(both, apart);
}

}  // namespace
}  // namespace scanserve

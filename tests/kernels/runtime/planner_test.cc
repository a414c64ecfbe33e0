#include "kernels/runtime/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "kernels/runtime/cpu_device.h"
#include "kernels/spec/op_case.h"

namespace scanserve {
namespace {

using ::testing::HasSubstr;

struct Problem {
  OpCase op_case;
  std::vector<NamedTensor> inputs;
  BoundOp bound;
};

Problem Make(const std::string& text) {
  Problem problem;
  problem.op_case = ParseCase(text, Catalog::Default()).value();
  problem.inputs = MakeInputs(problem.op_case).value();
  problem.bound =
      Bind(*problem.op_case.model, ViewsOf(problem.inputs), problem.op_case.attributes, {}).value();
  return problem;
}

constexpr char kSmall[] = "selective_scan_fwd_bwd:fp32:batch=1,seqlen=5,dim=3,dstate=2";

TEST(PlannerTest, AutoNeverLandsOnTheReferenceForFP32) {
  const Problem problem = Make(kSmall);
  EXPECT_EQ(PlanCall(problem.bound, DeviceCaps{}, "auto")->implementation, "fused");
}

TEST(PlannerTest, UnknownNamesAreRefusedWithTheKnownOnes) {
  const Problem problem = Make(kSmall);
  const absl::Status status = PlanCall(problem.bound, DeviceCaps{}, "fusion").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("expected auto, fused, reference"));
}

TEST(PlannerTest, ALegalCallThatNothingRunsIsUnimplementedWithTheReasons) {
  const Problem problem = Make("selective_scan_fwd:fp64:batch=1,seqlen=5,dim=3,dstate=2");
  const absl::Status status = PlanCall(problem.bound, DeviceCaps{}, "fused").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("fused: "));
  DeviceCaps cuda;
  cuda.kind = DeviceKind::kCuda;
  EXPECT_EQ(PlanCall(problem.bound, cuda, "auto").status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST(PlannerTest, NoTwoImplementationsShareAKernel) {
  const Problem problem = Make(kSmall);
  std::set<std::string> kernels;
  for (const Implementation* implementation : ImplementationsOf("selective_scan")) {
    const auto call = PlanCall(problem.bound, DeviceCaps{}, implementation->name());
    ASSERT_TRUE(call.ok());
    EXPECT_TRUE(kernels.insert(call->plan->kernel_id()).second) << call->plan->kernel_id();
  }
  EXPECT_GE(kernels.size(), 2u);
}

TEST(RunLocalTest, ReturnsTheOutputsThatWereNamedAndGivesItsMemoryBack) {
  const Problem problem = Make(kSmall);
  CpuDevice device(CpuDeviceOptions{.num_threads = 1});
  const std::vector<std::string> wanted = {"dA", "y"};
  const auto result = RunLocal(*problem.op_case.model, ViewsOf(problem.inputs),
                               problem.op_case.attributes, wanted, "reference", device);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->outputs.size(), 2u);
  EXPECT_EQ(result->outputs[0].name, "dA");
  EXPECT_EQ(result->outputs[1].tensor.shape(), (Shape{1, 5, 3}));
  EXPECT_EQ(device.pool().GetStats().used_bytes, 0u);
}

}  // namespace
}  // namespace scanserve

#include "kernels/runtime/plan_cache.h"

#include <gtest/gtest.h>

#include "kernels/spec/op_case.h"

namespace scanserve {
namespace {

BoundOp BindCase(const std::string& text, const std::vector<std::string>& outputs = {}) {
  const OpCase op_case = ParseCase(text, Catalog::Default()).value();
  const std::vector<NamedTensor> inputs = MakeInputs(op_case).value();
  return Bind(*op_case.model, ViewsOf(inputs), op_case.attributes, outputs).value();
}

std::string Sizes(int seqlen) {
  return "selective_scan_fwd_bwd:fp32:batch=1,dim=3,dstate=2,seqlen=" + std::to_string(seqlen);
}

TEST(PlanCacheTest, TheSameCallGetsTheSamePlan) {
  PlanCache cache(DeviceCaps{}, 4);
  const auto first = cache.Get(BindCase(Sizes(5)), "auto");
  const auto second = cache.Get(BindCase(Sizes(5)), "auto");
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->plan, second->plan);
  EXPECT_EQ(cache.GetStats().hits, 1u);
}

TEST(PlanCacheTest, WhateverAPlanMayDependOnMakesAnotherPlan) {
  PlanCache cache(DeviceCaps{}, 16);
  const std::vector<BoundOp> calls = {
      BindCase(Sizes(5)),
      BindCase(Sizes(6)),
      BindCase(Sizes(5), {"y"}),
      BindCase(Sizes(5) + ",with=z"),
      BindCase(Sizes(5) + ",delta_softplus=true"),
      BindCase(Sizes(5) + ",B=constant"),
      BindCase(Sizes(5) + ",nseq=3,with=cu_seqlens:auto:cpu:seed=1"),
      BindCase(Sizes(5) + ",nseq=3,with=cu_seqlens:auto:cpu:seed=2"),
  };
  for (const BoundOp& call : calls) ASSERT_TRUE(cache.Get(call, "auto").ok());
  ASSERT_TRUE(cache.Get(calls[0], "reference").ok());
  EXPECT_EQ(cache.GetStats().misses, calls.size() + 1);
}

TEST(PlanCacheTest, TheLeastRecentlyUsedPlanLeavesFirst) {
  PlanCache cache(DeviceCaps{}, 2);
  for (const int seqlen : {1, 2, 1, 3})
    ASSERT_TRUE(cache.Get(BindCase(Sizes(seqlen)), "auto").ok());
  EXPECT_EQ(cache.GetStats().size, 2u);
  ASSERT_TRUE(cache.Get(BindCase(Sizes(1)), "auto").ok());
  EXPECT_EQ(cache.GetStats().hits, 2u);
  ASSERT_TRUE(cache.Get(BindCase(Sizes(2)), "auto").ok());
  EXPECT_EQ(cache.GetStats().misses, 4u);
}

TEST(PlanCacheTest, FailuresAreNotKept) {
  PlanCache cache(DeviceCaps{}, 2);
  EXPECT_FALSE(cache.Get(BindCase(Sizes(5)), "nope").ok());
  EXPECT_EQ(cache.GetStats().size, 0u);
}

}  // namespace
}  // namespace scanserve

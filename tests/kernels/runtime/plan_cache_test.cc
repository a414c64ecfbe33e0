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
  PlanCache cache(DeviceCaps{}, 1 << 20);
  const auto first = cache.Get(BindCase(Sizes(5)), "auto");
  const auto second = cache.Get(BindCase(Sizes(5)), "auto");
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->plan, second->plan);
  EXPECT_EQ(cache.GetStats().hits, 1u);
}

TEST(PlanCacheTest, WhateverAPlanMayDependOnMakesAnotherPlan) {
  PlanCache cache(DeviceCaps{}, 1 << 20);
  const std::vector<BoundOp> calls = {
      BindCase(Sizes(5)),
      BindCase(Sizes(6)),
      BindCase(Sizes(5), {"y"}),
      BindCase(Sizes(5) + ",with=z"),
      BindCase(Sizes(5) + ",delta_softplus=true"),
      BindCase(Sizes(5) + ",B=constant"),
  };
  for (const BoundOp& call : calls) ASSERT_TRUE(cache.Get(call, "auto").ok());
  ASSERT_TRUE(cache.Get(calls[0], "reference").ok());
  EXPECT_EQ(cache.GetStats().misses, calls.size() + 1);
}

TEST(PlanCacheTest, TheLeastRecentlyUsedPlanLeavesFirst) {
  PlanCache one(DeviceCaps{}, 1 << 20);
  ASSERT_TRUE(one.Get(BindCase(Sizes(1)), "auto").ok());
  // Room for two plans of that size, not for three.
  PlanCache cache(DeviceCaps{}, one.GetStats().bytes * 5 / 2);
  for (const int seqlen : {1, 2, 1, 3}) {
    ASSERT_TRUE(cache.Get(BindCase(Sizes(seqlen)), "auto").ok());
  }
  EXPECT_EQ(cache.GetStats().size, 2u);
  ASSERT_TRUE(cache.Get(BindCase(Sizes(1)), "auto").ok());
  EXPECT_EQ(cache.GetStats().hits, 2u);
  ASSERT_TRUE(cache.Get(BindCase(Sizes(2)), "auto").ok());
  EXPECT_EQ(cache.GetStats().misses, 4u);
}

// A plan of a pack has an entry per sequence, and no two packs are cut alike: a thousand of them
// once took gigabytes.
TEST(PlanCacheTest, PacksAreNotKept) {
  PlanCache cache(DeviceCaps{}, 1 << 20);
  const BoundOp pack = BindCase(Sizes(50) + ",nseq=30,with=cu_seqlens");
  ASSERT_TRUE(cache.Get(pack, "auto").ok());
  EXPECT_EQ(cache.GetStats().bytes, 0u);
}

TEST(PlanCacheTest, LargePlansCountByTheirSize) {
  PlanCache cache(DeviceCaps{}, 8 << 10);
  ASSERT_TRUE(cache.Get(BindCase(Sizes(1)), "auto").ok());
  EXPECT_EQ(cache.GetStats().size, 1u);
  ASSERT_TRUE(cache.Get(BindCase(Sizes(100000)), "auto").ok());
  EXPECT_EQ(cache.GetStats().size, 0u);
}

TEST(PlanCacheTest, FailuresAreNotKept) {
  PlanCache cache(DeviceCaps{}, 1 << 20);
  EXPECT_FALSE(cache.Get(BindCase(Sizes(5)), "nope").ok());
  EXPECT_EQ(cache.GetStats().size, 0u);
}

}  // namespace
}  // namespace scanserve

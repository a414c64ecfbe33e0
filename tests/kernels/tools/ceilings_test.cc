#include "kernels/tools/ceilings.h"

#include "gtest/gtest.h"

namespace scanserve {
namespace {

constexpr Ceilings kCeilings = {.fma_slots_per_s = 100, .exps_per_s = 10, .copy_bytes_per_s = 1000};

TEST(Ceilings, TheFloorIsThatOfTheScarcestResource) {
  EXPECT_DOUBLE_EQ(FloorSeconds({.fma_slots = 100, .exps = 1, .bytes = 1}, kCeilings), 1);
  EXPECT_DOUBLE_EQ(FloorSeconds({.fma_slots = 100, .exps = 20, .bytes = 1}, kCeilings), 2);
  EXPECT_DOUBLE_EQ(FloorSeconds({.fma_slots = 100, .exps = 20, .bytes = 3000}, kCeilings), 3);
}

TEST(Ceilings, TheBestOfTwoIsTakenOneByOne) {
  const Ceilings best = Best(kCeilings, {.fma_slots_per_s = 1, .exps_per_s = 20});
  EXPECT_EQ(best.fma_slots_per_s, 100);
  EXPECT_EQ(best.exps_per_s, 20);
  EXPECT_EQ(best.copy_bytes_per_s, 1000);
}

// Any machine that this runs on multiplies and adds more often than it exponentiates.
TEST(Ceilings, AreMeasuredInAPlausibleOrder) {
  ThreadArena arena(2);
  const Ceilings measured = CeilingMeter(arena).Measure();
  EXPECT_GT(measured.exps_per_s, 1e6);
  EXPECT_GT(measured.copy_bytes_per_s, 1e7);
  EXPECT_GT(measured.fma_slots_per_s, measured.exps_per_s);
}

}  // namespace
}  // namespace scanserve

#include "common/parallel_for.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace scanserve {
namespace {

TEST(ParallelForTest, CallsTheBodyOncePerIndexWhateverTheThreadCount) {
  for (const int threads : {1, 2, 5}) {
    ThreadArena arena(threads);
    EXPECT_EQ(arena.num_threads(), threads);
    for (const int64_t n : {0, 1, 2, 3, 1000}) {
      std::vector<std::atomic<int>> calls(n);
      arena.Execute([&] { ParallelFor(n, [&](int64_t i) { ++calls[i]; }); });
      for (const std::atomic<int>& count : calls) EXPECT_EQ(count, 1);
    }
  }
}

TEST(ParallelForTest, ZeroThreadsMeansOnePerCore) { EXPECT_GE(ThreadArena(0).num_threads(), 1); }

}  // namespace
}  // namespace scanserve

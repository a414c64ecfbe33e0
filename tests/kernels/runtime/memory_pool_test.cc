#include "kernels/runtime/memory_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace scanserve {
namespace {

// Counts blocks and can be told to fail.
class CountingSource final : public MemorySource {
 public:
  struct State {
    int live = 0;
    int allocations = 0;
    bool fail = false;
  };
  explicit CountingSource(State& state) : state_(state) {}
  void* Allocate(size_t bytes) override {
    if (state_.fail) return nullptr;
    ++state_.live;
    ++state_.allocations;
    return std::malloc(bytes);
  }
  void Free(void* data, size_t) override {
    --state_.live;
    std::free(data);
  }

 private:
  State& state_;
};

TEST(MemoryPoolTest, AFreedBlockIsUsedAgainAndTrimGivesItBack) {
  CountingSource::State state;
  const auto pool = MemoryPool::Create(std::make_unique<CountingSource>(state), 1 << 20);
  void* first = pool->Allocate(1000)->data();
  EXPECT_EQ(pool->Allocate(990)->data(), first);
  EXPECT_EQ(state.allocations, 1);
  EXPECT_EQ(pool->GetStats().used_bytes, 0u);
  EXPECT_GT(pool->GetStats().reserved_bytes, 0u);
  pool->Trim();
  EXPECT_EQ(state.live, 0);
  EXPECT_EQ(pool->GetStats().reserved_bytes, 0u);
}

TEST(MemoryPoolTest, TheBudgetBoundsWhatIsHeldAndTheSentenceGivesTheSizes) {
  CountingSource::State state;
  const auto pool = MemoryPool::Create(std::make_unique<CountingSource>(state), 10000);
  const Buffer held = std::move(pool->Allocate(6000)).value();
  const absl::Status status = pool->Allocate(6000).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("6000 bytes asked for"));
  EXPECT_EQ(pool->GetStats().allocation_failures, 1u);
  EXPECT_FALSE(pool->Allocate(size_t{1} << 62).ok());
  EXPECT_FALSE(pool->Allocate(~size_t{0}).ok());
}

TEST(MemoryPoolTest, CachedBlocksMakeRoomForAnotherSize) {
  CountingSource::State state;
  const auto pool = MemoryPool::Create(std::make_unique<CountingSource>(state), 10000);
  pool->Allocate(8000).IgnoreError();
  EXPECT_TRUE(pool->Allocate(5000).ok());
}

TEST(MemoryPoolTest, ADeviceWithoutMemoryIsAStatus) {
  CountingSource::State state;
  state.fail = true;
  const auto pool = MemoryPool::Create(std::make_unique<CountingSource>(state), 1 << 20);
  EXPECT_EQ(pool->Allocate(1).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(MemoryPoolTest, TheHighWaterMarkFollowsUseAndRestarts) {
  const auto pool = MemoryPool::Create(HostMemorySource(), 64 << 20);
  {
    const Buffer a = std::move(pool->Allocate(3 << 20)).value();
    const Buffer b = std::move(pool->Allocate(5 << 20)).value();
  }
  EXPECT_GE(pool->GetStats().peak_used_bytes, size_t{8} << 20);
  pool->ResetPeak();
  EXPECT_EQ(pool->GetStats().peak_used_bytes, 0u);
}

TEST(MemoryPoolTest, BuffersOutliveTheirPoolHandleAndEmptyOnesAreValid) {
  auto pool = MemoryPool::Create(HostMemorySource(), 1 << 20);
  Buffer buffer = std::move(pool->Allocate(0)).value();
  EXPECT_NE(buffer.data(), nullptr);
  pool.reset();
  Buffer moved = std::move(buffer);
  EXPECT_TRUE(moved);
  moved.Reset();
  EXPECT_FALSE(moved);
}

// Admission adds these up, so that what it lets in fits the pool.
TEST(MemoryPoolTest, ABufferTakesWhatBlockSizeSays) {
  const auto pool = MemoryPool::Create(HostMemorySource(), 64 << 20);
  for (const size_t bytes : {0, 1, 256, 257, 1000, 790000, 3 << 20, (9 << 20) + 1}) {
    const Buffer buffer = std::move(pool->Allocate(bytes)).value();
    EXPECT_EQ(buffer.block_size(), MemoryPool::BlockSize(bytes));
    EXPECT_EQ(pool->GetStats().used_bytes, MemoryPool::BlockSize(bytes));
    EXPECT_GE(buffer.block_size(), bytes);
  }
}

TEST(MemoryPoolTest, LargeBlocksBeginOnAHugePage) {
  const auto pool = MemoryPool::Create(HostMemorySource(), 64 << 20);
  const Buffer buffer = std::move(pool->Allocate(9 << 20)).value();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % (2 << 20), 0u);
}

}  // namespace
}  // namespace scanserve

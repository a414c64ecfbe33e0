#include "server/worker/request_queue.h"

#include <chrono>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace scanserve {

namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr TimePoint kStart{std::chrono::hours(1)};

// The queue never looks into a request, so that a number can stand for one.
class RequestQueueTest : public ::testing::Test {
 protected:
  using Item = std::shared_ptr<Request>;

  Item Make(int id) {
    auto number = std::make_shared<int>(id);
    return {number, reinterpret_cast<Request*>(number.get())};
  }
  static int IdOf(const Item& item) { return *reinterpret_cast<const int*>(item.get()); }

  Item Push(int id, uint64_t priority = 0, TimePoint expires = kNever) {
    Item item = Make(id);
    queue_.Push(item, priority, expires);
    return item;
  }

  std::vector<int> PopAll() {
    std::vector<int> ids;
    while (Item item = queue_.Pop()) ids.push_back(IdOf(item));
    return ids;
  }

  std::vector<int> PopExpired(TimePoint now) {
    std::vector<int> ids;
    for (const Item& item : queue_.PopExpired(now)) ids.push_back(IdOf(item));
    return ids;
  }

  RequestQueue queue_;
};

TEST_F(RequestQueueTest, AnEmptyQueueGivesNothing) {
  EXPECT_EQ(queue_.Pop(), nullptr);
  EXPECT_TRUE(queue_.empty());
  EXPECT_EQ(queue_.NextExpiry(), kNever);
  EXPECT_THAT(PopExpired(kNever), IsEmpty());
}

TEST_F(RequestQueueTest, RequestsOfOneLevelAreServedInOrderOfArrival) {
  for (const int id : {1, 2, 3, 4}) Push(id);
  EXPECT_EQ(queue_.size(), 4u);
  EXPECT_THAT(PopAll(), ElementsAre(1, 2, 3, 4));
  EXPECT_TRUE(queue_.empty());
}

TEST_F(RequestQueueTest, LevelOneIsServedFirstAndTheLowestLast) {
  Push(1, kLowestPriority);
  Push(2, 2);
  Push(3, 1);
  Push(4, 2);
  Push(5, 1);
  EXPECT_THAT(PopAll(), ElementsAre(3, 5, 2, 4, 1));
}

TEST_F(RequestQueueTest, ZeroAndWhatIsBeyondTheLowestMeanTheDefaultLevel) {
  Push(1, kDefaultPriority + 1);
  Push(2, 0);
  Push(3, kLowestPriority + 1);
  Push(4, kDefaultPriority);
  Push(5, kDefaultPriority - 1);
  EXPECT_THAT(PopAll(), ElementsAre(5, 2, 3, 4, 1));
}

TEST_F(RequestQueueTest, ARemovedRequestIsNotServedAndIsRemovedOnce) {
  Push(1);
  const Item second = Push(2);
  Push(3);
  EXPECT_EQ(queue_.Remove(*second), second);
  EXPECT_EQ(queue_.Remove(*second), nullptr);
  EXPECT_THAT(PopAll(), ElementsAre(1, 3));
}

TEST_F(RequestQueueTest, ARequestThatWasServedCannotBeRemoved) {
  const Item item = Push(1, 0, kStart);
  EXPECT_EQ(queue_.Pop(), item);
  EXPECT_EQ(queue_.Remove(*item), nullptr);
  EXPECT_EQ(queue_.NextExpiry(), kNever);
}

TEST_F(RequestQueueTest, ExpiredRequestsLeaveFromAnyLevelTheEarliestFirst) {
  Push(1, 1, kStart + milliseconds(30));
  Push(2, 0, kStart + milliseconds(10));
  Push(3, 9, kStart + milliseconds(20));
  Push(4);
  EXPECT_EQ(queue_.NextExpiry(), kStart + milliseconds(10));
  EXPECT_THAT(PopExpired(kStart), IsEmpty());
  EXPECT_THAT(PopExpired(kStart + milliseconds(20)), ElementsAre(2, 3));
  EXPECT_EQ(queue_.NextExpiry(), kStart + milliseconds(30));
  EXPECT_THAT(PopAll(), ElementsAre(1, 4));
}

TEST_F(RequestQueueTest, RequestsThatExpireTogetherAllLeave) {
  for (const int id : {1, 2, 3}) Push(id, 0, kStart);
  EXPECT_EQ(PopExpired(kStart).size(), 3u);
  EXPECT_TRUE(queue_.empty());
}

// The queue against a plain list over random operations.
TEST_F(RequestQueueTest, AgreesWithAListThatIsSearched) {
  struct Entry {
    uint64_t level;
    TimePoint expires;
    Item item;
  };
  std::mt19937 random(7);
  std::vector<Entry> model;
  TimePoint now = kStart;
  for (int step = 0; step < 5000; ++step) {
    switch (random() % 4) {
      case 0:
      case 1: {
        const uint64_t level = 1 + random() % kLowestPriority;
        const TimePoint expires = random() % 2 ? kNever : now + milliseconds(random() % 50);
        model.push_back({level, expires, Push(step, level, expires)});
        break;
      }
      case 2: {
        auto first = model.begin();
        for (auto it = model.begin(); it != model.end(); ++it) {
          if (it->level < first->level) first = it;
        }
        const Item popped = queue_.Pop();
        ASSERT_EQ(popped, model.empty() ? nullptr : first->item);
        if (!model.empty()) model.erase(first);
        break;
      }
      default: {
        now += milliseconds(random() % 10);
        const size_t expired =
            std::erase_if(model, [now](const Entry& entry) { return entry.expires <= now; });
        ASSERT_EQ(queue_.PopExpired(now).size(), expired);
        if (!model.empty()) {
          const auto victim = model.begin() + static_cast<long>(random() % model.size());
          ASSERT_EQ(queue_.Remove(*victim->item), victim->item);
          model.erase(victim);
        }
      }
    }
    ASSERT_EQ(queue_.size(), model.size());
  }
}

}  // namespace
}  // namespace scanserve

#include "server/admission.h"

#include <chrono>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace scanserve {
namespace {

using ::testing::HasSubstr;

constexpr TimePoint kNow{std::chrono::hours(1)};
constexpr size_t kHuge = std::numeric_limits<size_t>::max();

std::string MessageOf(const Admission::Decision& decision) {
  return std::string(decision.status.message());
}

TEST(AdmissionTest, AdmitsUpToTheLengthOfTheQueueAndRefusesTheNextAsUnavailable) {
  Admission admission({.queue_requests = 2, .queue_bytes = kHuge, .memory_bytes = kHuge});
  Admission::Decision first = admission.Admit({}, kNow);
  Admission::Decision second = admission.Admit({}, kNow);
  ASSERT_TRUE(first.ticket && second.ticket);
  const Admission::Decision third = admission.Admit({}, kNow);
  EXPECT_FALSE(third.ticket);
  EXPECT_EQ(third.reason, RejectReason::kQueueFull);
  EXPECT_EQ(third.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(MessageOf(third), "Exceeds maximum queue size: 2 of 2 calls wait");
  first.ticket->LeaveQueue();
  EXPECT_TRUE(admission.Admit({}, kNow).ticket);
}

TEST(AdmissionTest, CountsTheTensorBytesThatWait) {
  Admission admission({.queue_requests = 9, .queue_bytes = 100, .memory_bytes = kHuge});
  Admission::Decision first = admission.Admit({.payload_bytes = 60}, kNow);
  ASSERT_TRUE(first.ticket);
  const Admission::Decision second = admission.Admit({.payload_bytes = 41}, kNow);
  EXPECT_EQ(second.reason, RejectReason::kBytes);
  EXPECT_EQ(second.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(MessageOf(second), "queue: the call brings 41 bytes, 60 of 100 bytes are taken");
  EXPECT_TRUE(admission.Admit({.payload_bytes = 40}, kNow).ticket);
  first.ticket->LeaveQueue();
  EXPECT_TRUE(admission.Admit({.payload_bytes = 100}, kNow).ticket);
}

TEST(AdmissionTest, PromisesMemoryUntilTheTicketGoesNotOnlyWhileTheCallWaits) {
  Admission admission({.queue_requests = 9, .queue_bytes = kHuge, .memory_bytes = 100});
  std::optional<Admission::Ticket> ticket = admission.Admit({.memory_bytes = 70}, kNow).ticket;
  ASSERT_TRUE(ticket);
  ticket->LeaveQueue();
  EXPECT_EQ(admission.memory_bytes(), 70u);
  const Admission::Decision second = admission.Admit({.memory_bytes = 31}, kNow);
  EXPECT_EQ(second.reason, RejectReason::kMemory);
  EXPECT_EQ(second.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(MessageOf(second),
            "device memory: the call needs 31 bytes, 70 of 100 bytes are promised");
  ticket.reset();
  EXPECT_EQ(admission.memory_bytes(), 0u);
  EXPECT_TRUE(admission.Admit({.memory_bytes = 100}, kNow).ticket);
}

TEST(AdmissionTest, SaysThatACallCanNeverFit) {
  Admission admission({.queue_requests = 9, .queue_bytes = kHuge, .memory_bytes = 100});
  const Admission::Decision decision = admission.Admit({.memory_bytes = kHuge}, kNow);
  EXPECT_EQ(decision.reason, RejectReason::kMemory);
  EXPECT_THAT(MessageOf(decision), HasSubstr("more than the whole budget of 100 bytes"));
}

TEST(AdmissionTest, RefusesACallWhoseDeadlineHasPassed) {
  Admission admission({.queue_requests = 9, .queue_bytes = kHuge, .memory_bytes = kHuge});
  const Admission::Decision late = admission.Admit({.deadline = kNow}, kNow);
  EXPECT_EQ(late.reason, RejectReason::kDeadline);
  EXPECT_EQ(late.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(admission.Admit({.deadline = kNow + Nanoseconds(1)}, kNow).ticket);
}

TEST(AdmissionTest, RefusesEverythingOnceClosedButKeepsItsPromises) {
  Admission admission({.queue_requests = 9, .queue_bytes = kHuge, .memory_bytes = 100});
  std::optional<Admission::Ticket> ticket = admission.Admit({.memory_bytes = 7}, kNow).ticket;
  admission.Close();
  const Admission::Decision refused = admission.Admit({}, kNow);
  EXPECT_EQ(refused.reason, RejectReason::kDraining);
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(admission.memory_bytes(), 7u);
  ticket.reset();
  EXPECT_EQ(admission.memory_bytes(), 0u);
}

TEST(AdmissionTest, AMovedTicketGivesItsRoomBackOnce) {
  Admission admission({.queue_requests = 1, .queue_bytes = kHuge, .memory_bytes = 100});
  {
    std::vector<Admission::Ticket> tickets;
    Admission::Ticket ticket = *admission.Admit({.memory_bytes = 5}, kNow).ticket;
    tickets.push_back(std::move(ticket));
    ticket.Release();
    EXPECT_EQ(admission.memory_bytes(), 5u);
    tickets.back().Release();
    EXPECT_EQ(admission.memory_bytes(), 0u);
  }
  EXPECT_TRUE(admission.Admit({}, kNow).ticket);
}

}  // namespace
}  // namespace scanserve

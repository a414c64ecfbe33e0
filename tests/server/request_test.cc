#include "server/request.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/runtime/cpu_device.h"
#include "server/worker/device_worker.h"
#include "tests/server/fake_clock.h"
#include "tests/server/server_fixture.h"

namespace scanserve {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

class RequestTest : public ::testing::Test {
 protected:
  RequestTest()
      : device_({.num_threads = 1, .memory_budget_bytes = 1 << 24}),
        admission_({.queue_requests = 1000, .queue_bytes = 1 << 30, .memory_bytes = 1 << 30}),
        metrics_(Catalog::Default(), "cpu", [] { return Metrics::Sample(); }),
        stats_(Catalog::Default()),
        environment_{clock_, metrics_, stats_, "cpu"},
        worker_(*DeviceWorker::Start(device_, clock_)) {}

  std::shared_ptr<Request> Make(Call call, CallDone done) {
    auto request = std::make_shared<Request>(std::move(call), std::move(done), environment_);
    std::vector<InputTensor> inputs;
    for (const CallInput& input : request->call().inputs) {
      inputs.push_back({input.name, {input.meta, nullptr}});
    }
    BoundOp bound = *Bind(*request->call().model, inputs, request->call().attributes, {});
    request->SetPlan(std::move(bound), PuppetCall(script_), Nanoseconds(5));
    return request;
  }

  Admission::Ticket Admit() {
    return *admission_.Admit({.payload_bytes = 10, .memory_bytes = 20}, clock_.Now()).ticket;
  }

  double Series(const std::string& name) {
    return SeriesValue(metrics_.Serialize(), name).value_or(-1);
  }
  double Requests(const std::string& code) {
    return Series("scanserve_requests_total{code=\"" + code +
                  "\",method=\"ModelInfer\",model=\"selective_scan_fwd\"}");
  }
  double InFlight() { return Series("scanserve_requests_in_flight{model=\"selective_scan_fwd\"}"); }
  double QueueDepth() { return Series("scanserve_queue_depth{model=\"selective_scan_fwd\"}"); }

  ScopedLog log_;
  FakeClock clock_;
  PuppetScript script_;
  CpuDevice device_;
  Admission admission_;
  Metrics metrics_;
  ModelStatsTable stats_;
  RequestEnvironment environment_;
  std::unique_ptr<DeviceWorker> worker_;
};

TEST_F(RequestTest, FinishesOnceAndIgnoresLaterEnds) {
  int count = 0;
  absl::Status last;
  auto request = Make(SmallCall(), [&](absl::Status status, CallResult) {
    ++count;
    last = std::move(status);
  });
  EXPECT_EQ(InFlight(), 1);
  request->Finish(absl::InternalError("first"));
  request->Finish(absl::OkStatus());
  request->Cancel();
  EXPECT_EQ(count, 1);
  EXPECT_EQ(last.message(), "first");
  EXPECT_EQ(Requests("INTERNAL"), 1);
  EXPECT_EQ(Requests("OK"), 0);
  EXPECT_EQ(InFlight(), 0);
}

TEST_F(RequestTest, OneOfManyRacingEndsWins) {
  constexpr int kRounds = 300;
  std::atomic<int> done{0};
  for (int round = 0; round < kRounds; ++round) {
    auto request = Make(SmallCall(), [&](absl::Status, CallResult) { ++done; });
    request->EnterQueue(Admit(), *worker_);
    std::atomic<int> waiting{3};
    std::vector<std::thread> threads;
    for (const absl::StatusCode code : {absl::StatusCode::kOk, absl::StatusCode::kCancelled,
                                        absl::StatusCode::kDeadlineExceeded}) {
      threads.emplace_back([&, code] {
        absl::Status status(code, "raced");
        --waiting;
        while (waiting > 0) std::this_thread::yield();
        request->Finish(std::move(status));
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(done, round + 1);
  }
  EXPECT_EQ(Requests("OK") + Requests("CANCELLED") + Requests("DEADLINE_EXCEEDED"), kRounds);
  EXPECT_EQ(InFlight(), 0);
  EXPECT_EQ(QueueDepth(), 0);
  EXPECT_EQ(admission_.memory_bytes(), 0u);
}

// The real worker runs, a client cancels and the clock passes the deadline, all at once.
TEST_F(RequestTest, CancelDeadlineAndCompletionRaceToOneEnd) {
  constexpr int kRounds = 300;
  int outcomes[17] = {};
  for (int round = 0; round < kRounds; ++round) {
    Call call = SmallCall();
    call.deadline = clock_.Now() + milliseconds(10);
    Outcome outcome;
    auto request = Make(std::move(call), outcome.Done());
    request->EnterQueue(Admit(), *worker_);
    std::thread canceller([&] {
      for (int i = 0; i < round % 7; ++i) std::this_thread::yield();
      if (round % 3 != 0) request->Cancel();
    });
    std::thread timekeeper([&] {
      for (int i = 0; i < round % 5; ++i) std::this_thread::yield();
      if (round % 3 != 1) clock_.Advance(milliseconds(20));
    });
    worker_->Enqueue(request);
    // A second `done` would throw from the promise.
    ++outcomes[static_cast<int>(outcome.status().code())];
    canceller.join();
    timekeeper.join();
  }
  EXPECT_EQ(outcomes[0] + outcomes[1] + outcomes[4], kRounds);
  EXPECT_EQ(InFlight(), 0);
  EXPECT_EQ(QueueDepth(), 0);
  EXPECT_EQ(admission_.memory_bytes(), 0u);
  EXPECT_EQ(device_.pool().GetStats().used_bytes, 0u);
}

TEST_F(RequestTest, ReleasesItsTicketAndItsBytesBeforeDone) {
  auto bytes = std::make_shared<int>(0);
  std::weak_ptr<int> kept = bytes;
  Call call = SmallCall();
  call.keep_alive = std::move(bytes);
  bool checked = false;
  auto request = Make(std::move(call), [&](absl::Status, CallResult) {
    EXPECT_EQ(admission_.memory_bytes(), 0u);
    EXPECT_TRUE(kept.expired());
    EXPECT_EQ(Requests("UNAVAILABLE"), 1);
    checked = true;
  });
  request->EnterQueue(Admit(), *worker_);
  EXPECT_EQ(admission_.memory_bytes(), 20u);
  request->Finish(absl::UnavailableError("stopped"));
  EXPECT_TRUE(checked);
}

// A reader that stops reading once held memory that admission promised to others.
TEST_F(RequestTest, KeepsTheMemoryOfOutputsPromisedUntilTheyAreGone) {
  const auto pool = MemoryPool::Create(HostMemorySource(), 1 << 20);
  Outcome outcome;
  auto request = Make(SmallCall(), outcome.Done());
  request->EnterQueue(Admit(), *worker_);
  request->Start();
  request->result().outputs.push_back({"y", {}, pool->Allocate(8).value()});
  request->Finish(absl::OkStatus());
  EXPECT_EQ(admission_.memory_bytes(), 20u);
  outcome.result() = {};
  EXPECT_EQ(admission_.memory_bytes(), 0u);
}

TEST_F(RequestTest, GivesAResultOnlyWithSuccess) {
  for (const absl::Status& status : {absl::OkStatus(), absl::InternalError("broken")}) {
    Outcome outcome;
    auto request = Make(SmallCall(), outcome.Done());
    request->EnterQueue(Admit(), *worker_);
    request->Start();
    request->result().outputs.emplace_back().name = "y";
    request->Finish(status);
    EXPECT_EQ(outcome.result().outputs.size(), status.ok() ? 1u : 0u);
    EXPECT_EQ(outcome.result().report.implementation, status.ok() ? "puppet" : "");
  }
}

TEST_F(RequestTest, ExpiresAtTheEarlierOfDeadlineAndQueueTimeout) {
  const TimePoint now = clock_.Now();
  struct Case {
    TimePoint deadline;
    int64_t timeout_us;
    TimePoint expires;
    std::string message;
  };
  for (const Case& c : {
           Case{kNever, 0, kNever, ""},
           Case{kNever, 500, now + microseconds(500),
                "Request timeout expired: the call waited "
                "500 us for the device"},
           Case{now + milliseconds(2), 500, now + microseconds(500), "Request timeout expired"},
           Case{now + milliseconds(2), 9000, now + milliseconds(2), "the deadline passed while"},
           Case{kNever, INT64_MAX, kNever, ""},
       }) {
    Call call = SmallCall();
    call.deadline = c.deadline;
    call.options.queue_timeout_us = c.timeout_us;
    Outcome outcome;
    auto request = Make(std::move(call), outcome.Done());
    request->EnterQueue(Admit(), *worker_);
    EXPECT_EQ(request->expires(), c.expires) << c.timeout_us;
    EXPECT_EQ(request->ExpiredStatus().code(), absl::StatusCode::kDeadlineExceeded);
    if (!c.message.empty()) {
      EXPECT_THAT(std::string(request->ExpiredStatus().message()), HasSubstr(c.message));
    }
    request->Finish(request->ExpiredStatus());
  }
}

TEST_F(RequestTest, CountsAnInterruptionAtTheStageWhereItHappened) {
  const auto stage_series = [&](const std::string& metric, const std::string& stage) {
    return Series(metric + "{model=\"selective_scan_fwd\",stage=\"" + stage + "\"}");
  };
  Outcome queued;
  auto first = Make(SmallCall(), queued.Done());
  first->EnterQueue(Admit(), *worker_);
  first->Finish(absl::CancelledError("gone"));
  Outcome running;
  auto second = Make(SmallCall(), running.Done());
  second->EnterQueue(Admit(), *worker_);
  second->Start();
  second->Finish(absl::DeadlineExceededError("late"));
  EXPECT_EQ(stage_series("scanserve_cancelled_total", "queued"), 1);
  EXPECT_EQ(stage_series("scanserve_cancelled_total", "running"), 0);
  EXPECT_EQ(stage_series("scanserve_deadline_exceeded_total", "running"), 1);
  EXPECT_EQ(stage_series("scanserve_deadline_exceeded_total", "queued"), 0);
}

TEST_F(RequestTest, LogsOneLineThatNamesTheCase) {
  Outcome good;
  Outcome bad;
  auto request = Make(SmallCall(), good.Done());
  request->EnterQueue(Admit(), *worker_);
  clock_.Advance(milliseconds(3));
  request->Finish(absl::OkStatus());
  Make(SmallCall(), bad.Done())->Finish(absl::InternalError("two\nlines"));
  const std::string name =
      "selective_scan_fwd:fp32:batch=2,seqlen=5,dim=4,dstate=3:puppet:cpu:seed=0";
  EXPECT_EQ(log_.text(), "debug ModelInfer " + name +
                             " OK at queued after 3.000 ms\n"
                             "error ModelInfer " +
                             name + " INTERNAL at admission after 0.000 ms: two lines\n");
}

TEST_F(RequestTest, StatisticsAddUpOverSuccessesAndFailures) {
  Outcome good;
  Call call = SmallCall();
  call.received = clock_.Now();
  auto request = Make(std::move(call), good.Done());
  clock_.Advance(milliseconds(1));
  request->EnterQueue(Admit(), *worker_);
  clock_.Advance(milliseconds(2));
  request->Start();
  request->result().report.h2d_ns = 10;
  request->result().report.compute_ns = 20;
  request->result().report.d2h_ns = 30;
  clock_.Advance(milliseconds(3));
  request->Finish(absl::OkStatus());
  EXPECT_EQ(good.result().report.queue_ns, 2000000u);
  Outcome bad;
  Make(SmallCall(), bad.Done())->Finish(absl::InternalError("broken"));

  const Model& model = **Catalog::Default().FindModel("selective_scan_fwd");
  const ModelStats stats = stats_.StatsOf(model);
  EXPECT_EQ(stats.inference_count, 2u);  // the batch
  EXPECT_EQ(stats.execution_count, 1u);
  EXPECT_EQ(stats.success.count, 1u);
  EXPECT_EQ(stats.success.ns, 6000000u);
  EXPECT_EQ(stats.queue.ns, 2000000u);
  EXPECT_EQ(stats.compute_input.ns, 10u);
  EXPECT_EQ(stats.compute_infer.ns, 20u);
  EXPECT_EQ(stats.compute_output.ns, 30u);
  EXPECT_EQ(stats.fail.count, 1u);
  EXPECT_GT(stats.last_inference_ms, 0u);
  ASSERT_EQ(stats.batches.count(2), 1u);
  EXPECT_EQ(stats.batches.at(2)[1].ns, 20u);
  EXPECT_EQ(Series("scanserve_queue_duration_seconds_sum{model=\"selective_scan_fwd\"}"), 0.002);
}

}  // namespace
}  // namespace scanserve

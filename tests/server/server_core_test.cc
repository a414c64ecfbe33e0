#include "server/server_core.h"

#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/runtime/cpu_device.h"
#include "tests/server/fake_clock.h"
#include "tests/server/server_fixture.h"

namespace scanserve {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kModel[] = "selective_scan_fwd";

// A core on the CPU device, a clock that stands still, and plans that do what script_ says.
class ServerCoreTest : public ::testing::Test {
 protected:
  ServerCoreTest() : device_({.num_threads = 2, .memory_budget_bytes = 64 << 20}) {
    options_.limits = {.queue_requests = 4, .queue_bytes = 64 << 20, .memory_bytes = 64 << 20};
    options_.clock = &clock_;
    options_.planner = [this](const BoundOp&, absl::string_view) {
      return absl::StatusOr<PlannedCall>(PuppetCall(script_));
    };
  }
  // Whatever a failed expectation has left in the worker must not hang the test.
  ~ServerCoreTest() override { gate_.Open(); }

  ServerCore& core() {
    if (core_ == nullptr) core_ = *ServerCore::Create(device_, options_);
    return *core_;
  }

  // From now on every run waits at the gate; returns when the first has reached it.
  std::unique_ptr<Outcome> OccupyWorker() {
    script_.gate = &gate_;
    auto outcome = std::make_unique<Outcome>();
    core().Submit(SmallCall(), outcome->Done());
    gate_.WaitForArrivals(1);
    return outcome;
  }

  absl::Status StatusOf(Call call) {
    Outcome outcome;
    core().Submit(std::move(call), outcome.Done());
    return outcome.status();
  }

  double Series(const std::string& name) {
    return SeriesValue(core().metrics().Serialize(), name).value_or(-1);
  }
  double Requests(const std::string& code) {
    return Series(absl::StrCat("scanserve_requests_total{code=\"", code,
                               "\",method=\"ModelInfer\",model=\"", kModel, "\"}"));
  }
  double OfModel(const std::string& metric, const std::string& rest = "") {
    return Series(absl::StrCat(metric, "{model=\"", kModel, "\"", rest, "}"));
  }
  // Nothing waits, runs or holds memory.
  void ExpectIdle() {
    EXPECT_EQ(OfModel("scanserve_requests_in_flight"), 0);
    EXPECT_EQ(OfModel("scanserve_queue_depth"), 0);
    EXPECT_EQ(OfModel("scanserve_queue_bytes"), 0);
    EXPECT_EQ(Series("scanserve_admitted_memory_bytes{device=\"cpu\"}"), 0);
    EXPECT_EQ(device_.pool().GetStats().used_bytes, 0u);
  }

  ScopedLog log_;
  FakeClock clock_;
  Gate gate_;
  PuppetScript script_;
  CpuDevice device_;
  ServerCoreOptions options_;
  std::unique_ptr<ServerCore> core_;
};

TEST_F(ServerCoreTest, RunsACallAndReportsHowItWent) {
  const TestCall made = MakeTestCall("selective_scan_fwd:fp32:batch=2,seqlen=5,dim=4,dstate=3");
  script_.workspace_bytes = 640;
  {
    Outcome outcome;
    core().Submit(made.call, outcome.Done());
    ASSERT_TRUE(outcome.status().ok()) << outcome.status();
    const CallResult& result = outcome.result();
    ASSERT_EQ(result.outputs.size(), 2u);
    EXPECT_EQ(result.outputs[0].name, "y");
    EXPECT_EQ(result.outputs[0].meta, (TensorMeta{DType::kFP32, {2, 5, 4}}));
    EXPECT_EQ(result.outputs[1].name, "final_state");
    // The puppet copies u.
    EXPECT_EQ(std::memcmp(result.outputs[0].buffer.data(), (*made.tensors)[0].tensor.data(), 160),
              0);
    EXPECT_EQ(result.report.implementation, "puppet");
    EXPECT_EQ(result.report.precision, "ieee");
    EXPECT_TRUE(result.report.deterministic);
    EXPECT_EQ(result.report.workspace_bytes, 640u);
    const size_t outputs = 160 + 2 * 4 * 3 * 4;
    EXPECT_EQ(result.report.peak_bytes, made.call.request_bytes + outputs + 640);
    EXPECT_GT(device_.pool().GetStats().used_bytes, 0u);  // the outputs
  }
  EXPECT_EQ(Requests("OK"), 1);
  EXPECT_EQ(OfModel("scanserve_executions_total"), 1);
  EXPECT_EQ(core().StatsOf(*made.call.model).success.count, 1u);
  ExpectIdle();
}

TEST_F(ServerCoreTest, ReturnsTheOutputsThatWereAskedForInTheirOrder) {
  Call call = SmallCall();
  call.outputs = {"final_state", "y"};
  Outcome outcome;
  core().Submit(std::move(call), outcome.Done());
  ASSERT_TRUE(outcome.status().ok()) << outcome.status();
  EXPECT_EQ(outcome.result().outputs[0].name, "final_state");
  EXPECT_EQ(outcome.result().outputs[1].name, "y");
}

TEST_F(ServerCoreTest, ALargeInputThatComesInOddPiecesArrivesWhole) {
  TestCall made = MakeTestCall("selective_scan_fwd:fp32:batch=1,seqlen=2500,dim=1000,dstate=1");
  CallInput& u = made.call.inputs[0];
  absl::Span<const char> rest = u.payload.pieces[0];
  u.payload = Payload();
  for (size_t size = 1; !rest.empty(); size = size * 3 + 1) {
    u.payload.Append(rest.subspan(0, size));
    rest.remove_prefix(std::min(size, rest.size()));
  }
  ASSERT_GT(u.payload.size, size_t{8} << 20);
  Outcome outcome;
  core().Submit(made.call, outcome.Done());
  ASSERT_TRUE(outcome.status().ok()) << outcome.status();
  EXPECT_EQ(std::memcmp(outcome.result().outputs[0].buffer.data(), (*made.tensors)[0].tensor.data(),
                        u.payload.size),
            0);
}

TEST_F(ServerCoreTest, LetsTheInputBytesGoBeforeItComputes) {
  Call call = SmallCall();
  const std::weak_ptr<void> bytes = call.keep_alive;
  script_.gate = &gate_;
  Outcome outcome;
  core().Submit(std::move(call), outcome.Done());
  gate_.WaitForArrivals(1);
  EXPECT_TRUE(bytes.expired());
  gate_.Open();
  EXPECT_TRUE(outcome.status().ok());
}

TEST_F(ServerCoreTest, RefusesACallThatBreaksTheContract) {
  Call call = SmallCall();
  call.inputs[0].name = "v";
  EXPECT_EQ(StatusOf(std::move(call)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Requests("INVALID_ARGUMENT"), 1);
  EXPECT_EQ(OfModel("scanserve_rejected_total", ",reason=\"invalid\""), 1);
  EXPECT_EQ(script_.runs, 0);
  ExpectIdle();
}

TEST_F(ServerCoreTest, RefusesBytesThatDoNotFitTheShape) {
  for (const int change : {-1, 1}) {
    Call call = SmallCall();
    std::vector<char> bytes(160 + change);
    call.inputs[0].payload = Payload();
    call.inputs[0].payload.Append(bytes);
    const absl::Status status = StatusOf(std::move(call));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.message()),
              absl::StrCat("selective_scan_fwd: input byte size mismatch for 'u': got ",
                           160 + change, " bytes, expected 160 for shape [2,5,4] of FP32"));
  }
}

TEST_F(ServerCoreTest, RefusesShapesWhoseSizeOverflows) {
  for (const Shape& shape :
       {Shape{-1, 5, 4}, Shape{INT64_MAX, INT64_MAX, 4}, Shape{INT64_MIN, 1, 1}, Shape(100, 1)}) {
    Call call = SmallCall();
    call.inputs[0].meta.shape = shape;
    EXPECT_EQ(StatusOf(std::move(call)).code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(ServerCoreTest, ChecksTheOptionsOfACall) {
  struct Case {
    CallOptions options;
    absl::StatusCode code;
    std::string message;
  };
  const auto with = [](auto set) {
    CallOptions options;
    set(options);
    return options;
  };
  for (const Case& c : {
           Case{with([](CallOptions& o) { o.precision = "tf32x3"; }), absl::StatusCode::kOk, ""},
           Case{with([](CallOptions& o) { o.precision = "bf16"; }), absl::StatusCode::kOk, ""},
           Case{with([](CallOptions& o) { o.precision = "fp8"; }),
                absl::StatusCode::kInvalidArgument,
                "precision is 'fp8', expected one of ieee, tf32x3, tf32, bf16"},
           Case{with([](CallOptions& o) { o.chunk_size = 48; }), absl::StatusCode::kInvalidArgument,
                "chunk_size is 48, expected 0 or a power"},
           Case{with([](CallOptions& o) { o.chunk_size = -64; }),
                absl::StatusCode::kInvalidArgument, "chunk_size is -64"},
           Case{with([](CallOptions& o) { o.chunk_size = 4096; }),
                absl::StatusCode::kInvalidArgument, "chunk_size is 4096"},
           Case{with([](CallOptions& o) { o.chunk_size = 64; }), absl::StatusCode::kUnimplemented,
                "chunk_size is 64, but no implementation"},
           Case{with([](CallOptions& o) { o.queue_timeout_us = -1; }),
                absl::StatusCode::kInvalidArgument, "timeout is -1 us"},
       }) {
    Call call = SmallCall();
    call.options = c.options;
    const absl::Status status = StatusOf(std::move(call));
    EXPECT_EQ(status.code(), c.code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
  }
  EXPECT_EQ(OfModel("scanserve_rejected_total", ",reason=\"unsupported\""), 1);
}

TEST_F(ServerCoreTest, SaysThatNothingHereRunsALegalCall) {
  options_.planner = [](const BoundOp&, absl::string_view) {
    return absl::StatusOr<PlannedCall>(absl::UnimplementedError("no such unit"));
  };
  const absl::Status status = StatusOf(SmallCall());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(), "no such unit");
  EXPECT_EQ(OfModel("scanserve_rejected_total", ",reason=\"unsupported\""), 1);
}

TEST_F(ServerCoreTest, ReadsIndexTensorsOnceIntoItsOwnMemory) {
  TestCall made = MakeTestCall(
      "selective_scan_fwd:fp32:batch=1,seqlen=6,dim=2,dstate=1,nseq=2,with=cu_seqlens");
  const auto it = std::find_if(made.call.inputs.begin(), made.call.inputs.end(),
                               [](const CallInput& input) { return input.name == "cu_seqlens"; });
  ASSERT_NE(it, made.call.inputs.end());
  std::vector<int32_t> offsets = {0, 2, 6};
  it->meta = {DType::kINT32, {3}};
  it->payload = Payload();
  // In pieces that end inside a number.
  const auto* bytes = reinterpret_cast<const char*>(offsets.data());
  it->payload.Append({bytes, 5});
  it->payload.Append({bytes + 5, 7});
  std::vector<int64_t> bound_offsets;
  options_.planner = [&](const BoundOp& bound, absl::string_view) {
    bound_offsets = bound.cu_seqlens;
    offsets = {9, 9, 9};  // a client that changes its mind
    return absl::StatusOr<PlannedCall>(PuppetCall(script_));
  };
  EXPECT_TRUE(StatusOf(made.call).ok());
  EXPECT_THAT(bound_offsets, ElementsAre(0, 2, 6));
}

TEST_F(ServerCoreTest, CheckFiniteNamesTheTensorAndIsOffByDefault) {
  for (const bool check : {false, true}) {
    TestCall made = MakeTestCall("selective_scan_fwd:fp32:batch=2,seqlen=5,dim=4,dstate=3");
    (*made.tensors)[1].tensor.span<float>()[17] = std::numeric_limits<float>::quiet_NaN();
    made.call.options.check_finite = check;
    const absl::Status status = StatusOf(made.call);
    EXPECT_EQ(status.ok(), !check);
    if (check) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(status.message(),
                "selective_scan_fwd: check_finite: element 17 of input 'delta' is not finite");
    }
    ExpectIdle();
  }
}

TEST_F(ServerCoreTest, ServesByPriorityThenByArrival) {
  const auto first = OccupyWorker();
  Mutex mutex;
  std::vector<int> order;
  std::vector<std::unique_ptr<Outcome>> outcomes;
  const uint64_t priorities[] = {0, 9, 1, 0};
  for (int i = 0; i < 4; ++i) {
    Call call = SmallCall();
    call.options.priority = priorities[i];
    outcomes.push_back(std::make_unique<Outcome>());
    core().Submit(std::move(call), [&, i, done = outcomes.back()->Done()](
                                       absl::Status status, CallResult result) mutable {
      {
        MutexLock lock(mutex);
        order.push_back(i);
      }
      done(std::move(status), std::move(result));
    });
  }
  EXPECT_EQ(OfModel("scanserve_queue_depth"), 4);
  gate_.Open();
  for (const auto& outcome : outcomes) EXPECT_TRUE(outcome->status().ok());
  EXPECT_THAT(order, ElementsAre(2, 0, 3, 1));
}

TEST_F(ServerCoreTest, RefusesWhatTheQueueCannotHold) {
  const auto first = OccupyWorker();
  std::vector<std::unique_ptr<Outcome>> waiting;
  for (int i = 0; i < 4; ++i) {
    waiting.push_back(std::make_unique<Outcome>());
    core().Submit(SmallCall(), waiting.back()->Done());
  }
  const absl::Status status = StatusOf(SmallCall());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("Exceeds maximum queue size: 4 of 4"));
  EXPECT_EQ(OfModel("scanserve_rejected_total", ",reason=\"queue_full\""), 1);
  gate_.Open();
  for (const auto& outcome : waiting) EXPECT_TRUE(outcome->status().ok());
}

TEST_F(ServerCoreTest, ACancelledCallLeavesTheQueueAtOnce) {
  const auto first = OccupyWorker();
  Outcome second;
  CallHandle handle = core().Submit(SmallCall(), second.Done());
  EXPECT_FALSE(second.is_done());
  handle.Cancel();
  EXPECT_TRUE(second.is_done());  // though the worker is still busy
  EXPECT_EQ(second.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(OfModel("scanserve_cancelled_total", ",stage=\"queued\""), 1);
  EXPECT_EQ(OfModel("scanserve_queue_depth"), 0);
  handle.Cancel();
  gate_.Open();
  EXPECT_TRUE(first->status().ok());
  EXPECT_EQ(script_.runs, 1);
}

TEST_F(ServerCoreTest, ACancelledRunCompletesAndItsOutputIsDropped) {
  script_.gate = &gate_;
  Outcome outcome;
  CallHandle handle = core().Submit(SmallCall(), outcome.Done());
  gate_.WaitForArrivals(1);
  handle.Cancel();
  EXPECT_FALSE(outcome.is_done());
  gate_.Open();
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(outcome.result().outputs.empty());
  EXPECT_EQ(OfModel("scanserve_cancelled_total", ",stage=\"running\""), 1);
  EXPECT_EQ(OfModel("scanserve_executions_total"), 1);
  ExpectIdle();
}

TEST_F(ServerCoreTest, ADeadlineThatHasPassedIsNotQueued) {
  Call call = SmallCall();
  call.deadline = clock_.Now();
  EXPECT_EQ(StatusOf(std::move(call)).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(OfModel("scanserve_rejected_total", ",reason=\"deadline\""), 1);
  EXPECT_EQ(OfModel("scanserve_deadline_exceeded_total", ",stage=\"admission\""), 1);
  EXPECT_EQ(script_.runs, 0);
}

TEST_F(ServerCoreTest, ADeadlineEndsTheWaitWhileTheWorkerIsBusy) {
  const auto first = OccupyWorker();
  Outcome by_deadline;
  Outcome by_timeout;
  Outcome patient;
  Call call = SmallCall();
  call.deadline = clock_.Now() + milliseconds(10);
  core().Submit(std::move(call), by_deadline.Done());
  call = SmallCall();
  call.options.queue_timeout_us = 20000;
  core().Submit(std::move(call), by_timeout.Done());
  core().Submit(SmallCall(), patient.Done());
  clock_.Advance(milliseconds(10));
  EXPECT_EQ(by_deadline.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(by_timeout.is_done());
  clock_.Advance(milliseconds(10));
  EXPECT_EQ(by_timeout.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(by_timeout.status().message()), HasSubstr("Request timeout expired"));
  EXPECT_EQ(OfModel("scanserve_deadline_exceeded_total", ",stage=\"queued\""), 2);
  EXPECT_FALSE(patient.is_done());
  gate_.Open();
  EXPECT_TRUE(patient.status().ok());
}

TEST_F(ServerCoreTest, ADeadlineThatPassesDuringTheRunDropsTheOutput) {
  script_.gate = &gate_;
  Call call = SmallCall();
  call.deadline = clock_.Now() + milliseconds(10);
  Outcome outcome;
  core().Submit(std::move(call), outcome.Done());
  gate_.WaitForArrivals(1);
  clock_.Advance(milliseconds(20));
  gate_.Open();
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(OfModel("scanserve_deadline_exceeded_total", ",stage=\"running\""), 1);
  ExpectIdle();
}

TEST_F(ServerCoreTest, RefusesACallThatWouldNeverFitTheMemory) {
  script_.workspace_bytes = size_t{65} << 20;
  const absl::Status status = StatusOf(SmallCall());
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(OfModel("scanserve_rejected_total", ",reason=\"memory\""), 1);
  EXPECT_EQ(Series("scanserve_pool_alloc_failures_total{device=\"cpu\"}"), 0);
  ExpectIdle();
}

TEST_F(ServerCoreTest, RefusesACallForWhichTheOthersLeaveNoMemory) {
  script_.workspace_bytes = size_t{40} << 20;
  const auto first = OccupyWorker();
  const absl::Status status = StatusOf(SmallCall());
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("bytes are promised"));
  gate_.Open();
  EXPECT_TRUE(first->status().ok());
}

TEST_F(ServerCoreTest, APoolThatIsExhaustedFailsTheCallAndGivesEverythingBack) {
  // More than the pool has is promised, as when replies on their way out still hold memory.
  options_.limits.memory_bytes = size_t{1} << 40;
  script_.workspace_bytes = size_t{65} << 20;
  EXPECT_EQ(StatusOf(SmallCall()).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Series("scanserve_pool_alloc_failures_total{device=\"cpu\"}"), 1);
  EXPECT_EQ(script_.runs, 0);
  ExpectIdle();
  script_.workspace_bytes = 64;
  EXPECT_TRUE(StatusOf(SmallCall()).ok());
}

TEST_F(ServerCoreTest, AFailedRunIsInternalAndLeavesTheServerServing) {
  script_.status = absl::InternalError("a kernel failed");
  EXPECT_EQ(StatusOf(SmallCall()).code(), absl::StatusCode::kInternal);
  ExpectIdle();
  script_.status = absl::OkStatus();
  EXPECT_TRUE(StatusOf(SmallCall()).ok());
  const Model& model = **Catalog::Default().FindModel(kModel);
  EXPECT_EQ(core().StatsOf(model).fail.count, 1u);
  EXPECT_EQ(core().StatsOf(model).success.count, 1u);
}

TEST_F(ServerCoreTest, DrainsInSteps) {
  EXPECT_TRUE(core().IsReady());
  EXPECT_EQ(Series("scanserve_ready"), 1);
  const auto running = OccupyWorker();
  Outcome waiting;
  core().Submit(SmallCall(), waiting.Done());

  core().BeginDrain();
  EXPECT_FALSE(core().IsReady());
  EXPECT_EQ(Series("scanserve_ready"), 0);
  EXPECT_EQ(Series("scanserve_draining"), 1);
  Outcome late;
  core().Submit(SmallCall(), late.Done());
  EXPECT_FALSE(late.is_done());  // still admitted

  core().StopAdmitting();
  EXPECT_EQ(StatusOf(SmallCall()).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(OfModel("scanserve_rejected_total", ",reason=\"draining\""), 1);
  gate_.Open();
  EXPECT_TRUE(running->status().ok());
  EXPECT_TRUE(waiting.status().ok());
  EXPECT_TRUE(late.status().ok());
  core().Stop();
  for (Outcome* outcome : {running.get(), &waiting, &late}) outcome->result() = {};
  ExpectIdle();
}

TEST_F(ServerCoreTest, StopFinishesWhatWaitsAndWhatRuns) {
  const auto running = OccupyWorker();
  Outcome waiting;
  core().Submit(SmallCall(), waiting.Done());
  std::thread stopper([this] { core().Stop(); });
  EXPECT_EQ(waiting.status().code(), absl::StatusCode::kUnavailable);
  gate_.Open();
  stopper.join();
  EXPECT_TRUE(running->status().ok());
  EXPECT_EQ(StatusOf(SmallCall()).code(), absl::StatusCode::kUnavailable);
  running->result() = {};
  ExpectIdle();
}

TEST_F(ServerCoreTest, CountsRpcsThatNeverBecameACall) {
  core().CountRejected(nullptr, "ModelInfer", absl::NotFoundError("no such model"));
  EXPECT_EQ(Series("scanserve_requests_total{code=\"NOT_FOUND\",method=\"ModelInfer\","
                   "model=\"_unknown\"}"),
            1);
  EXPECT_EQ(Series("scanserve_rejected_total{model=\"_unknown\",reason=\"invalid\"}"), 1);
  core().CountRejected(nullptr, "ModelInfer", absl::UnavailableError("shutting down"));
  EXPECT_EQ(Series("scanserve_rejected_total{model=\"_unknown\",reason=\"draining\"}"), 1);
  // An upload that its client gave up is no fault of the message.
  core().CountRejected(nullptr, "ModelInfer", absl::CancelledError("gone"));
  EXPECT_EQ(Series("scanserve_cancelled_total{model=\"_unknown\",stage=\"admission\"}"), 1);
  EXPECT_EQ(Series("scanserve_rejected_total{model=\"_unknown\",reason=\"invalid\"}"), 1);
  core().CountResponse(**Catalog::Default().FindModel(kModel), 3000);
  EXPECT_EQ(OfModel("scanserve_response_bytes_sum"), 3000);
}

}  // namespace
}  // namespace scanserve

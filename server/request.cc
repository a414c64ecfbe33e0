#include "server/request.h"

#include <cassert>
#include <chrono>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/spec/op_case.h"
#include "server/core.h"
#include "server/worker/device_worker.h"
#include "spdlog/spdlog.h"

namespace scanserve {
namespace {

uint64_t Ns(Nanoseconds duration) { return static_cast<uint64_t>(duration.count()); }

// What the caller did is information for the operator; what we could not do is a warning.
spdlog::level::level_enum LevelOf(absl::StatusCode code) {
  using enum absl::StatusCode;
  if (code == kOk) return spdlog::level::debug;
  if (code == kInternal || code == kUnknown || code == kDataLoss) return spdlog::level::err;
  if (code == kUnavailable || code == kResourceExhausted) return spdlog::level::warn;
  return spdlog::level::info;
}

// Messages quote what callers sent; one request must stay one log line.
std::string OneLine(absl::string_view text) {
  std::string line(text);
  for (char& c : line) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) c = ' ';
  }
  return line;
}

}  // namespace

void CallHandle::Cancel() { request_->Cancel(); }

Request::Request(Call call, CallDone done, RequestEnvironment& environment)
    : environment_(environment), call_(std::move(call)), done_(std::move(done)) {
  if (call_.received == TimePoint{}) call_.received = environment_.clock.Now();
  for (const CallInput& input : call_.inputs) payload_bytes_ += input.payload.size;
  environment_.metrics.BeginRequest(call_.model, call_.request_bytes);
}

Request::~Request() { assert(stage() == Stage::kDone); }

void Request::CopyInput(size_t index) {
  Payload& payload = call_.inputs[index].payload;
  auto copy = std::make_unique<char[]>(payload.size);
  payload.CopyTo(copy.get());
  Payload copied;
  copied.Append({copy.get(), payload.size});
  payload = std::move(copied);
  copies_.push_back(std::move(copy));
}

void Request::SetPlan(BoundOp bound, PlannedCall planned, Nanoseconds planning) {
  bound_ = std::move(bound);
  planned_ = std::move(planned);
  CallReport& report = result_.report;
  report.implementation = planned_.implementation;
  // No implementation rounds below the dtype of the call or uses another order of summation yet.
  report.precision = "ieee";
  report.deterministic = true;
  report.workspace_bytes = planned_.plan->workspace_bytes();
  report.cold_start_ns = Ns(planning);
}

void Request::Reject(RejectReason reason, absl::Status status) {
  environment_.metrics.CountRejected(call_.model, reason);
  Finish(std::move(status));
}

void Request::EnterQueue(Admission::Ticket ticket, DeviceWorker& worker) {
  ticket_ = std::move(ticket);
  queued_at_ = environment_.clock.Now();
  expires_ = call_.deadline;
  if (call_.options.queue_timeout_us > 0) {
    // Compared as durations: a time-out may reach beyond the end of the clock.
    const auto limit = std::chrono::microseconds(call_.options.queue_timeout_us);
    const auto rest = std::chrono::floor<std::chrono::microseconds>(expires_ - queued_at_);
    if (limit < rest) expires_ = queued_at_ + limit;
  }
  worker_.store(&worker);
  environment_.metrics.EnterQueue(call_.model, payload_bytes_);
  stage_.store(Stage::kQueued, std::memory_order_release);
}

absl::Status Request::ExpiredStatus() const {
  if (expires_ == call_.deadline) {
    return absl::DeadlineExceededError("the deadline passed while the call waited for the device");
  }
  return absl::DeadlineExceededError(absl::StrCat("Request timeout expired: the call waited ",
                                                  call_.options.queue_timeout_us,
                                                  " us for the device"));
}

void Request::LeaveQueue(TimePoint now) {
  ticket_.LeaveQueue();
  const Nanoseconds waited = now - queued_at_;
  result_.report.queue_ns = Ns(waited);
  environment_.metrics.LeaveQueue(call_.model, payload_bytes_, waited);
}

void Request::Start() {
  LeaveQueue(environment_.clock.Now());
  environment_.metrics.Execute(call_.model);
  stage_.store(Stage::kRunning, std::memory_order_release);
}

void Request::ReleasePayload() {
  for (CallInput& input : call_.inputs) input.payload = Payload();
  copies_.clear();
  call_.keep_alive.reset();
}

void Request::Cancel() {
  cancelled_.store(true);
  if (DeviceWorker* worker = worker_.load(); worker != nullptr && stage() == Stage::kQueued) {
    worker->Withdraw(*this);
  }
}

absl::Status Request::Interruption() const {
  if (environment_.clock.Now() >= call_.deadline) {
    return absl::DeadlineExceededError("the deadline passed before the call had finished");
  }
  if (cancelled_.load()) return absl::CancelledError("the client cancelled the call");
  return absl::OkStatus();
}

void Request::Finish(absl::Status status) {
  const Stage stage = stage_.exchange(Stage::kDone, std::memory_order_acq_rel);
  if (stage == Stage::kDone) return;
  Record(stage, status, environment_.clock.Now());
  ReleasePayload();
  CallResult result = std::exchange(result_, {});
  if (!status.ok()) result = {};
  HandOver(result);
  // The owner may let go of everything once `done` has begun.
  CallDone done = std::move(done_);
  done(std::move(status), std::move(result));
}

// The outputs' memory stays promised until they have been sent.
void Request::HandOver(CallResult& result) {
  size_t bytes = 0;
  for (const CallOutput& output : result.outputs) bytes += output.buffer.block_size();
  if (bytes == 0) {
    ticket_.Release();
    return;
  }
  ticket_.LeaveQueue();
  ticket_.KeepOnly(bytes);
  result.admitted = std::make_shared<Admission::Ticket>(std::move(ticket_));
}

void Request::Record(Stage stage, const absl::Status& status, TimePoint now) {
  Metrics& metrics = environment_.metrics;
  const Nanoseconds total = now - call_.received;
  if (stage == Stage::kQueued) LeaveQueue(now);
  metrics.CountRequest(call_.model, call_.method, status.code());
  metrics.CountInterrupted(call_.model, stage, status.code());
  metrics.EndRequest(call_.model, total);
  if (status.ok()) {
    RecordSuccess(total);
  } else {
    environment_.stats.RecordFailure(*call_.model, total);
  }
  Log(stage, status, total);
}

void Request::RecordSuccess(Nanoseconds total) {
  const CallReport& report = result_.report;
  PhaseTimes phases;
  phases.parse = queued_at_ - call_.received;
  phases.h2d = Nanoseconds(report.h2d_ns);
  phases.kernel = Nanoseconds(report.compute_ns);
  phases.d2h = Nanoseconds(report.d2h_ns);
  environment_.metrics.RecordPhases(call_.model, phases);
  CallTimes times;
  times.total = total;
  times.queue = Nanoseconds(report.queue_ns);
  times.compute_input = phases.h2d;
  times.compute_infer = phases.kernel;
  times.compute_output = phases.d2h;
  const auto batch = static_cast<uint64_t>(bound_.dims[bound_.spec().batch_axis]);
  environment_.stats.RecordSuccess(*call_.model, batch, times);
}

void Request::Log(Stage stage, const absl::Status& status, Nanoseconds total) const {
  const spdlog::level::level_enum level = LevelOf(status.code());
  if (!spdlog::should_log(level)) return;
  const std::string what = planned_.plan == nullptr
                               ? call_.model->name
                               : CaseString(bound_, planned_.implementation, environment_.device);
  spdlog::log(level, "{} {} {} at {} after {:.3f} ms{}{}", call_.method, what,
              absl::StatusCodeToString(status.code()), std::string(NameOf(stage)),
              Seconds(total) * 1e3, status.ok() ? "" : ": ", OneLine(status.message()));
}

}  // namespace scanserve

// One call on its way through the server.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/clock.h"
#include "kernels/runtime/planner.h"
#include "kernels/spec/bind.h"
#include "server/admission.h"
#include "server/call.h"
#include "server/metrics/metrics.h"
#include "server/metrics/model_stats.h"

namespace scanserve {

class DeviceWorker;

// What all requests of a server share. Outlives them.
struct RequestEnvironment {
  const Clock& clock;
  Metrics& metrics;
  ModelStatsTable& stats;
  std::string device;  // in case strings
};

// A request moves forward only: admission -> queued -> running -> done. It has one owner at a time
// (the rpc thread, then the queue, then the device's lane), who alone calls the functions of that
// stage; handing it over synchronises. Only Cancel and Finish may be called by anybody at any
// time, and whatever races, the first Finish counts and later ones do nothing.
class Request {
 public:
  // `call.model` is not null. `done` is called once, by Finish.
  Request(Call call, CallDone done, RequestEnvironment& environment);
  // Must be done.
  ~Request();
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  const Call& call() const { return call_; }
  Stage stage() const { return stage_.load(std::memory_order_acquire); }

  // --- The rpc thread, at admission.
  // Gives the tensors that must be read now (offsets of packed sequences) private memory, so that
  // what Bind has checked is what runs.
  void CopyInput(size_t index);
  void SetPlan(BoundOp bound, PlannedCall planned, Nanoseconds planning);
  const BoundOp& bound() const { return bound_; }
  const Plan& plan() const { return *planned_.plan; }
  // Counts why the call is refused, then finishes it.
  void Reject(RejectReason reason, absl::Status status);
  void EnterQueue(Admission::Ticket ticket, DeviceWorker& worker);

  // --- The queue.
  // When the request must leave the queue unserved: its deadline or the end of its queue time-out.
  TimePoint expires() const { return expires_; }
  // DEADLINE_EXCEEDED, saying which of the two it was.
  absl::Status ExpiredStatus() const;

  // --- The lane.
  void Start();
  // Forgets the input bytes and whatever kept them alive.
  void ReleasePayload();
  CallResult& result() { return result_; }

  // --- Anybody.
  // The client is gone or its deadline has passed: leaves the queue at once; lets a run complete.
  void Cancel();
  // OK while somebody waits for the result, else CANCELLED or DEADLINE_EXCEEDED.
  absl::Status Interruption() const;
  // The single exit: metrics, statistics, log line, ticket, then `done`, which gets result() when
  // `status` is OK.
  void Finish(absl::Status status);

 private:
  void HandOver(CallResult& result);
  void Record(Stage stage, const absl::Status& status, TimePoint now);
  void RecordSuccess(Nanoseconds total);
  void Log(Stage stage, const absl::Status& status, Nanoseconds total) const;
  void LeaveQueue(TimePoint now);

  RequestEnvironment& environment_;
  Call call_;
  CallDone done_;
  std::atomic<Stage> stage_{Stage::kAdmission};
  std::atomic<bool> cancelled_{false};
  std::atomic<DeviceWorker*> worker_{nullptr};

  std::vector<std::unique_ptr<char[]>> copies_;
  BoundOp bound_;
  PlannedCall planned_;
  Admission::Ticket ticket_;
  size_t payload_bytes_ = 0;
  TimePoint queued_at_{};
  TimePoint expires_ = kNever;
  CallResult result_;
};

}  // namespace scanserve

// The Core that scanserved runs: one catalog, one device, one worker.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "kernels/runtime/plan_cache.h"
#include "kernels/runtime/planner.h"
#include "server/admission.h"
#include "server/core.h"
#include "server/metrics/metrics.h"
#include "server/metrics/model_stats.h"
#include "server/request.h"
#include "server/worker/device_worker.h"

namespace scanserve {

// As PlanCall. Called from several threads at once.
using Planner =
    std::function<absl::StatusOr<PlannedCall>(const BoundOp&, absl::string_view implementation)>;

struct ServerCoreOptions {
  AdmissionLimits limits;
  const Catalog* catalog = &Catalog::Default();
  const Clock* clock = nullptr;  // null: the real one
  Planner planner;               // empty: a PlanCache of the device
};

class ServerCore final : public Core {
 public:
  // `device` (and a clock or catalog in the options) outlive the core.
  static absl::StatusOr<std::unique_ptr<ServerCore>> Create(Device& device,
                                                            ServerCoreOptions options);
  // Stops. No adapter may call it any more.
  ~ServerCore() override;

  const Catalog& catalog() const override { return catalog_; }
  const Device& device() const override { return device_; }
  bool IsReady() const override { return state_.load() == State::kReady; }
  CallHandle Submit(Call call, CallDone done) override;
  ModelStats StatsOf(const Model& model) const override { return stats_.StatsOf(model); }
  void CountRejected(const Model* model, absl::string_view method,
                     const absl::Status& status) override;
  void CountResponse(const Model& model, size_t response_bytes) override;

  Metrics& metrics() { return metrics_; }

  // From now on the core says that it is not ready, and serves on.
  void BeginDrain();
  // From now on new calls are refused as UNAVAILABLE; those that were admitted are served.
  void StopAdmitting();
  // Finishes every call that has not begun to run as UNAVAILABLE and waits for the running one.
  void Stop();

 private:
  enum class State { kStarting, kReady, kDraining };

  ServerCore(Device& device, ServerCoreOptions options);
  // Everything that can be known before a byte of a tensor is copied: options, sizes, contract,
  // plan. On success the request has its plan.
  absl::Status Prepare(Request& request);
  absl::Status CheckSizes(Request& request);
  Metrics::Sample TakeSample() const;

  const Catalog& catalog_;
  Device& device_;
  PlanCache plans_;
  const Planner planner_;
  const SteadyClock steady_clock_;
  const Clock& clock_;
  std::atomic<State> state_{State::kStarting};
  Admission admission_;
  Metrics metrics_;
  ModelStatsTable stats_;
  RequestEnvironment environment_;
  std::unique_ptr<DeviceWorker> worker_;
};

}  // namespace scanserve

// Typed access to the metrics of metric_table.h.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/clock.h"
#include "kernels/runtime/memory_pool.h"
#include "kernels/spec/catalog.h"
#include "prometheus/registry.h"
#include "server/metrics/metric_table.h"

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
}  // namespace prometheus

namespace scanserve {

// Why a request was refused before it was queued.
enum class RejectReason {
  kInvalid,      // breaks the contract or the protocol
  kUnsupported,  // legal, but nothing here runs it
  kDraining,
  kDeadline,
  kQueueFull,
  kBytes,
  kMemory,
};
inline constexpr size_t kNumRejectReasons = 7;

// Where a request is.
enum class Stage { kAdmission, kQueued, kRunning, kDone };

// "admission", "queued", "running", "done".
absl::string_view NameOf(Stage stage);

// Durations of a successful request; those of the queue come by themselves.
struct PhaseTimes {
  Nanoseconds parse{0};
  Nanoseconds h2d{0};
  Nanoseconds kernel{0};
  Nanoseconds d2h{0};
};

// Thread-safe. All label sets exist from the start, so that a rate over any of them is defined;
// what is not one of the catalog's models counts under model="_unknown" (a null Model here), a
// method that is not one of ours under method="_unknown".
class Metrics {
 public:
  // What is read at each scrape.
  struct Sample {
    MemoryPool::Stats pool;
    size_t admitted_bytes = 0;
    bool ready = false;
    bool draining = false;
  };

  // `device` is the value of the device label. `sample` is called from the scraping threads.
  Metrics(const Catalog& catalog, std::string device, std::function<Sample()> sample);
  ~Metrics();

  void BeginRequest(const Model* model, size_t request_bytes);
  void EnterQueue(const Model* model, size_t bytes);
  void LeaveQueue(const Model* model, size_t bytes, Nanoseconds waited);
  void Execute(const Model* model);
  // Ends what BeginRequest began.
  void EndRequest(const Model* model, Nanoseconds total);

  void CountRequest(const Model* model, absl::string_view method, absl::StatusCode code);
  void CountRejected(const Model* model, RejectReason reason);
  // By the status CANCELLED or DEADLINE_EXCEEDED; any other counts nothing.
  void CountInterrupted(const Model* model, Stage stage, absl::StatusCode code);
  void RecordPhases(const Model* model, const PhaseTimes& times);
  void RecordResponse(const Model* model, size_t bytes);

  // Everything in Prometheus's text format 0.0.4.
  std::string Serialize() const;

 private:
  struct Families;
  struct Series;
  Series& SeriesOf(const Model* model) const;
  void AddModel(const Model* model, const std::string& name, Families& families);

  const std::string device_;
  const std::function<Sample()> sample_;
  prometheus::Registry registry_;
  absl::flat_hash_map<const Model*, std::unique_ptr<Series>> series_;
};

}  // namespace scanserve

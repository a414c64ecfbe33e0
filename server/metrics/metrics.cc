#include "server/metrics/metrics.h"

#include <cassert>
#include <utility>

#include "common/version.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/text_serializer.h"
#include "server/metrics/process_stats.h"

namespace scanserve {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;

constexpr char kUnknown[] = "_unknown";

constexpr std::array<const char*, 5> kMethods = {"ModelInfer", "Forward", "Backward",
                                                 "ForwardBackward", kUnknown};

// By absl::StatusCode, which has gRPC's numbers.
constexpr std::array<const char*, 17> kCodes = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

// By RejectReason.
constexpr std::array<const char*, kNumRejectReasons> kReasons = {
    "invalid", "unsupported", "draining", "deadline", "queue_full", "bytes", "memory"};

constexpr std::array<const char*, 4> kPhases = {"parse", "h2d", "kernel", "d2h"};

constexpr size_t kNumStages = 3;  // in which a request can be interrupted

size_t MethodIndex(absl::string_view method) {
  size_t index = 0;
  while (index + 1 < kMethods.size() && method != kMethods[index]) ++index;
  return index;
}

prometheus::Labels LabelsOf(const MetricRow& row, const std::vector<std::string>& values) {
  assert(row.labels.size() == values.size());
  prometheus::Labels labels;
  for (size_t i = 0; i < values.size(); ++i) labels[row.labels[i]] = values[i];
  return labels;
}

template <typename T, typename Builder>
Family<T>& Register(Builder builder, MetricId id, prometheus::Registry& registry) {
  return builder.Name(RowOf(id).name).Help(RowOf(id).help).Register(registry);
}

// A metric whose values are read when it is scraped, in the shape of the registry's.
class SampledMetric {
 public:
  explicit SampledMetric(MetricId id) : row_(RowOf(id)) {
    family_.name = row_.name;
    family_.help = row_.help;
    family_.type = row_.type == MetricType::kCounter ? prometheus::MetricType::Counter
                                                     : prometheus::MetricType::Gauge;
  }

  SampledMetric& Add(double value, const std::vector<std::string>& label_values = {}) {
    prometheus::ClientMetric metric;
    for (const auto& [name, label] : LabelsOf(row_, label_values)) {
      metric.label.push_back({name, label});
    }
    metric.counter.value = metric.gauge.value = value;
    family_.metric.push_back(std::move(metric));
    return *this;
  }

  prometheus::MetricFamily Take() { return std::move(family_); }

 private:
  const MetricRow& row_;
  prometheus::MetricFamily family_;
};

void AddDevice(const std::string& device, const Metrics::Sample& sample,
               std::vector<prometheus::MetricFamily>& out) {
  using enum MetricId;
  const auto bytes = [](size_t value) { return static_cast<double>(value); };
  const MemoryPool::Stats& pool = sample.pool;
  out.push_back(SampledMetric(kDeviceMemory)
                    .Add(bytes(pool.used_bytes), {device, "pool_used"})
                    .Add(bytes(pool.reserved_bytes - pool.used_bytes), {device, "pool_cached"})
                    .Take());
  out.push_back(SampledMetric(kPoolBudget).Add(bytes(pool.budget_bytes), {device}).Take());
  out.push_back(
      SampledMetric(kPoolHighWatermark).Add(bytes(pool.peak_used_bytes), {device}).Take());
  out.push_back(SampledMetric(kPoolAllocFailures)
                    .Add(static_cast<double>(pool.allocation_failures), {device})
                    .Take());
  out.push_back(SampledMetric(kAdmittedMemory).Add(bytes(sample.admitted_bytes), {device}).Take());
  out.push_back(SampledMetric(kReady).Add(sample.ready ? 1 : 0).Take());
  out.push_back(SampledMetric(kDraining).Add(sample.draining ? 1 : 0).Take());
}

void AddProcess(std::vector<prometheus::MetricFamily>& out) {
  using enum MetricId;
  const ProcessStats stats = ReadProcessStats();
  out.push_back(SampledMetric(kProcessResidentMemory).Add(stats.resident_bytes).Take());
  out.push_back(SampledMetric(kProcessCpu).Add(stats.cpu_seconds).Take());
  out.push_back(SampledMetric(kProcessOpenFds).Add(stats.open_fds).Take());
  out.push_back(SampledMetric(kProcessMaxFds).Add(stats.max_fds).Take());
  out.push_back(SampledMetric(kProcessStartTime).Add(stats.start_time_seconds).Take());
}

void AddBuildInfo(std::vector<prometheus::MetricFamily>& out) {
#if defined(__x86_64__)
  constexpr char kArch[] = "x86_64";
#elif defined(__aarch64__)
  constexpr char kArch[] = "aarch64";
#else
  constexpr char kArch[] = "other";
#endif
  out.push_back(
      SampledMetric(MetricId::kBuildInfo).Add(1, {kVersion, kCommit, "none", kArch}).Take());
}

}  // namespace

absl::string_view NameOf(Stage stage) {
  constexpr std::array<const char*, 4> kNames = {"admission", "queued", "running", "done"};
  return kNames[static_cast<size_t>(stage)];
}

// The registry's metric families that have series per model.
struct Metrics::Families {
  explicit Families(prometheus::Registry& registry) : registry_(registry) {}

  Counter& AddCounter(MetricId id, const std::vector<std::string>& values) {
    return Register<Counter>(prometheus::BuildCounter(), id, registry_)
        .Add(LabelsOf(RowOf(id), values));
  }
  Gauge& AddGauge(MetricId id, const std::vector<std::string>& values) {
    return Register<Gauge>(prometheus::BuildGauge(), id, registry_)
        .Add(LabelsOf(RowOf(id), values));
  }
  Histogram& AddHistogram(MetricId id, const std::vector<std::string>& values) {
    return Register<Histogram>(prometheus::BuildHistogram(), id, registry_)
        .Add(LabelsOf(RowOf(id), values), RowOf(id).buckets);
  }

 private:
  prometheus::Registry& registry_;
};

// The series of one model.
struct Metrics::Series {
  std::array<std::array<Counter*, kCodes.size()>, kMethods.size()> requests;
  std::array<Counter*, kReasons.size()> rejected;
  std::array<Counter*, kNumStages> cancelled;
  std::array<Counter*, kNumStages> deadline_exceeded;
  std::array<Histogram*, kPhases.size()> phases;
  Histogram* duration;
  Histogram* queue_duration;
  Histogram* request_bytes;
  Histogram* response_bytes;
  Gauge* in_flight;
  Gauge* queue_depth;
  Gauge* queue_bytes;
  Counter* executions;
};

Metrics::Metrics(const Catalog& catalog, std::string device, std::function<Sample()> sample)
    : device_(std::move(device)), sample_(std::move(sample)) {
  Families families(registry_);
  for (const std::unique_ptr<const Model>& model : catalog.models()) {
    AddModel(model.get(), model->name, families);
  }
  AddModel(nullptr, kUnknown, families);
}

Metrics::~Metrics() = default;

void Metrics::AddModel(const Model* model, const std::string& name, Families& families) {
  using enum MetricId;
  auto series = std::make_unique<Series>();
  for (size_t method = 0; method < kMethods.size(); ++method) {
    for (size_t code = 0; code < kCodes.size(); ++code) {
      series->requests[method][code] =
          &families.AddCounter(kRequests, {name, kMethods[method], kCodes[code]});
    }
  }
  for (size_t i = 0; i < kReasons.size(); ++i) {
    series->rejected[i] = &families.AddCounter(kRejected, {name, kReasons[i]});
  }
  for (size_t i = 0; i < kNumStages; ++i) {
    const std::string stage(NameOf(static_cast<Stage>(i)));
    series->cancelled[i] = &families.AddCounter(kCancelled, {name, stage});
    series->deadline_exceeded[i] = &families.AddCounter(kDeadlineExceeded, {name, stage});
  }
  for (size_t i = 0; i < kPhases.size(); ++i) {
    series->phases[i] = &families.AddHistogram(kPhaseDuration, {name, kPhases[i]});
  }
  series->duration = &families.AddHistogram(kRequestDuration, {name});
  series->queue_duration = &families.AddHistogram(kQueueDuration, {name});
  series->request_bytes = &families.AddHistogram(kRequestBytes, {name});
  series->response_bytes = &families.AddHistogram(kResponseBytes, {name});
  series->in_flight = &families.AddGauge(kRequestsInFlight, {name});
  series->queue_depth = &families.AddGauge(kQueueDepth, {name});
  series->queue_bytes = &families.AddGauge(kQueueBytes, {name});
  series->executions = &families.AddCounter(kExecutions, {name});
  series_[model] = std::move(series);
}

Metrics::Series& Metrics::SeriesOf(const Model* model) const {
  const auto it = series_.find(model);
  return *(it == series_.end() ? series_.find(nullptr) : it)->second;
}

void Metrics::BeginRequest(const Model* model, size_t request_bytes) {
  Series& series = SeriesOf(model);
  series.in_flight->Increment();
  series.request_bytes->Observe(static_cast<double>(request_bytes));
}

void Metrics::EnterQueue(const Model* model, size_t bytes) {
  Series& series = SeriesOf(model);
  series.queue_depth->Increment();
  series.queue_bytes->Increment(static_cast<double>(bytes));
}

void Metrics::LeaveQueue(const Model* model, size_t bytes, Nanoseconds waited) {
  Series& series = SeriesOf(model);
  series.queue_depth->Decrement();
  series.queue_bytes->Decrement(static_cast<double>(bytes));
  series.queue_duration->Observe(Seconds(waited));
}

void Metrics::Execute(const Model* model) { SeriesOf(model).executions->Increment(); }

void Metrics::EndRequest(const Model* model, Nanoseconds total) {
  Series& series = SeriesOf(model);
  series.in_flight->Decrement();
  series.duration->Observe(Seconds(total));
}

void Metrics::CountRequest(const Model* model, absl::string_view method, absl::StatusCode code) {
  size_t index = static_cast<size_t>(code);
  if (index >= kCodes.size()) index = static_cast<size_t>(absl::StatusCode::kUnknown);
  SeriesOf(model).requests[MethodIndex(method)][index]->Increment();
}

void Metrics::CountRejected(const Model* model, RejectReason reason) {
  SeriesOf(model).rejected[static_cast<size_t>(reason)]->Increment();
}

void Metrics::CountInterrupted(const Model* model, Stage stage, absl::StatusCode code) {
  const auto index = static_cast<size_t>(stage);
  if (index >= kNumStages) return;
  Series& series = SeriesOf(model);
  if (code == absl::StatusCode::kCancelled) series.cancelled[index]->Increment();
  if (code == absl::StatusCode::kDeadlineExceeded) series.deadline_exceeded[index]->Increment();
}

void Metrics::RecordPhases(const Model* model, const PhaseTimes& times) {
  const std::array<Nanoseconds, kPhases.size()> durations = {times.parse, times.h2d, times.kernel,
                                                             times.d2h};
  Series& series = SeriesOf(model);
  for (size_t i = 0; i < durations.size(); ++i) series.phases[i]->Observe(Seconds(durations[i]));
}

void Metrics::RecordResponse(const Model* model, size_t bytes) {
  SeriesOf(model).response_bytes->Observe(static_cast<double>(bytes));
}

std::string Metrics::Serialize() const {
  std::vector<prometheus::MetricFamily> families = registry_.Collect();
  AddDevice(device_, sample_(), families);
  AddBuildInfo(families);
  AddProcess(families);
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace scanserve

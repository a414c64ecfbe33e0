// The one table of metrics: every name, help text, label and bucket that the server exports.
// Dashboards, alerts and documentation are checked against it.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace scanserve {

enum class MetricId {
  kRequests,
  kRequestDuration,
  kQueueDuration,
  kPhaseDuration,
  kRequestsInFlight,
  kQueueDepth,
  kQueueBytes,
  kRejected,
  kCancelled,
  kDeadlineExceeded,
  kExecutions,
  kRequestBytes,
  kResponseBytes,
  kDeviceMemory,
  kPoolBudget,
  kPoolHighWatermark,
  kPoolAllocFailures,
  kAdmittedMemory,
  kBuildInfo,
  kReady,
  kDraining,
  kProcessResidentMemory,
  kProcessCpu,
  kProcessOpenFds,
  kProcessMaxFds,
  kProcessStartTime,
};

enum class MetricType { kCounter, kGauge, kHistogram };

enum class MetricUnit { kNone, kSeconds, kBytes };

struct MetricRow {
  MetricId id;
  MetricType type;
  MetricUnit unit;
  std::string name;
  std::string help;
  std::vector<std::string> labels;
  std::vector<double> buckets;  // upper bounds; of histograms only
};

// In the order of MetricId.
absl::Span<const MetricRow> MetricTable();

const MetricRow& RowOf(MetricId id);

}  // namespace scanserve

// Reads figures back from a server's /metrics page.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace scanserve::demo {

// The body of http://HOST:PORT/metrics. UNAVAILABLE when it does not answer with 200.
absl::StatusOr<std::string> FetchMetrics(const std::string& host_and_port);

// A quantile of a Prometheus histogram in text format, linear within its bucket as Prometheus's
// own histogram_quantile. `label` is one label as it stands there: `model="selective_scan_fwd"`.
// NOT_FOUND when there is no such histogram or nothing was observed.
absl::StatusOr<double> HistogramQuantile(absl::string_view page, absl::string_view name,
                                         absl::string_view label, double quantile);

}  // namespace scanserve::demo

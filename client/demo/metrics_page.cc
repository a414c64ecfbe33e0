#include "client/demo/metrics_page.h"

#include <civetweb.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace scanserve::demo {
namespace {

struct Bucket {
  double bound = 0;
  double cumulative = 0;
};

// The value of label `le` in the braces of a sample.
absl::string_view BoundOf(absl::string_view line) {
  constexpr absl::string_view kLe = "le=\"";
  const size_t begin = line.find(kLe);
  if (begin == absl::string_view::npos) return "";
  line.remove_prefix(begin + kLe.size());
  return line.substr(0, line.find('"'));
}

std::vector<Bucket> BucketsOf(absl::string_view page, absl::string_view name,
                              absl::string_view label) {
  const std::string prefix = absl::StrCat(name, "_bucket{");
  std::vector<Bucket> buckets;
  for (const absl::string_view line : absl::StrSplit(page, '\n')) {
    if (!absl::StartsWith(line, prefix) || !absl::StrContains(line, label)) continue;
    Bucket bucket;
    if (absl::SimpleAtod(BoundOf(line), &bucket.bound) &&
        absl::SimpleAtod(line.substr(line.rfind(' ') + 1), &bucket.cumulative)) {
      buckets.push_back(bucket);
    }
  }
  std::sort(buckets.begin(), buckets.end(),
            [](const Bucket& a, const Bucket& b) { return a.bound < b.bound; });
  return buckets;
}

}  // namespace

absl::StatusOr<std::string> FetchMetrics(const std::string& host_and_port) {
  const size_t colon = host_and_port.rfind(':');
  int port = 0;
  if (colon == std::string::npos ||
      !absl::SimpleAtoi(absl::string_view(host_and_port).substr(colon + 1), &port)) {
    return absl::InvalidArgumentError(
        absl::StrCat("metrics: '", host_and_port, "' is not HOST:PORT"));
  }
  const std::string host = host_and_port.substr(0, colon);
  char error[256] = "";
  const std::unique_ptr<mg_connection, decltype(&mg_close_connection)> connection(
      mg_download(host.c_str(), port, /*use_ssl=*/0, error, sizeof(error),
                  "GET /metrics HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n",
                  host_and_port.c_str()),
      &mg_close_connection);
  if (connection == nullptr) {
    return absl::UnavailableError(absl::StrCat("metrics: ", host_and_port, ": ", error));
  }
  const int status = mg_get_response_info(connection.get())->status_code;
  if (status != 200) {
    return absl::UnavailableError(absl::StrCat("metrics: ", host_and_port, " answers ", status));
  }
  std::string body;
  char chunk[16384];
  for (int n = mg_read(connection.get(), chunk, sizeof(chunk)); n > 0;
       n = mg_read(connection.get(), chunk, sizeof(chunk))) {
    body.append(chunk, static_cast<size_t>(n));
  }
  return body;
}

absl::StatusOr<double> HistogramQuantile(absl::string_view page, absl::string_view name,
                                         absl::string_view label, double quantile) {
  const std::vector<Bucket> buckets = BucketsOf(page, name, label);
  if (buckets.empty() || buckets.back().cumulative == 0) {
    return absl::NotFoundError(
        absl::StrCat("metrics: nothing observed in ", name, "{", label, "}"));
  }
  const double rank = quantile * buckets.back().cumulative;
  double lower = 0;
  double below = 0;
  for (const Bucket& bucket : buckets) {
    if (bucket.cumulative >= rank) {
      // Beyond the last finite bound nothing better than that bound is known.
      if (std::isinf(bucket.bound)) return lower;
      const double inside = bucket.cumulative - below;
      const double share = inside > 0 ? (rank - below) / inside : 1;
      return lower + share * (bucket.bound - lower);
    }
    lower = bucket.bound;
    below = bucket.cumulative;
  }
  return lower;
}

}  // namespace scanserve::demo

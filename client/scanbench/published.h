// The published benchmark rows: their words for families and implementations, and their figures.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace scanserve::scanbench {

// Our name for a family or implementation that may be given by its published one.
std::string OurFamily(absl::string_view name);
std::string OurImplementation(absl::string_view name);
// The published name, empty where there is none.
absl::string_view PublishedFamily(absl::string_view ours);
absl::string_view PublishedImplementation(absl::string_view ours);
// "fused (published: pallas)", or just the name.
std::string WithPublished(absl::string_view ours, absl::string_view published);

// One measured time of a published record.
struct PublishedRow {
  std::string device;
  std::string family;          // ours
  std::string implementation;  // ours
  std::string mode;            // "fwd", "fwd_bwd"
  std::string dtype;           // "float32"
  bool dtype_stated = false;
  int64_t batch = 0;
  int64_t seq = 0;
  int64_t dim = 0;
  int64_t state = 0;
  std::optional<double> median_ms;  // absent: it failed, see `error`
  std::optional<double> rel_err;
  std::string error;
};

// The time rows of a file with the columns of the published records, in any order; rows of families
// that this build does not know are passed over. NOT_FOUND, or INVALID_ARGUMENT naming the line.
absl::StatusOr<std::vector<PublishedRow>> ReadPublishedRows(const std::string& path);

}  // namespace scanserve::scanbench

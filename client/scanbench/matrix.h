// The published matrix: one operator over modes, sequence lengths, dimensions and implementations.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/scanbench/runner.h"
#include "kernels/runtime/device.h"

namespace scanserve::scanbench {

struct MatrixOptions {
  std::string op = "selective_scan";
  std::vector<std::string> modes = {"fwd", "fwd_bwd"};
  std::vector<int64_t> seqs = {512, 2048, 8192};
  std::vector<int64_t> dims = {256, 512, 1024};
  std::vector<std::string> implementations;  // our names
  int64_t batch = 4;
  int64_t state = 16;
  int samples = 7;          // medians and quartiles are over these
  double sample_ms = 50;    // a sample repeats the call to last about this long
  double max_spread = 0.2;  // (q3 - q1) / median above which a row is not stable
  int max_attempts = 3;     // at a stable row
  bool check = true;        // compare with the float64 reference
};

// One row; the names are those of the published records.
struct MatrixRow {
  std::string implementation;  // our name
  std::string mode;
  int64_t batch = 0;
  int64_t seq = 0;
  int64_t dim = 0;
  int64_t state = 0;
  double compile_s = 0;  // cold start: planning, allocating and the first call
  int inner = 0;         // calls in one sample
  double median_ms = 0;
  double q1_ms = 0;
  double q3_ms = 0;
  Footprint footprint;
  double rel_err = -1;  // max abs difference / max abs of the reference; negative: not checked
  bool stable = false;
  absl::Status status;  // not OK: nothing of the above was measured
};

// Linear between the two samples that a quantile falls between; `sorted` is ascending, not empty.
double Quantile(absl::Span<const double> sorted, double quantile);

// Runs the matrix. `device` computes the reference; `on_row` sees each row as it is ready (the row
// before it starts has inner 0), e.g. to show progress.
std::vector<MatrixRow> RunMatrix(const MatrixOptions& options, Runner& runner, Device& device,
                                 const std::function<void(const MatrixRow&)>& on_row);

}  // namespace scanserve::scanbench

#include "client/scanbench/matrix.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "kernels/io/golden.h"
#include "kernels/runtime/planner.h"
#include "kernels/spec/catalog.h"
#include "kernels/spec/op_case.h"

namespace scanserve::scanbench {
namespace {

constexpr int kMaxInner = 200;  // as in the published records

// The tensors of one cell of the matrix, shared by its implementations.
struct Problem {
  const Model* model = nullptr;
  std::vector<NamedTensor> inputs;
  std::vector<std::string> outputs;  // y, or the gradients of all inputs
  std::vector<NamedTensor> reference;
};

// fwd returns the operator's first output; fwd_bwd the gradients alone, as the gradient of a loss
// does.
std::vector<std::string> OutputsOf(const Model& model) {
  if (model.direction == Direction::kForward) return {model.outputs.front().name};
  std::vector<std::string> gradients;
  for (const ModelRow& row : model.outputs) {
    if (row.slot.is_gradient && row.required) gradients.push_back(row.name);
  }
  return gradients;
}

absl::StatusOr<Problem> MakeProblem(const MatrixOptions& options, const MatrixRow& row,
                                    Device& device) {
  Problem problem;
  const std::string text =
      absl::StrCat(options.op, "_", row.mode, ":fp32:batch=", row.batch, ",seqlen=", row.seq,
                   ",dim=", row.dim, ",dstate=", row.state);
  SCANSERVE_ASSIGN_OR_RETURN(const OpCase op_case, ParseCase(text, Catalog::Default()));
  SCANSERVE_ASSIGN_OR_RETURN(problem.inputs, MakeInputs(op_case));
  problem.model = op_case.model;
  // The loss that the published rows differentiate is one of the first output alone.
  problem.inputs.erase(std::remove_if(problem.inputs.begin(), problem.inputs.end(),
                                      [&](const NamedTensor& input) {
                                        return !problem.model->FindInput(input.name)->required;
                                      }),
                       problem.inputs.end());
  problem.outputs = OutputsOf(*op_case.model);
  if (options.check) {
    SCANSERVE_ASSIGN_OR_RETURN(
        LocalResult result, RunLocal(*problem.model, ViewsOf(problem.inputs), {}, problem.outputs,
                                     "reference", device));
    problem.reference = std::move(result.outputs);
  }
  return problem;
}

absl::StatusOr<double> SecondsOf(const std::function<absl::Status()>& work) {
  const SteadyClock clock;
  const TimePoint start = clock.Now();
  SCANSERVE_RETURN_IF_ERROR(work());
  return Seconds(clock.Now() - start);
}

// One set of samples; fills the quartiles of `row`.
absl::Status Sample(const MatrixOptions& options, PreparedCall& call, MatrixRow& row) {
  std::vector<double> samples;
  for (int i = 0; i < options.samples; ++i) {
    SCANSERVE_ASSIGN_OR_RETURN(const double seconds, SecondsOf([&]() -> absl::Status {
                                 for (int k = 0; k < row.inner; ++k) {
                                   SCANSERVE_RETURN_IF_ERROR(call.Run());
                                 }
                                 return absl::OkStatus();
                               }));
    samples.push_back(1e3 * seconds / row.inner);
  }
  std::sort(samples.begin(), samples.end());
  row.median_ms = Quantile(samples, 0.5);
  row.q1_ms = Quantile(samples, 0.25);
  row.q3_ms = Quantile(samples, 0.75);
  row.stable = row.q3_ms - row.q1_ms <= options.max_spread * row.median_ms;
  return absl::OkStatus();
}

double WorstError(absl::Span<const NamedTensor> got, const std::vector<NamedTensor>& want) {
  double worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    worst = std::max(worst, MaxRelativeError(got[i].tensor, want[i].tensor, 0));
  }
  return worst;
}

absl::Status MeasureRow(const MatrixOptions& options, Runner& runner, const Problem& problem,
                        MatrixRow& row) {
  const std::vector<InputTensor> inputs = ViewsOf(problem.inputs);
  std::unique_ptr<PreparedCall> call;
  SCANSERVE_ASSIGN_OR_RETURN(
      row.compile_s, SecondsOf([&]() -> absl::Status {
        SCANSERVE_ASSIGN_OR_RETURN(
            call, runner.Prepare(*problem.model, inputs, problem.outputs, row.implementation));
        return call->Run();
      }));
  if (options.check) row.rel_err = WorstError(call->outputs(), problem.reference);
  SCANSERVE_ASSIGN_OR_RETURN(const double seconds, SecondsOf([&] { return call->Run(); }));
  row.inner =
      std::clamp(static_cast<int>(std::ceil(options.sample_ms / (1e3 * seconds))), 1, kMaxInner);
  for (int attempt = 0; attempt < options.max_attempts && !row.stable; ++attempt) {
    SCANSERVE_RETURN_IF_ERROR(Sample(options, *call, row));
  }
  row.footprint = call->footprint();
  return absl::OkStatus();
}

}  // namespace

double Quantile(absl::Span<const double> sorted, double quantile) {
  const double position = quantile * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double share = position - static_cast<double>(below);
  return sorted[below] + share * (sorted[above] - sorted[below]);
}

std::vector<MatrixRow> RunMatrix(const MatrixOptions& options, Runner& runner, Device& device,
                                 const std::function<void(const MatrixRow&)>& on_row) {
  std::vector<MatrixRow> rows;
  for (const std::string& mode : options.modes) {
    for (const int64_t dim : options.dims) {
      for (const int64_t seq : options.seqs) {
        MatrixRow cell;
        cell.mode = mode;
        cell.batch = options.batch;
        cell.seq = seq;
        cell.dim = dim;
        cell.state = options.state;
        const absl::StatusOr<Problem> problem = MakeProblem(options, cell, device);
        for (const std::string& implementation : options.implementations) {
          MatrixRow row = cell;
          row.implementation = implementation;
          on_row(row);
          row.status = problem.ok() ? MeasureRow(options, runner, *problem, row) : problem.status();
          on_row(row);
          rows.push_back(std::move(row));
        }
      }
    }
  }
  return rows;
}

}  // namespace scanserve::scanbench

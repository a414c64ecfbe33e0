#include "server/worker/execution.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/worker/finite_check.h"

namespace scanserve {
namespace {

// The steps of one run, in their order.
class Execution {
 public:
  Execution(Request& request, Device& device, Stream& stream, const Clock& clock)
      : request_(request),
        device_(device),
        stream_(stream),
        clock_(clock),
        arguments_(request.bound().spec()) {}

  absl::Status Run() {
    CallReport& report = request_.result().report;
    const TimePoint begin = clock_.Now();
    SCANSERVE_RETURN_IF_ERROR(PlaceInputs());
    request_.ReleasePayload();
    const TimePoint placed = clock_.Now();
    report.h2d_ns = (placed - begin).count();
    SCANSERVE_RETURN_IF_ERROR(Compute());
    const TimePoint computed = clock_.Now();
    report.compute_ns = (computed - placed).count();
    request_.result().outputs = std::move(outputs_);
    report.d2h_ns = (clock_.Now() - computed).count();
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<Buffer> Allocate(size_t bytes) {
    absl::StatusOr<Buffer> buffer = device_.pool().Allocate(bytes);
    if (buffer.ok()) request_.result().report.peak_bytes += bytes;
    return buffer;
  }

  absl::Status PlaceInputs() {
    const Call& call = request_.call();
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const CallInput& input = call.inputs[i];
      if (call.options.check_finite) SCANSERVE_RETURN_IF_ERROR(CheckFinite(input));
      SCANSERVE_ASSIGN_OR_RETURN(Buffer buffer, Allocate(input.payload.size));
      SCANSERVE_RETURN_IF_ERROR(stream_.Gather(buffer.data(), input.payload));
      arguments_[request_.bound().inputs[i]] = {input.meta, buffer.data()};
      inputs_.push_back(std::move(buffer));
    }
    return stream_.Synchronize();
  }

  absl::Status CheckFinite(const CallInput& input) const {
    const std::optional<int64_t> index = FindNonFinite(input.payload, input.meta.dtype);
    if (!index) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(request_.call().model->name,
                                                   ": check_finite: element ", *index,
                                                   " of input '", input.name, "' is not finite"));
  }

  absl::Status Compute() {
    const BoundOp& bound = request_.bound();
    for (size_t i = 0; i < bound.outputs.size(); ++i) {
      CallOutput output{bound.output_names[i], bound.MetaOf(bound.outputs[i]), {}};
      SCANSERVE_ASSIGN_OR_RETURN(output.buffer, Allocate(output.meta.ByteSize()));
      arguments_[bound.outputs[i]] = {output.meta, output.buffer.data()};
      outputs_.push_back(std::move(output));
    }
    SCANSERVE_ASSIGN_OR_RETURN(workspace_, Allocate(request_.plan().workspace_bytes()));
    SCANSERVE_RETURN_IF_ERROR(request_.plan().Run(
        bound, arguments_, Workspace(workspace_.data(), workspace_.size()), stream_));
    return stream_.Synchronize();
  }

  Request& request_;
  Device& device_;
  Stream& stream_;
  const Clock& clock_;
  Arguments arguments_;
  std::vector<Buffer> inputs_;
  std::vector<CallOutput> outputs_;
  Buffer workspace_;
};

}  // namespace

absl::Status Execute(Request& request, Device& device, Stream& stream, const Clock& clock) {
  return Execution(request, device, stream, clock).Run();
}

}  // namespace scanserve

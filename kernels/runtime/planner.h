// Chooses the implementation of a call.
#pragma once

#include <memory>

#include "kernels/runtime/implementation.h"

namespace scanserve {

struct PlannedCall {
  std::string implementation;
  std::shared_ptr<const Plan> plan;
};

// Plans `bound` with the implementation called `name`, or with the first that supports it when
// `name` is "auto". INVALID_ARGUMENT for a name that the operator does not have (with those that it
// has), UNIMPLEMENTED with every reason when nothing here can run the call. Thread-safe.
absl::StatusOr<PlannedCall> PlanCall(const BoundOp& bound, const DeviceCaps& caps,
                                     absl::string_view name);

// Runs one call to its end on host memory: binds, plans, allocates from the device's pool, runs.
// For tests, tools and the embedded library; the server has its own path around the same pieces.
struct LocalResult {
  std::vector<NamedTensor> outputs;
  std::string implementation;
  size_t workspace_bytes = 0;
};
absl::StatusOr<LocalResult> RunLocal(const Model& model, absl::Span<const InputTensor> inputs,
                                     const Attributes& attributes,
                                     absl::Span<const std::string> outputs,
                                     absl::string_view implementation, Device& device);

}  // namespace scanserve

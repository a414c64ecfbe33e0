// Implementations and plans: describe, choose, plan, run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/runtime/device.h"
#include "kernels/runtime/workspace.h"
#include "kernels/spec/bind.h"

namespace scanserve {

// An implementation bound to shapes. Immutable and shareable between threads.
class Plan {
 public:
  // `kernel_id` names what runs, e.g. "selective_scan.fused.fp32"; no two implementations share it.
  explicit Plan(std::string kernel_id) : kernel_id_(std::move(kernel_id)) {}
  virtual ~Plan() = default;

  const std::string& kernel_id() const { return kernel_id_; }
  size_t workspace_bytes() const { return layout_.size(); }
  // Host memory that the plan itself holds; what caches of plans are bounded by.
  virtual size_t HostBytes() const { return sizeof(Plan) + kernel_id_.capacity(); }

  // Enqueues the computation. Allocates nothing. `arguments` has the memory of every input and of
  // every wanted output of the BoundOp that the plan was made for (cu_seqlens are the bound ones);
  // `workspace` has at least workspace_bytes(). Both must live until the stream has passed.
  virtual absl::Status Run(const BoundOp& bound, const Arguments& arguments, Workspace workspace,
                           Stream& stream) const = 0;

 protected:
  WorkspaceLayout layout_;

 private:
  std::string kernel_id_;
};

// One way to compute an operator on one kind of device. Stateless; thread-safe.
class Implementation {
 public:
  virtual ~Implementation() = default;
  virtual absl::string_view name() const = 0;
  virtual DeviceKind device_kind() const = 0;
  // OK, or UNIMPLEMENTED with the reason why this legal call cannot run here.
  virtual absl::Status Supports(const BoundOp& bound, const DeviceCaps& caps) const = 0;
  // Requires Supports. Depends on the bound call alone, never on load or threads.
  virtual absl::StatusOr<std::unique_ptr<const Plan>> MakePlan(const BoundOp& bound,
                                                               const DeviceCaps& caps) const = 0;
};

// Best first.
using ImplementationList = std::vector<const Implementation*>;

// Of one operator; empty for one that has none. The list stands in
// kernels/ops/all_implementations.cc.
const ImplementationList& ImplementationsOf(absl::string_view op);

}  // namespace scanserve

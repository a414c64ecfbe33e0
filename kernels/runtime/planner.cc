#include "kernels/runtime/planner.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"

namespace scanserve {
namespace {

std::string NamesOf(const ImplementationList& list) {
  return absl::StrJoin(list, ", ", [](std::string* out, const Implementation* implementation) {
    absl::StrAppend(out, implementation->name());
  });
}

}  // namespace

absl::StatusOr<PlannedCall> PlanCall(const BoundOp& bound, const DeviceCaps& caps,
                                     absl::string_view name) {
  const ImplementationList& list = ImplementationsOf(bound.spec().name);
  std::vector<std::string> reasons;
  bool known = name == "auto";
  for (const Implementation* implementation : list) {
    if (name != "auto" && implementation->name() != name) continue;
    known = true;
    if (implementation->device_kind() != caps.kind) continue;
    if (absl::Status status = implementation->Supports(bound, caps); !status.ok()) {
      reasons.push_back(absl::StrCat(implementation->name(), ": ", status.message()));
      continue;
    }
    SCANSERVE_ASSIGN_OR_RETURN(std::unique_ptr<const Plan> plan,
                               implementation->MakePlan(bound, caps));
    return PlannedCall{std::string(implementation->name()), std::move(plan)};
  }
  if (!known) {
    return absl::InvalidArgumentError(absl::StrCat(bound.model->name, ": unknown implementation '",
                                                   name.substr(0, 64), "', expected auto, ",
                                                   NamesOf(list)));
  }
  return absl::UnimplementedError(absl::StrCat(
      bound.model->name, ": no implementation on this ", NameOf(caps.kind),
      " runs this call: ", reasons.empty() ? "none exists" : absl::StrJoin(reasons, "; ")));
}

absl::StatusOr<LocalResult> RunLocal(const Model& model, absl::Span<const InputTensor> inputs,
                                     const Attributes& attributes,
                                     absl::Span<const std::string> outputs,
                                     absl::string_view implementation, Device& device) {
  SCANSERVE_ASSIGN_OR_RETURN(const BoundOp bound, Bind(model, inputs, attributes, outputs));
  SCANSERVE_ASSIGN_OR_RETURN(PlannedCall call, PlanCall(bound, device.caps(), implementation));
  Arguments arguments(bound.spec());
  for (size_t i = 0; i < inputs.size(); ++i) arguments[bound.inputs[i]] = inputs[i].view;
  LocalResult result;
  result.implementation = std::move(call.implementation);
  result.workspace_bytes = call.plan->workspace_bytes();
  for (size_t i = 0; i < bound.outputs.size(); ++i) {
    SCANSERVE_ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(bound.MetaOf(bound.outputs[i])));
    result.outputs.push_back({bound.output_names[i], std::move(output)});
    arguments[bound.outputs[i]] = result.outputs.back().tensor.view();
  }
  SCANSERVE_ASSIGN_OR_RETURN(const Buffer workspace,
                             device.pool().Allocate(call.plan->workspace_bytes()));
  SCANSERVE_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device.CreateStream());
  SCANSERVE_RETURN_IF_ERROR(
      call.plan->Run(bound, arguments, Workspace(workspace.data(), workspace.size()), *stream));
  SCANSERVE_RETURN_IF_ERROR(stream->Synchronize());
  return result;
}

}  // namespace scanserve

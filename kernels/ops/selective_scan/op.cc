#include "kernels/ops/selective_scan/op.h"

#include "absl/strings/str_cat.h"
#include "kernels/ops/selective_scan/fused.h"
#include "kernels/ops/selective_scan/reference.h"
#include "kernels/runtime/cpu_device.h"
#include "kernels/runtime/implementation.h"

namespace scanserve {
namespace selective_scan {
namespace {

template <typename T>
Projection<T> ToProjection(const BoundOp& bound, const Arguments& arguments,
                           absl::string_view name) {
  const int row = bound.spec().FindTensor(name);
  const std::string& form = bound.spec().tensors[row].forms[bound.forms[row]].name;
  Projection<T> projection;
  projection.data = arguments.values[row].As<const T>();
  projection.gradient = arguments.gradients[row].As<T>();
  projection.constant = form == "constant";
  projection.groups = form == "grouped" ? bound.dims["ngroups"] : 1;
  return projection;
}

}  // namespace

template <typename T>
Args<T> ToArgs(const BoundOp& bound, const Arguments& arguments) {
  const auto value = [&](absl::string_view name) {
    return arguments.values[bound.spec().FindTensor(name)].As<T>();
  };
  const auto gradient = [&](absl::string_view name) {
    return arguments.gradients[bound.spec().FindTensor(name)].As<T>();
  };
  Args<T> args;
  args.batch = bound.dims["batch"];
  args.seqlen = bound.dims["seqlen"];
  args.dim = bound.dims["dim"];
  args.dstate = bound.dims["dstate"];
  args.sequences = bound.dims["nseq"];
  args.cu_seqlens = bound.cu_seqlens.empty() ? nullptr : bound.cu_seqlens.data();
  args.delta_softplus = std::get<bool>(bound.attributes.at("delta_softplus"));
  args.u = value("u");
  args.delta = value("delta");
  args.A = value("A");
  args.B = ToProjection<T>(bound, arguments, "B");
  args.C = ToProjection<T>(bound, arguments, "C");
  args.D = value("D");
  args.z = value("z");
  args.delta_bias = value("delta_bias");
  args.initial_state = value("initial_state");
  args.y = value("y");
  args.final_state = value("final_state");
  args.backward = bound.model->direction != Direction::kForward;
  args.dy = gradient("y");
  args.dfinal_state = gradient("final_state");
  args.du = gradient("u");
  args.ddelta = gradient("delta");
  args.dA = gradient("A");
  args.dD = gradient("D");
  args.dz = gradient("z");
  args.ddelta_bias = gradient("delta_bias");
  args.dinitial_state = gradient("initial_state");
  return args;
}

template Args<float> ToArgs(const BoundOp&, const Arguments&);
template Args<double> ToArgs(const BoundOp&, const Arguments&);

namespace {

// `Schedule` is built from Args<T> and a WorkspaceLayout; `kRun` runs it.
template <typename T, class Schedule, auto kRun>
class CpuPlan final : public Plan {
 public:
  CpuPlan(const BoundOp& bound, std::string kernel_id)
      : Plan(std::move(kernel_id)), schedule_(ToArgs<T>(bound, Arguments(bound.spec())), layout_) {}

  absl::Status Run(const BoundOp& bound, const Arguments& arguments, Workspace workspace,
                   Stream& stream) const override {
    const Args<T> args = ToArgs<T>(bound, arguments);
    return static_cast<CpuStream&>(stream).Launch([&] { kRun(args, schedule_, workspace); });
  }

  size_t HostBytes() const override { return sizeof(*this) + schedule_.HostBytes(); }

 private:
  const Schedule schedule_;
};

class Reference final : public Implementation {
 public:
  absl::string_view name() const override { return "reference"; }
  DeviceKind device_kind() const override { return DeviceKind::kCpu; }
  absl::Status Supports(const BoundOp&, const DeviceCaps&) const override {
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<const Plan>> MakePlan(const BoundOp& bound,
                                                       const DeviceCaps&) const override {
    if (bound.dtype == DType::kFP64) {
      return std::make_unique<CpuPlan<double, ReferenceLayout, RunReference<double>>>(
          bound, "selective_scan.reference.fp64");
    }
    return std::make_unique<CpuPlan<float, ReferenceLayout, RunReference<float>>>(
        bound, "selective_scan.reference.fp32");
  }
};

class Fused final : public Implementation {
 public:
  absl::string_view name() const override { return "fused"; }
  DeviceKind device_kind() const override { return DeviceKind::kCpu; }
  absl::Status Supports(const BoundOp& bound, const DeviceCaps&) const override {
    if (bound.dtype == DType::kFP32) return absl::OkStatus();
    return absl::UnimplementedError(
        absl::StrCat("computes in FP32, the tensors are ", NameOf(bound.dtype)));
  }
  absl::StatusOr<std::unique_ptr<const Plan>> MakePlan(const BoundOp& bound,
                                                       const DeviceCaps&) const override {
    return std::make_unique<CpuPlan<float, FusedSchedule, RunFused>>(bound,
                                                                     "selective_scan.fused.fp32");
  }
};

}  // namespace
}  // namespace selective_scan

const ImplementationList& SelectiveScanImplementations() {
  static const selective_scan::Fused fused;
  static const selective_scan::Reference reference;
  static const ImplementationList list = {&fused, &reference};
  return list;
}

}  // namespace scanserve

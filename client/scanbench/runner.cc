#include "client/scanbench/runner.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/runtime/planner.h"
#include "scanserve/v1/kernel_service.pb.h"

namespace scanserve::scanbench {
namespace {

Footprint TensorBytes(const BoundOp& bound) {
  Footprint footprint;
  for (const Slot slot : bound.inputs) footprint.arguments += bound.MetaOf(slot).ByteSize();
  for (const Slot slot : bound.outputs) footprint.outputs += bound.MetaOf(slot).ByteSize();
  return footprint;
}

// Bound and planned once, with its output and workspace memory: what is repeated is the plan alone.
class EmbeddedCall final : public PreparedCall {
 public:
  EmbeddedCall(BoundOp bound, std::shared_ptr<const Plan> plan, Buffer workspace,
               std::unique_ptr<Stream> stream, absl::Span<const InputTensor> inputs)
      : bound_(std::move(bound)),
        plan_(std::move(plan)),
        workspace_(std::move(workspace)),
        stream_(std::move(stream)),
        arguments_(bound_.spec()) {
    for (size_t i = 0; i < inputs.size(); ++i) arguments_[bound_.inputs[i]] = inputs[i].view;
    for (size_t i = 0; i < bound_.outputs.size(); ++i) {
      outputs_.push_back({bound_.output_names[i], Tensor(bound_.MetaOf(bound_.outputs[i]))});
      arguments_[bound_.outputs[i]] = outputs_.back().tensor.view();
    }
  }

  absl::Status Run() override {
    SCANSERVE_RETURN_IF_ERROR(
        plan_->Run(bound_, arguments_, Workspace(workspace_.data(), workspace_.size()), *stream_));
    return stream_->Synchronize();
  }

  absl::Span<const NamedTensor> outputs() const override { return outputs_; }

  Footprint footprint() const override {
    Footprint footprint = TensorBytes(bound_);
    footprint.temp = static_cast<int64_t>(plan_->workspace_bytes());
    footprint.peak = footprint.arguments + footprint.outputs + footprint.temp;
    return footprint;
  }

 private:
  const BoundOp bound_;
  const std::shared_ptr<const Plan> plan_;
  const Buffer workspace_;
  const std::unique_ptr<Stream> stream_;
  std::vector<NamedTensor> outputs_;
  Arguments arguments_;
};

class EmbeddedRunner final : public Runner {
 public:
  explicit EmbeddedRunner(Device& device) : device_(device) {}

  std::string device() const override { return device_.caps().description; }
  std::string transport() const override { return "embedded"; }

  absl::StatusOr<std::unique_ptr<PreparedCall>> Prepare(
      const Model& model, absl::Span<const InputTensor> inputs,
      const std::vector<std::string>& outputs, const std::string& implementation) override {
    SCANSERVE_ASSIGN_OR_RETURN(BoundOp bound, Bind(model, inputs, {}, outputs));
    SCANSERVE_ASSIGN_OR_RETURN(PlannedCall planned,
                               PlanCall(bound, device_.caps(), implementation));
    SCANSERVE_ASSIGN_OR_RETURN(Buffer workspace,
                               device_.pool().Allocate(planned.plan->workspace_bytes()));
    SCANSERVE_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, device_.CreateStream());
    return std::unique_ptr<PreparedCall>(
        std::make_unique<EmbeddedCall>(std::move(bound), std::move(planned.plan),
                                       std::move(workspace), std::move(stream), inputs));
  }

 private:
  Device& device_;
};

class ServerCall final : public PreparedCall {
 public:
  ServerCall(Client& client, const BoundOp& bound, absl::Span<const InputTensor> inputs,
             CallSettings settings)
      : client_(client),
        model_(*bound.model),
        inputs_(inputs.begin(), inputs.end()),
        settings_(std::move(settings)),
        bytes_(TensorBytes(bound)) {}

  absl::Status Run() override {
    SCANSERVE_ASSIGN_OR_RETURN(
        reply_, client_.Call(model_.spec->name, model_.direction, inputs_, settings_));
    return absl::OkStatus();
  }

  absl::Span<const NamedTensor> outputs() const override { return reply_.outputs; }

  Footprint footprint() const override {
    Footprint footprint = bytes_;
    footprint.temp = static_cast<int64_t>(reply_.report.workspace_bytes);
    footprint.peak = static_cast<int64_t>(reply_.report.peak_bytes);
    return footprint;
  }

 private:
  Client& client_;
  const Model& model_;
  const std::vector<InputTensor> inputs_;
  const CallSettings settings_;
  const Footprint bytes_;
  CallReply reply_;
};

class ServerRunner final : public Runner {
 public:
  ServerRunner(std::unique_ptr<Client> client, std::string device, Protocol protocol)
      : client_(std::move(client)), device_(std::move(device)), protocol_(protocol) {}

  std::string device() const override { return device_; }
  std::string transport() const override { return std::string(NameOf(protocol_)); }

  absl::StatusOr<std::unique_ptr<PreparedCall>> Prepare(
      const Model& model, absl::Span<const InputTensor> inputs,
      const std::vector<std::string>& outputs, const std::string& implementation) override {
    SCANSERVE_ASSIGN_OR_RETURN(const BoundOp bound, Bind(model, inputs, {}, outputs));
    CallSettings settings;
    settings.outputs = outputs;
    settings.options.implementation = implementation;
    settings.options.timing = true;
    return std::unique_ptr<PreparedCall>(
        std::make_unique<ServerCall>(*client_, bound, inputs, std::move(settings)));
  }

 private:
  const std::unique_ptr<Client> client_;
  const std::string device_;
  const Protocol protocol_;
};

}  // namespace

std::unique_ptr<Runner> MakeEmbeddedRunner(Device& device) {
  return std::make_unique<EmbeddedRunner>(device);
}

absl::StatusOr<std::unique_ptr<Runner>> MakeServerRunner(const std::string& address,
                                                         Protocol protocol) {
  ClientOptions options;
  options.protocol = protocol;
  SCANSERVE_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, Client::Connect(address, options));
  SCANSERVE_ASSIGN_OR_RETURN(const v1::ServerInfoResponse info, client->ServerInfo());
  return std::unique_ptr<Runner>(
      std::make_unique<ServerRunner>(std::move(client), info.device_description(), protocol));
}

}  // namespace scanserve::scanbench

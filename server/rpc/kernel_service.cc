#include "server/rpc/kernel_service.h"

#include <grpcpp/server_context.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "common/version.h"
#include "kernels/runtime/implementation.h"
#include "proto/convert.h"
#include "proto/describe.h"
#include "proto/payload_split.h"
#include "scanserve/v1/kernel_service.grpc.pb.h"
#include "server/rpc/call_reactor.h"

namespace scanserve {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

absl::Status ReadInputs(const v1::KernelRequest& request, absl::Span<Payload> payloads,
                        Call& call) {
  for (int i = 0; i < request.inputs_size(); ++i) {
    const v1::Tensor& tensor = request.inputs(i);
    if (tensor.has_shared_memory()) {
      return absl::UnimplementedError(
          absl::StrCat("tensor '", Printable(tensor.name()),
                       "': shared memory is not served; send the tensor's bytes as data"));
    }
    SCANSERVE_ASSIGN_OR_RETURN(TensorMeta meta, FromProto(tensor));
    SCANSERVE_ASSIGN_OR_RETURN(CallInput input, MakeInput(*call.model, tensor.name(),
                                                          std::move(meta), std::move(payloads[i])));
    call.inputs.push_back(std::move(input));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<MessagePiece>> Encode(const std::string& op, const std::string& id,
                                                 bool timing, const CallResult& result) {
  v1::KernelResponse response;
  response.set_operator_name(op);
  response.set_id(id);
  ToProto(result.report, timing, response);
  std::vector<OutgoingPayload> payloads;
  for (const CallOutput& output : result.outputs) {
    v1::Tensor tensor;
    ToProto(output.name, output.meta, tensor);
    payloads.push_back({tensor.SerializeAsString(),
                        {static_cast<const char*>(output.buffer.data()),
                         static_cast<size_t>(output.meta.ByteSize())}});
  }
  return JoinPayloads(response.SerializeAsString(), kResponseTensorData, payloads);
}

absl::Status ReadKernel(const Catalog& catalog, Direction direction, ReceivedBytes bytes,
                        IncomingCall& incoming) {
  const auto message = std::make_shared<ReceivedBytes>(std::move(bytes));
  SCANSERVE_ASSIGN_OR_RETURN(SplitMessage split,
                             SplitPayloads(message->spans(), kRequestTensorData));
  v1::KernelRequest request;
  if (!request.ParseFromString(split.header)) {
    return absl::InvalidArgumentError("malformed message: not a KernelRequest");
  }
  Call& call = incoming.call;
  SCANSERVE_ASSIGN_OR_RETURN(call.model, catalog.FindModel(request.operator_name(), direction));
  SCANSERVE_RETURN_IF_ERROR(FromProto(request, call.options, call.attributes));
  SCANSERVE_RETURN_IF_ERROR(ReadInputs(request, absl::MakeSpan(split.payloads), call));
  call.outputs.assign(request.outputs().begin(), request.outputs().end());
  call.keep_alive = message;
  incoming.encode = [op = request.operator_name(), id = request.id(), timing = call.options.timing](
                        const CallResult& result) { return Encode(op, id, timing, result); };
  return absl::OkStatus();
}

using Base = v1::KernelService::WithRawCallbackMethod_Forward<
    v1::KernelService::WithRawCallbackMethod_Backward<
        v1::KernelService::WithRawCallbackMethod_ForwardBackward<
            v1::KernelService::CallbackService>>>;

class KernelServiceImpl final : public Base {
 public:
  KernelServiceImpl(Core& core, CallGate& gate, int64_t max_message_bytes)
      : core_(core), gate_(gate), max_message_bytes_(max_message_bytes) {}

 private:
  using Base::Backward;
  using Base::Forward;
  using Base::ForwardBackward;

  ServerUnaryReactor* Forward(CallbackServerContext* context, const grpc::ByteBuffer* request,
                              grpc::ByteBuffer* response) override {
    return Start("Forward", Direction::kForward, context, request, response);
  }

  ServerUnaryReactor* Backward(CallbackServerContext* context, const grpc::ByteBuffer* request,
                               grpc::ByteBuffer* response) override {
    return Start("Backward", Direction::kBackward, context, request, response);
  }

  ServerUnaryReactor* ForwardBackward(CallbackServerContext* context,
                                      const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* response) override {
    return Start("ForwardBackward", Direction::kForwardBackward, context, request, response);
  }

  ServerUnaryReactor* Start(absl::string_view method, Direction direction,
                            CallbackServerContext* context, const grpc::ByteBuffer* request,
                            grpc::ByteBuffer* response) {
    return StartCall(core_, gate_, method, context, request, response,
                     [this, direction](ReceivedBytes message, IncomingCall& incoming) {
                       return ReadKernel(core_.catalog(), direction, std::move(message), incoming);
                     });
  }

  ServerUnaryReactor* Describe(CallbackServerContext* context, const v1::DescribeRequest* request,
                               v1::DescribeResponse* response) override {
    return FinishNow(core_, "Describe", context,
                     DescribeOperators(request->operator_name(), *response));
  }

  absl::Status DescribeOperators(const std::string& name, v1::DescribeResponse& response) const {
    const Catalog& catalog = core_.catalog();
    std::vector<const OpSpec*> specs = catalog.ops();
    if (!name.empty()) {
      SCANSERVE_ASSIGN_OR_RETURN(const OpSpec* spec, catalog.FindOp(name));
      specs = {spec};
    }
    std::vector<const Model*> models;
    for (const auto& model : catalog.models()) models.push_back(model.get());
    for (const OpSpec* spec : specs) {
      std::vector<absl::string_view> implementations;
      for (const Implementation* implementation : ImplementationsOf(spec->name)) {
        if (implementation->device_kind() == core_.device().caps().kind) {
          implementations.push_back(implementation->name());
        }
      }
      scanserve::Describe(*spec, models, implementations, *response.add_operators());
    }
    return absl::OkStatus();
  }

  ServerUnaryReactor* ServerInfo(CallbackServerContext* context, const v1::ServerInfoRequest*,
                                 v1::ServerInfoResponse* response) override {
    const Device& device = core_.device();
    const MemoryPool::Stats pool = device.pool().GetStats();
    response->set_name("scanserve");
    response->set_version(std::string(kVersion));
    response->set_commit(std::string(kCommit));
    response->set_device(std::string(NameOf(device.caps().kind)));
    response->set_device_description(device.caps().description);
    response->set_ready(core_.IsReady());
    response->set_memory_budget_bytes(pool.budget_bytes);
    response->set_memory_used_bytes(pool.used_bytes);
    response->set_memory_peak_bytes(pool.peak_used_bytes);
    for (const OpSpec* spec : core_.catalog().ops()) response->add_operators(spec->name);
    response->set_max_message_bytes(max_message_bytes_);
    return FinishNow(core_, "ServerInfo", context, absl::OkStatus());
  }

  ServerUnaryReactor* Step(CallbackServerContext* context, const v1::KernelRequest*,
                           v1::KernelResponse*) override {
    return FinishNow(core_, "Step", context,
                     absl::UnimplementedError("Step is not served; call Forward with seqlen 1, "
                                              "initial_state and the output final_state"));
  }

  ServerUnaryReactor* Estimate(CallbackServerContext* context, const v1::EstimateRequest*,
                               v1::EstimateResponse*) override {
    return FinishNow(core_, "Estimate", context,
                     absl::UnimplementedError("Estimate is not served; the reply of a call with "
                                              "the option timing has its memory"));
  }

  ServerUnaryReactor* ReleaseContext(CallbackServerContext* context,
                                     const v1::ReleaseContextRequest*,
                                     v1::ReleaseContextResponse*) override {
    return FinishNow(core_, "ReleaseContext", context,
                     absl::UnimplementedError("ReleaseContext is not served: no call keeps a "
                                              "context on the server"));
  }

  Core& core_;
  CallGate& gate_;
  const int64_t max_message_bytes_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeKernelService(Core& core, CallGate& gate,
                                                 int64_t max_message_bytes) {
  return std::make_unique<KernelServiceImpl>(core, gate, max_message_bytes);
}

}  // namespace scanserve

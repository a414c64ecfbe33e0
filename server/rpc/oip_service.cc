#include "server/rpc/oip_service.h"

#include <grpcpp/server_context.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/version.h"
#include "inference/grpc_service.grpc.pb.h"
#include "proto/describe.h"
#include "server/rpc/call_reactor.h"
#include "server/rpc/oip_infer.h"
#include "server/rpc/rpc_status.h"

namespace scanserve {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;
using inference::GRPCInferenceService;

// Triton's names for the parts of its protocol that are on.
constexpr absl::string_view kExtensions[] = {"binary_tensor_data", "model_configuration",
                                             "parameters", "schedule_policy", "statistics"};

constexpr char kNoStream[] = "ModelStreamInfer is not served; send each request with ModelInfer";
constexpr char kNoRepository[] =
    "models are built in and always loaded: there is no repository to load from or unload to; "
    "RepositoryIndex lists them";
constexpr char kNoSharedMemory[] =
    "shared memory is not served; send tensors in raw_input_contents";
constexpr char kNoSettings[] =
    "settings cannot be read or changed at run time; start the server with other options";

// Ends a stream with an error at once.
class RefusedStream final : public grpc::ServerBidiReactor<inference::ModelInferRequest,
                                                           inference::ModelStreamInferResponse> {
 public:
  explicit RefusedStream(const absl::Status& status) { Finish(ToGrpcStatus(status)); }

 private:
  void OnDone() override { delete this; }
};

void Set(const ModelStats::Duration& duration, inference::StatisticDuration& out) {
  out.set_count(duration.count);
  out.set_ns(duration.ns);
}

void Fill(const Model& model, const ModelStats& stats, inference::ModelStatistics& out) {
  out.set_name(model.name);
  out.set_version(std::string(kModelVersion));
  out.set_last_inference(stats.last_inference_ms);
  out.set_inference_count(stats.inference_count);
  out.set_execution_count(stats.execution_count);
  inference::InferStatistics& infer = *out.mutable_inference_stats();
  Set(stats.success, *infer.mutable_success());
  Set(stats.fail, *infer.mutable_fail());
  Set(stats.queue, *infer.mutable_queue());
  Set(stats.compute_input, *infer.mutable_compute_input());
  Set(stats.compute_infer, *infer.mutable_compute_infer());
  Set(stats.compute_output, *infer.mutable_compute_output());
  for (const auto& [batch_size, durations] : stats.batches) {
    inference::InferBatchStatistics& batch = *out.add_batch_stats();
    batch.set_batch_size(batch_size);
    Set(durations[0], *batch.mutable_compute_input());
    Set(durations[1], *batch.mutable_compute_infer());
    Set(durations[2], *batch.mutable_compute_output());
  }
}

using Base =
    GRPCInferenceService::WithRawCallbackMethod_ModelInfer<GRPCInferenceService::CallbackService>;

class OipService final : public Base {
 public:
  OipService(Core& core, CallGate& gate) : core_(core), gate_(gate) {}

 private:
  using Base::ModelInfer;

  // --- Health and metadata.

  ServerUnaryReactor* ServerLive(CallbackServerContext* context,
                                 const inference::ServerLiveRequest*,
                                 inference::ServerLiveResponse* response) override {
    response->set_live(true);
    return Done("ServerLive", context);
  }

  ServerUnaryReactor* ServerReady(CallbackServerContext* context,
                                  const inference::ServerReadyRequest*,
                                  inference::ServerReadyResponse* response) override {
    response->set_ready(core_.IsReady());
    return Done("ServerReady", context);
  }

  ServerUnaryReactor* ServerMetadata(CallbackServerContext* context,
                                     const inference::ServerMetadataRequest*,
                                     inference::ServerMetadataResponse* response) override {
    response->set_name("scanserve");
    response->set_version(std::string(kVersion));
    for (const absl::string_view extension : kExtensions) {
      response->add_extensions(std::string(extension));
    }
    return Done("ServerMetadata", context);
  }

  ServerUnaryReactor* ModelReady(CallbackServerContext* context,
                                 const inference::ModelReadyRequest* request,
                                 inference::ModelReadyResponse* response) override {
    return WithModel("ModelReady", context, *request,
                     [&](const Model&) { response->set_ready(core_.IsReady()); });
  }

  ServerUnaryReactor* ModelMetadata(CallbackServerContext* context,
                                    const inference::ModelMetadataRequest* request,
                                    inference::ModelMetadataResponse* response) override {
    return WithModel("ModelMetadata", context, *request,
                     [&](const Model& model) { Describe(model, *response); });
  }

  ServerUnaryReactor* ModelConfig(CallbackServerContext* context,
                                  const inference::ModelConfigRequest* request,
                                  inference::ModelConfigResponse* response) override {
    return WithModel("ModelConfig", context, *request,
                     [&](const Model& model) { Describe(model, *response->mutable_config()); });
  }

  ServerUnaryReactor* ModelStatistics(CallbackServerContext* context,
                                      const inference::ModelStatisticsRequest* request,
                                      inference::ModelStatisticsResponse* response) override {
    const auto add = [&](const Model& model) {
      Fill(model, core_.StatsOf(model), *response->add_model_stats());
    };
    if (!request->name().empty()) return WithModel("ModelStatistics", context, *request, add);
    for (const auto& model : core_.catalog().models()) add(*model);
    return Done("ModelStatistics", context);
  }

  ServerUnaryReactor* RepositoryIndex(CallbackServerContext* context,
                                      const inference::RepositoryIndexRequest* request,
                                      inference::RepositoryIndexResponse* response) override {
    const bool ready = core_.IsReady();
    if (request->ready() && !ready) return Done("RepositoryIndex", context);
    for (const auto& model : core_.catalog().models()) {
      auto& entry = *response->add_models();
      entry.set_name(model->name);
      entry.set_version(std::string(kModelVersion));
      entry.set_state(ready ? "READY" : "UNAVAILABLE");
      if (!ready) entry.set_reason("the server is starting or draining");
    }
    return Done("RepositoryIndex", context);
  }

  // --- Inference.

  ServerUnaryReactor* ModelInfer(CallbackServerContext* context, const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override {
    return StartCall(core_, gate_, "ModelInfer", context, request, response,
                     [this](ReceivedBytes message, IncomingCall& incoming) {
                       return ReadInfer(core_.catalog(), std::move(message), incoming);
                     });
  }

  grpc::ServerBidiReactor<inference::ModelInferRequest, inference::ModelStreamInferResponse>*
  ModelStreamInfer(CallbackServerContext*) override {
    const absl::Status status = absl::UnimplementedError(kNoStream);
    core_.CountRejected(nullptr, "ModelStreamInfer", status);
    return new RefusedStream(status);
  }

  // --- What is not served.

  ServerUnaryReactor* RepositoryModelLoad(CallbackServerContext* context,
                                          const inference::RepositoryModelLoadRequest*,
                                          inference::RepositoryModelLoadResponse*) override {
    return Refuse("RepositoryModelLoad", context, kNoRepository);
  }

  ServerUnaryReactor* RepositoryModelUnload(CallbackServerContext* context,
                                            const inference::RepositoryModelUnloadRequest*,
                                            inference::RepositoryModelUnloadResponse*) override {
    return Refuse("RepositoryModelUnload", context, kNoRepository);
  }

  ServerUnaryReactor* SystemSharedMemoryStatus(
      CallbackServerContext* context, const inference::SystemSharedMemoryStatusRequest*,
      inference::SystemSharedMemoryStatusResponse*) override {
    return Refuse("SystemSharedMemoryStatus", context, kNoSharedMemory);
  }

  ServerUnaryReactor* SystemSharedMemoryRegister(
      CallbackServerContext* context, const inference::SystemSharedMemoryRegisterRequest*,
      inference::SystemSharedMemoryRegisterResponse*) override {
    return Refuse("SystemSharedMemoryRegister", context, kNoSharedMemory);
  }

  ServerUnaryReactor* SystemSharedMemoryUnregister(
      CallbackServerContext* context, const inference::SystemSharedMemoryUnregisterRequest*,
      inference::SystemSharedMemoryUnregisterResponse*) override {
    return Refuse("SystemSharedMemoryUnregister", context, kNoSharedMemory);
  }

  ServerUnaryReactor* CudaSharedMemoryStatus(CallbackServerContext* context,
                                             const inference::CudaSharedMemoryStatusRequest*,
                                             inference::CudaSharedMemoryStatusResponse*) override {
    return Refuse("CudaSharedMemoryStatus", context, kNoSharedMemory);
  }

  ServerUnaryReactor* CudaSharedMemoryRegister(
      CallbackServerContext* context, const inference::CudaSharedMemoryRegisterRequest*,
      inference::CudaSharedMemoryRegisterResponse*) override {
    return Refuse("CudaSharedMemoryRegister", context, kNoSharedMemory);
  }

  ServerUnaryReactor* CudaSharedMemoryUnregister(
      CallbackServerContext* context, const inference::CudaSharedMemoryUnregisterRequest*,
      inference::CudaSharedMemoryUnregisterResponse*) override {
    return Refuse("CudaSharedMemoryUnregister", context, kNoSharedMemory);
  }

  ServerUnaryReactor* TraceSetting(CallbackServerContext* context,
                                   const inference::TraceSettingRequest*,
                                   inference::TraceSettingResponse*) override {
    return Refuse("TraceSetting", context, kNoSettings);
  }

  ServerUnaryReactor* LogSettings(CallbackServerContext* context,
                                  const inference::LogSettingsRequest*,
                                  inference::LogSettingsResponse*) override {
    return Refuse("LogSettings", context, kNoSettings);
  }

  ServerUnaryReactor* Done(absl::string_view method, CallbackServerContext* context) {
    return FinishNow(core_, method, context, absl::OkStatus());
  }

  ServerUnaryReactor* Refuse(absl::string_view method, CallbackServerContext* context,
                             absl::string_view sentence) {
    return FinishNow(core_, method, context, absl::UnimplementedError(sentence));
  }

  // Calls `fill(model)` when the request names a model that exists.
  template <typename ModelRequest, typename Fill>
  ServerUnaryReactor* WithModel(absl::string_view method, CallbackServerContext* context,
                                const ModelRequest& request, Fill fill) {
    const absl::StatusOr<const Model*> model =
        FindModelVersion(core_.catalog(), request.name(), request.version());
    if (model.ok()) fill(**model);
    return FinishNow(core_, method, context, model.status());
  }

  Core& core_;
  CallGate& gate_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeOipService(Core& core, CallGate& gate) {
  return std::make_unique<OipService>(core, gate);
}

}  // namespace scanserve

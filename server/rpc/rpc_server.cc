#include "server/rpc/rpc_server.h"

#include <google/protobuf/stubs/logging.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "grpc/health/v1/health.pb.h"
#include "inference/grpc_service.grpc.pb.h"
#include "scanserve/v1/kernel_service.grpc.pb.h"
#include "server/rpc/kernel_service.h"
#include "server/rpc/oip_service.h"

namespace scanserve {
namespace {

// Names of the health service that follow readiness; "" is the server as a whole.
const char* const kReadinessNames[] = {"", inference::GRPCInferenceService::service_full_name(),
                                       v1::KernelService::service_full_name()};
constexpr char kLivenessName[] = "liveness";

constexpr int kKeepaliveMs = 60'000;
constexpr int kKeepaliveTimeoutMs = 20'000;
constexpr int kMinClientPingIntervalMs = 10'000;

void Configure(const RpcOptions& options, grpc::ServerBuilder& builder) {
  const int64_t cap = std::min<int64_t>(options.max_message_bytes, std::numeric_limits<int>::max());
  builder.SetMaxReceiveMessageSize(static_cast<int>(cap));
  builder.SetMaxSendMessageSize(std::numeric_limits<int>::max());
  // A compressed message could grow past every cap while it is unpacked.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  // Two servers on one port would share its calls in silence.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.max_concurrent_streams);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinClientPingIntervalMs);
}

// Settings of gRPC and protobuf that hold for the whole process.
void SetUpProcess() {
  // Protobuf would print a line for every message with bytes that are no UTF-8.
  google::protobuf::SetLogHandler(nullptr);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  // gRPC's health service brings no descriptor along: ours makes reflection complete.
  grpc::health::v1::HealthCheckRequest::descriptor();
}

class RpcServerImpl final : public RpcServer {
 public:
  RpcServerImpl(Core& core, const RpcOptions& options)
      : oip_(MakeOipService(core, gate_)),
        kernel_(MakeKernelService(core, gate_, options.max_message_bytes)) {}
  ~RpcServerImpl() override { Shutdown(std::chrono::milliseconds(0)); }

  absl::Status Listen(const RpcOptions& options) {
    SetUpProcess();
    grpc::ServerBuilder builder;
    Configure(options, builder);
    builder.AddListeningPort(options.address, grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(oip_.get());
    builder.RegisterService(kernel_.get());
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) {
      return absl::UnavailableError(absl::StrCat("cannot listen on ", options.address));
    }
    server_->GetHealthCheckService()->SetServingStatus(kLivenessName, true);
    return absl::OkStatus();
  }

  int port() const override { return port_; }

  void SetServing(bool serving) override {
    for (const char* name : kReadinessNames) {
      server_->GetHealthCheckService()->SetServingStatus(name, serving);
    }
  }

  void Shutdown(std::chrono::milliseconds grace) override {
    if (server_ == nullptr) return;
    server_->GetHealthCheckService()->Shutdown();
    // gRPC would wait for watchers of health as well, which have no end of their own.
    gate_.Close();
    gate_.Wait(grace);
    server_->Shutdown(std::chrono::system_clock::now());
  }

 private:
  CallGate gate_;
  std::unique_ptr<grpc::Service> oip_;
  std::unique_ptr<grpc::Service> kernel_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;  // goes first
};

}  // namespace

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(Core& core, const RpcOptions& options) {
  auto server = std::make_unique<RpcServerImpl>(core, options);
  if (absl::Status status = server->Listen(options); !status.ok()) return status;
  server->SetServing(core.IsReady());
  return absl::StatusOr<std::unique_ptr<RpcServer>>(std::move(server));
}

}  // namespace scanserve

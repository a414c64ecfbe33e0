#include "client/cpp/client.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/codec.h"
#include "common/status_macros.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "kernels/spec/catalog.h"
#include "proto/byte_buffer.h"
#include "scanserve/v1/kernel_service.grpc.pb.h"

namespace scanserve {
namespace {

absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

void SetTimeout(grpc::ClientContext& context, std::chrono::milliseconds timeout) {
  if (timeout.count() > 0) context.set_deadline(std::chrono::system_clock::now() + timeout);
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const ClientOptions& options) {
  constexpr size_t kLargest = (size_t{1} << 31) - 1;
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(static_cast<int>(std::min(options.max_reply_bytes, kLargest)));
  arguments.SetMaxSendMessageSize(-1);
  // A connection of its own for each client, and never by way of a proxy that the environment
  // names.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

absl::Status CheckData(absl::Span<const InputTensor> inputs) {
  for (const InputTensor& input : inputs) {
    const TensorMeta& meta = input.view.meta;
    const absl::StatusOr<int64_t> bytes = CheckedByteSize(meta.shape, SizeOf(meta.dtype));
    if (!bytes.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("client: input '", input.name, "': ", bytes.status().message()));
    }
    if (input.view.data == nullptr && *bytes > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("client: input '", input.name, "' has no data"));
    }
  }
  return absl::OkStatus();
}

// Tells when gRPC has let go of memory that it was lent.
class Loan {
 public:
  Loan() {
    auto* returned = new std::promise<void>;
    returned_ = returned->get_future();
    owner_.reset(returned, [](std::promise<void>* p) {
      p->set_value();
      delete p;
    });
  }
  // The memory is lent as long as a copy of this lives.
  std::shared_ptr<const void> Take() { return std::move(owner_); }
  void WaitUntilReturned() { returned_.wait(); }

 private:
  std::shared_ptr<std::promise<void>> owner_;
  std::future<void> returned_;
};

}  // namespace

class Client::Impl {
 public:
  Impl(const std::string& address, const ClientOptions& options)
      : options_(options),
        channel_(MakeChannel(address, options)),
        generic_(channel_),
        kernel_(v1::KernelService::NewStub(channel_)),
        health_(grpc::health::v1::Health::NewStub(channel_)),
        codec_(options.protocol == Protocol::kKernel ? MakeKernelCodec() : MakeOipCodec()) {}

  absl::StatusOr<CallReply> Call(absl::string_view op, Direction direction,
                                 absl::Span<const InputTensor> inputs,
                                 const CallSettings& settings) {
    SCANSERVE_RETURN_IF_ERROR(CheckData(inputs));
    if (options_.validate) {
      SCANSERVE_ASSIGN_OR_RETURN(const Model* model, Catalog::Default().FindModel(op, direction));
      SCANSERVE_RETURN_IF_ERROR(
          Bind(*model, inputs, settings.attributes, settings.outputs).status());
    }
    const auto start = std::chrono::steady_clock::now();
    SCANSERVE_ASSIGN_OR_RETURN(std::vector<MessagePiece> pieces,
                               codec_->Encode(op, direction, inputs, settings));
    const size_t request_bytes = TotalSize(pieces);
    SCANSERVE_ASSIGN_OR_RETURN(
        const grpc::ByteBuffer buffer,
        Exchange(codec_->MethodOf(direction), std::move(pieces), settings.timeout));
    absl::StatusOr<CallReply> reply = Decode(buffer);
    if (!reply.ok()) return UnreadableReply(reply.status());
    reply->request_bytes = request_bytes;
    reply->round_trip = std::chrono::steady_clock::now() - start;
    return reply;
  }

  absl::StatusOr<v1::DescribeResponse> Describe(absl::string_view op) {
    v1::DescribeRequest request;
    request.set_operator_name(std::string(op));
    return Control<v1::DescribeResponse>([&](auto* context, auto* response) {
      return kernel_->Describe(context, request, response);
    });
  }

  absl::StatusOr<v1::ServerInfoResponse> ServerInfo() {
    return Control<v1::ServerInfoResponse>([&](auto* context, auto* response) {
      return kernel_->ServerInfo(context, v1::ServerInfoRequest(), response);
    });
  }

  absl::StatusOr<bool> IsServing(absl::string_view service) {
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(std::string(service));
    SCANSERVE_ASSIGN_OR_RETURN(
        const auto response,
        Control<grpc::health::v1::HealthCheckResponse>(
            [&](auto* context, auto* out) { return health_->Check(context, request, out); }));
    return response.status() == grpc::health::v1::HealthCheckResponse::SERVING;
  }

 private:
  template <typename Response, typename Rpc>
  absl::StatusOr<Response> Control(Rpc rpc) {
    grpc::ClientContext context;
    SetTimeout(context, options_.control_timeout);
    Response response;
    const grpc::Status status = rpc(&context, &response);
    if (!status.ok()) return FromGrpc(status);
    return response;
  }

  // One unary call. The calling thread does the network work, so no other one has to be woken.
  absl::StatusOr<grpc::ByteBuffer> Exchange(const std::string& method,
                                            std::vector<MessagePiece> pieces,
                                            std::chrono::milliseconds timeout) {
    Loan loan;
    grpc::ByteBuffer reply;
    grpc::Status status;
    {
      grpc::ClientContext context;
      SetTimeout(context, timeout);
      grpc::ByteBuffer request = ToByteBuffer(std::move(pieces), loan.Take());
      grpc::CompletionQueue queue;
      const auto call = generic_.PrepareUnaryCall(&context, method, request, &queue);
      call->StartCall();
      call->Finish(&reply, &status, nullptr);
      void* tag = nullptr;
      bool ok = false;
      queue.Next(&tag, &ok);
    }
    loan.WaitUntilReturned();
    if (!status.ok()) return FromGrpc(status);
    return reply;
  }

  absl::StatusOr<CallReply> Decode(const grpc::ByteBuffer& buffer) {
    SCANSERVE_ASSIGN_OR_RETURN(const ReceivedBytes received, ReceivedBytes::From(buffer));
    SCANSERVE_ASSIGN_OR_RETURN(CallReply reply, codec_->Decode(received.spans()));
    reply.response_bytes = received.size();
    return reply;
  }

  const ClientOptions options_;
  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub generic_;
  const std::unique_ptr<v1::KernelService::Stub> kernel_;
  const std::unique_ptr<grpc::health::v1::Health::Stub> health_;
  const std::unique_ptr<Codec> codec_;
};

absl::string_view NameOf(Protocol protocol) {
  return protocol == Protocol::kKernel ? "kernel" : "oip";
}

absl::StatusOr<Protocol> ParseProtocol(absl::string_view name) {
  for (const Protocol protocol : {Protocol::kKernel, Protocol::kOip}) {
    if (name == NameOf(protocol)) return protocol;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("protocol is '", name, "', expected kernel or oip"));
}

const Tensor* CallReply::Find(absl::string_view name) const {
  const auto it = std::find_if(outputs.begin(), outputs.end(),
                               [name](const NamedTensor& output) { return output.name == name; });
  return it == outputs.end() ? nullptr : &it->tensor;
}

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(const std::string& address,
                                                        ClientOptions options) {
  auto impl = std::make_unique<Impl>(address, options);
  const absl::Status status = impl->IsServing("").status();
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) {
    return absl::Status(status.code(), absl::StrCat("client: no server answers at ", address, ": ",
                                                    status.message()));
  }
  return std::unique_ptr<Client>(new Client(std::move(impl)));
}

absl::StatusOr<CallReply> Client::Forward(absl::string_view op,
                                          absl::Span<const InputTensor> inputs,
                                          const CallSettings& settings) {
  return Call(op, Direction::kForward, inputs, settings);
}

absl::StatusOr<CallReply> Client::Backward(absl::string_view op,
                                           absl::Span<const InputTensor> inputs,
                                           const CallSettings& settings) {
  return Call(op, Direction::kBackward, inputs, settings);
}

absl::StatusOr<CallReply> Client::ForwardBackward(absl::string_view op,
                                                  absl::Span<const InputTensor> inputs,
                                                  const CallSettings& settings) {
  return Call(op, Direction::kForwardBackward, inputs, settings);
}

absl::StatusOr<CallReply> Client::Call(absl::string_view op, Direction direction,
                                       absl::Span<const InputTensor> inputs,
                                       const CallSettings& settings) {
  return impl_->Call(op, direction, inputs, settings);
}

absl::StatusOr<v1::DescribeResponse> Client::Describe(absl::string_view op) {
  return impl_->Describe(op);
}

absl::StatusOr<v1::ServerInfoResponse> Client::ServerInfo() { return impl_->ServerInfo(); }

absl::StatusOr<bool> Client::IsServing(absl::string_view service) {
  return impl_->IsServing(service);
}

}  // namespace scanserve

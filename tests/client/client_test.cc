// The client against a server whose answers the test decides.
#include "client/cpp/client.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <functional>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "inference/grpc_service.grpc.pb.h"
#include "kernels/spec/catalog.h"
#include "kernels/spec/op_case.h"
#include "scanserve/v1/kernel_service.grpc.pb.h"

namespace scanserve {
namespace {

using ::testing::HasSubstr;

// Both services; each call is kept and answered by what the test has put there.
class FakeServer final : public v1::KernelService::Service,
                         public inference::GRPCInferenceService::Service,
                         public grpc::health::v1::Health::Service {
 public:
  FakeServer() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(static_cast<v1::KernelService::Service*>(this));
    builder.RegisterService(static_cast<inference::GRPCInferenceService::Service*>(this));
    builder.RegisterService(static_cast<grpc::health::v1::Health::Service*>(this));
    builder.SetMaxReceiveMessageSize(-1);
    server_ = builder.BuildAndStart();
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  int calls() {
    std::lock_guard lock(mutex_);
    return calls_;
  }

  std::function<grpc::Status(grpc::ServerContext*, const v1::KernelRequest&, v1::KernelResponse*)>
      on_kernel = [](auto...) { return grpc::Status::OK; };
  std::function<grpc::Status(const inference::ModelInferRequest&, inference::ModelInferResponse*)>
      on_infer = [](auto...) { return grpc::Status::OK; };
  grpc::health::v1::HealthCheckResponse::ServingStatus health =
      grpc::health::v1::HealthCheckResponse::SERVING;
  std::string last_method;
  v1::KernelRequest last_kernel;
  inference::ModelInferRequest last_infer;

 private:
  grpc::Status Answer(const char* method, grpc::ServerContext* context,
                      const v1::KernelRequest& request, v1::KernelResponse* response) {
    {
      std::lock_guard lock(mutex_);
      ++calls_;
      last_method = method;
      last_kernel = request;
    }
    return on_kernel(context, request, response);
  }

  grpc::Status Forward(grpc::ServerContext* context, const v1::KernelRequest* request,
                       v1::KernelResponse* response) override {
    return Answer("Forward", context, *request, response);
  }
  grpc::Status Backward(grpc::ServerContext* context, const v1::KernelRequest* request,
                        v1::KernelResponse* response) override {
    return Answer("Backward", context, *request, response);
  }
  grpc::Status ForwardBackward(grpc::ServerContext* context, const v1::KernelRequest* request,
                               v1::KernelResponse* response) override {
    return Answer("ForwardBackward", context, *request, response);
  }
  grpc::Status ModelInfer(grpc::ServerContext*, const inference::ModelInferRequest* request,
                          inference::ModelInferResponse* response) override {
    {
      std::lock_guard lock(mutex_);
      ++calls_;
      last_infer = *request;
    }
    return on_infer(*request, response);
  }
  grpc::Status Check(grpc::ServerContext*, const grpc::health::v1::HealthCheckRequest* request,
                     grpc::health::v1::HealthCheckResponse* response) override {
    if (request->service() == "unknown") return {grpc::StatusCode::NOT_FOUND, "unknown service"};
    response->set_status(health);
    return grpc::Status::OK;
  }

  int port_ = 0;
  std::mutex mutex_;
  int calls_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

std::string BytesOf(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.data()), static_cast<size_t>(tensor.byte_size())};
}

class ClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const OpCase op_case = *ParseCase(
        "selective_scan_fwd:fp32:batch=2,seqlen=3,dim=4,dstate=5,with=D", Catalog::Default());
    tensors_ = *MakeInputs(op_case);
  }

  std::unique_ptr<Client> Connect(Protocol protocol, bool validate = true,
                                  size_t max_reply_bytes = 1 << 20) {
    ClientOptions options;
    options.protocol = protocol;
    options.validate = validate;
    options.max_reply_bytes = max_reply_bytes;
    auto client = Client::Connect(server_.address(), options);
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }

  absl::StatusOr<CallReply> Forward(Client& client, const CallSettings& settings = {}) {
    return client.Forward("selective_scan", ViewsOf(tensors_), settings);
  }

  FakeServer server_;
  std::vector<NamedTensor> tensors_;
};

TEST(ClientConnectTest, NobodyThereIsUnavailable) {
  const auto client = Client::Connect("127.0.0.1:1");
  EXPECT_EQ(client.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(client.status().message(), HasSubstr("127.0.0.1:1"));
}

TEST_F(ClientTest, HealthIsWhatTheServerSays) {
  const auto client = Connect(Protocol::kKernel);
  EXPECT_TRUE(*client->IsServing());
  server_.health = grpc::health::v1::HealthCheckResponse::NOT_SERVING;
  EXPECT_FALSE(*client->IsServing());
  EXPECT_EQ(client->IsServing("unknown").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ClientTest, AServerThatIsNotReadyCanBeConnectedTo) {
  server_.health = grpc::health::v1::HealthCheckResponse::NOT_SERVING;
  EXPECT_TRUE(Client::Connect(server_.address()).ok());
}

TEST_F(ClientTest, AKernelRequestCarriesTensorsAttributesAndOptions) {
  const auto client = Connect(Protocol::kKernel);
  CallSettings settings;
  settings.attributes["delta_softplus"] = true;
  settings.outputs = {"y"};
  settings.options.implementation = "fused";
  settings.options.timing = true;
  const auto reply = Forward(*client, settings);

  ASSERT_TRUE(reply.ok()) << reply.status();
  const v1::KernelRequest& request = server_.last_kernel;
  EXPECT_EQ(request.operator_name(), "selective_scan");
  EXPECT_EQ(request.outputs(0), "y");
  EXPECT_EQ(request.options().implementation(), "fused");
  EXPECT_TRUE(request.options().timing());
  EXPECT_TRUE(request.attributes().at("delta_softplus").bool_value());
  ASSERT_EQ(static_cast<size_t>(request.inputs_size()), tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const v1::Tensor& sent = request.inputs(static_cast<int>(i));
    EXPECT_EQ(sent.name(), tensors_[i].name);
    EXPECT_EQ(sent.dtype(), v1::DATA_TYPE_FP32);
    EXPECT_EQ(sent.data(), BytesOf(tensors_[i].tensor));
    EXPECT_EQ(Shape(sent.shape().begin(), sent.shape().end()), tensors_[i].tensor.shape());
  }
  EXPECT_EQ(reply->request_bytes, request.ByteSizeLong());
}

TEST_F(ClientTest, AnOipRequestCarriesTheSame) {
  const auto client = Connect(Protocol::kOip);
  CallSettings settings;
  settings.attributes["delta_softplus"] = true;
  settings.outputs = {"y"};
  settings.options.implementation = "fused";
  const auto reply = Forward(*client, settings);

  ASSERT_TRUE(reply.ok()) << reply.status();
  const inference::ModelInferRequest& request = server_.last_infer;
  EXPECT_EQ(request.model_name(), "selective_scan_fwd");
  EXPECT_EQ(request.outputs(0).name(), "y");
  EXPECT_EQ(request.parameters().at("implementation").string_param(), "fused");
  EXPECT_TRUE(request.parameters().at("delta_softplus").bool_param());
  ASSERT_EQ(static_cast<size_t>(request.raw_input_contents_size()), tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const auto& sent = request.inputs(static_cast<int>(i));
    EXPECT_EQ(sent.name(), tensors_[i].name);
    EXPECT_EQ(sent.datatype(), "FP32");
    EXPECT_EQ(request.raw_input_contents(static_cast<int>(i)), BytesOf(tensors_[i].tensor));
    EXPECT_EQ(Shape(sent.shape().begin(), sent.shape().end()), tensors_[i].tensor.shape());
  }
  EXPECT_EQ(reply->request_bytes, request.ByteSizeLong());
}

TEST_F(ClientTest, EachDirectionHasItsOwnRpc) {
  const auto kernel = Connect(Protocol::kKernel, /*validate=*/false);
  const auto oip = Connect(Protocol::kOip, /*validate=*/false);
  const auto views = ViewsOf(tensors_);
  ASSERT_TRUE(kernel->Backward("selective_scan", views).ok());
  EXPECT_EQ(server_.last_method, "Backward");
  ASSERT_TRUE(kernel->ForwardBackward("selective_scan", views).ok());
  EXPECT_EQ(server_.last_method, "ForwardBackward");
  ASSERT_TRUE(oip->Backward("selective_scan", views).ok());
  EXPECT_EQ(server_.last_infer.model_name(), "selective_scan_bwd");
  ASSERT_TRUE(oip->ForwardBackward("selective_scan", views).ok());
  EXPECT_EQ(server_.last_infer.model_name(), "selective_scan_fwd_bwd");
}

TEST_F(ClientTest, AKernelReplyIsReadIntoTensors) {
  server_.on_kernel = [this](auto*, const v1::KernelRequest& request, auto* response) {
    *response->add_outputs() = request.inputs(0);  // u comes back
    response->set_implementation("puppet");
    response->mutable_timing()->set_compute_ns(7);
    response->mutable_memory()->set_peak_bytes(9);
    return grpc::Status::OK;
  };
  const auto reply = Forward(*Connect(Protocol::kKernel));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->report.implementation, "puppet");
  EXPECT_EQ(reply->report.compute_ns, 7u);
  EXPECT_EQ(reply->report.peak_bytes, 9u);
  EXPECT_GT(reply->round_trip.count(), 0);
  EXPECT_GT(reply->response_bytes, static_cast<size_t>(tensors_[0].tensor.byte_size()));
  const Tensor* u = reply->Find(tensors_[0].name);
  ASSERT_NE(u, nullptr);
  EXPECT_EQ(u->meta(), tensors_[0].tensor.meta());
  EXPECT_EQ(BytesOf(*u), BytesOf(tensors_[0].tensor));
  EXPECT_EQ(reply->Find("absent"), nullptr);
}

TEST_F(ClientTest, AnOipReplyIsReadIntoTensors) {
  server_.on_infer = [](const auto& request, auto* response) {
    auto* output = response->add_outputs();
    output->set_name("y");
    output->set_datatype("FP32");
    *output->mutable_shape() = request.inputs(0).shape();
    response->add_raw_output_contents(request.raw_input_contents(0));
    return grpc::Status::OK;
  };
  const auto reply = Forward(*Connect(Protocol::kOip));
  ASSERT_TRUE(reply.ok()) << reply.status();
  ASSERT_NE(reply->Find("y"), nullptr);
  EXPECT_EQ(BytesOf(*reply->Find("y")), BytesOf(tensors_[0].tensor));
}

TEST_F(ClientTest, ACallThatBreaksTheContractIsNotSent) {
  for (const Protocol protocol : {Protocol::kKernel, Protocol::kOip}) {
    const auto client = Connect(protocol);
    CallSettings settings;
    settings.attributes["delta_softpluss"] = true;
    const auto reply = Forward(*client, settings);
    const auto bound = Bind(**Catalog::Default().FindModel("selective_scan_fwd"), ViewsOf(tensors_),
                            settings.attributes, {});
    EXPECT_EQ(reply.status(), bound.status());
    EXPECT_EQ(reply.status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(server_.calls(), 0);
}

TEST_F(ClientTest, AnUnknownOperatorIsNotSent) {
  const auto client = Connect(Protocol::kKernel);
  EXPECT_EQ(client->Forward("no_such_op", {}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(server_.calls(), 0);
}

TEST_F(ClientTest, WithoutValidationTheServerJudges) {
  server_.on_kernel = [](auto...) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "the server's sentence");
  };
  const auto client = Connect(Protocol::kKernel, /*validate=*/false);
  const auto reply = client->Forward("no_such_op", {});
  EXPECT_EQ(reply.status(), absl::InvalidArgumentError("the server's sentence"));
  EXPECT_EQ(server_.calls(), 1);
}

TEST_F(ClientTest, AnInputWithoutDataIsRejected) {
  const auto client = Connect(Protocol::kKernel);
  std::vector<InputTensor> inputs = ViewsOf(tensors_);
  inputs[1].view.data = nullptr;
  const auto reply = client->Forward("selective_scan", inputs);
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(reply.status().message(), HasSubstr(std::string(inputs[1].name)));
}

TEST_F(ClientTest, KernelRepliesThatDoNotKeepTheProtocolAreInternalErrors) {
  const auto client = Connect(Protocol::kKernel);
  const std::vector<std::function<void(v1::Tensor&)>> faults = {
      [](v1::Tensor& tensor) { tensor.mutable_data()->pop_back(); },
      [](v1::Tensor& tensor) { tensor.clear_data(); },
      [](v1::Tensor& tensor) { tensor.set_dtype(v1::DATA_TYPE_UNSPECIFIED); },
      [](v1::Tensor& tensor) { tensor.set_shape(0, -1); },
      [](v1::Tensor& tensor) { tensor.set_shape(0, int64_t{1} << 62); },
  };
  for (const auto& fault : faults) {
    server_.on_kernel = [&](auto*, const v1::KernelRequest& request, auto* response) {
      *response->add_outputs() = request.inputs(0);
      fault(*response->mutable_outputs(0));
      return grpc::Status::OK;
    };
    EXPECT_EQ(Forward(*client).status().code(), absl::StatusCode::kInternal);
  }
}

TEST_F(ClientTest, OipRepliesThatDoNotKeepTheProtocolAreInternalErrors) {
  const auto client = Connect(Protocol::kOip);
  const std::vector<std::function<void(inference::ModelInferResponse&)>> faults = {
      [](auto& response) { response.clear_raw_output_contents(); },
      [](auto& response) { response.mutable_raw_output_contents(0)->pop_back(); },
      [](auto& response) { response.mutable_outputs(0)->set_datatype("fp32"); },
      [](auto& response) { response.mutable_outputs(0)->set_shape(0, -1); },
      [](auto& response) { response.add_raw_output_contents("x"); },
  };
  for (const auto& fault : faults) {
    server_.on_infer = [&](const auto& request, auto* response) {
      auto* output = response->add_outputs();
      output->set_name("y");
      output->set_datatype("FP32");
      *output->mutable_shape() = request.inputs(0).shape();
      response->add_raw_output_contents(request.raw_input_contents(0));
      fault(*response);
      return grpc::Status::OK;
    };
    EXPECT_EQ(Forward(*client).status().code(), absl::StatusCode::kInternal);
  }
}

TEST_F(ClientTest, AReplyBeyondTheLimitIsResourceExhausted) {
  server_.on_kernel = [](auto*, const v1::KernelRequest& request, auto* response) {
    *response->add_outputs() = request.inputs(0);
    return grpc::Status::OK;
  };
  const auto client = Connect(Protocol::kKernel, true, /*max_reply_bytes=*/16);
  EXPECT_EQ(Forward(*client).status().code(), absl::StatusCode::kResourceExhausted);
}

// The memory of the inputs belongs to the caller again as soon as the call has returned; the
// address sanitizer would see gRPC read it afterwards.
TEST_F(ClientTest, ADeadlineEndsTheCallAndItsHoldOnTheInputs) {
  server_.on_kernel = [](grpc::ServerContext* context, auto...) {
    while (!context->IsCancelled()) std::this_thread::yield();
    return grpc::Status::CANCELLED;
  };
  const auto client = Connect(Protocol::kKernel, /*validate=*/false);
  CallSettings settings;
  settings.timeout = std::chrono::milliseconds(50);
  for (int i = 0; i < 3; ++i) {
    const Tensor large(DType::kFP32, {int64_t{4} << 20});
    std::memset(large.data(), 0, static_cast<size_t>(large.byte_size()));
    const auto reply = client->Forward("selective_scan", {{"u", large.view()}}, settings);
    EXPECT_EQ(reply.status().code(), absl::StatusCode::kDeadlineExceeded);
  }
}

TEST_F(ClientTest, ThreadsShareAClient) {
  server_.on_kernel = [](auto*, const v1::KernelRequest& request, auto* response) {
    for (const auto& input : request.inputs()) *response->add_outputs() = input;
    return grpc::Status::OK;
  };
  const auto client = Connect(Protocol::kKernel);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        const auto reply = Forward(*client);
        ASSERT_TRUE(reply.ok()) << reply.status();
        ASSERT_EQ(reply->outputs.size(), tensors_.size());
        EXPECT_EQ(BytesOf(reply->outputs[0].tensor), BytesOf(tensors_[0].tensor));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(server_.calls(), 80);
}

TEST(ProtocolTest, NamesAreParsedBack) {
  EXPECT_EQ(*ParseProtocol("kernel"), Protocol::kKernel);
  EXPECT_EQ(*ParseProtocol("oip"), Protocol::kOip);
  EXPECT_EQ(ParseProtocol("http").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace scanserve

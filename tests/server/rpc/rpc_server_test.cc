#include "server/rpc/rpc_server.h"

#include <grpcpp/generic/generic_stub.h>

#include <thread>

#include "grpc/health/v1/health.grpc.pb.h"
#include "inference/grpc_service.grpc.pb.h"
#include "scanserve/v1/kernel_service.grpc.pb.h"
#include "tests/server/rpc/rpc_fixture.h"

namespace scanserve {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
constexpr char kForward[] = "/scanserve.v1.KernelService/Forward";

std::string Flatten(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

grpc::ByteBuffer ToBuffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

class RpcServerTest : public RpcTest {
 protected:
  static v1::KernelRequest SmallRequest() {
    v1::KernelRequest request;
    request.set_operator_name("selective_scan");
    v1::Tensor& tensor = *request.add_inputs();
    tensor.set_name("u");
    tensor.set_dtype(v1::DATA_TYPE_FP32);
    tensor.add_shape(1);
    tensor.set_data("abcd");
    return request;
  }

  grpc::Status Forward(grpc::ClientContext& context,
                       const v1::KernelRequest& request = SmallRequest()) {
    v1::KernelResponse response;
    return v1::KernelService::NewStub(channel_)->Forward(&context, request, &response);
  }

  grpc::Status Forward() {
    grpc::ClientContext context;
    return Forward(context);
  }

  // One unary call whose message is `bytes`.
  grpc::Status SendRaw(const std::string& method, const std::string& bytes) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    const grpc::ByteBuffer request = ToBuffer(bytes);
    grpc::ByteBuffer response;
    std::promise<grpc::Status> status;
    stub.UnaryCall(&context, method, {}, &request, &response,
                   [&](grpc::Status s) { status.set_value(std::move(s)); });
    return status.get_future().get();
  }

  grpc::Status Check(const std::string& service, HealthCheckResponse* response) {
    grpc::ClientContext context;
    HealthCheckRequest request;
    request.set_service(service);
    return grpc::health::v1::Health::NewStub(channel_)->Check(&context, request, response);
  }

  HealthCheckResponse::ServingStatus Health(const std::string& service) {
    HealthCheckResponse response;
    const grpc::Status status = Check(service, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.status();
  }

  // The reply to one message of the reflection service.
  std::string Reflect(const std::string& request) {
    grpc::GenericStub stub(channel_);
    grpc::CompletionQueue queue;
    grpc::ClientContext context;
    const auto call = stub.PrepareCall(
        &context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
    const auto wait = [&] {
      void* tag = nullptr;
      bool ok = false;
      EXPECT_TRUE(queue.Next(&tag, &ok) && ok);
    };
    grpc::ByteBuffer reply;
    grpc::Status status;
    call->StartCall(nullptr);
    wait();
    call->Write(ToBuffer(request), nullptr);
    wait();
    call->Read(&reply, nullptr);
    wait();
    call->WritesDone(nullptr);
    wait();
    call->Finish(&status, nullptr);
    wait();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return Flatten(reply);
  }
};

TEST_F(RpcServerTest, AnswersCallsThatEndBeforeSubmitReturns) {
  EchoInputAsOutput();
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(Forward().ok());
}

TEST_F(RpcServerTest, AnswersCallsThatEndInOtherThreadsAtAnyMoment) {
  Mutex mutex;
  std::vector<std::thread> workers;
  core_.handler = [&](Call, CallDone done) {
    const MutexLock lock(mutex);
    workers.emplace_back([done = std::move(done)]() mutable { done(absl::OkStatus(), {}); });
  };
  std::vector<std::thread> clients;
  std::atomic<int> succeeded{0};
  for (int c = 0; c < 4; ++c) {
    clients.emplace_back([&] {
      for (int i = 0; i < 50; ++i) succeeded += Forward().ok() ? 1 : 0;
    });
  }
  for (std::thread& client : clients) client.join();
  server_->Shutdown(std::chrono::milliseconds(0));
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(succeeded, 200);
}

TEST_F(RpcServerTest, CancelsTheCallOfAClientThatGivesUp) {
  std::promise<CallDone> submitted;
  std::promise<void> cancelled;
  core_.handler = [&](Call, CallDone done) { submitted.set_value(std::move(done)); };
  core_.on_cancel = [&] { cancelled.set_value(); };
  grpc::ClientContext context;
  std::future<grpc::Status> reply =
      std::async(std::launch::async, [&] { return Forward(context); });
  CallDone done = submitted.get_future().get();
  context.TryCancel();
  cancelled.get_future().get();  // hangs, and so fails, when nobody tells the core
  done(absl::CancelledError("the client is gone"), {});
  EXPECT_EQ(reply.get().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(RpcServerTest, CancelsTheCallWhenItsDeadlinePasses) {
  std::promise<CallDone> submitted;
  std::promise<void> cancelled;
  TimePoint deadline;
  core_.handler = [&](Call call, CallDone done) {
    deadline = call.deadline;
    submitted.set_value(std::move(done));
  };
  core_.on_cancel = [&] { cancelled.set_value(); };
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(300));
  const TimePoint before = std::chrono::steady_clock::now();
  EXPECT_EQ(Forward(context).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  cancelled.get_future().get();
  submitted.get_future().get()(absl::DeadlineExceededError("late"), {});
  EXPECT_GT(deadline, before);
  EXPECT_LT(deadline, before + std::chrono::seconds(10));
}

TEST_F(RpcServerTest, RefusesMessagesThatAreNotWellFormed) {
  const std::vector<std::string> broken = {"\xff",
                                           std::string("\x12\x05"
                                                       "ab",
                                                       4),
                                           std::string("\x0a\x02\xc3\x28", 4),
                                           "\x0c",
                                           "\x12\xff\xff\xff\xff\x7f",
                                           std::string(1000, '\x0b')};
  for (const std::string& bytes : broken) {
    ExpectError(SendRaw(kForward, bytes), kInvalid, "malformed message");
    ExpectError(SendRaw("/inference.GRPCInferenceService/ModelInfer", bytes), kInvalid,
                "malformed message");
  }
  EXPECT_EQ(SendRaw(kForward, "").error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(core_.rejections().size(), 2 * broken.size() + 1);
}

TEST_F(RpcServerTest, RefusesMoreInputsThanAMessageMayHave) {
  inference::ModelInferRequest request;
  request.set_model_name("selective_scan_fwd");
  for (int i = 0; i < 20'000; ++i) request.add_inputs();
  ExpectError(SendRaw("/inference.GRPCInferenceService/ModelInfer", request.SerializeAsString()),
              kInvalid, "more than 10000 fields");
}

TEST_F(RpcServerTest, RefusesMessagesAboveTheCapAndLivesOn) {
  Serve({.max_message_bytes = 1 << 20});
  EchoInputAsOutput();
  v1::KernelRequest request = SmallRequest();
  request.mutable_inputs(0)->set_data(std::string(2 << 20, 'x'));
  grpc::ClientContext context;
  EXPECT_EQ(Forward(context, request).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(Forward().ok());
}

TEST_F(RpcServerTest, RefusesCompressedMessages) {
  EchoInputAsOutput();
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  v1::KernelRequest request = SmallRequest();
  request.set_id(std::string(10'000, 'x'));
  EXPECT_EQ(Forward(context, request).error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_TRUE(Forward().ok());
}

TEST_F(RpcServerTest, ServesOnAUnixSocket) {
  EchoInputAsOutput();
  const std::string address = "unix:" + ::testing::TempDir() + "scanserve_rpc_server_test.sock";
  const auto server = RpcServer::Start(core_, {.address = address});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ((*server)->port(), 1);
  channel_ = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
  EXPECT_TRUE(Forward().ok());
}

TEST_F(RpcServerTest, RefusesAPortThatIsTaken) {
  const auto second = RpcServer::Start(core_, {.address = Address()});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(Address()));
}

TEST_F(RpcServerTest, ShowsReadinessAsHealth) {
  for (const char* service : {"", "inference.GRPCInferenceService", "scanserve.v1.KernelService"}) {
    server_->SetServing(true);
    EXPECT_EQ(Health(service), HealthCheckResponse::SERVING) << service;
    server_->SetServing(false);
    EXPECT_EQ(Health(service), HealthCheckResponse::NOT_SERVING) << service;
  }
  EXPECT_EQ(Health("liveness"), HealthCheckResponse::SERVING);
  HealthCheckResponse response;
  EXPECT_EQ(Check("nothing", &response).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(RpcServerTest, StartsWithTheReadinessOfItsCore) {
  core_.ready = false;
  Serve();
  EXPECT_EQ(Health(""), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(Health("liveness"), HealthCheckResponse::SERVING);
}

TEST_F(RpcServerTest, TellsWatchersOfHealthAtOnce) {
  grpc::ClientContext context;
  const auto watch = grpc::health::v1::Health::NewStub(channel_)->Watch(&context, {});
  HealthCheckResponse response;
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  server_->SetServing(false);
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  server_->SetServing(true);
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  context.TryCancel();
}

// A watch has no end of its own; it must not use up the time that calls have to end.
TEST_F(RpcServerTest, ShutsDownAtOnceWhenOnlyWatchersAreLeft) {
  grpc::ClientContext context;
  const auto watch = grpc::health::v1::Health::NewStub(channel_)->Watch(&context, {});
  HealthCheckResponse response;
  ASSERT_TRUE(watch->Read(&response));
  const TimePoint before = std::chrono::steady_clock::now();
  server_->Shutdown(std::chrono::seconds(60));
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(30));
}

TEST_F(RpcServerTest, WaitsForCallsInProgressWhenItShutsDownAndRefusesOthers) {
  std::promise<CallDone> submitted;
  std::atomic<int> calls{0};
  core_.handler = [&](Call, CallDone done) {
    if (calls++ == 0) {
      submitted.set_value(std::move(done));
    } else {
      done(absl::OkStatus(), {});
    }
  };
  v1::KernelResponse response;
  std::future<grpc::Status> reply = std::async(std::launch::async, [&] {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    const auto channel =
        grpc::CreateCustomChannel(Address(), grpc::InsecureChannelCredentials(), arguments);
    grpc::ClientContext context;
    return v1::KernelService::NewStub(channel)->Forward(&context, SmallRequest(), &response);
  });
  CallDone done = submitted.get_future().get();
  std::future<void> shutdown =
      std::async(std::launch::async, [&] { server_->Shutdown(std::chrono::seconds(60)); });
  while (Forward().error_code() != grpc::StatusCode::UNAVAILABLE) std::this_thread::yield();
  // Large, so that the reply is not in the client's hands when the call ends here.
  constexpr int64_t kBytes = 16 << 20;
  CallResult result;
  result.outputs.push_back(
      core_.Output("y", {DType::kFP32, {kBytes / 4}}, std::string(kBytes, 'y')));
  done(absl::OkStatus(), std::move(result));
  shutdown.get();
  const grpc::Status status = reply.get();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.outputs(0).data().size(), static_cast<size_t>(kBytes));
}

TEST_F(RpcServerTest, CancelsCallsThatOutliveTheGrace) {
  std::promise<CallDone> submitted;
  std::promise<void> cancelled;
  core_.handler = [&](Call, CallDone done) { submitted.set_value(std::move(done)); };
  core_.on_cancel = [&] { cancelled.set_value(); };
  std::future<grpc::Status> reply = std::async(std::launch::async, [&] { return Forward(); });
  CallDone done = submitted.get_future().get();
  std::future<void> shutdown =
      std::async(std::launch::async, [&] { server_->Shutdown(std::chrono::milliseconds(1)); });
  cancelled.get_future().get();
  done(absl::CancelledError("shutting down"), {});
  shutdown.get();
  EXPECT_FALSE(reply.get().ok());
}

TEST_F(RpcServerTest, ListsEveryServiceByReflection) {
  const std::string services = Reflect(std::string("\x3a\x01*", 3));  // list_services = 7
  for (const char* name : {"inference.GRPCInferenceService", "scanserve.v1.KernelService",
                           "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}) {
    EXPECT_THAT(services, HasSubstr(name));
  }
}

TEST_F(RpcServerTest, KnowsTheFileOfEveryServiceByReflection) {
  const std::vector<std::pair<std::string, std::string>> files = {
      {"inference.GRPCInferenceService", "inference/model_config.proto"},
      {"scanserve.v1.KernelService", "scanserve/v1/kernel_service.proto"},
      {"grpc.health.v1.Health", "grpc/health/v1/health.proto"}};
  for (const auto& [symbol, file] : files) {
    std::string request = "\x22";  // file_containing_symbol = 4
    request.push_back(static_cast<char>(symbol.size()));
    EXPECT_THAT(Reflect(request + symbol), HasSubstr(file));
  }
}

}  // namespace
}  // namespace scanserve

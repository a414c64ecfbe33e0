// Calls over real sockets to the whole server, by both protocols: success, each error code,
// deadline, cancellation and drain. Where a call has to wait, a gate holds the kernel: no sleeping.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/cpp/client.h"
#include "kernels/io/golden.h"
#include "kernels/runtime/cpu_device.h"
#include "scanserve/v1/kernel_service.grpc.pb.h"
#include "server/rpc/rpc_server.h"
#include "server/server_core.h"
#include "tests/server/server_fixture.h"

namespace scanserve {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// A server around the real core, on a free port of loopback, and a client.
class Stack {
 public:
  struct Setup {
    Protocol protocol = Protocol::kKernel;
    AdmissionLimits limits = {
        .queue_requests = 64, .queue_bytes = 1 << 30, .memory_bytes = 1 << 30};
    int64_t max_message_bytes = 64 << 20;
    bool puppet = false;  // instead of the real kernels: copies u to y, passes the gate
    Gate* gate = nullptr;
  };

  explicit Stack(const Setup& setup) : device_(CpuDeviceOptions{.num_threads = 1}) {
    script_.gate = setup.gate;
    ServerCoreOptions options;
    options.limits = setup.limits;
    if (setup.puppet) {
      options.planner = [this](const BoundOp&, absl::string_view) { return PuppetCall(script_); };
    }
    core_ = ServerCore::Create(device_, std::move(options)).value();
    RpcOptions rpc;
    rpc.address = "127.0.0.1:0";
    rpc.max_message_bytes = setup.max_message_bytes;
    rpc_ = RpcServer::Start(*core_, rpc).value();
    address_ = absl::StrCat("127.0.0.1:", rpc_->port());
    ClientOptions client;
    client.protocol = setup.protocol;
    client.validate = false;  // the server is to judge
    client_ = Client::Connect(address_, client).value();
  }
  ~Stack() {
    rpc_->Shutdown(milliseconds(0));
    rpc_.reset();
  }

  Client& client() { return *client_; }
  ServerCore& core() { return *core_; }
  RpcServer& rpc() { return *rpc_; }
  PuppetScript& script() { return script_; }
  const std::string& address() const { return address_; }
  // Outputs go back to the pool once the socket has taken them, a moment after the reply is here.
  // What never comes back makes the test time out.
  void WaitForEmptyPool() {
    while (device_.pool().GetStats().used_bytes > 0) std::this_thread::yield();
  }
  double Metric(const std::string& series) {
    return SeriesValue(core_->metrics().Serialize(), series).value_or(-1);
  }

 private:
  CpuDevice device_;
  PuppetScript script_;
  std::unique_ptr<ServerCore> core_;
  std::unique_ptr<RpcServer> rpc_;
  std::string address_;
  std::unique_ptr<Client> client_;
};

// Inputs of a case, and its call on a client.
class Problem {
 public:
  explicit Problem(const std::string& text)
      : case_(ParseCase(text, Catalog::Default()).value()), tensors_(MakeInputs(case_).value()) {}

  absl::StatusOr<CallReply> Send(Client& client, CallSettings settings = {}) const {
    settings.attributes = case_.attributes;
    return client.Call(case_.model->spec->name, case_.model->direction, ViewsOf(tensors_),
                       settings);
  }
  const std::vector<NamedTensor>& tensors() const { return tensors_; }

 private:
  OpCase case_;
  std::vector<NamedTensor> tensors_;
};

constexpr char kSmall[] = "selective_scan_fwd:fp32:batch=2,seqlen=9,dim=5,dstate=3";

class ServingTest : public ::testing::TestWithParam<Protocol> {
 protected:
  Stack::Setup With(Gate* gate) const {
    return {.protocol = GetParam(), .puppet = true, .gate = gate};
  }
  ScopedLog log_;
};

INSTANTIATE_TEST_SUITE_P(BothProtocols, ServingTest,
                         ::testing::Values(Protocol::kKernel, Protocol::kOip),
                         [](const auto& test) { return std::string(NameOf(test.param)); });

TEST_P(ServingTest, AnAnswerCarriesEveryOutputAndLeavesNothingBehind) {
  Stack stack({.protocol = GetParam()});
  for (const char* model : {"selective_scan_fwd", "selective_scan_bwd", "selective_scan_fwd_bwd"}) {
    const Problem problem(absl::StrCat(model, ":fp32:batch=2,seqlen=9,dim=5,dstate=3,with=D+z"));
    const auto reply = problem.Send(stack.client());
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->report.implementation, "fused");
    EXPECT_EQ(stack.Metric(absl::StrCat("scanserve_executions_total{model=\"", model, "\"}")), 1);
  }
  stack.WaitForEmptyPool();
}

TEST_P(ServingTest, AnUnknownOperatorIsNotFound) {
  Stack stack({.protocol = GetParam()});
  const auto reply = stack.client().Forward("selective_scam", {});
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kNotFound) << reply.status();
  EXPECT_THAT(std::string(reply.status().message()), HasSubstr("selective_scam"));
}

TEST_P(ServingTest, ALegalCallThatNothingRunsIsUnimplementedWithTheReason) {
  Stack stack({.protocol = GetParam()});
  CallSettings settings;
  settings.options.implementation = "fused";
  const auto reply = Problem("selective_scan_fwd:fp64:batch=1,seqlen=2,dim=3,dstate=1")
                         .Send(stack.client(), settings);
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kUnimplemented) << reply.status();
  EXPECT_THAT(std::string(reply.status().message()), HasSubstr("fused: "));
}

TEST_P(ServingTest, EveryRowOfTheContractCasesIsJudgedByTheServer) {
  Stack stack({.protocol = GetParam()});
  const auto rows = ReadContractCases(SCANSERVE_GOLDEN_DIR "/invalid.json");
  ASSERT_TRUE(rows.ok()) << rows.status();
  int judged = 0;
  for (const ContractCase& row : *rows) {
    if (!Catalog::Default().FindOp(row.op).ok()) continue;
    const auto u = std::find_if(row.inputs.begin(), row.inputs.end(),
                                [](const NamedTensor& input) { return input.name == "u"; });
    ASSERT_NE(u, row.inputs.end());
    for (const Direction direction : kAllDirections) {
      CallSettings settings;
      settings.attributes = row.attributes;
      std::vector<InputTensor> inputs = ViewsOf(row.inputs);
      if (direction != Direction::kForward) inputs.push_back({"dy", u->tensor.view()});
      const auto reply = stack.client().Call(row.op, direction, inputs, settings);
      EXPECT_EQ(reply.status().code(),
                row.accept ? absl::StatusCode::kOk : absl::StatusCode::kInvalidArgument)
          << row.why << ": " << reply.status();
      ++judged;
    }
  }
  EXPECT_GE(judged, 30);
  EXPECT_TRUE(stack.core().IsReady());
  stack.WaitForEmptyPool();
}

TEST_P(ServingTest, AMessageAboveTheCapIsRefusedAndTheServerLivesOn) {
  Stack stack({.protocol = GetParam(), .max_message_bytes = 1 << 20});
  const Problem large("selective_scan_fwd:fp32:batch=1,seqlen=1024,dim=256,dstate=1");
  EXPECT_EQ(large.Send(stack.client()).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Problem(kSmall).Send(stack.client()).ok());
}

TEST_P(ServingTest, ACallThatDoesNotFitTheMemoryIsRefusedBeforeItIsCopied) {
  Stack stack({.protocol = GetParam(),
               .limits = {.queue_requests = 4, .queue_bytes = 1 << 30, .memory_bytes = 4096}});
  const Problem large("selective_scan_fwd:fp32:batch=1,seqlen=64,dim=64,dstate=4");
  const auto reply = large.Send(stack.client());
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kResourceExhausted) << reply.status();
  EXPECT_EQ(
      stack.Metric("scanserve_rejected_total{model=\"selective_scan_fwd\",reason=\"memory\"}"), 1);
  stack.WaitForEmptyPool();
}

TEST_P(ServingTest, AFullQueueIsUnavailableAndADeadlineEndsTheWait) {
  Gate gate;
  Stack::Setup setup = With(&gate);
  setup.limits.queue_requests = 1;
  Stack stack(setup);
  const Problem problem(kSmall);
  auto running = std::async(std::launch::async, [&] { return problem.Send(stack.client()); });
  gate.WaitForArrivals(1);
  // One call may wait. It has a deadline, which passes while the device is held.
  CallSettings brief;
  brief.timeout = milliseconds(200);
  auto waiting =
      std::async(std::launch::async, [&] { return problem.Send(stack.client(), brief); });
  while (stack.Metric("scanserve_queue_depth{model=\"selective_scan_fwd\"}") < 1) {
    std::this_thread::yield();
  }
  const auto refused = problem.Send(stack.client());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnavailable) << refused.status();
  EXPECT_EQ(waiting.get().status().code(), absl::StatusCode::kDeadlineExceeded);
  while (stack.Metric("scanserve_queue_depth{model=\"selective_scan_fwd\"}") > 0) {
    std::this_thread::yield();
  }
  gate.Open();
  EXPECT_TRUE(running.get().ok());
  EXPECT_EQ(stack.script().runs, 1);
}

TEST_P(ServingTest, AQueueTimeoutIsADeadlineOfTheServersOwn) {
  Gate gate;
  Stack stack(With(&gate));
  const Problem problem(kSmall);
  auto running = std::async(std::launch::async, [&] { return problem.Send(stack.client()); });
  gate.WaitForArrivals(1);
  CallSettings settings;
  settings.options.queue_timeout_us = 1000;
  const auto late = problem.Send(stack.client(), settings);
  EXPECT_EQ(late.status().code(), absl::StatusCode::kDeadlineExceeded) << late.status();
  gate.Open();
  EXPECT_TRUE(running.get().ok());
}

TEST_P(ServingTest, ADrainFinishesWhatIsInFlightAndRefusesWhatComesLater) {
  Gate gate;
  Stack stack(With(&gate));
  const Problem problem(kSmall);
  auto running = std::async(std::launch::async, [&] { return problem.Send(stack.client()); });
  gate.WaitForArrivals(1);
  stack.core().BeginDrain();
  stack.rpc().SetServing(false);
  EXPECT_FALSE(stack.client().IsServing().value());
  stack.core().StopAdmitting();
  const auto late = problem.Send(stack.client());
  EXPECT_EQ(late.status().code(), absl::StatusCode::kUnavailable) << late.status();
  auto shutdown =
      std::async(std::launch::async, [&] { stack.rpc().Shutdown(milliseconds(60000)); });
  gate.Open();
  EXPECT_TRUE(running.get().ok());
  shutdown.get();
}

TEST(CancelTest, ACancelledCallLeavesTheQueueAndNeverRuns) {
  ScopedLog log;
  Gate gate;
  Stack stack({.puppet = true, .gate = &gate});
  const Problem problem(kSmall);
  auto running = std::async(std::launch::async, [&] { return problem.Send(stack.client()); });
  gate.WaitForArrivals(1);

  v1::KernelRequest request;
  request.set_operator_name("selective_scan");
  for (const NamedTensor& input : problem.tensors()) {
    v1::Tensor& tensor = *request.add_inputs();
    tensor.set_name(input.name);
    tensor.set_dtype(v1::DATA_TYPE_FP32);
    for (const int64_t dim : input.tensor.shape()) tensor.add_shape(dim);
    tensor.set_data(input.tensor.data(), input.tensor.byte_size());
  }
  const auto stub = v1::KernelService::NewStub(
      grpc::CreateChannel(stack.address(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  v1::KernelResponse response;
  std::promise<grpc::Status> cancelled;
  stub->async()->Forward(&context, &request, &response,
                         [&](grpc::Status status) { cancelled.set_value(std::move(status)); });
  while (stack.Metric("scanserve_queue_depth{model=\"selective_scan_fwd\"}") < 1) {
    std::this_thread::yield();
  }
  context.TryCancel();
  EXPECT_EQ(cancelled.get_future().get().error_code(), grpc::StatusCode::CANCELLED);
  while (stack.Metric("scanserve_queue_depth{model=\"selective_scan_fwd\"}") > 0) {
    std::this_thread::yield();
  }
  gate.Open();
  EXPECT_TRUE(running.get().ok());
  EXPECT_EQ(stack.script().runs, 1);
  EXPECT_EQ(
      stack.Metric("scanserve_cancelled_total{model=\"selective_scan_fwd\",stage=\"queued\"}"), 1);
}

}  // namespace
}  // namespace scanserve

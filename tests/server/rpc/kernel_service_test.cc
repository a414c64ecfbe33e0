#include "scanserve/v1/kernel_service.grpc.pb.h"
#include "tests/server/rpc/rpc_fixture.h"

namespace scanserve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
constexpr auto kUnimplemented = grpc::StatusCode::UNIMPLEMENTED;

class KernelServiceTest : public RpcTest {
 protected:
  using Stub = v1::KernelService::Stub;

  void SetUp() override {
    Serve({.max_message_bytes = 64 << 20});
    stub_ = v1::KernelService::NewStub(channel_);
  }

  static v1::KernelRequest SmallRequest() {
    v1::KernelRequest request;
    request.set_operator_name("selective_scan");
    request.set_id("call 7");
    v1::Tensor& tensor = *request.add_inputs();
    tensor.set_name("u");
    tensor.set_dtype(v1::DATA_TYPE_FP32);
    tensor.add_shape(2);
    tensor.add_shape(3);
    tensor.set_data(std::string(24, 'u'));
    return request;
  }

  template <typename Request, typename Response>
  grpc::Status Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response) {
    grpc::ClientContext context;
    return (stub_.get()->*method)(&context, request, response);
  }

  grpc::Status Forward(const v1::KernelRequest& request) {
    v1::KernelResponse response;
    return Call(&Stub::Forward, request, &response);
  }

  std::unique_ptr<Stub> stub_;
};

TEST_F(KernelServiceTest, ComputesInThreeDirections) {
  std::vector<std::string> seen;
  core_.handler = [&](scanserve::Call call, CallDone done) {
    seen.push_back(call.method + " " + call.model->name);
    done(absl::OkStatus(), {});
  };
  v1::KernelResponse response;
  ASSERT_TRUE(Call(&Stub::Forward, SmallRequest(), &response).ok());
  ASSERT_TRUE(Call(&Stub::Backward, SmallRequest(), &response).ok());
  ASSERT_TRUE(Call(&Stub::ForwardBackward, SmallRequest(), &response).ok());
  EXPECT_THAT(seen, ElementsAre("Forward selective_scan_fwd", "Backward selective_scan_bwd",
                                "ForwardBackward selective_scan_fwd_bwd"));
}

TEST_F(KernelServiceTest, ReturnsTensorsAndWhatRan) {
  EchoInputAsOutput();
  v1::KernelRequest request = SmallRequest();
  request.mutable_options()->set_timing(true);
  v1::KernelResponse response;
  const grpc::Status status = Call(&Stub::Forward, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.operator_name(), "selective_scan");
  EXPECT_EQ(response.id(), "call 7");
  EXPECT_EQ(response.implementation(), "fused");
  EXPECT_EQ(response.precision(), v1::PRECISION_IEEE);
  EXPECT_TRUE(response.deterministic());
  EXPECT_EQ(response.timing().compute_ns(), 77u);
  ASSERT_EQ(response.outputs_size(), 1);
  EXPECT_EQ(response.outputs(0).name(), "y");
  EXPECT_EQ(response.outputs(0).dtype(), v1::DATA_TYPE_FP32);
  EXPECT_THAT(response.outputs(0).shape(), ElementsAre(2, 3));
  EXPECT_EQ(response.outputs(0).data(), std::string(24, 'u'));
}

// The message comes in hundreds of slices; the reply goes out of the device's memory.
TEST_F(KernelServiceTest, CarriesLargeTensorsUnchanged) {
  EchoInputAsOutput();
  std::string data(16 << 20, '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 31 + i / 4096);
  v1::KernelRequest request = SmallRequest();
  request.mutable_inputs(0)->set_shape(0, 4);
  request.mutable_inputs(0)->set_shape(1, 1 << 20);
  request.mutable_inputs(0)->set_data(data);
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  stub_ = v1::KernelService::NewStub(
      grpc::CreateCustomChannel(Address(), grpc::InsecureChannelCredentials(), arguments));
  v1::KernelResponse response;
  const grpc::Status status = Call(&Stub::Forward, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(response.outputs(0).data() == data);
  server_->Shutdown(std::chrono::milliseconds(0));
  EXPECT_EQ(core_.device().pool().GetStats().used_bytes, 0u);
}

TEST_F(KernelServiceTest, GivesTheCoreTheWholeCall) {
  scanserve::Call seen;
  core_.handler = [&](scanserve::Call call, CallDone done) {
    seen = std::move(call);
    done(absl::OkStatus(), {});
  };
  v1::KernelRequest request = SmallRequest();
  request.add_outputs("y");
  (*request.mutable_attributes())["delta_softplus"].set_bool_value(true);
  request.mutable_options()->set_implementation("reference");
  request.mutable_options()->set_deterministic(false);
  ASSERT_TRUE(Forward(request).ok());
  EXPECT_THAT(seen.outputs, ElementsAre("y"));
  EXPECT_EQ(seen.attributes.at("delta_softplus"), AttributeValue(true));
  EXPECT_EQ(seen.options.implementation, "reference");
  EXPECT_FALSE(seen.options.deterministic);
  EXPECT_EQ(seen.request_bytes, request.ByteSizeLong());
  ASSERT_EQ(seen.inputs.size(), 1u);
  EXPECT_EQ(BytesOf(seen.inputs[0].payload), std::string(24, 'u'));
}

TEST_F(KernelServiceTest, RefusesWhatBreaksTheProtocol) {
  v1::KernelRequest unknown = SmallRequest();
  unknown.set_operator_name("mamba9");
  ExpectError(Forward(unknown), grpc::StatusCode::NOT_FOUND, "selective_scan");
  v1::KernelRequest short_data = SmallRequest();
  short_data.mutable_inputs(0)->set_data("short");
  ExpectError(Forward(short_data), kInvalid, "input byte size mismatch for input 'u'");
  v1::KernelRequest no_data = SmallRequest();
  no_data.mutable_inputs(0)->clear_payload();
  ExpectError(Forward(no_data), kInvalid, "expected 24, got 0");
  v1::KernelRequest no_dtype = SmallRequest();
  no_dtype.mutable_inputs(0)->clear_dtype();
  ExpectError(Forward(no_dtype), kInvalid, "tensor 'u': dtype 0");
  v1::KernelRequest negative = SmallRequest();
  negative.mutable_inputs(0)->set_shape(0, -2);
  ExpectError(Forward(negative), kInvalid, "tensor 'u'");
  v1::KernelRequest shared = SmallRequest();
  shared.mutable_inputs(0)->mutable_shared_memory()->set_region("r");
  ExpectError(Forward(shared), kUnimplemented, "shared memory is not served");
  v1::KernelRequest context = SmallRequest();
  context.set_context("c");
  ExpectError(Forward(context), kUnimplemented, "contexts are not served");
  EXPECT_EQ(core_.rejections().size(), 7u);
}

TEST_F(KernelServiceTest, DescribesOneOperatorOrAll) {
  v1::DescribeRequest request;
  v1::DescribeResponse response;
  ASSERT_TRUE(Call(&Stub::Describe, request, &response).ok());
  EXPECT_EQ(static_cast<size_t>(response.operators_size()), core_.catalog().ops().size());
  request.set_operator_name("selective_scan");
  ASSERT_TRUE(Call(&Stub::Describe, request, &response).ok());
  ASSERT_EQ(response.operators_size(), 1);
  EXPECT_EQ(response.operators(0).name(), "selective_scan");
  EXPECT_EQ(response.operators(0).models_size(), 3);
  request.set_operator_name("nothing");
  ExpectError(Call(&Stub::Describe, request, &response), grpc::StatusCode::NOT_FOUND,
              "selective_scan");
}

TEST_F(KernelServiceTest, TellsWhatTheServerIs) {
  v1::ServerInfoResponse info;
  ASSERT_TRUE(Call(&Stub::ServerInfo, {}, &info).ok());
  EXPECT_EQ(info.name(), "scanserve");
  EXPECT_EQ(info.device(), "cpu");
  EXPECT_TRUE(info.ready());
  EXPECT_EQ(info.max_message_bytes(), 64 << 20);
  EXPECT_EQ(info.memory_budget_bytes(), core_.device().pool().GetStats().budget_bytes);
  EXPECT_EQ(static_cast<size_t>(info.operators_size()), core_.catalog().ops().size());
}

TEST_F(KernelServiceTest, SaysWhatToUseInsteadOfWhatIsNotServed) {
  v1::KernelResponse step;
  ExpectError(Call(&Stub::Step, {}, &step), kUnimplemented, "Forward");
  v1::EstimateResponse estimate;
  ExpectError(Call(&Stub::Estimate, {}, &estimate), kUnimplemented, "timing");
  v1::ReleaseContextResponse release;
  ExpectError(Call(&Stub::ReleaseContext, {}, &release), kUnimplemented, "context");
}

}  // namespace
}  // namespace scanserve

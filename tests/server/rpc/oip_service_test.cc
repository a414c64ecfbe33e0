#include "inference/grpc_service.grpc.pb.h"
#include "tests/server/rpc/rpc_fixture.h"

namespace scanserve {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
constexpr auto kNotFound = grpc::StatusCode::NOT_FOUND;
constexpr auto kUnimplemented = grpc::StatusCode::UNIMPLEMENTED;

class OipServiceTest : public RpcTest {
 protected:
  using Stub = inference::GRPCInferenceService::Stub;

  void SetUp() override {
    RpcTest::SetUp();
    stub_ = inference::GRPCInferenceService::NewStub(channel_);
  }

  // One input "u" of 2 x 3 FP32, raw.
  static inference::ModelInferRequest SmallRequest() {
    inference::ModelInferRequest request;
    request.set_model_name("selective_scan_fwd");
    request.set_id("call 7");
    auto& input = *request.add_inputs();
    input.set_name("u");
    input.set_datatype("FP32");
    input.add_shape(2);
    input.add_shape(3);
    request.add_raw_input_contents(std::string(24, 'u'));
    return request;
  }

  grpc::Status Infer(const inference::ModelInferRequest& request,
                     inference::ModelInferResponse* response = nullptr) {
    grpc::ClientContext context;
    inference::ModelInferResponse ignored;
    return stub_->ModelInfer(&context, request, response != nullptr ? response : &ignored);
  }

  template <typename Request, typename Response>
  grpc::Status Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response) {
    grpc::ClientContext context;
    return (stub_.get()->*method)(&context, request, response);
  }

  // The sentence of an rpc that is not served.
  template <typename Request, typename Response>
  void ExpectRefused(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                     const std::string& text) {
    Response response;
    ExpectError(Call(method, Request(), &response), kUnimplemented, text);
  }

  std::unique_ptr<Stub> stub_;
};

TEST_F(OipServiceTest, AnswersWhetherTheServerLivesAndIsReady) {
  inference::ServerLiveResponse live;
  inference::ServerReadyResponse ready;
  ASSERT_TRUE(Call(&Stub::ServerLive, {}, &live).ok());
  ASSERT_TRUE(Call(&Stub::ServerReady, {}, &ready).ok());
  EXPECT_TRUE(live.live());
  EXPECT_TRUE(ready.ready());
  core_.ready = false;
  ASSERT_TRUE(Call(&Stub::ServerLive, {}, &live).ok());
  ASSERT_TRUE(Call(&Stub::ServerReady, {}, &ready).ok());
  EXPECT_TRUE(live.live());
  EXPECT_FALSE(ready.ready());
}

TEST_F(OipServiceTest, NamesOnlyExtensionsThatAreOn) {
  inference::ServerMetadataResponse metadata;
  ASSERT_TRUE(Call(&Stub::ServerMetadata, {}, &metadata).ok());
  EXPECT_EQ(metadata.name(), "scanserve");
  EXPECT_THAT(metadata.version(), Not(IsEmpty()));
  EXPECT_THAT(metadata.extensions(), Contains("statistics"));
  EXPECT_THAT(metadata.extensions(), Contains("binary_tensor_data"));
  EXPECT_THAT(metadata.extensions(), Not(Contains(HasSubstr("shared_memory"))));
  EXPECT_THAT(metadata.extensions(), Not(Contains("sequence")));
}

TEST_F(OipServiceTest, DescribesItsModels) {
  inference::ModelMetadataRequest request;
  request.set_name("selective_scan_bwd");
  request.set_version("1");
  inference::ModelMetadataResponse metadata;
  ASSERT_TRUE(Call(&Stub::ModelMetadata, request, &metadata).ok());
  EXPECT_EQ(metadata.name(), "selective_scan_bwd");
  EXPECT_EQ(metadata.inputs(0).name(), "u");

  inference::ModelConfigRequest config_request;
  config_request.set_name("selective_scan_bwd");
  inference::ModelConfigResponse config;
  ASSERT_TRUE(Call(&Stub::ModelConfig, config_request, &config).ok());
  EXPECT_EQ(config.config().name(), "selective_scan_bwd");
  EXPECT_EQ(config.config().max_batch_size(), 0);
}

TEST_F(OipServiceTest, SaysWhichModelsAreReady) {
  inference::ModelReadyRequest request;
  request.set_name("selective_scan_fwd");
  inference::ModelReadyResponse response;
  ASSERT_TRUE(Call(&Stub::ModelReady, request, &response).ok());
  EXPECT_TRUE(response.ready());
  request.set_name("nothing");
  ExpectError(Call(&Stub::ModelReady, request, &response), kNotFound,
              "Request for unknown model: 'nothing' is not found");
}

TEST_F(OipServiceTest, KnowsOneVersionOfEachModel) {
  inference::ModelReadyRequest request;
  request.set_name("selective_scan_fwd");
  inference::ModelReadyResponse response;
  request.set_version("2");
  ExpectError(Call(&Stub::ModelReady, request, &response), kNotFound, "version 2 is not found");
  for (const char* version : {"one", "-1", "1.0", "99999999999999999999"}) {
    request.set_version(version);
    ExpectError(Call(&Stub::ModelReady, request, &response), kInvalid, version);
  }
}

TEST_F(OipServiceTest, ListsItsModelsAsARepository) {
  inference::RepositoryIndexRequest request;
  inference::RepositoryIndexResponse index;
  ASSERT_TRUE(Call(&Stub::RepositoryIndex, request, &index).ok());
  ASSERT_EQ(static_cast<size_t>(index.models_size()), core_.catalog().models().size());
  EXPECT_EQ(index.models(0).version(), "1");
  EXPECT_EQ(index.models(0).state(), "READY");
  core_.ready = false;
  ASSERT_TRUE(Call(&Stub::RepositoryIndex, request, &index).ok());
  EXPECT_EQ(index.models(0).state(), "UNAVAILABLE");
  request.set_ready(true);
  ASSERT_TRUE(Call(&Stub::RepositoryIndex, request, &index).ok());
  EXPECT_THAT(index.models(), IsEmpty());
}

TEST_F(OipServiceTest, ReportsStatisticsOfOneModelOrOfAll) {
  core_.stats.last_inference_ms = 1;
  core_.stats.inference_count = 2;
  core_.stats.execution_count = 3;
  core_.stats.success = {4, 5};
  core_.stats.fail = {6, 7};
  core_.stats.queue = {8, 9};
  core_.stats.compute_input = core_.stats.compute_infer = core_.stats.compute_output = {10, 11};
  core_.stats.batches[12] = {{{13, 14}, {15, 16}, {17, 18}}};
  inference::ModelStatisticsRequest request;
  inference::ModelStatisticsResponse response;
  ASSERT_TRUE(Call(&Stub::ModelStatistics, request, &response).ok());
  EXPECT_EQ(static_cast<size_t>(response.model_stats_size()), core_.catalog().models().size());
  request.set_name("selective_scan_fwd");
  ASSERT_TRUE(Call(&Stub::ModelStatistics, request, &response).ok());
  ASSERT_EQ(response.model_stats_size(), 1);
  const inference::ModelStatistics& stats = response.model_stats(0);
  EXPECT_EQ(stats.name(), "selective_scan_fwd");
  EXPECT_EQ(stats.version(), "1");
  EXPECT_EQ(stats.last_inference(), 1u);
  EXPECT_EQ(stats.inference_count(), 2u);
  EXPECT_EQ(stats.execution_count(), 3u);
  EXPECT_EQ(stats.inference_stats().success().count(), 4u);
  EXPECT_EQ(stats.inference_stats().success().ns(), 5u);
  EXPECT_EQ(stats.inference_stats().fail().count(), 6u);
  EXPECT_EQ(stats.inference_stats().queue().ns(), 9u);
  EXPECT_EQ(stats.inference_stats().compute_infer().count(), 10u);
  ASSERT_EQ(stats.batch_stats_size(), 1);
  EXPECT_EQ(stats.batch_stats(0).batch_size(), 12u);
  EXPECT_EQ(stats.batch_stats(0).compute_input().count(), 13u);
  EXPECT_EQ(stats.batch_stats(0).compute_infer().ns(), 16u);
  EXPECT_EQ(stats.batch_stats(0).compute_output().count(), 17u);
  request.set_name("nothing");
  ExpectError(Call(&Stub::ModelStatistics, request, &response), kNotFound, "'nothing'");
}

TEST_F(OipServiceTest, SaysWhatToUseInsteadOfWhatIsNotServed) {
  ExpectRefused(&Stub::RepositoryModelLoad, "RepositoryIndex");
  ExpectRefused(&Stub::RepositoryModelUnload, "RepositoryIndex");
  ExpectRefused(&Stub::SystemSharedMemoryStatus, "raw_input_contents");
  ExpectRefused(&Stub::SystemSharedMemoryRegister, "raw_input_contents");
  ExpectRefused(&Stub::SystemSharedMemoryUnregister, "raw_input_contents");
  ExpectRefused(&Stub::CudaSharedMemoryStatus, "raw_input_contents");
  ExpectRefused(&Stub::CudaSharedMemoryRegister, "raw_input_contents");
  ExpectRefused(&Stub::CudaSharedMemoryUnregister, "raw_input_contents");
  ExpectRefused(&Stub::TraceSetting, "run time");
  ExpectRefused(&Stub::LogSettings, "run time");
  EXPECT_EQ(core_.rejections().size(), 10u);

  grpc::ClientContext context;
  const auto stream = stub_->ModelStreamInfer(&context);
  ExpectError(stream->Finish(), kUnimplemented, "ModelInfer");
}

TEST_F(OipServiceTest, InfersFromRawContents) {
  EchoInputAsOutput();
  inference::ModelInferRequest request = SmallRequest();
  request.add_outputs()->set_name("y");
  inference::ModelInferResponse response;
  const grpc::Status status = Infer(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.id(), "call 7");
  EXPECT_EQ(response.model_name(), "selective_scan_fwd");
  EXPECT_EQ(response.model_version(), "1");
  ASSERT_EQ(response.outputs_size(), 1);
  EXPECT_EQ(response.outputs(0).name(), "y");
  EXPECT_EQ(response.outputs(0).datatype(), "FP32");
  EXPECT_THAT(response.outputs(0).shape(), ElementsAre(2, 3));
  EXPECT_THAT(response.raw_output_contents(), ElementsAre(std::string(24, 'u')));
  EXPECT_EQ(response.parameters().at("implementation").string_param(), "fused");
  EXPECT_EQ(response.parameters().at("precision").string_param(), "ieee");
  EXPECT_TRUE(response.parameters().at("deterministic").bool_param());
  EXPECT_FALSE(response.parameters().contains("compute_ns"));
  EXPECT_EQ(core_.response_bytes, response.ByteSizeLong());
}

TEST_F(OipServiceTest, GivesTheCoreTheWholeCall) {
  scanserve::Call seen;
  core_.handler = [&](scanserve::Call call, CallDone done) {
    seen = std::move(call);
    done(absl::OkStatus(), {});
  };
  inference::ModelInferRequest request = SmallRequest();
  request.add_outputs()->set_name("final_state");
  request.add_outputs()->set_name("y");
  (*request.mutable_parameters())["delta_softplus"].set_bool_param(true);
  (*request.mutable_parameters())["timeout"].set_int64_param(500);
  (*request.mutable_parameters())["triton_enable_empty_final_response"].set_bool_param(true);
  ASSERT_TRUE(Infer(request).ok());
  EXPECT_EQ(seen.model->name, "selective_scan_fwd");
  EXPECT_EQ(seen.method, "ModelInfer");
  EXPECT_EQ(seen.request_bytes, request.ByteSizeLong());
  EXPECT_EQ(seen.deadline, kNever);
  EXPECT_THAT(seen.outputs, ElementsAre("final_state", "y"));
  EXPECT_EQ(seen.options.queue_timeout_us, 500);
  EXPECT_EQ(seen.attributes.size(), 1u);
  EXPECT_EQ(seen.attributes.at("delta_softplus"), AttributeValue(true));
  ASSERT_EQ(seen.inputs.size(), 1u);
  EXPECT_EQ(seen.inputs[0].meta, (TensorMeta{DType::kFP32, {2, 3}}));
  EXPECT_EQ(BytesOf(seen.inputs[0].payload), std::string(24, 'u'));  // kept alive by the call
}

TEST_F(OipServiceTest, InfersFromTypedContents) {
  std::vector<std::string> seen;
  core_.handler = [&](scanserve::Call call, CallDone done) {
    for (const CallInput& input : call.inputs) seen.push_back(BytesOf(input.payload));
    done(absl::OkStatus(), {});
  };
  inference::ModelInferRequest request;
  request.set_model_name("selective_scan_fwd");
  const auto add = [&](const char* name, const char* datatype) -> inference::InferTensorContents& {
    auto& input = *request.add_inputs();
    input.set_name(name);
    input.set_datatype(datatype);
    input.add_shape(2);
    return *input.mutable_contents();
  };
  inference::InferTensorContents& fp32 = add("u", "FP32");
  fp32.add_fp32_contents(1.5f);
  fp32.add_fp32_contents(-2.0f);
  inference::InferTensorContents& fp64 = add("A", "FP64");
  fp64.add_fp64_contents(0.5);
  fp64.add_fp64_contents(3);
  inference::InferTensorContents& int32 = add("cu_seqlens", "INT32");
  int32.add_int_contents(0);
  int32.add_int_contents(-5);
  inference::InferTensorContents& int64 = add("D", "INT64");
  int64.add_int64_contents(7);
  int64.add_int64_contents(8);
  const grpc::Status status = Infer(request);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const auto raw = [](auto... values) {
    std::string bytes;
    (bytes.append(reinterpret_cast<const char*>(&values), sizeof(values)), ...);
    return bytes;
  };
  EXPECT_THAT(seen, ElementsAre(raw(1.5f, -2.0f), raw(0.5, 3.0), raw(int32_t{0}, int32_t{-5}),
                                raw(int64_t{7}, int64_t{8})));
}

TEST_F(OipServiceTest, ReportsTimesWhenAskedTo) {
  EchoInputAsOutput();
  inference::ModelInferRequest request = SmallRequest();
  (*request.mutable_parameters())["timing"].set_bool_param(true);
  inference::ModelInferResponse response;
  ASSERT_TRUE(Infer(request, &response).ok());
  EXPECT_EQ(response.parameters().at("compute_ns").int64_param(), 77);
}

TEST_F(OipServiceTest, RefusesTensorsThatBreakTheProtocol) {
  core_.handler = [](scanserve::Call, CallDone done) {
    done(absl::InternalError("must not be reached"), {});
  };
  struct Row {
    const char* text;
    grpc::StatusCode code;
    std::function<void(inference::ModelInferRequest&)> change;
  };
  using R = inference::ModelInferRequest;
  const std::vector<Row> rows = {
      {"Request for unknown model: 'x' is not found", kNotFound,
       [](R& r) { r.set_model_name("x"); }},
      {"version 3", kNotFound, [](R& r) { r.set_model_version("3"); }},
      {"version is 'v'", kInvalid, [](R& r) { r.set_model_version("v"); }},
      {"input byte size mismatch for input 'u', expected 24, got 23", kInvalid,
       [](R& r) { r.set_raw_input_contents(0, std::string(23, 'u')); }},
      {"input byte size mismatch for input 'u', expected 24, got 25", kInvalid,
       [](R& r) { r.set_raw_input_contents(0, std::string(25, 'u')); }},
      {"raw_input_contents has 2 entries, expected one for each of 1 inputs", kInvalid,
       [](R& r) { r.add_raw_input_contents("surplus"); }},
      {"raw_input_contents has 1 entries, expected one for each of 2 inputs", kInvalid,
       [](R& r) { *r.add_inputs() = r.inputs(0); }},
      {"contents field must not be specified when using raw_input_contents", kInvalid,
       [](R& r) { r.mutable_inputs(0)->mutable_contents()->add_fp32_contents(1); }},
      {"expected 24, got 0", kInvalid, [](R& r) { r.clear_raw_input_contents(); }},
      {"not that of FP32", kInvalid,
       [](R& r) {
         r.clear_raw_input_contents();
         r.mutable_inputs(0)->mutable_contents()->add_fp64_contents(1);
       }},
      {"BF16 has no typed contents", kInvalid,
       [](R& r) {
         r.clear_raw_input_contents();
         r.mutable_inputs(0)->set_datatype("BF16");
         r.mutable_inputs(0)->mutable_contents()->add_fp32_contents(1);
       }},
      {"input 'u': datatype is 'BYTES'", kInvalid,
       [](R& r) { r.mutable_inputs(0)->set_datatype("BYTES"); }},
      {"tensor 'u'", kInvalid, [](R& r) { r.mutable_inputs(0)->set_shape(0, -1); }},
      {"tensor 'u'", kInvalid,
       [](R& r) {
         r.mutable_inputs(0)->set_shape(0, int64_t{1} << 40);
         r.mutable_inputs(0)->set_shape(1, int64_t{1} << 40);
       }},
      {"shared memory is not served", kUnimplemented,
       [](R& r) {
         (*r.mutable_inputs(0)->mutable_parameters())["shared_memory_region"].set_string_param("x");
       }},
      {"tensor 'u': unknown parameter 'colour'", kInvalid,
       [](R& r) { (*r.mutable_inputs(0)->mutable_parameters())["colour"].set_string_param("x"); }},
      {"classification is not served", kInvalid,
       [](R& r) { (*r.add_outputs()->mutable_parameters())["classification"].set_int64_param(3); }},
      {"parameter 'sofplus'", kInvalid,
       [](R& r) { (*r.mutable_parameters())["sofplus"].set_bool_param(true); }},
  };
  for (const Row& row : rows) {
    inference::ModelInferRequest request = SmallRequest();
    row.change(request);
    ExpectError(Infer(request), row.code, row.text);
  }
  ASSERT_EQ(core_.rejections().size(), rows.size());
  EXPECT_EQ(core_.rejections()[0].model, nullptr);
  EXPECT_EQ(core_.rejections()[3].model->name, "selective_scan_fwd");
  EXPECT_EQ(core_.rejections()[3].method, "ModelInfer");
}

TEST_F(OipServiceTest, SurvivesHugeAndUnprintableNames) {
  inference::ModelInferRequest request = SmallRequest();
  request.set_model_name(std::string(1 << 20, 'm'));
  ExpectError(Infer(request), kNotFound, "mmmm");
  request = SmallRequest();
  request.mutable_inputs(0)->set_name(std::string("a\n\0b", 4));
  request.mutable_inputs(0)->set_datatype("\x01\x02");
  ExpectError(Infer(request), kInvalid, "'a??b'");
}

TEST_F(OipServiceTest, PassesTheCoresErrorsOn) {
  FailEveryCall(absl::UnavailableError("selective_scan_fwd: Exceeds maximum queue size"));
  ExpectError(Infer(SmallRequest()), grpc::StatusCode::UNAVAILABLE, "Exceeds maximum queue size");
  EXPECT_THAT(core_.rejections(), IsEmpty());  // the core has counted it
}

}  // namespace
}  // namespace scanserve

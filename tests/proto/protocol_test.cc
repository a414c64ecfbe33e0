// The protocols as clients know them: names, field numbers and types, and bytes of some messages.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpc/health/v1/health.pb.h"
#include "inference/grpc_service.pb.h"
#include "scanserve/v1/kernel_service.pb.h"

namespace scanserve {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::ServiceDescriptor;

std::string TypeOf(const FieldDescriptor& field) {
  if (field.is_map()) {
    return absl::StrCat("map<", TypeOf(*field.message_type()->map_key()), ",",
                        TypeOf(*field.message_type()->map_value()), ">");
  }
  if (field.message_type() != nullptr) return std::string(field.message_type()->name());
  if (field.enum_type() != nullptr) return std::string(field.enum_type()->name());
  return field.type_name();
}

// "name=number type" of every field, in the order of their numbers.
std::string Render(const Descriptor& message) {
  std::vector<std::string> fields;
  for (int number = 1; number < 100; ++number) {
    const FieldDescriptor* field = message.FindFieldByNumber(number);
    if (field == nullptr) continue;
    const bool repeated = field->is_repeated() && !field->is_map();
    fields.push_back(
        absl::StrCat(field->name(), "=", number, " ", repeated ? "repeated " : "", TypeOf(*field)));
  }
  return absl::StrJoin(fields, ", ");
}

struct MessageRow {
  const char* name;
  const char* fields;
};

constexpr char kModelAndVersion[] = "name=1 string, version=2 string";
constexpr char kTensor[] =
    "name=1 string, datatype=2 string, shape=3 repeated int64, "
    "parameters=4 map<string,InferParameter>, contents=5 InferTensorContents";
constexpr char kLogSetting[] = "bool_param=1 bool, uint32_param=2 uint32, string_param=3 string";

// Of the Open Inference Protocol and Triton's extensions to it.
const MessageRow kMessages[] = {
    {"ServerLiveRequest", ""},
    {"ServerReadyRequest", ""},
    {"ServerMetadataRequest", ""},
    {"RepositoryModelLoadResponse", ""},
    {"RepositoryModelUnloadResponse", ""},
    {"SystemSharedMemoryRegisterResponse", ""},
    {"SystemSharedMemoryUnregisterResponse", ""},
    {"CudaSharedMemoryRegisterResponse", ""},
    {"CudaSharedMemoryUnregisterResponse", ""},
    {"ServerLiveResponse", "live=1 bool"},
    {"ServerReadyResponse", "ready=1 bool"},
    {"ModelReadyResponse", "ready=1 bool"},
    {"ModelReadyRequest", kModelAndVersion},
    {"ModelMetadataRequest", kModelAndVersion},
    {"ModelConfigRequest", kModelAndVersion},
    {"ModelStatisticsRequest", kModelAndVersion},
    {"ServerMetadataResponse", "name=1 string, version=2 string, extensions=3 repeated string"},
    {"ModelMetadataResponse",
     "name=1 string, versions=2 repeated string, platform=3 string, "
     "inputs=4 repeated TensorMetadata, outputs=5 repeated TensorMetadata"},
    {"ModelMetadataResponse.TensorMetadata",
     "name=1 string, datatype=2 string, shape=3 repeated int64"},
    {"InferParameter",
     "bool_param=1 bool, int64_param=2 int64, string_param=3 string, double_param=4 double, "
     "uint64_param=5 uint64"},
    {"InferTensorContents",
     "bool_contents=1 repeated bool, int_contents=2 repeated int32, "
     "int64_contents=3 repeated int64, uint_contents=4 repeated uint32, "
     "uint64_contents=5 repeated uint64, fp32_contents=6 repeated float, "
     "fp64_contents=7 repeated double, bytes_contents=8 repeated bytes"},
    {"ModelInferRequest",
     "model_name=1 string, model_version=2 string, id=3 string, "
     "parameters=4 map<string,InferParameter>, inputs=5 repeated InferInputTensor, "
     "outputs=6 repeated InferRequestedOutputTensor, raw_input_contents=7 repeated bytes"},
    {"ModelInferRequest.InferInputTensor", kTensor},
    {"ModelInferRequest.InferRequestedOutputTensor",
     "name=1 string, parameters=2 map<string,InferParameter>"},
    {"ModelInferResponse",
     "model_name=1 string, model_version=2 string, id=3 string, "
     "parameters=4 map<string,InferParameter>, outputs=5 repeated InferOutputTensor, "
     "raw_output_contents=6 repeated bytes"},
    {"ModelInferResponse.InferOutputTensor", kTensor},
    {"ModelStreamInferResponse", "error_message=1 string, infer_response=2 ModelInferResponse"},
    {"ModelConfigResponse", "config=1 ModelConfig"},
    {"ModelStatisticsResponse", "model_stats=1 repeated ModelStatistics"},
    {"StatisticDuration", "count=1 uint64, ns=2 uint64"},
    {"InferStatistics",
     "success=1 StatisticDuration, fail=2 StatisticDuration, queue=3 StatisticDuration, "
     "compute_input=4 StatisticDuration, compute_infer=5 StatisticDuration, "
     "compute_output=6 StatisticDuration, cache_hit=7 StatisticDuration, "
     "cache_miss=8 StatisticDuration"},
    {"InferResponseStatistics",
     "compute_infer=1 StatisticDuration, compute_output=2 StatisticDuration, "
     "success=3 StatisticDuration, fail=4 StatisticDuration, "
     "empty_response=5 StatisticDuration, cancel=6 StatisticDuration"},
    {"InferBatchStatistics",
     "batch_size=1 uint64, compute_input=2 StatisticDuration, "
     "compute_infer=3 StatisticDuration, compute_output=4 StatisticDuration"},
    {"MemoryUsage", "type=1 string, id=2 int64, byte_size=3 uint64"},
    {"ModelStatistics",
     "name=1 string, version=2 string, last_inference=3 uint64, inference_count=4 uint64, "
     "execution_count=5 uint64, inference_stats=6 InferStatistics, "
     "batch_stats=7 repeated InferBatchStatistics, memory_usage=8 repeated MemoryUsage, "
     "response_stats=9 map<string,InferResponseStatistics>"},
    {"ModelRepositoryParameter",
     "bool_param=1 bool, int64_param=2 int64, string_param=3 string, bytes_param=4 bytes"},
    {"RepositoryIndexRequest", "repository_name=1 string, ready=2 bool"},
    {"RepositoryIndexResponse", "models=1 repeated ModelIndex"},
    {"RepositoryIndexResponse.ModelIndex",
     "name=1 string, version=2 string, state=3 string, reason=4 string"},
    {"RepositoryModelLoadRequest",
     "repository_name=1 string, model_name=2 string, "
     "parameters=3 map<string,ModelRepositoryParameter>"},
    {"RepositoryModelUnloadRequest",
     "repository_name=1 string, model_name=2 string, "
     "parameters=3 map<string,ModelRepositoryParameter>"},
    {"SystemSharedMemoryStatusRequest", "name=1 string"},
    {"SystemSharedMemoryUnregisterRequest", "name=1 string"},
    {"SystemSharedMemoryStatusResponse", "regions=1 map<string,RegionStatus>"},
    {"SystemSharedMemoryStatusResponse.RegionStatus",
     "name=1 string, key=2 string, offset=3 uint64, byte_size=4 uint64"},
    {"SystemSharedMemoryRegisterRequest",
     "name=1 string, key=2 string, offset=3 uint64, byte_size=4 uint64"},
    {"CudaSharedMemoryStatusRequest", "name=1 string"},
    {"CudaSharedMemoryUnregisterRequest", "name=1 string"},
    {"CudaSharedMemoryStatusResponse", "regions=1 map<string,RegionStatus>"},
    {"CudaSharedMemoryStatusResponse.RegionStatus",
     "name=1 string, device_id=2 uint64, byte_size=3 uint64"},
    {"CudaSharedMemoryRegisterRequest",
     "name=1 string, raw_handle=2 bytes, device_id=3 int64, byte_size=4 uint64"},
    {"TraceSettingRequest", "settings=1 map<string,SettingValue>, model_name=2 string"},
    {"TraceSettingResponse", "settings=1 map<string,SettingValue>"},
    {"TraceSettingRequest.SettingValue", "value=1 repeated string"},
    {"TraceSettingResponse.SettingValue", "value=1 repeated string"},
    {"LogSettingsRequest", "settings=1 map<string,SettingValue>"},
    {"LogSettingsResponse", "settings=1 map<string,SettingValue>"},
    {"LogSettingsRequest.SettingValue", kLogSetting},
    {"LogSettingsResponse.SettingValue", kLogSetting},
    {"ModelConfig",
     "name=1 string, platform=2 string, max_batch_size=4 int32, input=5 repeated ModelInput, "
     "output=6 repeated ModelOutput, instance_group=7 repeated ModelInstanceGroup, "
     "metric_tags=10 map<string,string>, dynamic_batching=11 ModelDynamicBatching, "
     "sequence_batching=13 ModelSequenceBatching, parameters=14 map<string,ModelParameter>, "
     "backend=17 string, model_transaction_policy=19 ModelTransactionPolicy, "
     "response_cache=24 ModelResponseCache, runtime=25 string"},
    {"ModelInput",
     "name=1 string, data_type=2 DataType, dims=4 repeated int64, is_shape_tensor=6 bool, "
     "allow_ragged_batch=7 bool, optional=8 bool"},
    {"ModelOutput",
     "name=1 string, data_type=2 DataType, dims=3 repeated int64, label_filename=4 string, "
     "is_shape_tensor=6 bool"},
    {"ModelInstanceGroup", "name=1 string, count=2 int32, gpus=3 repeated int32, kind=4 Kind"},
    {"ModelDynamicBatching",
     "preferred_batch_size=1 repeated int32, max_queue_delay_microseconds=2 uint64, "
     "preserve_ordering=3 bool, priority_levels=4 uint64, default_priority_level=5 uint64, "
     "default_queue_policy=6 ModelQueuePolicy, "
     "priority_queue_policy=7 map<uint64,ModelQueuePolicy>"},
    {"ModelQueuePolicy",
     "timeout_action=1 TimeoutAction, default_timeout_microseconds=2 uint64, "
     "allow_timeout_override=3 bool, max_queue_size=4 uint32"},
    {"ModelSequenceBatching",
     "max_sequence_idle_microseconds=1 uint64, direct=3 StrategyDirect, oldest=4 StrategyOldest"},
    {"ModelSequenceBatching.StrategyDirect",
     "max_queue_delay_microseconds=1 uint64, minimum_slot_utilization=2 float"},
    {"ModelSequenceBatching.StrategyOldest",
     "max_candidate_sequences=1 int32, preferred_batch_size=2 repeated int32, "
     "max_queue_delay_microseconds=3 uint64, preserve_ordering=4 bool"},
    {"ModelParameter", "string_value=1 string"},
    {"ModelTransactionPolicy", "decoupled=1 bool"},
    {"ModelResponseCache", "enable=1 bool"},
};

TEST(OpenInferenceProtocol, HasTheFieldsThatItsClientsExpect) {
  // A use of the library, so that the linker keeps the descriptors.
  const DescriptorPool* pool = inference::ModelConfig::descriptor()->file()->pool();
  for (const MessageRow& row : kMessages) {
    const Descriptor* message = pool->FindMessageTypeByName(absl::StrCat("inference.", row.name));
    ASSERT_NE(message, nullptr) << row.name;
    EXPECT_EQ(Render(*message), row.fields) << row.name;
  }
}

int CountMessages(const Descriptor& message) {
  if (message.options().map_entry()) return 0;
  int count = 1;
  for (int i = 0; i < message.nested_type_count(); ++i) {
    count += CountMessages(*message.nested_type(i));
  }
  return count;
}

TEST(OpenInferenceProtocol, HasNoMessageThatTheTableLacks) {
  int count = 0;
  for (const auto* file : {inference::ModelInferRequest::descriptor()->file(),
                           inference::ModelConfig::descriptor()->file()}) {
    for (int i = 0; i < file->message_type_count(); ++i) {
      count += CountMessages(*file->message_type(i));
    }
  }
  EXPECT_EQ(count, static_cast<int>(std::size(kMessages)));
}

// "Method stream? Request stream? Response", and every method is Name(NameRequest) -> NameResponse.
TEST(OpenInferenceProtocol, HasEveryMethodUnderItsName) {
  const ServiceDescriptor* service =
      inference::ModelInferRequest::descriptor()->file()->FindServiceByName("GRPCInferenceService");
  ASSERT_NE(service, nullptr);
  EXPECT_EQ(service->full_name(), "inference.GRPCInferenceService");
  const std::vector<std::string> names = absl::StrSplit(
      "ServerLive,ServerReady,ModelReady,ServerMetadata,ModelMetadata,ModelConfig,ModelStatistics,"
      "ModelInfer,ModelStreamInfer,RepositoryIndex,RepositoryModelLoad,RepositoryModelUnload,"
      "SystemSharedMemoryStatus,SystemSharedMemoryRegister,SystemSharedMemoryUnregister,"
      "CudaSharedMemoryStatus,CudaSharedMemoryRegister,CudaSharedMemoryUnregister,TraceSetting,"
      "LogSettings",
      ',');
  EXPECT_EQ(service->method_count(), static_cast<int>(names.size()));
  for (const std::string& name : names) {
    const auto* method = service->FindMethodByName(name);
    ASSERT_NE(method, nullptr) << name;
    const bool stream = name == "ModelStreamInfer";
    EXPECT_EQ(method->client_streaming(), stream) << name;
    EXPECT_EQ(method->server_streaming(), stream) << name;
    const std::string request = stream ? "ModelInferRequest" : absl::StrCat(name, "Request");
    EXPECT_EQ(method->input_type()->name(), request);
    EXPECT_EQ(method->output_type()->name(), absl::StrCat(name, "Response"));
  }
}

TEST(OpenInferenceProtocol, NumbersTheDatatypesAsTritonDoes) {
  const auto* type = inference::DataType_descriptor();
  const std::vector<std::string> names = absl::StrSplit(
      "INVALID,BOOL,UINT8,UINT16,UINT32,UINT64,INT8,INT16,INT32,INT64,FP16,FP32,FP64,STRING,BF16",
      ',');
  ASSERT_EQ(type->value_count(), static_cast<int>(names.size()));
  for (size_t i = 0; i < names.size(); ++i) {
    const auto* value = type->FindValueByNumber(static_cast<int>(i));
    ASSERT_NE(value, nullptr);
    EXPECT_EQ(value->name(), absl::StrCat("TYPE_", names[i]));
  }
}

TEST(OtherProtocols, HaveTheFieldsThatTheirClientsExpect) {
  EXPECT_EQ(Render(*grpc::health::v1::HealthCheckRequest::descriptor()), "service=1 string");
  EXPECT_EQ(Render(*grpc::health::v1::HealthCheckResponse::descriptor()), "status=1 ServingStatus");
  EXPECT_EQ(grpc::health::v1::HealthCheckResponse::SERVING, 1);
  EXPECT_EQ(grpc::health::v1::HealthCheckResponse::NOT_SERVING, 2);
  EXPECT_EQ(grpc::health::v1::HealthCheckResponse::SERVICE_UNKNOWN, 3);
  EXPECT_EQ(Render(*google::rpc::Status::descriptor()),
            "code=1 int32, message=2 string, details=3 repeated Any");
  EXPECT_EQ(Render(*google::rpc::RetryInfo::descriptor()), "retry_delay=1 Duration");
  EXPECT_EQ(Render(*google::rpc::ErrorInfo::descriptor()),
            "reason=1 string, domain=2 string, metadata=3 map<string,string>");
  EXPECT_EQ(google::rpc::ErrorInfo::descriptor()->full_name(), "google.rpc.ErrorInfo");
}

std::string Hex(const google::protobuf::Message& message) {
  return absl::BytesToHexString(message.SerializeAsString());
}

TEST(GoldenBytes, OfAnInferRequest) {
  inference::ModelInferRequest request;
  request.set_model_name("m");
  request.set_model_version("1");
  request.set_id("i");
  (*request.mutable_parameters())["timeout"].set_int64_param(5);
  auto& input = *request.add_inputs();
  input.set_name("u");
  input.set_datatype("FP32");
  input.add_shape(1);
  input.add_shape(300);
  request.add_outputs()->set_name("y");
  request.add_raw_input_contents("\x01\x02");
  EXPECT_EQ(Hex(request),
            "0a016d"  // 1 model_name
            "120131"  // 2 model_version
            "1a0169"  // 3 id
            "220d"
            "0a0774696d656f7574"
            "12021005"  // 4 parameters
            "2a0e"
            "0a0175"
            "120446503332"
            "1a0301ac02"  // 5 inputs
            "3203"
            "0a0179"      // 6 outputs
            "3a020102");  // 7 raw_input_contents
}

TEST(GoldenBytes, OfAnInferResponse) {
  inference::ModelInferResponse response;
  response.set_model_name("m");
  auto& output = *response.add_outputs();
  output.set_name("y");
  output.set_datatype("FP64");
  output.add_shape(2);
  response.add_raw_output_contents("ab");
  response.add_raw_output_contents("");
  EXPECT_EQ(Hex(response),
            "0a016d"
            "2a0c"
            "0a0179"
            "120446503634"
            "1a0102"
            "32026162"
            "3200");
}

TEST(GoldenBytes, OfParametersOfEveryType) {
  inference::InferParameter parameter;
  parameter.set_bool_param(true);
  EXPECT_EQ(Hex(parameter), "0801");
  parameter.set_int64_param(-1);
  EXPECT_EQ(Hex(parameter), "10ffffffffffffffffff01");
  parameter.set_string_param("s");
  EXPECT_EQ(Hex(parameter), "1a0173");
  parameter.set_double_param(1);
  EXPECT_EQ(Hex(parameter), "21000000000000f03f");
  parameter.set_uint64_param(2);
  EXPECT_EQ(Hex(parameter), "2802");
}

TEST(GoldenBytes, OfAKernelRequest) {
  v1::KernelRequest request;
  request.set_operator_name("o");
  v1::Tensor& tensor = *request.add_inputs();
  tensor.set_name("u");
  tensor.set_dtype(v1::DATA_TYPE_FP32);
  tensor.add_shape(1);
  tensor.set_data("abcd");
  request.add_outputs("y");
  request.mutable_options()->set_deterministic(false);
  request.set_priority(1);
  EXPECT_EQ(Hex(request),
            "0a016f"
            "120e"
            "0a0175"
            "1002"
            "1a0101"
            "220461626364"
            "220179"
            "2a022000"
            "4001");
}

TEST(GoldenBytes, OfAHealthReply) {
  grpc::health::v1::HealthCheckResponse response;
  response.set_status(grpc::health::v1::HealthCheckResponse::SERVING);
  EXPECT_EQ(Hex(response), "0801");
}

}  // namespace
}  // namespace scanserve

#include "proto/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "inference/grpc_service.pb.h"
#include "kernels/spec/catalog.h"
#include "scanserve/v1/kernel_service.pb.h"

namespace scanserve {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Parameters = google::protobuf::Map<std::string, inference::InferParameter>;

const OpSpec& Spec() { return *Catalog::Default().FindOp("selective_scan").value(); }

absl::Status Read(const Parameters& parameters, CallOptions* options = nullptr,
                  Attributes* attributes = nullptr) {
  CallOptions read_options;
  Attributes read_attributes;
  const absl::Status status = FromProto(Spec(), parameters, read_options, read_attributes);
  if (options != nullptr) *options = read_options;
  if (attributes != nullptr) *attributes = read_attributes;
  return status;
}

absl::Status ReadOne(const std::string& name, const AttributeValue& value) {
  Parameters parameters;
  ToProto(value, parameters[name]);
  return Read(parameters);
}

CallOptions UnusualOptions() {
  CallOptions options;
  options.implementation = "fused";
  options.precision = "tf32x3";
  options.deterministic = false;
  options.chunk_size = 64;
  options.timing = true;
  options.check_finite = true;
  options.priority = 3;
  options.queue_timeout_us = 1500;
  return options;
}

void ExpectEqual(const CallOptions& a, const CallOptions& b) {
  EXPECT_EQ(a.implementation, b.implementation);
  EXPECT_EQ(a.precision, b.precision);
  EXPECT_EQ(a.deterministic, b.deterministic);
  EXPECT_EQ(a.chunk_size, b.chunk_size);
  EXPECT_EQ(a.timing, b.timing);
  EXPECT_EQ(a.check_finite, b.check_finite);
  EXPECT_EQ(a.priority, b.priority);
  EXPECT_EQ(a.queue_timeout_us, b.queue_timeout_us);
}

void ExpectError(const absl::Status& status, absl::StatusCode code, const std::string& text) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
}

TEST(DTypes, AllTravelInBothProtocols) {
  for (const DType dtype : kAllDTypes) {
    EXPECT_NE(ToProto(dtype), v1::DATA_TYPE_UNSPECIFIED);
    EXPECT_EQ(FromProto(ToProto(dtype)).value(), dtype);
    EXPECT_EQ(v1::DataType_Name(ToProto(dtype)), "DATA_TYPE_" + std::string(NameOf(dtype)));
    EXPECT_EQ(ParseDatatype(NameOf(dtype)).value(), dtype);
  }
  EXPECT_EQ(v1::DataType_descriptor()->value_count(), 1 + static_cast<int>(std::size(kAllDTypes)));
}

TEST(DTypes, AreRefusedWhenUnknown) {
  EXPECT_FALSE(FromProto(v1::DATA_TYPE_UNSPECIFIED).ok());
  EXPECT_FALSE(FromProto(static_cast<v1::DataType>(99)).ok());
  EXPECT_FALSE(ParseDatatype("fp32").ok());
  ExpectError(ParseDatatype("BYTES").status(), absl::StatusCode::kInvalidArgument, "'BYTES'");
}

TEST(TensorMetas, TravelInTensors) {
  const TensorMeta meta{DType::kBF16, {2, 0, 5}};
  v1::Tensor tensor;
  ToProto("u", meta, tensor);
  EXPECT_EQ(tensor.name(), "u");
  EXPECT_EQ(FromProto(tensor).value(), meta);
}

TEST(TensorMetas, AreRefusedBeforeAnythingIsSizedFromThem) {
  const int64_t big = int64_t{1} << 32;
  const std::vector<std::vector<int64_t>> shapes = {
      {-1},          {std::numeric_limits<int64_t>::min()}, {std::numeric_limits<int64_t>::max()},
      {big, big, 8}, {1, 1, 1, 1, 1, 1, 1, 1, 1},           std::vector<int64_t>(1'000'000, 1)};
  for (const std::vector<int64_t>& shape : shapes) {
    ExpectError(MakeMeta("delta", DType::kFP32, shape).status(), absl::StatusCode::kInvalidArgument,
                "'delta'");
  }
}

TEST(AttributeValues, TravelInKernelRequests) {
  const std::vector<AttributeValue> values = {true,
                                              int64_t{-7},
                                              0.25,
                                              std::string("gaussian"),
                                              std::vector<int64_t>{1, 2},
                                              std::vector<double>{0.5, 1.5}};
  for (const AttributeValue& value : values) {
    v1::Attribute attribute;
    ToProto(value, attribute);
    EXPECT_EQ(FromProto(attribute).value(), value);
  }
  EXPECT_FALSE(FromProto(v1::Attribute()).ok());
}

TEST(AttributeValues, TravelInParametersWithListsAsText) {
  const std::vector<AttributeValue> values = {false, int64_t{-7}, 0.25, std::string("x")};
  for (const AttributeValue& value : values) {
    inference::InferParameter parameter;
    ToProto(value, parameter);
    EXPECT_EQ(FromProto(parameter).value(), value);
  }
  inference::InferParameter list;
  const AttributeValue numbers = std::vector<double>{0.25, 1.5};
  ToProto(numbers, list);
  EXPECT_EQ(list.string_param(), "[0.25,1.5]");
  EXPECT_EQ(ConvertTo(numbers, FromProto(list).value()).value(), numbers);
}

TEST(AttributeValues, OfUnsignedParametersMustFit) {
  inference::InferParameter parameter;
  parameter.set_uint64_param(5);
  EXPECT_EQ(FromProto(parameter).value(), AttributeValue(int64_t{5}));
  parameter.set_uint64_param(uint64_t{1} << 63);
  EXPECT_FALSE(FromProto(parameter).ok());
}

TEST(Options, TravelInKernelRequests) {
  v1::KernelRequest request;
  const Attributes attributes = {{"delta_softplus", true}};
  ToProto(UnusualOptions(), attributes, request);
  CallOptions options;
  Attributes read;
  ASSERT_TRUE(FromProto(request, options, read).ok());
  ExpectEqual(options, UnusualOptions());
  EXPECT_EQ(read, attributes);
}

TEST(Options, OfAnEmptyKernelRequestAreTheDefaults) {
  CallOptions options;
  Attributes attributes;
  ASSERT_TRUE(FromProto(v1::KernelRequest(), options, attributes).ok());
  ExpectEqual(options, CallOptions());
}

TEST(Options, TravelInParameters) {
  Parameters parameters;
  const Attributes attributes = {{"delta_softplus", true}};
  ToProto(UnusualOptions(), attributes, parameters);
  CallOptions options;
  Attributes read;
  ASSERT_TRUE(Read(parameters, &options, &read).ok());
  ExpectEqual(options, UnusualOptions());
  EXPECT_EQ(read, attributes);
}

TEST(Options, AreNotWrittenWhereTheyAreTheDefaults) {
  Parameters parameters;
  ToProto(CallOptions(), {}, parameters);
  EXPECT_TRUE(parameters.empty());
}

TEST(Options, TakePriorityFromOldAndNewTritonClients) {
  Parameters parameters;
  CallOptions options;
  parameters["priority"].set_uint64_param(2);
  ASSERT_TRUE(Read(parameters, &options).ok());
  EXPECT_EQ(options.priority, 2u);
  parameters["priority"].set_int64_param(1);
  ASSERT_TRUE(Read(parameters, &options).ok());
  EXPECT_EQ(options.priority, 1u);
  parameters["priority"].set_int64_param(-1);
  ExpectError(Read(parameters), absl::StatusCode::kInvalidArgument, "'priority' is -1");
}

TEST(Options, LetTritonsOwnParametersPass) {
  Parameters parameters;
  parameters["triton_enable_empty_final_response"].set_bool_param(true);
  parameters["triton_anything"];
  EXPECT_TRUE(Read(parameters).ok());
}

TEST(Options, RefuseAnUnknownParameterByItsName) {
  ExpectError(ReadOne("chunksize", int64_t{64}), absl::StatusCode::kInvalidArgument,
              "parameter 'chunksize' is neither an option nor an attribute of selective_scan");
}

TEST(Options, RefuseAWrongTypeByName) {
  const std::vector<std::pair<std::string, AttributeValue>> wrong = {
      {"implementation", int64_t{1}},
      {"precision", true},
      {"deterministic", std::string("no")},
      {"chunk_size", 64.0},
      {"timing", int64_t{1}},
      {"check_finite", std::string("")},
      {"priority", 1.0},
      {"timeout", std::string("5")}};
  for (const auto& [name, value] : wrong) {
    ExpectError(ReadOne(name, value), absl::StatusCode::kInvalidArgument,
                "parameter '" + name + "' is");
  }
  Parameters empty;
  empty["timing"];
  ExpectError(Read(empty), absl::StatusCode::kInvalidArgument, "'timing': has no value");
}

TEST(Options, RefuseValuesOutOfRangeInBothProtocols) {
  const auto invalid = absl::StatusCode::kInvalidArgument;
  ExpectError(ReadOne("precision", std::string("fp8")), invalid, "'fp8'");
  ExpectError(ReadOne("chunk_size", int64_t{-1}), invalid, "chunk_size");
  ExpectError(ReadOne("timeout", int64_t{-1}), invalid, "timeout");
  v1::KernelRequest precision, chunk_size, timeout;
  precision.mutable_options()->set_precision(static_cast<v1::Precision>(77));
  chunk_size.mutable_options()->set_chunk_size(-1);
  timeout.set_queue_timeout_us(-1);
  for (const v1::KernelRequest& request : {precision, chunk_size, timeout}) {
    CallOptions options;
    Attributes attributes;
    EXPECT_EQ(FromProto(request, options, attributes).code(), invalid) << request.DebugString();
  }
}

TEST(Options, ThatAreNotServedAreRefusedUnlessNeutral) {
  const auto unimplemented = absl::StatusCode::kUnimplemented;
  ExpectError(ReadOne("save_for_backward", std::string("context")), unimplemented,
              "save_for_backward");
  ExpectError(ReadOne("context", std::string("c1")), unimplemented, "context");
  ExpectError(ReadOne("sequence_id", int64_t{5}), unimplemented, "sequence");
  ExpectError(ReadOne("sequence_id", std::string("s")), unimplemented, "sequence");
  ExpectError(ReadOne("sequence_start", true), unimplemented, "sequence");
  EXPECT_TRUE(ReadOne("save_for_backward", std::string("none")).ok());
  EXPECT_TRUE(ReadOne("sequence_id", int64_t{0}).ok());
  EXPECT_TRUE(ReadOne("sequence_id", std::string()).ok());
  EXPECT_TRUE(ReadOne("sequence_end", false).ok());

  v1::KernelRequest save, context, sequence;
  save.mutable_options()->set_save_for_backward(v1::SAVE_FOR_BACKWARD_RETURN);
  context.set_context("c1");
  sequence.mutable_sequence()->set_start(true);
  for (const v1::KernelRequest& request : {save, context, sequence}) {
    CallOptions options;
    Attributes attributes;
    EXPECT_EQ(FromProto(request, options, attributes).code(), unimplemented);
  }
}

TEST(Reports, TravelInBothProtocols) {
  CallReport report;
  report.implementation = "fused";
  report.precision = "tf32";
  report.deterministic = false;
  report.queue_ns = 1;
  report.h2d_ns = 2;
  report.compute_ns = 3;
  report.d2h_ns = 4;
  report.workspace_bytes = 5;
  report.peak_bytes = 6;
  report.cold_start_ns = 7;
  v1::KernelResponse response;
  ToProto(report, /*timing=*/true, response);
  Parameters parameters;
  ToProto(report, /*timing=*/true, parameters);
  for (const CallReport& read : {FromProto(response), FromProto(parameters)}) {
    EXPECT_EQ(read.implementation, "fused");
    EXPECT_EQ(read.precision, "tf32");
    EXPECT_FALSE(read.deterministic);
    EXPECT_EQ(read.queue_ns, 1u);
    EXPECT_EQ(read.h2d_ns, 2u);
    EXPECT_EQ(read.compute_ns, 3u);
    EXPECT_EQ(read.d2h_ns, 4u);
    EXPECT_EQ(read.workspace_bytes, 5u);
    EXPECT_EQ(read.peak_bytes, 6u);
    EXPECT_EQ(read.cold_start_ns, 7u);
  }
}

TEST(Reports, CarryNoFiguresUnlessAskedFor) {
  CallReport report;
  report.implementation = "fused";
  report.compute_ns = 3;
  v1::KernelResponse response;
  ToProto(report, /*timing=*/false, response);
  EXPECT_FALSE(response.has_timing());
  EXPECT_FALSE(response.has_memory());
  Parameters parameters;
  ToProto(report, /*timing=*/false, parameters);
  EXPECT_EQ(parameters.size(), 3u);
  EXPECT_EQ(parameters.at("implementation").string_param(), "fused");
}

TEST(Printable, CutsAndCleansWhatAClientSent) {
  EXPECT_EQ(Printable("u_1"), "u_1");
  EXPECT_EQ(Printable(absl::string_view("a\0\n\xff z", 6)), "a??? z");
  EXPECT_EQ(Printable(std::string(1'000'000, 'n')), std::string(64, 'n') + "...");
}

}  // namespace
}  // namespace scanserve

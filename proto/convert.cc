#include "proto/convert.h"

#include <limits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "inference/grpc_service.pb.h"
#include "scanserve/v1/kernel_service.pb.h"

namespace scanserve {
namespace {

absl::Status Annotate(const absl::Status& status, absl::string_view where) {
  return absl::Status(status.code(), absl::StrCat(where, ": ", status.message()));
}

struct DTypeName {
  DType dtype;
  v1::DataType proto;
};
constexpr DTypeName kDTypes[] = {
    {DType::kFP64, v1::DATA_TYPE_FP64},   {DType::kFP32, v1::DATA_TYPE_FP32},
    {DType::kFP16, v1::DATA_TYPE_FP16},   {DType::kBF16, v1::DATA_TYPE_BF16},
    {DType::kINT64, v1::DATA_TYPE_INT64}, {DType::kINT32, v1::DATA_TYPE_INT32},
};

struct PrecisionName {
  absl::string_view name;
  v1::Precision proto;
};
constexpr PrecisionName kPrecisions[] = {
    {"ieee", v1::PRECISION_IEEE},
    {"tf32x3", v1::PRECISION_TF32X3},
    {"tf32", v1::PRECISION_TF32},
    {"bf16", v1::PRECISION_BF16},
};

v1::Precision PrecisionToProto(absl::string_view name) {
  for (const PrecisionName& row : kPrecisions) {
    if (row.name == name) return row.proto;
  }
  return v1::PRECISION_UNSPECIFIED;
}

// Empty for a value that this version does not know.
absl::string_view PrecisionFromProto(v1::Precision precision) {
  if (precision == v1::PRECISION_UNSPECIFIED) return kPrecisions[0].name;
  for (const PrecisionName& row : kPrecisions) {
    if (row.proto == precision) return row.name;
  }
  return "";
}

// Sets a member of CallOptions when the value has exactly its type.
template <auto member>
bool Read(const AttributeValue& value, CallOptions& options) {
  using Member = std::decay_t<decltype(options.*member)>;
  const auto* typed = std::get_if<Member>(&value);
  if (typed == nullptr) return false;
  options.*member = *typed;
  return true;
}

template <auto member>
AttributeValue Write(const CallOptions& options) {
  return options.*member;
}

bool ReadPriority(const AttributeValue& value, CallOptions& options) {
  const auto* number = std::get_if<int64_t>(&value);
  if (number == nullptr || *number < 0) return false;
  options.priority = static_cast<uint64_t>(*number);
  return true;
}

AttributeValue WritePriority(const CallOptions& options) {
  return static_cast<int64_t>(options.priority);
}

// The options as parameters of the Open Inference Protocol.
struct OptionRow {
  absl::string_view name;
  absl::string_view expected;
  bool (*read)(const AttributeValue& value, CallOptions& options);
  AttributeValue (*write)(const CallOptions& options);
};
constexpr OptionRow kOptions[] = {
    {"implementation", "a string", Read<&CallOptions::implementation>,
     Write<&CallOptions::implementation>},
    {"precision", "a string", Read<&CallOptions::precision>, Write<&CallOptions::precision>},
    {"deterministic", "a bool", Read<&CallOptions::deterministic>,
     Write<&CallOptions::deterministic>},
    {"chunk_size", "an int", Read<&CallOptions::chunk_size>, Write<&CallOptions::chunk_size>},
    {"timing", "a bool", Read<&CallOptions::timing>, Write<&CallOptions::timing>},
    {"check_finite", "a bool", Read<&CallOptions::check_finite>, Write<&CallOptions::check_finite>},
    {"priority", "an int of at least 0", ReadPriority, WritePriority},
    {"timeout", "an int (microseconds)", Read<&CallOptions::queue_timeout_us>,
     Write<&CallOptions::queue_timeout_us>},
};

// Options of the protocols that nothing here serves yet. Their neutral values are accepted.
constexpr char kNoResiduals[] =
    "save_for_backward: only 'none' is served; send the forward's inputs to the backward";
constexpr char kNoContexts[] =
    "context: contexts are not served; send the forward's inputs to the backward";
constexpr char kNoSequences[] =
    "sequence: sequences are not served; send initial_state and ask for final_state";

struct UnservedRow {
  absl::string_view name;
  std::vector<AttributeValue> neutral;
  absl::string_view sentence;
};

const std::vector<UnservedRow>& UnservedOptions() {
  static const auto* const rows = new std::vector<UnservedRow>{
      {"save_for_backward", {std::string("none"), std::string()}, kNoResiduals},
      {"context", {std::string()}, kNoContexts},
      {"sequence_id", {std::string(), int64_t{0}}, kNoSequences},
      {"sequence_start", {false}, kNoSequences},
      {"sequence_end", {false}, kNoSequences},
  };
  return *rows;
}

struct ReportRow {
  absl::string_view name;
  uint64_t CallReport::*figure;
};
constexpr ReportRow kFigures[] = {
    {"queue_ns", &CallReport::queue_ns},
    {"h2d_ns", &CallReport::h2d_ns},
    {"compute_ns", &CallReport::compute_ns},
    {"d2h_ns", &CallReport::d2h_ns},
    {"cold_start_ns", &CallReport::cold_start_ns},
    {"workspace_bytes", &CallReport::workspace_bytes},
    {"peak_bytes", &CallReport::peak_bytes},
};

absl::Status CheckOptions(const CallOptions& options) {
  if (PrecisionToProto(options.precision) == v1::PRECISION_UNSPECIFIED) {
    return absl::InvalidArgumentError(absl::StrCat(
        "precision is '", Printable(options.precision), "', expected one of: ",
        absl::StrJoin(kPrecisions, ", ", [](std::string* out, const PrecisionName& row) {
          absl::StrAppend(out, row.name);
        })));
  }
  if (options.chunk_size < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk_size is ", options.chunk_size, ", expected at least 0"));
  }
  if (options.queue_timeout_us < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("timeout is ", options.queue_timeout_us, " us, expected at least 0"));
  }
  return absl::OkStatus();
}

// True when `name` was a known option. Fails when its value has the wrong type.
absl::StatusOr<bool> ReadOption(absl::string_view name, const AttributeValue& value,
                                CallOptions& options) {
  for (const OptionRow& row : kOptions) {
    if (row.name != name) continue;
    if (row.read(value, options)) return true;
    return absl::InvalidArgumentError(absl::StrCat("parameter '", name, "' is ",
                                                   Printable(ToString(value)), " (",
                                                   TypeName(value), "), expected ", row.expected));
  }
  for (const UnservedRow& row : UnservedOptions()) {
    if (row.name != name) continue;
    for (const AttributeValue& neutral : row.neutral) {
      if (value == neutral) return true;
    }
    return absl::UnimplementedError(row.sentence);
  }
  return false;
}

}  // namespace

std::string Printable(absl::string_view text, size_t max_size) {
  std::string result(text.substr(0, max_size));
  for (char& c : result) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  if (text.size() > max_size) result += "...";
  return result;
}

v1::DataType ToProto(DType dtype) {
  for (const DTypeName& row : kDTypes) {
    if (row.dtype == dtype) return row.proto;
  }
  return v1::DATA_TYPE_UNSPECIFIED;
}

absl::StatusOr<DType> FromProto(v1::DataType dtype) {
  for (const DTypeName& row : kDTypes) {
    if (row.proto == dtype) return row.dtype;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("dtype ", static_cast<int>(dtype), " is none of DataType"));
}

absl::StatusOr<DType> ParseDatatype(absl::string_view datatype) {
  for (const DType dtype : kAllDTypes) {
    if (NameOf(dtype) == datatype) return dtype;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "datatype is '", Printable(datatype),
      "', expected one of: ", absl::StrJoin(kAllDTypes, ", ", [](std::string* out, DType dtype) {
        absl::StrAppend(out, NameOf(dtype));
      })));
}

void ToProto(absl::string_view name, const TensorMeta& meta, v1::Tensor& tensor) {
  tensor.set_name(std::string(name));
  tensor.set_dtype(ToProto(meta.dtype));
  tensor.mutable_shape()->Assign(meta.shape.begin(), meta.shape.end());
}

absl::StatusOr<TensorMeta> FromProto(const v1::Tensor& tensor) {
  const absl::StatusOr<DType> dtype = FromProto(tensor.dtype());
  if (!dtype.ok()) {
    return Annotate(dtype.status(), absl::StrCat("tensor '", Printable(tensor.name()), "'"));
  }
  return MakeMeta(tensor.name(), *dtype, tensor.shape());
}

absl::StatusOr<TensorMeta> MakeMeta(absl::string_view name, DType dtype,
                                    absl::Span<const int64_t> shape) {
  const absl::StatusOr<int64_t> size = CheckedByteSize(shape, SizeOf(dtype));
  if (!size.ok()) {
    return Annotate(size.status(), absl::StrCat("tensor '", Printable(name), "'"));
  }
  return TensorMeta{dtype, Shape(shape.begin(), shape.end())};
}

void ToProto(const AttributeValue& value, v1::Attribute& attribute) {
  struct Visitor {
    v1::Attribute& out;
    void operator()(bool v) const { out.set_bool_value(v); }
    void operator()(int64_t v) const { out.set_int_value(v); }
    void operator()(double v) const { out.set_double_value(v); }
    void operator()(const std::string& v) const { out.set_string_value(v); }
    void operator()(const std::vector<int64_t>& v) const {
      out.mutable_int_list()->mutable_values()->Assign(v.begin(), v.end());
    }
    void operator()(const std::vector<double>& v) const {
      out.mutable_double_list()->mutable_values()->Assign(v.begin(), v.end());
    }
  };
  std::visit(Visitor{attribute}, value);
}

absl::StatusOr<AttributeValue> FromProto(const v1::Attribute& attribute) {
  switch (attribute.value_case()) {
    case v1::Attribute::kBoolValue:
      return AttributeValue(attribute.bool_value());
    case v1::Attribute::kIntValue:
      return AttributeValue(attribute.int_value());
    case v1::Attribute::kDoubleValue:
      return AttributeValue(attribute.double_value());
    case v1::Attribute::kStringValue:
      return AttributeValue(attribute.string_value());
    case v1::Attribute::kIntList: {
      const auto& values = attribute.int_list().values();
      return AttributeValue(std::vector<int64_t>(values.begin(), values.end()));
    }
    case v1::Attribute::kDoubleList: {
      const auto& values = attribute.double_list().values();
      return AttributeValue(std::vector<double>(values.begin(), values.end()));
    }
    case v1::Attribute::VALUE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("has no value");
}

void ToProto(const AttributeValue& value, inference::InferParameter& parameter) {
  if (const auto* truth = std::get_if<bool>(&value)) {
    parameter.set_bool_param(*truth);
  } else if (const auto* integer = std::get_if<int64_t>(&value)) {
    parameter.set_int64_param(*integer);
  } else if (const auto* number = std::get_if<double>(&value)) {
    parameter.set_double_param(*number);
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    parameter.set_string_param(*text);
  } else {
    parameter.set_string_param(ToString(value));
  }
}

absl::StatusOr<AttributeValue> FromProto(const inference::InferParameter& parameter) {
  switch (parameter.parameter_choice_case()) {
    case inference::InferParameter::kBoolParam:
      return AttributeValue(parameter.bool_param());
    case inference::InferParameter::kInt64Param:
      return AttributeValue(parameter.int64_param());
    case inference::InferParameter::kStringParam:
      return AttributeValue(parameter.string_param());
    case inference::InferParameter::kDoubleParam:
      return AttributeValue(parameter.double_param());
    case inference::InferParameter::kUint64Param:
      if (parameter.uint64_param() > uint64_t{std::numeric_limits<int64_t>::max()}) {
        return absl::InvalidArgumentError(
            absl::StrCat("is ", parameter.uint64_param(), ", expected less than 2^63"));
      }
      return AttributeValue(static_cast<int64_t>(parameter.uint64_param()));
    case inference::InferParameter::PARAMETER_CHOICE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("has no value");
}

void ToProto(const CallOptions& options, const Attributes& attributes, v1::KernelRequest& request) {
  v1::Options& out = *request.mutable_options();
  out.set_implementation(options.implementation);
  out.set_precision(PrecisionToProto(options.precision));
  out.set_deterministic(options.deterministic);
  out.set_chunk_size(options.chunk_size);
  out.set_timing(options.timing);
  out.set_check_finite(options.check_finite);
  request.set_priority(options.priority);
  request.set_queue_timeout_us(options.queue_timeout_us);
  for (const auto& [name, value] : attributes) {
    ToProto(value, (*request.mutable_attributes())[name]);
  }
}

absl::Status FromProto(const v1::KernelRequest& request, CallOptions& options,
                       Attributes& attributes) {
  const v1::Options& in = request.options();
  if (in.save_for_backward() != v1::SAVE_FOR_BACKWARD_UNSPECIFIED &&
      in.save_for_backward() != v1::SAVE_FOR_BACKWARD_NONE) {
    return absl::UnimplementedError(kNoResiduals);
  }
  if (!request.context().empty()) return absl::UnimplementedError(kNoContexts);
  const v1::Sequence& sequence = request.sequence();
  if (!sequence.id().empty() || sequence.start() || sequence.end()) {
    return absl::UnimplementedError(kNoSequences);
  }
  if (!in.implementation().empty()) options.implementation = in.implementation();
  options.precision = std::string(PrecisionFromProto(in.precision()));
  options.deterministic = !in.has_deterministic() || in.deterministic();
  options.chunk_size = in.chunk_size();
  options.timing = in.timing();
  options.check_finite = in.check_finite();
  options.priority = request.priority();
  options.queue_timeout_us = request.queue_timeout_us();
  for (const auto& [name, attribute] : request.attributes()) {
    absl::StatusOr<AttributeValue> value = FromProto(attribute);
    if (!value.ok()) {
      return Annotate(value.status(), absl::StrCat("attribute '", Printable(name), "'"));
    }
    attributes.insert_or_assign(name, *std::move(value));
  }
  return CheckOptions(options);
}

void ToProto(const CallOptions& options, const Attributes& attributes, ParameterMap& parameters) {
  const CallOptions defaults;
  for (const OptionRow& row : kOptions) {
    const AttributeValue value = row.write(options);
    if (value != row.write(defaults)) ToProto(value, parameters[std::string(row.name)]);
  }
  for (const auto& [name, value] : attributes) ToProto(value, parameters[name]);
}

absl::Status FromProto(const OpSpec& spec, const ParameterMap& parameters, CallOptions& options,
                       Attributes& attributes) {
  for (const auto& [name, parameter] : parameters) {
    if (absl::StartsWith(name, "triton_")) continue;
    absl::StatusOr<AttributeValue> value = FromProto(parameter);
    if (!value.ok()) {
      return Annotate(value.status(), absl::StrCat("parameter '", Printable(name), "'"));
    }
    SCANSERVE_ASSIGN_OR_RETURN(const bool is_option, ReadOption(name, *value, options));
    if (is_option) continue;
    if (spec.FindAttribute(name) == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("parameter '", Printable(name),
                                                     "' is neither an option nor an attribute of ",
                                                     spec.name));
    }
    attributes.insert_or_assign(name, *std::move(value));
  }
  return CheckOptions(options);
}

void ToProto(const CallReport& report, bool timing, v1::KernelResponse& response) {
  response.set_implementation(report.implementation);
  response.set_precision(PrecisionToProto(report.precision));
  response.set_deterministic(report.deterministic);
  if (!timing) return;
  v1::Timing& out = *response.mutable_timing();
  out.set_queue_ns(report.queue_ns);
  out.set_h2d_ns(report.h2d_ns);
  out.set_compute_ns(report.compute_ns);
  out.set_d2h_ns(report.d2h_ns);
  out.set_cold_start_ns(report.cold_start_ns);
  response.mutable_memory()->set_workspace_bytes(report.workspace_bytes);
  response.mutable_memory()->set_peak_bytes(report.peak_bytes);
}

void ToProto(const CallReport& report, bool timing, ParameterMap& parameters) {
  parameters["implementation"].set_string_param(report.implementation);
  parameters["precision"].set_string_param(report.precision);
  parameters["deterministic"].set_bool_param(report.deterministic);
  if (!timing) return;
  for (const ReportRow& row : kFigures) {
    parameters[std::string(row.name)].set_int64_param(static_cast<int64_t>(report.*row.figure));
  }
}

CallReport FromProto(const v1::KernelResponse& response) {
  CallReport report;
  report.implementation = response.implementation();
  report.precision = std::string(PrecisionFromProto(response.precision()));
  report.deterministic = response.deterministic();
  report.queue_ns = response.timing().queue_ns();
  report.h2d_ns = response.timing().h2d_ns();
  report.compute_ns = response.timing().compute_ns();
  report.d2h_ns = response.timing().d2h_ns();
  report.cold_start_ns = response.timing().cold_start_ns();
  report.workspace_bytes = response.memory().workspace_bytes();
  report.peak_bytes = response.memory().peak_bytes();
  return report;
}

CallReport FromProto(const ParameterMap& parameters) {
  CallReport report;
  for (const auto& [name, parameter] : parameters) {
    if (name == "implementation") report.implementation = parameter.string_param();
    if (name == "precision") report.precision = parameter.string_param();
    if (name == "deterministic") report.deterministic = parameter.bool_param();
    for (const ReportRow& row : kFigures) {
      if (row.name == name) report.*row.figure = static_cast<uint64_t>(parameter.int64_param());
    }
  }
  return report;
}

}  // namespace scanserve

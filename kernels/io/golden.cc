#include "kernels/io/golden.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "kernels/io/safetensors.h"

namespace scanserve {
namespace {

using Json = nlohmann::json;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Gradients far below the largest one of their file are compared against this part of it.
constexpr double kGradientFloor = 1e-6;

absl::Status Malformed(absl::string_view path, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

// "dir/selective_scan_L1.safetensors" -> "selective_scan_L1".
std::string Stem(absl::string_view path) {
  path = path.substr(path.find_last_of('/') + 1);
  return std::string(absl::StripSuffix(path, ".safetensors"));
}

absl::StatusOr<Json> ReadJson(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be opened"));
  Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return Malformed(path, "is not JSON");
  return json;
}

absl::StatusOr<AttributeValue> AttributeFromJson(const Json& json) {
  if (json.is_boolean()) return AttributeValue(json.get<bool>());
  if (json.is_number_integer()) return AttributeValue(json.get<int64_t>());
  if (json.is_number()) return AttributeValue(json.get<double>());
  if (json.is_string()) return AttributeValue(json.get<std::string>());
  if (json.is_array()) return AttributeValue(json.dump());  // a list as text, as on the wire
  return absl::InvalidArgumentError("has an attribute that is neither bool, number nor string");
}

absl::StatusOr<Attributes> AttributesFromJson(const Json& json) {
  if (!json.is_object()) return absl::InvalidArgumentError("has attributes that are no object");
  Attributes attributes;
  for (const auto& [name, value] : json.items()) {
    SCANSERVE_ASSIGN_OR_RETURN(attributes[name], AttributeFromJson(value));
  }
  return attributes;
}

double LargestMagnitude(const Tensor& tensor) {
  double largest = 0;
  for (const double value : tensor.ToDoubles()) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  return largest;
}

const Tensor* Find(absl::Span<const NamedTensor> tensors, absl::string_view name) {
  for (const NamedTensor& named : tensors) {
    if (named.name == name) return &named.tensor;
  }
  return nullptr;
}

void AppendCast(const std::vector<NamedTensor>& tensors, const Model& model, DType dtype,
                std::vector<NamedTensor>& out) {
  for (const NamedTensor& named : tensors) {
    const ModelRow* row = model.FindInput(named.name);
    if (row == nullptr) continue;  // upstream of an output that the contract does not have yet
    const DTypeRule rule = model.spec->tensors[row->slot.row].dtype;
    out.push_back({named.name, named.tensor.Cast(Resolve(rule, dtype, named.tensor.dtype()))});
  }
}

void AppendErrors(const std::vector<NamedTensor>& wanted, bool is_gradient, double floor,
                  const GoldenCase& golden, const Tolerances& tolerances, DType dtype,
                  absl::Span<const NamedTensor> got, std::vector<TensorError>& table) {
  for (const NamedTensor& want : wanted) {
    const std::optional<double> tolerance =
        tolerances.Of(golden.name, want.name, is_gradient, dtype);
    if (!tolerance) continue;
    const Tensor* tensor = Find(got, want.name);
    const double error =
        tensor == nullptr ? kInfinity : MaxRelativeError(*tensor, want.tensor, floor);
    table.push_back({want.name, error, *tolerance, error <= *tolerance});
  }
}

absl::StatusOr<Shape> ShapeFromJson(const Json& json) {
  Shape shape;
  if (!json.is_array()) return absl::InvalidArgumentError("is not a shape");
  for (const Json& dim : json) {
    if (!dim.is_number_unsigned()) return absl::InvalidArgumentError("is not a shape");
    shape.push_back(dim.get<int64_t>());
  }
  // Test data: a size beyond this is a slip in the file.
  constexpr int64_t kMaxBytes = int64_t{1} << 24;
  SCANSERVE_ASSIGN_OR_RETURN(const int64_t bytes, CheckedByteSize(shape, sizeof(double)));
  if (bytes > kMaxBytes) return absl::InvalidArgumentError("is larger than 16 MiB");
  return shape;
}

Tensor Filled(DType dtype, const Shape& shape, std::optional<double> constant,
              std::mt19937_64& random) {
  std::uniform_real_distribution<double> small_positive(0.01, 0.1);
  std::vector<double> values(NumElements(shape));
  for (double& value : values) value = constant ? *constant : small_positive(random);
  return Tensor::FromDoubles(dtype, shape, values);
}

// The four ways in which invalid.json writes an input; see its description in INDEX.md.
absl::StatusOr<Tensor> TensorFromJson(const Json& json, std::mt19937_64& random) {
  DType dtype = DType::kFP32;
  if (!json.is_object()) {
    SCANSERVE_ASSIGN_OR_RETURN(const Shape shape, ShapeFromJson(json));
    return Filled(dtype, shape, std::nullopt, random);
  }
  if (const auto values = json.find("i32"); values != json.end()) {
    std::vector<int64_t> integers;
    for (const Json& value : *values) {
      if (!value.is_number_integer()) return absl::InvalidArgumentError("has a non-integer");
      integers.push_back(value.get<int64_t>());
    }
    return Tensor::FromInts(DType::kINT32, {static_cast<int64_t>(integers.size())}, integers);
  }
  SCANSERVE_ASSIGN_OR_RETURN(const Shape shape, ShapeFromJson(json.value("shape", Json())));
  std::optional<double> constant;
  if (const auto fill = json.find("fill"); fill != json.end()) {
    if (!fill->is_number()) return absl::InvalidArgumentError("has a fill that is no number");
    constant = fill->get<double>();
  }
  if (const auto name = json.find("dtype"); name != json.end()) {
    if (!name->is_string()) return absl::InvalidArgumentError("has a dtype that is no string");
    const auto text = name->get<std::string>();
    SCANSERVE_ASSIGN_OR_RETURN(dtype, ParseDType(text == "i32" ? "INT32" : text));
  }
  return Filled(dtype, shape, constant, random);
}

absl::StatusOr<ContractCase> ContractCaseFromJson(const Json& json, std::mt19937_64& random) {
  ContractCase result;
  if (!json.is_object() || !json.contains("inputs") || !json["inputs"].is_object()) {
    return absl::InvalidArgumentError("is not an object with inputs");
  }
  for (const auto& [field, target] : {std::pair("op", &result.op), std::pair("why", &result.why)}) {
    if (!json.contains(field) || !json[field].is_string()) {
      return absl::InvalidArgumentError(absl::StrCat("has no ", field));
    }
    *target = json[field].get<std::string>();
  }
  const Json expect = json.value("expect", Json());
  if (expect != "accept" && expect != "reject") {
    return absl::InvalidArgumentError("expects neither accept nor reject");
  }
  result.accept = expect == "accept";
  SCANSERVE_ASSIGN_OR_RETURN(result.attributes,
                             AttributesFromJson(json.value("attrs", Json::object())));
  for (const auto& [name, value] : json["inputs"].items()) {
    SCANSERVE_ASSIGN_OR_RETURN(Tensor tensor, TensorFromJson(value, random));
    result.inputs.push_back({name, std::move(tensor)});
  }
  return result;
}

}  // namespace

absl::StatusOr<GoldenCase> ReadGolden(const std::string& path) {
  SCANSERVE_ASSIGN_OR_RETURN(TensorFile file, ReadSafetensors(path));
  GoldenCase golden;
  golden.name = Stem(path);
  golden.op = file.metadata["op"];
  if (golden.op.empty()) return Malformed(path, "has no 'op' in its metadata");
  const Json attributes = Json::parse(file.metadata["attributes"], nullptr, false);
  absl::StatusOr<Attributes> parsed = AttributesFromJson(attributes);
  if (!parsed.ok()) return Malformed(path, parsed.status().message());
  golden.attributes = *std::move(parsed);

  struct Part {
    absl::string_view prefix;
    absl::string_view renamed;
    std::vector<NamedTensor>* tensors;
  };
  const Part parts[] = {{"in.", "", &golden.inputs},
                        {"out.", "", &golden.outputs},
                        {"dout.", "d", &golden.upstream},
                        {"grad.", "d", &golden.gradients}};
  for (NamedTensor& named : file.tensors) {
    const auto part = std::find_if(std::begin(parts), std::end(parts), [&](const Part& p) {
      return absl::StartsWith(named.name, p.prefix);
    });
    if (part == std::end(parts)) {
      return Malformed(
          path, absl::StrCat("tensor '", named.name, "' is neither in., out., dout. nor grad."));
    }
    part->tensors->push_back({absl::StrCat(part->renamed, named.name.substr(part->prefix.size())),
                              std::move(named.tensor)});
  }
  return golden;
}

std::vector<NamedTensor> GoldenInputs(const GoldenCase& golden, const Model& model, DType dtype) {
  std::vector<NamedTensor> inputs;
  AppendCast(golden.inputs, model, dtype, inputs);
  if (model.direction != Direction::kForward) AppendCast(golden.upstream, model, dtype, inputs);
  return inputs;
}

absl::StatusOr<Tolerances> Tolerances::Read(const std::string& path) {
  SCANSERVE_ASSIGN_OR_RETURN(const Json json, ReadJson(path));
  const auto defaults = json.find("default");
  if (defaults == json.end() || !defaults->is_object()) {
    return Malformed(path, "has no 'default'");
  }
  Tolerances result;
  for (const DType dtype : kAllDTypes) {
    const std::string name(NameOf(dtype));
    const auto rule = defaults->find(name);
    if (rule == defaults->end()) continue;
    if (!rule->is_object() || !rule->value("outputs", Json()).is_number() ||
        !rule->value("gradients", Json()).is_number()) {
      return Malformed(path, absl::StrCat("default ", name, " lacks 'outputs' or 'gradients'"));
    }
    Rule& target = result.rules_[dtype];
    target.outputs = (*rule)["outputs"];
    target.gradients = (*rule)["gradients"];
    const Json exceptions = json.value("exceptions_" + name, Json::object());
    for (const auto& [file, tensors] : exceptions.items()) {
      for (const auto& [tensor, value] : tensors.items()) {
        if (!value.is_number()) return Malformed(path, absl::StrCat("exception of ", file));
        target.exceptions[file][tensor] = value;
      }
    }
    for (const Json& file : json.value("skip_" + name, Json::array())) {
      if (!file.is_string()) return Malformed(path, absl::StrCat("skip_", name));
      target.skip.push_back(file);
    }
  }
  return result;
}

std::optional<double> Tolerances::Of(absl::string_view golden, absl::string_view tensor,
                                     bool is_gradient, DType dtype) const {
  const auto rule = rules_.find(dtype);
  if (rule == rules_.end()) return std::nullopt;
  const auto& [outputs, gradients, exceptions, skip] = rule->second;
  if (std::find(skip.begin(), skip.end(), golden) != skip.end()) return std::nullopt;
  if (const auto file = exceptions.find(std::string(golden)); file != exceptions.end()) {
    for (const std::string& key : {std::string(tensor), std::string("*")}) {
      if (const auto it = file->second.find(key); it != file->second.end()) return it->second;
    }
  }
  return is_gradient ? gradients : outputs;
}

double MaxRelativeError(const Tensor& got, const Tensor& want, double floor) {
  if (got.shape() != want.shape()) return kInfinity;
  const std::vector<double> g = got.ToDoubles();
  const std::vector<double> w = want.ToDoubles();
  double difference = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    if (std::isnan(w[i]) && std::isnan(g[i])) continue;
    if (g[i] == w[i]) continue;  // infinities too
    if (!std::isfinite(w[i]) || !std::isfinite(g[i])) return kInfinity;
    difference = std::max(difference, std::abs(g[i] - w[i]));
  }
  if (difference == 0) return 0;
  return difference / std::max(LargestMagnitude(want), floor);
}

std::vector<TensorError> CheckGolden(const GoldenCase& golden, const Tolerances& tolerances,
                                     const Model& model, DType dtype,
                                     absl::Span<const NamedTensor> got) {
  double largest_gradient = 0;
  for (const NamedTensor& gradient : golden.gradients) {
    largest_gradient = std::max(largest_gradient, LargestMagnitude(gradient.tensor));
  }
  const double floor = kGradientFloor * largest_gradient;
  std::vector<TensorError> table;
  if (model.direction != Direction::kBackward) {
    AppendErrors(golden.outputs, false, floor, golden, tolerances, dtype, got, table);
  }
  if (model.direction != Direction::kForward) {
    AppendErrors(golden.gradients, true, floor, golden, tolerances, dtype, got, table);
  }
  return table;
}

absl::StatusOr<std::vector<ContractCase>> ReadContractCases(const std::string& path) {
  SCANSERVE_ASSIGN_OR_RETURN(const Json json, ReadJson(path));
  if (!json.is_array()) return Malformed(path, "is not a list");
  std::mt19937_64 random(1);
  std::vector<ContractCase> cases;
  for (const Json& row : json) {
    absl::StatusOr<ContractCase> parsed = ContractCaseFromJson(row, random);
    if (!parsed.ok()) {
      return Malformed(path, absl::StrCat("row ", cases.size(), " ", parsed.status().message()));
    }
    cases.push_back(*std::move(parsed));
  }
  return cases;
}

}  // namespace scanserve

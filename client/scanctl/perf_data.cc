// export-perf-data: inputs for perf_analyzer, whose random ones are random bits and so NaN now and
// then. Its JSON form is used because in its folder form every optional input must be there.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/scanctl/commands.h"
#include "common/status_macros.h"
#include "kernels/spec/op_case.h"

namespace scanserve::scanctl {
namespace {

// perf_analyzer takes dtype and rank from the model's metadata.
absl::Status CheckListed(const OpCase& op_case, const std::vector<NamedTensor>& inputs) {
  if (op_case.dtype != DType::kFP32) {
    return absl::InvalidArgumentError(absl::StrCat("dtype is ", NameOf(op_case.dtype),
                                                   ", but model metadata lists FP32, so use fp32"));
  }
  for (const NamedTensor& input : inputs) {
    const ModelRow* row = op_case.model->FindInput(input.name);
    const TensorRow& tensor = op_case.model->spec->tensors[row->slot.row];
    if (tensor.forms.front().dims.size() != input.tensor.shape().size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("input '", input.name, "' must have the form '", tensor.forms.front().name,
                       "' that model metadata lists"));
    }
  }
  return absl::OkStatus();
}

nlohmann::json DataOf(const std::vector<NamedTensor>& inputs) {
  nlohmann::json step = nlohmann::json::object();
  for (const NamedTensor& input : inputs) {
    const Tensor& tensor = input.tensor;
    const absl::string_view bytes(static_cast<const char*>(tensor.data()), tensor.byte_size());
    step[input.name] = {
        {"content", {{"b64", absl::Base64Escape(bytes)}}},
        {"shape", std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end())}};
  }
  return {{"data", nlohmann::json::array({step})}};
}

// perf_analyzer knows bool, int and string parameters; the server reads numbers from strings.
std::string ParameterOf(const std::string& name, const AttributeValue& value) {
  if (std::holds_alternative<bool>(value)) return absl::StrCat(name, ":", ToString(value), ":bool");
  if (std::holds_alternative<int64_t>(value)) {
    return absl::StrCat(name, ":", ToString(value), ":int");
  }
  const auto* text = std::get_if<std::string>(&value);
  return absl::StrCat(name, ":", text == nullptr ? ToString(value) : *text, ":string");
}

// One word of a shell command.
std::string Quoted(const std::string& word) {
  constexpr char kSafe[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,=+@%";
  if (!word.empty() && word.find_first_not_of(kSafe) == std::string::npos) return word;
  return absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

}  // namespace

absl::StatusOr<int> ExportPerfData(const ServerFlags& server, const std::string& text,
                                   const std::string& folder, std::ostream& out) {
  SCANSERVE_ASSIGN_OR_RETURN(const OpCase op_case, ParseCase(text, Catalog::Default()));
  SCANSERVE_ASSIGN_OR_RETURN(const std::vector<NamedTensor> inputs, MakeInputs(op_case));
  SCANSERVE_RETURN_IF_ERROR(CheckListed(op_case, inputs));

  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::string path = (std::filesystem::path(folder) / "data.json").string();
  std::ofstream file(path, std::ios::trunc);
  file << DataOf(inputs).dump() << "\n";
  file.close();
  if (!file) return absl::UnavailableError(absl::StrCat(path, ": cannot be written"));

  out << "perf_analyzer -m " << op_case.model->name << " -i grpc -u " << server.address
      << " --input-data " << Quoted(path);
  for (const NamedTensor& input : inputs) {
    out << " --shape " << input.name << ":" << absl::StrJoin(input.tensor.shape(), ",");
  }
  for (const auto& [name, value] : op_case.attributes) {
    out << " --request-parameter " << Quoted(ParameterOf(name, value));
  }
  out << "\n";
  return kOk;
}

}  // namespace scanserve::scanctl

#include "kernels/spec/op_case.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"

namespace scanserve {
namespace {

absl::Status CaseError(absl::string_view text, absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat("case '", text.substr(0, 128), "': ", message));
}

// One `name=value` of the sizes: an axis, an attribute, `with`, or the shape form of a tensor.
absl::Status ParseField(absl::string_view field, OpCase& out) {
  const std::pair<absl::string_view, absl::string_view> pair =
      absl::StrSplit(field, absl::MaxSplits('=', 1));
  const auto& [name, value] = pair;
  const OpSpec& spec = *out.model->spec;
  if (name == "with") {
    out.with = absl::StrSplit(value, '+', absl::SkipEmpty());
    for (const std::string& tensor : out.with) {
      const int row = spec.FindTensor(tensor);
      if (row < 0 || !spec.tensors[row].optional) {
        return absl::InvalidArgumentError(
            absl::StrCat("'", tensor, "' is not an optional input of ", spec.name));
      }
    }
    return absl::OkStatus();
  }
  if (spec.FindAxis(name) != nullptr) {
    int64_t size = 0;
    if (!absl::SimpleAtoi(value, &size)) {
      return absl::InvalidArgumentError(absl::StrCat("'", field, "' needs a whole number"));
    }
    out.dims.Set(name, size);
    return absl::OkStatus();
  }
  if (spec.FindAttribute(name) != nullptr) {
    SCANSERVE_ASSIGN_OR_RETURN(
        out.attributes[std::string(name)],
        ConvertTo(spec.FindAttribute(name)->default_value, std::string(value)));
    return absl::OkStatus();
  }
  if (spec.FindTensor(name) >= 0) {
    out.forms.emplace_back(name, value);
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", name, "' is no axis, attribute or tensor of ", spec.name));
}

// A small generator of our own, so that a seed means the same values everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {  // SplitMix64
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  double Uniform() { return (static_cast<double>(Next() >> 11) + 0.5) * 0x1p-53; }
  // Normal enough for tests, by adding up uniforms: no logarithm whose last bit is the library's.
  double Normal() {
    double sum = -6;
    for (int i = 0; i < 4; ++i) {
      const uint64_t bits = Next();
      for (int shift = 0; shift < 48; shift += 16) {
        sum += (static_cast<double>((bits >> shift) & 0xffff) + 0.5) * 0x1p-16;
      }
    }
    return sum;
  }

 private:
  uint64_t state_;
};

uint64_t Hash(absl::string_view text) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

// Ascending from 0 to `total`; random cuts, so that zero-length segments occur.
std::vector<double> RandomOffsets(int64_t count, int64_t total, Random& random) {
  std::vector<double> offsets(count);
  for (double& offset : offsets) {
    offset = static_cast<double>(random.Next() % static_cast<uint64_t>(total + 1));
  }
  offsets.front() = 0;
  offsets.back() = static_cast<double>(total);
  std::sort(offsets.begin(), offsets.end());
  return offsets;
}

// Values that are drawn at a time.
constexpr int64_t kDrawn = 4096;

class InputMaker {
 public:
  explicit InputMaker(const OpCase& op_case) : case_(op_case), spec_(*op_case.model->spec) {
    dims_ = case_.dims;
    for (const AxisRow& axis : spec_.axes) {
      if (dims_.Find(axis.name) == nullptr && axis.absent != 0) dims_.Set(axis.name, axis.absent);
    }
    if (spec_.packing && dims_.Find(spec_.packing->sequences) == nullptr) {
      const int64_t* batch = dims_.Find(spec_.packing->batch);
      if (batch != nullptr) dims_.Set(spec_.packing->sequences, *batch);
    }
  }

  absl::StatusOr<std::vector<NamedTensor>> Make() {
    std::vector<NamedTensor> tensors;
    for (const ModelRow& row : case_.model->inputs) {
      const TensorRow& tensor = spec_.tensors[row.slot.row];
      if (tensor.role == Role::kInput && tensor.optional && !IsWith(tensor.name)) continue;
      SCANSERVE_ASSIGN_OR_RETURN(Tensor made, MakeTensor(row, tensor));
      tensors.push_back({row.name, std::move(made)});
    }
    SCANSERVE_RETURN_IF_ERROR(Bind(*case_.model, ViewsOf(tensors), case_.attributes, {}).status());
    return tensors;
  }

 private:
  bool IsWith(const std::string& name) const {
    return std::find(case_.with.begin(), case_.with.end(), name) != case_.with.end();
  }

  absl::StatusOr<const ShapeForm*> FormOf(const TensorRow& tensor) const {
    for (const auto& [name, form_name] : case_.forms) {
      if (name != tensor.name) continue;
      for (const ShapeForm& form : tensor.forms) {
        if (form.name == form_name) return &form;
      }
      return CaseError(ToString(case_),
                       absl::StrCat("'", name, "' has no form '", form_name, "', expected ",
                                    absl::StrJoin(tensor.forms, " or ",
                                                  [](std::string* out, const ShapeForm& form) {
                                                    absl::StrAppend(out, form.name);
                                                  })));
    }
    return &tensor.forms.front();
  }

  absl::StatusOr<Tensor> MakeTensor(const ModelRow& row, const TensorRow& tensor) const {
    SCANSERVE_ASSIGN_OR_RETURN(const ShapeForm* form, FormOf(tensor));
    Shape shape;
    for (const std::string& dim : form->dims) {
      const std::optional<int64_t> size = EvaluateDim(dim, dims_);
      if (!size) {
        return CaseError(ToString(case_), absl::StrCat("axis '", ParseDim(dim).axis, "' of '",
                                                       row.name, "' has no size"));
      }
      shape.push_back(*size);
    }
    const DType dtype = Resolve(tensor.dtype, case_.dtype, DType::kINT32);
    SCANSERVE_ASSIGN_OR_RETURN(Tensor made, Tensor::Allocate({dtype, std::move(shape)}));
    Random random(Hash(row.name) ^ (case_.seed * 0x9e3779b97f4a7c15u));
    // A gradient has its own name, hence its own values, drawn as plain noise.
    const Distribution distribution = row.slot.is_gradient
                                          ? Distribution{Distribution::Kind::kNormal, 0, 1}
                                          : tensor.distribution;
    if (distribution.kind == Distribution::Kind::kOffsets) {
      made.SetDoubles(0, RandomOffsets(made.num_elements(), dims_[spec_.packing->seqlen], random));
    } else {
      Draw(distribution, random, made);
    }
    return made;
  }

  // FP32 values whatever the dtype, so that an FP64 case is the same problem.
  static void Draw(const Distribution& distribution, Random& random, Tensor& out) {
    std::vector<double> values;
    for (int64_t begin = 0; begin < out.num_elements(); begin += kDrawn) {
      values.resize(std::min(kDrawn, out.num_elements() - begin));
      for (double& value : values) {
        value = distribution.kind == Distribution::Kind::kNormal
                    ? distribution.a + distribution.b * random.Normal()
                    : distribution.a + (distribution.b - distribution.a) * random.Uniform();
        value = static_cast<double>(static_cast<float>(value));
      }
      out.SetDoubles(begin, values);
    }
  }

  const OpCase& case_;
  const OpSpec& spec_;
  Dims dims_;
};

void AppendSizes(const OpCase& op_case, std::vector<std::string>& fields) {
  for (const auto& [axis, size] : op_case.dims.all()) {
    fields.push_back(absl::StrCat(axis, "=", size));
  }
  for (const auto& [name, value] : op_case.attributes) {
    const auto* text = std::get_if<std::string>(&value);
    fields.push_back(absl::StrCat(name, "=", text != nullptr ? *text : ToString(value)));
  }
  if (!op_case.with.empty()) {
    fields.push_back(absl::StrCat("with=", absl::StrJoin(op_case.with, "+")));
  }
  for (const auto& [tensor, form] : op_case.forms) {
    fields.push_back(absl::StrCat(tensor, "=", form));
  }
}

}  // namespace

absl::StatusOr<OpCase> ParseCase(absl::string_view text, const Catalog& catalog) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  if (parts.size() < 3 || parts.size() > 6) {
    return CaseError(text, "expected MODEL:DTYPE:SIZES[:IMPLEMENTATION[:DEVICE[:seed=N]]]");
  }
  OpCase result;
  const absl::StatusOr<const Model*> model = catalog.FindModel(parts[0]);
  if (!model.ok()) return CaseError(text, model.status().message());
  result.model = *model;
  const absl::StatusOr<DType> dtype = ParseDType(parts[1]);
  if (!dtype.ok()) return CaseError(text, dtype.status().message());
  result.dtype = *dtype;
  for (const absl::string_view field : absl::StrSplit(parts[2], ',', absl::SkipEmpty())) {
    const absl::Status status = ParseField(field, result);
    if (!status.ok()) return CaseError(text, status.message());
  }
  if (parts.size() > 3) result.implementation = std::string(parts[3]);
  if (parts.size() > 4) result.device = std::string(parts[4]);
  if (parts.size() > 5) {
    absl::string_view seed = parts[5];
    if (seed.substr(0, 5) != "seed=" || !absl::SimpleAtoi(seed.substr(5), &result.seed)) {
      return CaseError(text, absl::StrCat("'", seed, "' is no seed=N"));
    }
  }
  return result;
}

std::string ToString(const OpCase& op_case) {
  std::vector<std::string> fields;
  AppendSizes(op_case, fields);
  return absl::StrCat(op_case.model->name, ":", absl::AsciiStrToLower(NameOf(op_case.dtype)), ":",
                      absl::StrJoin(fields, ","), ":", op_case.implementation, ":", op_case.device,
                      ":seed=", op_case.seed);
}

std::string CaseString(const BoundOp& bound, absl::string_view implementation,
                       absl::string_view device) {
  OpCase op_case;
  op_case.model = bound.model;
  op_case.dtype = bound.dtype;
  op_case.implementation = std::string(implementation);
  op_case.device = std::string(device);
  const OpSpec& spec = bound.spec();
  for (const AxisRow& axis : spec.axes) {
    const bool derived =
        spec.packing && axis.name == spec.packing->sequences && bound.cu_seqlens.empty();
    if (derived || (axis.absent != 0 && bound.dims[axis.name] == axis.absent)) continue;
    op_case.dims.Set(axis.name, bound.dims[axis.name]);
  }
  for (const AttributeRow& row : spec.attributes) {
    const AttributeValue& value = bound.attributes.find(row.name)->second;
    if (value != row.default_value) op_case.attributes[row.name] = value;
  }
  for (size_t i = 0; i < spec.tensors.size(); ++i) {
    const TensorRow& row = spec.tensors[i];
    if (row.role == Role::kOutput || bound.forms[i] < 0) continue;
    if (row.optional) op_case.with.push_back(row.name);
    if (bound.forms[i] > 0) op_case.forms.emplace_back(row.name, row.forms[bound.forms[i]].name);
  }
  return ToString(op_case);
}

absl::StatusOr<std::vector<NamedTensor>> MakeInputs(const OpCase& op_case) {
  return InputMaker(op_case).Make();
}

std::vector<InputTensor> ViewsOf(const std::vector<NamedTensor>& tensors) {
  std::vector<InputTensor> views;
  views.reserve(tensors.size());
  for (const NamedTensor& named : tensors) views.push_back({named.name, named.tensor.view()});
  return views;
}

}  // namespace scanserve

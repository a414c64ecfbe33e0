#include "kernels/spec/op_spec.h"

#include <cstdlib>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace scanserve {
namespace {

absl::Status SpecError(const OpSpec& spec, absl::string_view message) {
  return absl::InternalError(absl::StrCat("contract of ", spec.name, ": ", message));
}

absl::Status CheckTensor(const OpSpec& spec, const TensorRow& row) {
  if (row.forms.empty()) return SpecError(spec, absl::StrCat("'", row.name, "' has no shape"));
  std::set<size_t> ranks;
  for (const ShapeForm& form : row.forms) {
    if (!ranks.insert(form.dims.size()).second) {
      return SpecError(spec, absl::StrCat("'", row.name, "' has two shapes of one rank"));
    }
    for (const std::string& dim : form.dims) {
      const std::string axis = ParseDim(dim).axis;
      if (!axis.empty() && spec.FindAxis(axis) == nullptr) {
        return SpecError(spec, absl::StrCat("'", row.name, "' has unknown axis '", axis, "'"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

int64_t Dims::operator[](absl::string_view axis) const {
  const int64_t* size = Find(axis);
  if (size == nullptr) std::abort();  // a bound call has every axis of its contract
  return *size;
}

const int64_t* Dims::Find(absl::string_view axis) const {
  for (const auto& [name, size] : sizes_) {
    if (name == axis) return &size;
  }
  return nullptr;
}

void Dims::Set(absl::string_view axis, int64_t size) {
  for (auto& [name, old] : sizes_) {
    if (name == axis) {
      old = size;
      return;
    }
  }
  sizes_.emplace_back(std::string(axis), size);
}

absl::string_view NameOf(Direction direction) {
  switch (direction) {
    case Direction::kForward:
      return "fwd";
    case Direction::kBackward:
      return "bwd";
    case Direction::kForwardBackward:
      return "fwd_bwd";
  }
  std::abort();
}

DType Resolve(DTypeRule rule, DType activation, DType index) {
  switch (rule) {
    case DTypeRule::kActivation:
      return activation;
    case DTypeRule::kParameter:
      return activation == DType::kFP64 ? DType::kFP64 : DType::kFP32;
    case DTypeRule::kIndex:
      return index;
  }
  std::abort();
}

int OpSpec::FindTensor(absl::string_view tensor_name) const {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].name == tensor_name) return static_cast<int>(i);
  }
  return -1;
}

const AxisRow* OpSpec::FindAxis(absl::string_view axis_name) const {
  for (const AxisRow& axis : axes) {
    if (axis.name == axis_name) return &axis;
  }
  return nullptr;
}

const AttributeRow* OpSpec::FindAttribute(absl::string_view attribute_name) const {
  for (const AttributeRow& attribute : attributes) {
    if (attribute.name == attribute_name) return &attribute;
  }
  return nullptr;
}

DimExpression ParseDim(absl::string_view expression) {
  DimExpression result;
  const std::pair<absl::string_view, absl::string_view> sum =
      absl::StrSplit(expression, absl::MaxSplits('+', 1));
  if (!sum.second.empty() && !absl::SimpleAtoi(sum.second, &result.plus)) std::abort();
  absl::string_view term = sum.first;
  const size_t star = term.find('*');
  if (star != absl::string_view::npos) {
    if (!absl::SimpleAtoi(term.substr(0, star), &result.times)) std::abort();
    term.remove_prefix(star + 1);
  }
  int64_t number = 0;
  if (absl::SimpleAtoi(term, &number)) {
    result.times = 0;
    result.plus += number;
  } else {
    result.axis = std::string(term);
  }
  return result;
}

std::optional<int64_t> EvaluateDim(absl::string_view expression, const Dims& dims) {
  const DimExpression dim = ParseDim(expression);
  if (dim.axis.empty()) return dim.plus;
  const int64_t* size = dims.Find(dim.axis);
  if (size == nullptr) return std::nullopt;
  return dim.times * *size + dim.plus;
}

absl::Status CheckSpec(const OpSpec& spec) {
  std::set<std::string> names;
  for (const AxisRow& axis : spec.axes) {
    if (axis.min < 0 || axis.min > axis.max) {
      return SpecError(spec, absl::StrCat("axis '", axis.name, "' has no legal size"));
    }
    if (!names.insert(axis.name).second) {
      return SpecError(spec, absl::StrCat("axis '", axis.name, "' stands twice"));
    }
  }
  names.clear();
  bool outputs_began = false;
  for (const TensorRow& row : spec.tensors) {
    if (!names.insert(row.name).second) {
      return SpecError(spec, absl::StrCat("tensor '", row.name, "' stands twice"));
    }
    if (row.role == Role::kInput && outputs_began) {
      return SpecError(spec, absl::StrCat("input '", row.name, "' stands after an output"));
    }
    outputs_began = row.role == Role::kOutput;
    if (absl::Status status = CheckTensor(spec, row); !status.ok()) return status;
  }
  for (const AttributeRow& attribute : spec.attributes) {
    if (!names.insert(attribute.name).second) {
      return SpecError(spec, absl::StrCat("attribute '", attribute.name, "' has a name in use"));
    }
  }
  if (spec.FindAxis(spec.batch_axis) == nullptr) return SpecError(spec, "batch axis is unknown");
  if (spec.packing && spec.FindTensor(spec.packing->offsets) < 0) {
    return SpecError(spec, "packing names an unknown tensor");
  }
  if (spec.work == nullptr) return SpecError(spec, "work is missing");
  return absl::OkStatus();
}

}  // namespace scanserve

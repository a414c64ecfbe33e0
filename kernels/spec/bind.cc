#include "kernels/spec/bind.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"

namespace scanserve {
namespace {

// Binds one call. The steps run in the order of Run(); each relies on those before it.
class Binder {
 public:
  Binder(const Model& model, absl::Span<const InputTensor> inputs, const Attributes& attributes,
         absl::Span<const std::string> outputs)
      : model_(model),
        spec_(*model.spec),
        inputs_(inputs),
        attributes_(attributes),
        outputs_(outputs) {}

  absl::StatusOr<BoundOp> Run() {
    bound_.model = &model_;
    bound_.forms.assign(spec_.tensors.size(), -1);
    SCANSERVE_RETURN_IF_ERROR(NameInputs());
    SCANSERVE_RETURN_IF_ERROR(RequireInputs());
    SCANSERVE_RETURN_IF_ERROR(BindDTypes());
    SCANSERVE_RETURN_IF_ERROR(BindShapes());
    SCANSERVE_RETURN_IF_ERROR(BindPacking());
    SCANSERVE_RETURN_IF_ERROR(FillAxes());
    SCANSERVE_RETURN_IF_ERROR(BindAttributes());
    SCANSERVE_RETURN_IF_ERROR(BindOutputs());
    return std::move(bound_);
  }

 private:
  template <typename... Args>
  absl::Status Error(const Args&... args) const {
    return absl::InvalidArgumentError(absl::StrCat(model_.name, ": ", args...));
  }

  const TensorRow& RowOf(Slot slot) const { return spec_.tensors[slot.row]; }
  const TensorMeta& MetaOfInput(size_t i) const { return inputs_[i].view.meta; }

  absl::Status NameInputs() {
    for (const InputTensor& input : inputs_) {
      const ModelRow* row = model_.FindInput(input.name);
      if (row == nullptr) {
        return Error("unknown input '", input.name.substr(0, 64), "', expected ",
                     absl::StrJoin(model_.inputs, ", ", [](std::string* out, const ModelRow& r) {
                       absl::StrAppend(out, r.name);
                     }));
      }
      if (bound_.HasInput(row->slot)) return Error("input '", row->name, "' is given twice");
      const absl::StatusOr<int64_t> size =
          CheckedByteSize(input.view.meta.shape, SizeOf(input.view.meta.dtype));
      if (!size.ok()) return Error("input '", row->name, "': ", size.status().message());
      bound_.inputs.push_back(row->slot);
    }
    return absl::OkStatus();
  }

  absl::Status RequireInputs() {
    bool has_upstream = false;
    std::vector<std::string> upstream;
    for (const ModelRow& row : model_.inputs) {
      if (row.slot.is_gradient) {
        has_upstream = has_upstream || bound_.HasInput(row.slot);
        upstream.push_back(row.name);
      } else if (row.required && !bound_.HasInput(row.slot)) {
        return Error("input '", row.name, "' is missing");
      }
    }
    if (!upstream.empty() && !has_upstream) {
      return Error("an upstream gradient is missing, expected at least one of ",
                   absl::StrJoin(upstream, ", "));
    }
    return absl::OkStatus();
  }

  // T is what the first activation tensor of the contract has.
  absl::Status BindDTypes() {
    std::string owner;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (bound_.inputs[i].row == FirstActivationRow() && !bound_.inputs[i].is_gradient) {
        bound_.dtype = MetaOfInput(i).dtype;
        owner = std::string(inputs_[i].name);
      }
    }
    if (std::find(spec_.dtypes.begin(), spec_.dtypes.end(), bound_.dtype) == spec_.dtypes.end()) {
      return Error("input '", owner, "' is ", NameOf(bound_.dtype), ", expected one of ",
                   absl::StrJoin(spec_.dtypes, ", ", [](std::string* out, DType dtype) {
                     absl::StrAppend(out, NameOf(dtype));
                   }));
    }
    for (size_t i = 0; i < inputs_.size(); ++i) {
      SCANSERVE_RETURN_IF_ERROR(CheckDType(i, owner));
    }
    return absl::OkStatus();
  }

  int FirstActivationRow() const {
    for (size_t i = 0; i < spec_.tensors.size(); ++i) {
      if (spec_.tensors[i].dtype == DTypeRule::kActivation) return static_cast<int>(i);
    }
    std::abort();  // every operator has an activation
  }

  absl::Status CheckDType(size_t i, const std::string& owner) const {
    const DType got = MetaOfInput(i).dtype;
    const DTypeRule rule = RowOf(bound_.inputs[i]).dtype;
    if (rule == DTypeRule::kIndex) {
      if (got == DType::kINT32 || got == DType::kINT64) return absl::OkStatus();
      return Error("input '", inputs_[i].name, "' is ", NameOf(got), ", expected INT32 or INT64");
    }
    const DType want = Resolve(rule, bound_.dtype, got);
    if (got == want) return absl::OkStatus();
    return Error("input '", inputs_[i].name, "' is ", NameOf(got), ", expected ", NameOf(want),
                 " as '", owner, "' is ", NameOf(bound_.dtype));
  }

  // In the order of the contract, so that the first tensor that has an axis decides its size.
  absl::Status BindShapes() {
    for (const ModelRow& row : model_.inputs) {
      for (size_t i = 0; i < inputs_.size(); ++i) {
        if (bound_.inputs[i] == row.slot && !row.slot.is_gradient && !IsPerSequence(row.slot.row)) {
          SCANSERVE_RETURN_IF_ERROR(BindShape(i));
        }
      }
    }
    for (size_t row = 0; row < spec_.tensors.size(); ++row) {
      if (spec_.tensors[row].role == Role::kOutput) bound_.forms[row] = 0;
    }
    return absl::OkStatus();
  }

  // Shapes with one row per sequence wait until it is known how many there are.
  bool IsPerSequence(int row) const {
    if (!spec_.packing) return false;
    for (const std::string& dim : spec_.tensors[row].forms[0].dims) {
      if (ParseDim(dim).axis == spec_.packing->sequences) return true;
    }
    return false;
  }

  absl::Status BindShape(size_t i) {
    const Slot slot = bound_.inputs[i];
    const TensorRow& row = RowOf(slot);
    const Shape& shape = MetaOfInput(i).shape;
    int form = -1;
    for (size_t f = 0; f < row.forms.size(); ++f) {
      if (row.forms[f].dims.size() == shape.size()) form = static_cast<int>(f);
    }
    // An output has the first form; its gradient must have the same.
    if (slot.is_gradient && form > 0) form = -1;
    if (form < 0) {
      return Error("input '", inputs_[i].name, "' has shape ", ToString(shape), ", expected ",
                   absl::StrJoin(row.forms, " or ", [](std::string* out, const ShapeForm& f) {
                     absl::StrAppend(out, "[", absl::StrJoin(f.dims, ", "), "]");
                   }));
    }
    for (size_t d = 0; d < shape.size(); ++d) {
      SCANSERVE_RETURN_IF_ERROR(BindDim(i, d, row.forms[form].dims[d], shape[d]));
    }
    if (!slot.is_gradient) bound_.forms[slot.row] = form;
    return absl::OkStatus();
  }

  absl::Status BindDim(size_t i, size_t d, const std::string& expression, int64_t size) {
    const absl::string_view name = inputs_[i].name;
    const DimExpression dim = ParseDim(expression);
    if (dim.axis.empty()) {
      if (size == dim.plus) return absl::OkStatus();
      return Error("dimension ", d, " of '", name, "' is ", size, ", expected ", dim.plus);
    }
    if (const int64_t* known = bound_.dims.Find(dim.axis)) {
      const int64_t want = dim.times * *known + dim.plus;
      if (size == want) return absl::OkStatus();
      return Error("axis '", expression, "' is ", want, " in '", owners_[dim.axis], "' but ", size,
                   " in '", name, "' (dimension ", d, ")");
    }
    const int64_t value = (size - dim.plus) / dim.times;
    const AxisRow& axis = *spec_.FindAxis(dim.axis);
    if (value * dim.times + dim.plus != size || value < axis.min || value > axis.max) {
      return Error("axis '", expression, "' is ", size, " in '", name, "' (dimension ", d,
                   "), expected ", axis.min * dim.times + dim.plus, " to ",
                   axis.max * dim.times + dim.plus);
    }
    bound_.dims.Set(dim.axis, value);
    owners_[dim.axis] = std::string(name);
    return absl::OkStatus();
  }

  absl::Status BindPacking() {
    if (!spec_.packing) return BindUpstream();
    const Packing& packing = *spec_.packing;
    const int offsets = spec_.FindTensor(packing.offsets);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (bound_.inputs[i] == Slot{offsets, false}) {
        SCANSERVE_RETURN_IF_ERROR(ReadOffsets(i));
      }
    }
    if (bound_.cu_seqlens.empty()) {
      bound_.dims.Set(packing.sequences, bound_.dims[packing.batch]);
      owners_[packing.sequences] = owners_[packing.batch];
    }
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const Slot slot = bound_.inputs[i];
      if (!slot.is_gradient && slot.row != offsets && IsPerSequence(slot.row)) {
        SCANSERVE_RETURN_IF_ERROR(BindShape(i));
      }
    }
    return BindUpstream();
  }

  absl::Status BindUpstream() {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (bound_.inputs[i].is_gradient) SCANSERVE_RETURN_IF_ERROR(BindShape(i));
    }
    return absl::OkStatus();
  }

  absl::Status ReadOffsets(size_t i) {
    const Packing& packing = *spec_.packing;
    SCANSERVE_RETURN_IF_ERROR(BindShape(i));
    const absl::string_view name = inputs_[i].name;
    const TensorView& view = inputs_[i].view;
    if (view.data == nullptr) return Error("input '", name, "' has no data");
    const int64_t batch = bound_.dims[packing.batch];
    if (batch != 1) {
      return Error("axis '", packing.batch, "' is ", batch, ", expected 1 with '", name, "'");
    }
    std::vector<int64_t> offsets(view.meta.shape[0]);
    for (size_t k = 0; k < offsets.size(); ++k) {
      offsets[k] = view.meta.dtype == DType::kINT32 ? view.As<const int32_t>()[k]
                                                    : view.As<const int64_t>()[k];
    }
    const int64_t seqlen = bound_.dims[packing.seqlen];
    if (offsets.front() != 0) return Error("'", name, "' begins with ", offsets[0], ", expected 0");
    for (size_t k = 1; k < offsets.size(); ++k) {
      if (offsets[k] < offsets[k - 1]) {
        return Error("'", name, "' falls from ", offsets[k - 1], " to ", offsets[k], " at index ",
                     k, ", expected ascending offsets");
      }
    }
    if (offsets.back() != seqlen) {
      return Error("'", name, "' ends with ", offsets.back(), ", expected ", seqlen, " (axis '",
                   packing.seqlen, "')");
    }
    bound_.cu_seqlens = std::move(offsets);
    return absl::OkStatus();
  }

  absl::Status FillAxes() {
    for (const AxisRow& axis : spec_.axes) {
      if (bound_.dims.Find(axis.name) != nullptr) continue;
      if (axis.absent == 0) return Error("axis '", axis.name, "' is not given by any input");
      bound_.dims.Set(axis.name, axis.absent);
    }
    for (const Constraint& constraint : spec_.constraints) {
      if (constraint.holds(bound_.dims)) continue;
      return Error(constraint.sentence, ", got ",
                   absl::StrJoin(bound_.dims.all(), ", ", [](std::string* out, const auto& dim) {
                     absl::StrAppend(out, dim.first, "=", dim.second);
                   }));
    }
    return absl::OkStatus();
  }

  absl::Status BindAttributes() {
    for (const AttributeRow& row : spec_.attributes) {
      bound_.attributes[row.name] = row.default_value;
    }
    for (const auto& [name, value] : attributes_) {
      const AttributeRow* row = spec_.FindAttribute(name);
      if (row == nullptr) {
        return Error(
            "unknown attribute '", name.substr(0, 64), "', expected ",
            absl::StrJoin(spec_.attributes, ", ", [](std::string* out, const AttributeRow& r) {
              absl::StrAppend(out, r.name);
            }));
      }
      SCANSERVE_RETURN_IF_ERROR(BindAttribute(*row, value));
    }
    return absl::OkStatus();
  }

  absl::Status BindAttribute(const AttributeRow& row, const AttributeValue& value) {
    absl::StatusOr<AttributeValue> converted = ConvertTo(row.default_value, value);
    if (!converted.ok()) {
      return Error("attribute '", row.name, "' ", converted.status().message());
    }
    if (const auto* number = std::get_if<double>(&*converted);
        number != nullptr && !std::isfinite(*number)) {
      return Error("attribute '", row.name, "' is ", ToString(*converted),
                   ", expected a finite number");
    }
    if (!row.allowed.empty() &&
        std::find(row.allowed.begin(), row.allowed.end(), *converted) == row.allowed.end()) {
      return Error("attribute '", row.name, "' is ", ToString(*converted), ", expected one of ",
                   absl::StrJoin(row.allowed, ", ", [](std::string* out, const AttributeValue& v) {
                     absl::StrAppend(out, ToString(v));
                   }));
    }
    bound_.attributes[row.name] = *std::move(converted);
    return absl::OkStatus();
  }

  absl::Status BindOutputs() {
    if (outputs_.empty()) {
      for (const ModelRow& row : model_.outputs) {
        if (bound_.Has(row.slot.row)) SCANSERVE_RETURN_IF_ERROR(AddOutput(row));
      }
      return absl::OkStatus();
    }
    for (const std::string& name : outputs_) {
      const ModelRow* row = model_.FindOutput(name);
      if (row == nullptr) {
        return Error("unknown output '", name.substr(0, 64), "', expected ",
                     absl::StrJoin(model_.outputs, ", ", [](std::string* out, const ModelRow& r) {
                       absl::StrAppend(out, r.name);
                     }));
      }
      if (bound_.Wants(row->slot)) return Error("output '", row->name, "' is asked for twice");
      if (!bound_.Has(row->slot.row)) {
        return Error("output '", row->name, "' is asked for, but input '", RowOf(row->slot).name,
                     "' is absent");
      }
      SCANSERVE_RETURN_IF_ERROR(AddOutput(*row));
    }
    return absl::OkStatus();
  }

  absl::Status AddOutput(const ModelRow& row) {
    const TensorMeta meta = bound_.MetaOf(row.slot);
    const absl::StatusOr<int64_t> size = CheckedByteSize(meta.shape, SizeOf(meta.dtype));
    if (!size.ok()) return Error("output '", row.name, "': ", size.status().message());
    bound_.outputs.push_back(row.slot);
    bound_.output_names.push_back(row.name);
    return absl::OkStatus();
  }

  const Model& model_;
  const OpSpec& spec_;
  const absl::Span<const InputTensor> inputs_;
  const Attributes& attributes_;
  const absl::Span<const std::string> outputs_;
  std::map<std::string, std::string, std::less<>> owners_;  // axis: the tensor that set its size
  BoundOp bound_;
};

}  // namespace

bool BoundOp::HasInput(Slot slot) const {
  return std::find(inputs.begin(), inputs.end(), slot) != inputs.end();
}

bool BoundOp::Wants(Slot slot) const {
  return std::find(outputs.begin(), outputs.end(), slot) != outputs.end();
}

TensorMeta BoundOp::MetaOf(Slot slot) const {
  const TensorRow& row = spec().tensors[slot.row];
  TensorMeta meta;
  meta.dtype = Resolve(row.dtype, dtype, DType::kINT64);
  for (const std::string& dim : row.forms[forms[slot.row]].dims) {
    meta.shape.push_back(*EvaluateDim(dim, dims));
  }
  return meta;
}

Work BoundOp::TotalWork() const {
  Work work = spec().work(dims, model->direction);
  for (const Slot slot : inputs) work.bytes += static_cast<double>(MetaOf(slot).ByteSize());
  for (const Slot slot : outputs) work.bytes += static_cast<double>(MetaOf(slot).ByteSize());
  return work;
}

absl::StatusOr<BoundOp> Bind(const Model& model, absl::Span<const InputTensor> inputs,
                             const Attributes& attributes, absl::Span<const std::string> outputs) {
  return Binder(model, inputs, attributes, outputs).Run();
}

}  // namespace scanserve

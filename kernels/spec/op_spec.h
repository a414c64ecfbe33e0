// The contract of an operator, as data. Written once per family in kernels/ops/<family>/spec.cc
// and read by validation, metadata, documentation, tests, load generator and benchmarks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/spec/attributes.h"
#include "kernels/spec/dtype.h"
#include "kernels/spec/tensor.h"

namespace scanserve {

// Sizes of an operator's axes by name.
class Dims {
 public:
  // The axis must have been set.
  int64_t operator[](absl::string_view axis) const;
  // Null when the axis is not set.
  const int64_t* Find(absl::string_view axis) const;
  void Set(absl::string_view axis, int64_t size);
  const std::vector<std::pair<std::string, int64_t>>& all() const { return sizes_; }

 private:
  std::vector<std::pair<std::string, int64_t>> sizes_;
};

struct AxisRow {
  std::string name;
  int64_t min = 1;
  int64_t max = kMaxDim;
  std::string doc;
  // Size when no tensor of the call has the axis; 0 means that some tensor always has it.
  int64_t absent = 0;
};

enum class Role { kInput, kOutput };

// How a tensor's dtype follows from the activation dtype T of the call.
enum class DTypeRule {
  kActivation,  // T
  kParameter,   // FP64 when T is FP64, otherwise FP32
  kIndex,       // INT32 or INT64
};

// What `rule` means when T is `activation`; of an index tensor, `index`.
DType Resolve(DTypeRule rule, DType activation, DType index);

// How MakeInputs fills a tensor for tests and load.
struct Distribution {
  enum class Kind { kNormal, kUniform, kOffsets };
  Kind kind = Kind::kNormal;
  double a = 0;  // mean, or lower bound
  double b = 1;  // standard deviation, or upper bound
};

// One of the shapes that a tensor may have. A dimension is an axis name, a number, or
// "<times>*<axis>+<plus>" ("2*dim", "nseq+1").
struct ShapeForm {
  std::string name;
  std::vector<std::string> dims;
};

struct TensorRow {
  std::string name;
  Role role = Role::kInput;
  std::vector<ShapeForm> forms;  // the first is what metadata shows; ranks differ
  DTypeRule dtype = DTypeRule::kActivation;
  bool optional = false;
  bool differentiable = true;
  std::string doc;
  Distribution distribution = {};
};

struct AttributeRow {
  std::string name;
  AttributeValue default_value;
  std::string doc;
  std::vector<AttributeValue> allowed = {};  // empty: any finite value of the type
};

// A rule over the axes that single tensors cannot express.
struct Constraint {
  std::string sentence;  // "dim must be a multiple of ngroups (of 'B' and 'C')"
  bool (*holds)(const Dims& dims);
};

// Names of the axes and of the tensor that pack several sequences into one.
struct Packing {
  std::string offsets = "cu_seqlens";
  std::string batch = "batch";
  std::string seqlen = "seqlen";
  std::string sequences = "nseq";
};

enum class Direction { kForward, kBackward, kForwardBackward };

inline constexpr Direction kAllDirections[] = {Direction::kForward, Direction::kBackward,
                                               Direction::kForwardBackward};

// "fwd", "bwd", "fwd_bwd".
absl::string_view NameOf(Direction direction);

// What a call has to compute at the least, whatever the implementation: the numerators of the
// roofline.
struct Work {
  double fma_slots = 0;  // scalar lanes of fused multiply-add issue slots
  double exps = 0;
  double bytes = 0;  // tensors read and written once
};

struct OpSpec {
  std::string name;
  std::string summary;        // the equations in one line
  std::string source;         // paper and public code that define the operator
  std::vector<DType> dtypes;  // what T may be
  std::vector<AxisRow> axes;
  std::vector<TensorRow> tensors;  // inputs first, then outputs
  std::vector<AttributeRow> attributes;
  std::vector<Constraint> constraints;
  std::string batch_axis;
  std::optional<Packing> packing;
  // Leaves `bytes` zero: BoundOp::TotalWork adds those of the tensors.
  Work (*work)(const Dims& dims, Direction direction);

  // Row index, or -1.
  int FindTensor(absl::string_view tensor_name) const;
  const AxisRow* FindAxis(absl::string_view axis_name) const;
  const AttributeRow* FindAttribute(absl::string_view attribute_name) const;
};

// Size of one dimension of a ShapeForm; nullopt while its axis is not set.
std::optional<int64_t> EvaluateDim(absl::string_view expression, const Dims& dims);
// Axis named in a dimension expression (empty for a number), with size = times * axis + plus.
struct DimExpression {
  std::string axis;
  int64_t times = 1;
  int64_t plus = 0;
};
DimExpression ParseDim(absl::string_view expression);

// INTERNAL, naming the first fault, when the tables of a contract do not agree with each other.
absl::Status CheckSpec(const OpSpec& spec);

}  // namespace scanserve

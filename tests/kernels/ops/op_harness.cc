#include "tests/kernels/ops/op_harness.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "gtest/gtest.h"
#include "kernels/runtime/cpu_device.h"
#include "kernels/runtime/planner.h"

namespace scanserve {
namespace {

constexpr size_t kGuard = 256;
constexpr unsigned char kGuardByte = 0xa5;
constexpr unsigned char kPoisonByte = 0xff;  // NaN in every float type

// `size` poisoned bytes between guards.
class GuardedBytes {
 public:
  explicit GuardedBytes(size_t size) : size_(size), bytes_(size + 2 * kGuard + 64, kGuardByte) {
    std::memset(data(), kPoisonByte, size_);
  }
  unsigned char* data() {
    auto address = reinterpret_cast<uintptr_t>(bytes_.data()) + kGuard;
    return reinterpret_cast<unsigned char*>((address + 63) / 64 * 64);
  }
  bool Intact() {
    const auto is_guard = [](unsigned char byte) { return byte == kGuardByte; };
    const unsigned char* begin = bytes_.data();
    const unsigned char* inside = data();
    return std::all_of(begin, inside, is_guard) &&
           std::all_of(inside + size_, begin + bytes_.size(), is_guard);
  }

 private:
  size_t size_;
  std::vector<unsigned char> bytes_;
};

CpuDevice& DeviceWith(int threads) {
  static auto* const devices = new std::map<int, std::unique_ptr<CpuDevice>>;
  std::unique_ptr<CpuDevice>& device = (*devices)[threads];
  if (device == nullptr) device = std::make_unique<CpuDevice>(CpuDeviceOptions{threads});
  return *device;
}

int64_t OuterSize(const Tensor& tensor) { return tensor.byte_size() / tensor.shape()[0]; }

}  // namespace

Tensor& Problem::operator[](absl::string_view name) {
  for (NamedTensor& input : inputs) {
    if (input.name == name) return input.tensor;
  }
  ADD_FAILURE() << "no input " << name;
  return inputs.front().tensor;
}

bool Problem::Has(absl::string_view name) const {
  return std::any_of(inputs.begin(), inputs.end(),
                     [&](const NamedTensor& input) { return input.name == name; });
}

void Problem::Set(absl::string_view name, DType dtype, Shape shape,
                  absl::Span<const double> values) {
  Tensor tensor = Tensor::FromDoubles(dtype, std::move(shape), values);
  if (Has(name)) {
    (*this)[name] = std::move(tensor);
  } else {
    inputs.push_back({std::string(name), std::move(tensor)});
  }
}

void Problem::Remove(absl::string_view name) {
  inputs.erase(std::remove_if(inputs.begin(), inputs.end(),
                              [&](const NamedTensor& input) { return input.name == name; }),
               inputs.end());
}

void Problem::Map(absl::string_view name, const std::function<double(double)>& f) {
  Tensor& tensor = (*this)[name];
  std::vector<double> values = tensor.ToDoubles();
  std::transform(values.begin(), values.end(), values.begin(), f);
  tensor = Tensor::FromDoubles(tensor.dtype(), tensor.shape(), values);
}

Problem MakeProblem(absl::string_view case_text) {
  const absl::StatusOr<OpCase> op_case = ParseCase(case_text, Catalog::Default());
  EXPECT_TRUE(op_case.ok()) << op_case.status();
  absl::StatusOr<std::vector<NamedTensor>> inputs = MakeInputs(*op_case);
  EXPECT_TRUE(inputs.ok()) << inputs.status();
  return {op_case->model, *std::move(inputs), op_case->attributes};
}

Problem InFp64(const Problem& problem) {
  Problem result{problem.model, {}, problem.attributes};
  for (const NamedTensor& input : problem.inputs) {
    const bool is_float = IsFloat(input.tensor.dtype());
    result.inputs.push_back(
        {input.name, is_float ? input.tensor.Cast(DType::kFP64) : input.tensor.Clone()});
  }
  return result;
}

Results RunGuarded(const Problem& problem, absl::string_view implementation, int threads,
                   std::vector<std::string> outputs) {
  CpuDevice& device = DeviceWith(threads);
  const std::vector<InputTensor> views = ViewsOf(problem.inputs);
  const absl::StatusOr<BoundOp> bound = Bind(*problem.model, views, problem.attributes, outputs);
  EXPECT_TRUE(bound.ok()) << bound.status();
  const absl::StatusOr<PlannedCall> call = PlanCall(*bound, device.caps(), implementation);
  EXPECT_TRUE(call.ok()) << call.status();
  Arguments arguments(bound->spec());
  // In allocations of exactly their size, so that the address sanitizer sees a read beyond.
  std::vector<std::vector<char>> input_memory;
  for (size_t i = 0; i < views.size(); ++i) {
    const TensorView& view = views[i].view;
    const auto* bytes = static_cast<const char*>(view.data);
    input_memory.emplace_back(bytes, bytes + view.meta.ByteSize());
    arguments[bound->inputs[i]] = {view.meta, input_memory.back().data()};
  }
  std::vector<GuardedBytes> memory;
  for (const Slot slot : bound->outputs) {
    const TensorMeta meta = bound->MetaOf(slot);
    memory.emplace_back(meta.ByteSize());
    arguments[slot] = {meta, memory.back().data()};
  }
  GuardedBytes workspace(call->plan->workspace_bytes());
  const std::unique_ptr<Stream> stream = *device.CreateStream();
  const absl::Status status = call->plan->Run(
      *bound, arguments, Workspace(workspace.data(), call->plan->workspace_bytes()), *stream);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(workspace.Intact()) << "wrote outside of the workspace";
  Results results;
  for (size_t i = 0; i < bound->outputs.size(); ++i) {
    EXPECT_TRUE(memory[i].Intact()) << "wrote outside of " << bound->output_names[i];
    Tensor tensor(bound->MetaOf(bound->outputs[i]));
    std::memcpy(tensor.data(), memory[i].data(), tensor.byte_size());
    results.emplace(bound->output_names[i], std::move(tensor));
  }
  return results;
}

double RelativeError(const Tensor& got, const Tensor& want, double floor) {
  const std::vector<double> a = got.ToDoubles();
  const std::vector<double> b = want.ToDoubles();
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double largest = floor;
  double error = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i])) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, std::abs(b[i]));
    error = std::max(error, std::abs(a[i] - b[i]));
  }
  return error == 0 ? 0 : error / largest;
}

std::map<std::string, double> Errors(const Results& got, const Results& want) {
  const auto is_gradient = [](const std::string& name) { return name[0] == 'd'; };
  double largest = 0;
  for (const auto& [name, tensor] : want) {
    if (!is_gradient(name)) continue;
    for (const double value : tensor.ToDoubles()) largest = std::max(largest, std::abs(value));
  }
  std::map<std::string, double> errors;
  for (const auto& [name, tensor] : want) {
    const auto it = got.find(name);
    EXPECT_NE(it, got.end()) << name;
    if (it == got.end()) continue;
    errors[name] = RelativeError(it->second, tensor, is_gradient(name) ? 1e-6 * largest : 0);
  }
  return errors;
}

void ExpectClose(const Results& got, const Results& want, double tolerance) {
  for (const auto& [name, error] : Errors(got, want)) EXPECT_LE(error, tolerance) << name;
}

bool SameBits(const Tensor& a, const Tensor& b) {
  return a.meta() == b.meta() && std::memcmp(a.data(), b.data(), a.byte_size()) == 0;
}

void ExpectSameBits(const Results& got, const Results& want) {
  EXPECT_EQ(got.size(), want.size());
  for (const auto& [name, tensor] : want) {
    const auto it = got.find(name);
    ASSERT_NE(it, got.end()) << name;
    EXPECT_TRUE(SameBits(it->second, tensor)) << name;
  }
}

Tensor Rows(const Tensor& tensor, int64_t begin, int64_t end) {
  Shape shape = tensor.shape();
  shape[0] = end - begin;
  Tensor result(tensor.dtype(), shape);
  std::memcpy(result.data(), static_cast<const char*>(tensor.data()) + begin * OuterSize(tensor),
              result.byte_size());
  return result;
}

Tensor Steps(const Tensor& tensor, int64_t begin, int64_t end) {
  Shape inner(tensor.shape().begin() + 1, tensor.shape().end());
  Tensor flat(tensor.dtype(), inner);
  std::memcpy(flat.data(), tensor.data(), tensor.byte_size());
  const Tensor cut = Rows(flat, begin, end);
  Shape shape = tensor.shape();
  shape[1] = end - begin;
  Tensor result(tensor.dtype(), shape);
  std::memcpy(result.data(), cut.data(), cut.byte_size());
  return result;
}

}  // namespace scanserve

// Doubles and helpers for tests of the server's core.
#pragma once

#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "gtest/gtest.h"
#include "kernels/runtime/planner.h"
#include "kernels/spec/op_case.h"
#include "server/call.h"
#include "spdlog/spdlog.h"

namespace scanserve {

// Holds whoever passes until it is opened.
class Gate {
 public:
  void Pass() {
    MutexLock lock(mutex_);
    ++arrived_;
    changed_.notify_all();
    while (!open_) changed_.wait(mutex_);
  }
  void WaitForArrivals(int count) {
    MutexLock lock(mutex_);
    while (arrived_ < count) changed_.wait(mutex_);
  }
  void Open() {
    MutexLock lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int arrived_ ABSL_GUARDED_BY(mutex_) = 0;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

// What the puppet plans of a test do; shared by all of them.
struct PuppetScript {
  Gate* gate = nullptr;  // passed by every run
  absl::Status status;   // of every run
  size_t workspace_bytes = 64;
  std::atomic<int> runs{0};
};

// Instead of computing, copies input u to output y; other outputs stay as they are.
class PuppetPlan final : public Plan {
 public:
  explicit PuppetPlan(PuppetScript& script) : Plan("selective_scan.puppet"), script_(script) {
    layout_.Book(script.workspace_bytes);
  }

  absl::Status Run(const BoundOp& bound, const Arguments& arguments, Workspace,
                   Stream& stream) const override {
    ++script_.runs;
    if (script_.gate != nullptr) script_.gate->Pass();
    if (!script_.status.ok()) return script_.status;
    const int u = bound.spec().FindTensor("u");
    const int y = bound.spec().FindTensor("y");
    const TensorView& from = arguments.values[u];
    if (arguments.values[y].data == nullptr) return absl::OkStatus();
    return stream.CopyToDevice(arguments.values[y].data, from.data, from.meta.ByteSize());
  }

 private:
  PuppetScript& script_;
};

inline PlannedCall PuppetCall(PuppetScript& script) {
  return {"puppet", std::make_shared<const PuppetPlan>(script)};
}

// The tensors of a call and their call.
struct TestCall {
  std::shared_ptr<std::vector<NamedTensor>> tensors;
  Call call;
};

inline TestCall MakeTestCall(const std::string& case_string) {
  const OpCase op_case = *ParseCase(case_string, Catalog::Default());
  TestCall made;
  made.tensors = std::make_shared<std::vector<NamedTensor>>(*MakeInputs(op_case));
  made.call.model = op_case.model;
  made.call.method = "ModelInfer";
  made.call.attributes = op_case.attributes;
  made.call.keep_alive = made.tensors;
  for (const NamedTensor& tensor : *made.tensors) {
    CallInput input{tensor.name, tensor.tensor.meta(), {}};
    input.payload.Append({static_cast<const char*>(tensor.tensor.data()),
                          static_cast<size_t>(tensor.tensor.byte_size())});
    made.call.request_bytes += input.payload.size;
    made.call.inputs.push_back(std::move(input));
  }
  return made;
}

inline Call SmallCall() {
  return MakeTestCall("selective_scan_fwd:fp32:batch=2,seqlen=5,dim=4,dstate=3").call;
}

// Waits for one `done`.
class Outcome {
 public:
  CallDone Done() {
    return [this](absl::Status status, CallResult result) {
      ++count_;
      promise_.set_value({std::move(status), std::move(result)});
    };
  }
  const absl::Status& status() { return Get().first; }
  CallResult& result() { return Get().second; }
  bool is_done() const { return count_ > 0; }

 private:
  std::pair<absl::Status, CallResult>& Get() {
    if (!value_) value_ = promise_.get_future().get();
    return *value_;
  }
  std::atomic<int> count_{0};
  std::promise<std::pair<absl::Status, CallResult>> promise_;
  std::optional<std::pair<absl::Status, CallResult>> value_;
};

// Takes the log lines of the process while it lives, instead of letting them go to the terminal.
class ScopedLog {
 public:
  ScopedLog();
  ~ScopedLog();
  std::string text() const { return stream_.str(); }

 private:
  std::ostringstream stream_;
  std::shared_ptr<spdlog::logger> previous_;
};

// The value of one series in Prometheus's text format, e.g. "scanserve_ready" or
// "scanserve_queue_depth{model=\"x\"}"; nullopt when it is not there.
std::optional<double> SeriesValue(const std::string& text, const std::string& series);

}  // namespace scanserve

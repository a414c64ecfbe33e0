// scanserve_demo: forward, backward and both on a running server, checked against float64 and
// timed. Prints one `name: value unit` per line; scripts/demo.sh starts the server for it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cpp/client.h"
#include "client/demo/metrics_page.h"
#include "client/scanbench/runner.h"
#include "common/clock.h"
#include "common/keep_memory.h"
#include "common/status_macros.h"
#include "kernels/io/golden.h"
#include "kernels/runtime/cpu_device.h"
#include "kernels/runtime/planner.h"
#include "kernels/spec/catalog.h"
#include "kernels/spec/op_case.h"
#include "kernels/tools/ceilings.h"
#include "scanserve/v1/kernel_service.pb.h"

namespace scanserve::demo {
namespace {

constexpr char kOp[] = "selective_scan";
// Of every tensor: max abs difference from float64 / max abs of float64.
constexpr double kTolerance = 1e-5;
constexpr int kRepeats = 9;

struct Flags {
  std::string server = "127.0.0.1:8001";
  std::string metrics = "127.0.0.1:8002";
  uint64_t seed = 7;
  int64_t batch = 2;
  int64_t seqlen = 2048;
  int64_t dim = 512;
  int64_t dstate = 16;
};

// Prints figures and remembers whether each is a number and within its bound.
class Figures {
 public:
  void Print(absl::string_view name, double value, absl::string_view unit) {
    ok_ = ok_ && std::isfinite(value);
    std::cout << absl::StrFormat("%s: %.4g%s%s\n", name, value, unit.empty() ? "" : " ", unit);
  }
  void PrintBytes(absl::string_view name, uint64_t bytes) {
    ok_ = ok_ && bytes > 0;
    std::cout << absl::StrFormat("%s: %d bytes\n", name, bytes);
  }
  void PrintError(absl::string_view name, double error) {
    Print(name, error, "");
    ok_ = ok_ && error <= kTolerance;
  }
  bool ok() const { return ok_; }

 private:
  bool ok_ = true;
};

class Demo {
 public:
  Demo(const Flags& flags, Client& client)
      : flags_(flags), client_(client), device_(CpuDeviceOptions{}) {
    settings_.options.timing = true;
  }

  absl::StatusOr<bool> Run() {
    SCANSERVE_RETURN_IF_ERROR(MakeProblem());
    SCANSERVE_RETURN_IF_ERROR(PrintHead());
    SCANSERVE_RETURN_IF_ERROR(Check());
    SCANSERVE_RETURN_IF_ERROR(Time());
    SCANSERVE_RETURN_IF_ERROR(ReadBack());
    std::cout << "result: " << (figures_.ok() ? "ok" : "FAILED") << "\n";
    return figures_.ok();
  }

 private:
  struct Figure {
    Direction direction;
    const char* name;
  };
  static constexpr Figure kDirections[] = {{Direction::kForward, "forward"},
                                           {Direction::kBackward, "backward"},
                                           {Direction::kForwardBackward, "forward_backward"}};

  static const Model& ModelOf(Direction direction) {
    return **Catalog::Default().FindModel(kOp, direction);
  }

  absl::Status MakeProblem() {
    OpCase& op_case = case_;
    op_case.model = &ModelOf(Direction::kForwardBackward);
    op_case.dims.Set("batch", flags_.batch);
    op_case.dims.Set("seqlen", flags_.seqlen);
    op_case.dims.Set("dim", flags_.dim);
    op_case.dims.Set("dstate", flags_.dstate);
    op_case.with = {"D"};
    op_case.seed = flags_.seed;
    SCANSERVE_ASSIGN_OR_RETURN(tensors_, MakeInputs(op_case));
    return absl::OkStatus();
  }

  // The tensors of the problem that a model takes.
  static std::vector<InputTensor> InputsOf(const std::vector<NamedTensor>& tensors,
                                           const Model& model) {
    std::vector<InputTensor> inputs;
    for (const NamedTensor& named : tensors) {
      if (model.FindInput(named.name) != nullptr)
        inputs.push_back({named.name, named.tensor.view()});
    }
    return inputs;
  }

  absl::Status PrintHead() {
    SCANSERVE_ASSIGN_OR_RETURN(const v1::ServerInfoResponse info, client_.ServerInfo());
    std::cout << "case: " << ToString(case_) << "\n"
              << "seed: " << flags_.seed << "\n"
              << "server: " << info.name() << " " << info.version() << " on "
              << info.device_description() << "\n"
              << "checked: every element of every output and gradient, against float64\n";
    return absl::OkStatus();
  }

  // Every element of every output and gradient against the float64 reference, computed here from
  // the same inputs: first forward, then backward, then both in one call.
  absl::Status Check() {
    std::vector<NamedTensor> doubles;
    for (const NamedTensor& named : tensors_) {
      doubles.push_back({named.name, named.tensor.Cast(DType::kFP64)});
    }
    const Model& both = ModelOf(Direction::kForwardBackward);
    SCANSERVE_ASSIGN_OR_RETURN(const LocalResult want, RunLocal(both, InputsOf(doubles, both), {},
                                                                {}, "reference", device_));
    for (const auto& [direction, name] : kDirections) {
      SCANSERVE_ASSIGN_OR_RETURN(const CallReply reply, Remote(direction));
      double worst = 0;
      for (const NamedTensor& output : want.outputs) {
        if (ModelOf(direction).FindOutput(output.name) == nullptr) continue;
        const Tensor* got = reply.Find(output.name);
        if (got == nullptr) return absl::InternalError(absl::StrCat("no output ", output.name));
        const double error = MaxRelativeError(*got, output.tensor, 0);
        worst = std::max(worst, error);
        if (direction != Direction::kForwardBackward) {
          figures_.PrintError(absl::StrCat("worst_error_", output.name), error);
        }
      }
      if (direction == Direction::kForwardBackward) {
        figures_.PrintError("worst_error_forward_backward", worst);
      }
    }
    figures_.Print("tolerance", kTolerance, "");
    return absl::OkStatus();
  }

  absl::StatusOr<CallReply> Remote(Direction direction) {
    return client_.Call(kOp, direction, InputsOf(tensors_, ModelOf(direction)), settings_);
  }

  struct Times {
    double median_ms = 0;
    double best_ms = 0;
  };

  // After one call that nobody times.
  static absl::StatusOr<Times> Repeat(const std::function<absl::Status()>& work) {
    SCANSERVE_RETURN_IF_ERROR(work());
    const SteadyClock clock;
    std::vector<double> samples;
    for (int i = 0; i < kRepeats; ++i) {
      const TimePoint start = clock.Now();
      SCANSERVE_RETURN_IF_ERROR(work());
      samples.push_back(1e3 * Seconds(clock.Now() - start));
    }
    std::sort(samples.begin(), samples.end());
    return Times{samples[kRepeats / 2], samples.front()};
  }

  absl::Status Time() {
    const std::unique_ptr<scanbench::Runner> local = scanbench::MakeEmbeddedRunner(device_);
    for (const auto& [direction, name] : kDirections) {
      CallReply reply;
      SCANSERVE_ASSIGN_OR_RETURN(const Times remote, Repeat([&, d = direction]() -> absl::Status {
                                   SCANSERVE_ASSIGN_OR_RETURN(reply, Remote(d));
                                   return absl::OkStatus();
                                 }));
      figures_.Print(absl::StrCat("remote_", name, "_ms"), remote.median_ms, "ms");
      const Model& model = ModelOf(direction);
      SCANSERVE_ASSIGN_OR_RETURN(
          const std::unique_ptr<scanbench::PreparedCall> call,
          local->Prepare(model, InputsOf(tensors_, model), {}, reply.report.implementation));
      SCANSERVE_ASSIGN_OR_RETURN(const Times in_process, Repeat([&] { return call->Run(); }));
      figures_.Print(absl::StrCat("local_", name, "_ms"), in_process.median_ms, "ms");
      // The forward call's are the ones without a prefix.
      const std::string prefix = direction == Direction::kForward ? "" : absl::StrCat(name, "_");
      figures_.PrintBytes(absl::StrCat(prefix, "request_bytes"), reply.request_bytes);
      figures_.PrintBytes(absl::StrCat(prefix, "response_bytes"), reply.response_bytes);
    }
    return CompareWithFloor(*local);
  }

  // How close a forward pass in process, of twice the batch, comes to the least time that this
  // machine could need. Both are the best of turns that alternate, for other programs may take the
  // cores meanwhile.
  absl::Status CompareWithFloor(scanbench::Runner& local) {
    OpCase op_case = case_;
    op_case.model = &ModelOf(Direction::kForward);
    op_case.dims.Set("batch", 2 * flags_.batch);
    op_case.with.clear();
    std::cout << "floor_case: " << ToString(op_case) << "\n";
    SCANSERVE_ASSIGN_OR_RETURN(const std::vector<NamedTensor> tensors, MakeInputs(op_case));
    const std::vector<InputTensor> inputs = ViewsOf(tensors);
    SCANSERVE_ASSIGN_OR_RETURN(const BoundOp bound, Bind(*op_case.model, inputs, {}, {}));
    SCANSERVE_ASSIGN_OR_RETURN(const std::unique_ptr<scanbench::PreparedCall> call,
                               local.Prepare(*op_case.model, inputs, {}, "auto"));
    ThreadArena arena(0);
    CeilingMeter meter(arena);
    Ceilings ceilings;
    double best_ms = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kRepeats; ++i) {
      ceilings = Best(ceilings, meter.Measure());
      SCANSERVE_ASSIGN_OR_RETURN(const Times times, Repeat([&] { return call->Run(); }));
      best_ms = std::min(best_ms, times.best_ms);
    }
    const double floor_ms = 1e3 * FloorSeconds(bound.TotalWork(), ceilings);
    figures_.Print("floor_forward_ms", floor_ms, "ms");
    figures_.Print("floor_fraction_forward", floor_ms / best_ms, "");
    return absl::OkStatus();
  }

  absl::Status ReadBack() {
    SCANSERVE_ASSIGN_OR_RETURN(const v1::ServerInfoResponse info, client_.ServerInfo());
    figures_.PrintBytes("device_peak_bytes", info.memory_peak_bytes());
    SCANSERVE_ASSIGN_OR_RETURN(const std::string page, FetchMetrics(flags_.metrics));
    for (const auto& [direction, name] : kDirections) {
      const std::string label = absl::StrCat("model=\"", ModelOf(direction).name, "\"");
      for (const auto& [quantile, suffix] : {std::pair(0.5, "p50"), std::pair(0.99, "p99")}) {
        SCANSERVE_ASSIGN_OR_RETURN(
            const double seconds,
            HistogramQuantile(page, "scanserve_request_duration_seconds", label, quantile));
        figures_.Print(absl::StrCat("metrics_", name, "_", suffix, "_ms"), 1e3 * seconds, "ms");
      }
    }
    return absl::OkStatus();
  }

  const Flags& flags_;
  Client& client_;
  CpuDevice device_;
  CallSettings settings_;
  OpCase case_;
  std::vector<NamedTensor> tensors_;
  Figures figures_;
};

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app(
      "Calls selective_scan on a server, checks every number and prints what it measured.");
  app.name("scanserve_demo");
  app.add_option("--server", flags.server, "Server as host:port")->capture_default_str();
  app.add_option("--metrics", flags.metrics, "Its metrics page as host:port")
      ->capture_default_str();
  app.add_option("--seed", flags.seed, "Of the input values")->capture_default_str();
  for (const auto& [name, target] :
       {std::pair("--batch", &flags.batch), std::pair("--seqlen", &flags.seqlen),
        std::pair("--dim", &flags.dim), std::pair("--dstate", &flags.dstate)}) {
    app.add_option(name, *target, "Size of this axis")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  KeepMemory();
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(flags.server);
  if (!client.ok()) {
    std::cerr << "scanserve_demo: " << client.status() << "\n";
    return 1;
  }
  const absl::StatusOr<bool> ok = Demo(flags, **client).Run();
  if (!ok.ok()) {
    std::cerr << "scanserve_demo: " << ok.status() << "\n";
    return 1;
  }
  return *ok ? 0 : 1;
}

}  // namespace
}  // namespace scanserve::demo

int main(int argc, char** argv) { return scanserve::demo::Main(argc, argv); }

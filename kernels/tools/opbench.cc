// opbench: times case strings in this process, in turn with the machine's own ceilings.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "kernels/runtime/cpu_device.h"
#include "kernels/runtime/planner.h"
#include "kernels/spec/op_case.h"
#include "kernels/tools/ceilings.h"
#include "nlohmann/json.hpp"

namespace scanserve {
namespace {

struct Options {
  std::vector<std::string> cases;
  std::string implementations;  // empty: the one that each case names
  int threads = 0;
  int repeats = 30;
  bool json = false;
};

// One case by one implementation, ready to run again and again.
class Run {
 public:
  static absl::StatusOr<Run> Make(const OpCase& op_case, absl::string_view implementation,
                                  CpuDevice& device) {
    SCANSERVE_ASSIGN_OR_RETURN(std::vector<NamedTensor> inputs, MakeInputs(op_case));
    const std::vector<InputTensor> views = ViewsOf(inputs);
    SCANSERVE_ASSIGN_OR_RETURN(BoundOp bound, Bind(*op_case.model, views, op_case.attributes, {}));
    SCANSERVE_ASSIGN_OR_RETURN(PlannedCall call, PlanCall(bound, device.caps(), implementation));
    Run run(std::move(bound), std::move(call));
    for (size_t i = 0; i < views.size(); ++i) {
      SCANSERVE_ASSIGN_OR_RETURN(void* data, run.Place(run.bound_.inputs[i], device));
      std::memcpy(data, views[i].view.data, views[i].view.meta.ByteSize());
    }
    for (const Slot slot : run.bound_.outputs) {
      SCANSERVE_RETURN_IF_ERROR(run.Place(slot, device).status());
    }
    SCANSERVE_ASSIGN_OR_RETURN(run.workspace_,
                               device.pool().Allocate(run.call_.plan->workspace_bytes()));
    SCANSERVE_ASSIGN_OR_RETURN(run.stream_, device.CreateStream());
    return run;
  }

  // Runs once and keeps the time.
  absl::Status Time() {
    const auto start = std::chrono::steady_clock::now();
    SCANSERVE_RETURN_IF_ERROR(call_.plan->Run(
        bound_, arguments_, Workspace(workspace_.data(), workspace_.size()), *stream_));
    SCANSERVE_RETURN_IF_ERROR(stream_->Synchronize());
    seconds_.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    return absl::OkStatus();
  }

  // The time below which `fraction` of the runs lie.
  double Quantile(double fraction) const {
    std::vector<double> sorted = seconds_;
    std::sort(sorted.begin(), sorted.end());
    return sorted[static_cast<size_t>(fraction * static_cast<double>(sorted.size() - 1))];
  }

  std::string CaseName() const { return CaseString(bound_, call_.implementation, "cpu"); }
  const std::string& implementation() const { return call_.implementation; }
  Work work() const { return bound_.TotalWork(); }
  size_t workspace_bytes() const { return call_.plan->workspace_bytes(); }

 private:
  Run(BoundOp bound, PlannedCall call)
      : bound_(std::move(bound)), call_(std::move(call)), arguments_(bound_.spec()) {}

  // Memory from the device's pool, as the server would take it.
  absl::StatusOr<void*> Place(Slot slot, CpuDevice& device) {
    const TensorMeta meta = bound_.MetaOf(slot);
    SCANSERVE_ASSIGN_OR_RETURN(Buffer buffer, device.pool().Allocate(meta.ByteSize()));
    arguments_[slot] = {meta, buffer.data()};
    buffers_.push_back(std::move(buffer));
    return buffers_.back().data();
  }

  BoundOp bound_;
  PlannedCall call_;
  Arguments arguments_;
  std::vector<Buffer> buffers_;
  Buffer workspace_;
  std::unique_ptr<Stream> stream_;
  std::vector<double> seconds_;
};

absl::StatusOr<std::vector<Run>> MakeRuns(const Options& options, CpuDevice& device) {
  std::vector<Run> runs;
  for (const std::string& text : options.cases) {
    SCANSERVE_ASSIGN_OR_RETURN(const OpCase op_case, ParseCase(text, Catalog::Default()));
    std::vector<std::string> names = {op_case.implementation};
    if (!options.implementations.empty()) names = absl::StrSplit(options.implementations, ',');
    for (const std::string& name : names) {
      SCANSERVE_ASSIGN_OR_RETURN(Run run, Run::Make(op_case, name, device));
      runs.push_back(std::move(run));
    }
  }
  return runs;
}

void PrintText(const std::vector<Run>& runs, const Ceilings& ceilings, int threads) {
  std::printf("ceilings, %d threads: %.1f G multiply-adds/s, %.2f G exp/s, %.1f GB/s copied\n",
              threads, ceilings.fma_slots_per_s / 1e9, ceilings.exps_per_s / 1e9,
              ceilings.copy_bytes_per_s / 1e9);
  std::printf("%10s %10s %10s %10s %8s %12s %10s %9s  %s\n", "best ms", "quartile", "median",
              "quartile", "GB", "workspace MB", "floor ms", "of floor", "case");
  for (const Run& run : runs) {
    const double floor = FloorSeconds(run.work(), ceilings);
    std::printf("%10.3f %10.3f %10.3f %10.3f %8.3f %12.2f %10.3f %9.2f  %s\n",
                run.Quantile(0) * 1e3, run.Quantile(0.25) * 1e3, run.Quantile(0.5) * 1e3,
                run.Quantile(0.75) * 1e3, run.work().bytes / 1e9,
                static_cast<double>(run.workspace_bytes()) / 1e6, floor * 1e3,
                floor / run.Quantile(0), run.CaseName().c_str());
  }
}

void PrintJson(const std::vector<Run>& runs, const Ceilings& ceilings, int threads) {
  for (const Run& run : runs) {
    const double floor = FloorSeconds(run.work(), ceilings);
    const nlohmann::json line = {{"case", run.CaseName()},
                                 {"implementation", run.implementation()},
                                 {"threads", threads},
                                 {"best_ms", run.Quantile(0) * 1e3},
                                 {"quartile1_ms", run.Quantile(0.25) * 1e3},
                                 {"median_ms", run.Quantile(0.5) * 1e3},
                                 {"quartile3_ms", run.Quantile(0.75) * 1e3},
                                 {"bytes", run.work().bytes},
                                 {"workspace_bytes", run.workspace_bytes()},
                                 {"floor_ms", floor * 1e3},
                                 {"fraction_of_floor", floor / run.Quantile(0)},
                                 {"fma_slots_per_s", ceilings.fma_slots_per_s},
                                 {"exps_per_s", ceilings.exps_per_s},
                                 {"copy_bytes_per_s", ceilings.copy_bytes_per_s}};
    std::printf("%s\n", line.dump().c_str());
  }
}

absl::Status Bench(const Options& options) {
  CpuDevice device({.num_threads = options.threads});
  ThreadArena arena(device.caps().num_threads);
  CeilingMeter meter(arena);
  SCANSERVE_ASSIGN_OR_RETURN(std::vector<Run> runs, MakeRuns(options, device));
  Ceilings ceilings;
  for (int i = 0; i < options.repeats; ++i) {
    ceilings = Best(ceilings, meter.Measure());
    for (Run& run : runs) SCANSERVE_RETURN_IF_ERROR(run.Time());
  }
  (options.json ? PrintJson : PrintText)(runs, ceilings, device.caps().num_threads);
  return absl::OkStatus();
}

}  // namespace
}  // namespace scanserve

int main(int argc, char** argv) {
  scanserve::Options options;
  CLI::App app{"Times operators on this machine's CPU, in turn with the machine's ceilings"};
  app.add_option("case", options.cases,
                 "case strings, e.g. selective_scan_fwd:fp32:batch=4,seqlen=2048,dim=512,dstate=16")
      ->required();
  app.add_option("--threads", options.threads, "threads, 0 for one per core")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--repeats", options.repeats, "rounds; each times every case once")
      ->check(CLI::PositiveNumber);
  app.add_option("--implementations", options.implementations,
                 "comma-separated names, each run on every case");
  app.add_flag("--json", options.json, "one JSON line per row");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (const absl::Status status = scanserve::Bench(options); !status.ok()) {
    std::fprintf(stderr, "opbench: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  return 0;
}

// scanbench: runs the field's benchmark matrix, in this process or on a server.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/scanbench/matrix.h"
#include "client/scanbench/published.h"
#include "client/scanbench/report.h"
#include "common/keep_memory.h"
#include "kernels/runtime/cpu_device.h"
#include "kernels/runtime/implementation.h"
#include "kernels/spec/catalog.h"

namespace scanserve::scanbench {
namespace {

enum ExitCode { kOk = 0, kNotStable = 2, kBadOption = 3, kOther = 99 };

struct Flags {
  MatrixOptions matrix;
  std::string family = "selective_scan";
  bool quick = false;
  bool no_check = false;
  int threads = 0;
  std::string server;
  std::string protocol = "kernel";
  std::string json;
  std::string compare;
};

void AddMatrixFlags(CLI::App& app, Flags& flags) {
  MatrixOptions& matrix = flags.matrix;
  app.add_option("--family", flags.family, "Operator, by our or its published name (mamba)")
      ->capture_default_str();
  app.add_option("--mode", matrix.modes, "fwd, fwd_bwd")
      ->delimiter(',')
      ->check(CLI::IsMember({"fwd", "fwd_bwd"}))
      ->capture_default_str();
  app.add_option("--seq", matrix.seqs, "Sequence lengths")
      ->delimiter(',')
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--dim", matrix.dims, "Channels")
      ->delimiter(',')
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--impl", matrix.implementations,
                 "Implementations, by our or their published names (scan, assoc, chunked, pallas); "
                 "all: every one of this build. Default: all but reference")
      ->delimiter(',');
  app.add_option("--batch", matrix.batch, "Batch")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--state", matrix.state, "State size per channel")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--samples", matrix.samples, "Samples per row")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--max-spread", matrix.max_spread,
                 "(q3 - q1) / median above which a row is not stable")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--quick", flags.quick, "Only seq 512 and dim 256, unless given; 3 short samples");
  app.add_flag("--no-check", flags.no_check, "Do not compare with the float64 reference");
  app.add_option("--threads", flags.threads, "Threads in process; 0: one per core")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--server", flags.server, "Measure a server (host:port) instead of this process");
  app.add_option("--protocol", flags.protocol, "To the server: kernel or oip")
      ->check(CLI::IsMember({"kernel", "oip"}))
      ->capture_default_str();
  app.add_option("--json", flags.json, "Write one JSON line per row to this file");
  app.add_option("--compare", flags.compare, "Show the published rows of this file beside ours")
      ->check(CLI::ExistingFile);
}

std::vector<std::string> NamesOf(const std::string& op) {
  std::vector<std::string> names;
  for (const Implementation* implementation : ImplementationsOf(op)) {
    names.emplace_back(implementation->name());
  }
  return names;
}

// Published words become ours and defaults are filled in. INVALID_ARGUMENT: a bad option.
absl::Status Resolve(const CLI::App& app, Flags& flags) {
  MatrixOptions& matrix = flags.matrix;
  matrix.op = OurFamily(flags.family);
  if (!Catalog::Default().FindOp(matrix.op).ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--family: unknown family '", flags.family, "'"));
  }
  const std::vector<std::string> known = NamesOf(matrix.op);
  std::vector<std::string> chosen;
  for (const std::string& name : matrix.implementations) {
    if (name == "all") {
      chosen.insert(chosen.end(), known.begin(), known.end());
      continue;
    }
    const std::string ours = OurImplementation(name);
    if (std::find(known.begin(), known.end(), ours) == known.end() &&
        PublishedImplementation(ours).empty()) {
      return absl::InvalidArgumentError(absl::StrCat("--impl: unknown implementation '", name,
                                                     "', this build has ",
                                                     absl::StrJoin(known, ", ")));
    }
    chosen.push_back(ours);
  }
  if (chosen.empty()) {
    std::copy_if(known.begin(), known.end(), std::back_inserter(chosen),
                 [](const std::string& name) { return name != "reference"; });
  }
  matrix.implementations = std::move(chosen);
  matrix.check = !flags.no_check;
  if (flags.quick) {
    if (app.count("--seq") == 0) matrix.seqs = {512};
    if (app.count("--dim") == 0) matrix.dims = {256};
    if (app.count("--samples") == 0) matrix.samples = 3;
    matrix.sample_ms = 5;
  }
  return absl::OkStatus();
}

// Progress is for a person who waits; files and pipes do not get it.
void ShowProgress(const MatrixRow& row) {
  if (isatty(STDERR_FILENO) == 0) return;
  std::cerr << "\r\033[K";
  if (row.inner == 0 && row.status.ok()) {
    std::cerr << row.implementation << " " << row.mode << " seq " << row.seq << " dim " << row.dim
              << " ..." << std::flush;
  }
}

int Fail(const absl::Status& status, int code) {
  std::cerr << "scanbench: " << status.message() << "\n";
  return code;
}

// A call that is legal but cannot run here is a result like the published "out of memory", and so
// is a published implementation that this build lacks; any other failure is not.
int ExitCodeOf(const std::string& op, const std::vector<MatrixRow>& rows) {
  const std::vector<std::string> known = NamesOf(op);
  bool measured = false;
  bool stable = true;
  for (const MatrixRow& row : rows) {
    if (row.status.ok()) {
      measured = true;
      stable = stable && row.stable;
    } else if (std::find(known.begin(), known.end(), row.implementation) != known.end() &&
               !absl::IsUnimplemented(row.status) && !absl::IsResourceExhausted(row.status)) {
      return kOther;
    }
  }
  if (!measured) return kOther;
  return stable ? kOk : kNotStable;
}

int RunMatrixCommand(const CLI::App& app, Flags& flags) {
  if (const absl::Status status = Resolve(app, flags); !status.ok()) {
    return Fail(status, kBadOption);
  }
  std::vector<PublishedRow> published;
  if (!flags.compare.empty()) {
    absl::StatusOr<std::vector<PublishedRow>> rows = ReadPublishedRows(flags.compare);
    if (!rows.ok()) return Fail(rows.status(), kBadOption);
    published = *std::move(rows);
  }
  std::ofstream json;
  if (!flags.json.empty()) {
    json.open(flags.json, std::ios::trunc);
    if (!json)
      return Fail(absl::UnavailableError("--json: cannot write " + flags.json), kBadOption);
  }
  CpuDevice device(CpuDeviceOptions{.num_threads = flags.threads});
  std::unique_ptr<Runner> runner = MakeEmbeddedRunner(device);
  if (!flags.server.empty()) {
    const absl::StatusOr<Protocol> protocol = ParseProtocol(flags.protocol);
    absl::StatusOr<std::unique_ptr<Runner>> remote = MakeServerRunner(flags.server, *protocol);
    if (!remote.ok()) return Fail(remote.status(), kOther);
    runner = *std::move(remote);
  }
  const std::vector<MatrixRow> rows = RunMatrix(flags.matrix, *runner, device, ShowProgress);
  const Setting setting = {flags.matrix.op, runner->device(), runner->transport()};
  PrintTable(setting, rows, std::cout);
  if (!published.empty()) PrintComparison(setting, rows, published, std::cout);
  if (json.is_open()) {
    PrintJsonLines(setting, rows, json);
    json.close();
    if (!json) return Fail(absl::UnavailableError("--json: cannot write " + flags.json), kOther);
  }
  return ExitCodeOf(flags.matrix.op, rows);
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Runs the field's published benchmark matrix, in this process or on a server.");
  app.name("scanbench");
  app.require_subcommand(1);
  CLI::App* matrix = app.add_subcommand(
      "matrix", "Measure an operator over modes, lengths, dimensions and implementations");
  AddMatrixFlags(*matrix, flags);
  app.footer("Exit codes: 0 ok, 2 a row is not stable, 3 bad option, 99 any other failure.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kOk : kBadOption;
  }
  KeepMemory();
  return RunMatrixCommand(*matrix, flags);
}

}  // namespace
}  // namespace scanserve::scanbench

int main(int argc, char** argv) { return scanserve::scanbench::Main(argc, argv); }

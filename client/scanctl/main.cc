// scanctl: asks a server what it can do, runs single calls on it and verifies its results.
#include <CLI/CLI.hpp>
#include <functional>
#include <iostream>

#include "client/scanctl/commands.h"
#include "common/keep_memory.h"
#include "common/version.h"
#include "kernels/spec/catalog.h"

namespace scanserve::scanctl {
namespace {

using Command = std::function<absl::StatusOr<int>()>;

struct Flags {
  ServerFlags server;
  std::string op;
  std::string service;
  RunFlags run;
  VerifyFlags verify;
  std::string op_case;
  std::string folder;
};

void AddRun(CLI::App& app, Flags& flags, Command& chosen) {
  CLI::App* run = app.add_subcommand("run", "Run one call on tensors from a file");
  run->add_option("MODEL", flags.run.model, "Model, e.g. selective_scan_fwd")
      ->required()
      ->check([](const std::string& name) {
        return std::string(Catalog::Default().FindModel(name).status().message());
      });
  run->add_option("--inputs", flags.run.inputs, "Input tensors (.safetensors)")
      ->required()
      ->check(CLI::ExistingFile);
  run->add_option("--outputs", flags.run.outputs, "Where to write the outputs (.safetensors)");
  run->add_option("--attr", flags.run.attributes, "Attribute as name=value; may be repeated")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->check([](const std::string& text) {
        return text.find('=') > 0 && text.find('=') != std::string::npos
                   ? std::string()
                   : "'" + text + "' is not name=value";
      });
  run->add_option("--implementation", flags.run.implementation, "Implementation to run")
      ->capture_default_str();
  run->add_option("--timeout-ms", flags.run.timeout_ms, "Time limit of the call; 0: none")
      ->check(CLI::NonNegativeNumber);
  run->add_flag("--timing", flags.run.timing, "Print where the time went");
  run->callback(
      [&flags, &chosen] { chosen = [&flags] { return Run(flags.server, flags.run, std::cout); }; });
}

void AddVerify(CLI::App& app, Flags& flags, Command& chosen) {
  CLI::App* verify = app.add_subcommand(
      "verify", "Replay golden vectors in every direction and compare within the tolerances");
  verify->add_option("GOLDEN", flags.verify.files, "Golden vectors (.safetensors)")
      ->required()
      ->check(CLI::ExistingFile);
  verify->add_option("--dtype", flags.verify.dtype, "Element type to send")
      ->check(CLI::IsMember({"FP32", "FP64"}, CLI::ignore_case))
      ->capture_default_str();
  verify->add_option("--implementation", flags.verify.implementation,
                     "Implementation to verify (default: auto; reference for FP64)");
  verify
      ->add_option("--tolerances", flags.verify.tolerances,
                   "Tolerances (default: tolerances.json beside each file)")
      ->check(CLI::ExistingFile);
  verify->add_flag("--json", flags.verify.json, "One JSON line per tensor");
  verify->callback([&flags, &chosen] {
    chosen = [&flags] { return Verify(flags.server, flags.verify, std::cout); };
  });
}

void AddQueries(CLI::App& app, Flags& flags, Command& chosen) {
  app.add_subcommand("list", "List the operators of the server")->callback([&flags, &chosen] {
    chosen = [&flags] { return List(flags.server, std::cout); };
  });
  CLI::App* describe = app.add_subcommand("describe", "Print the contract of operators");
  describe->add_option("OP", flags.op, "Operator (default: all)");
  describe->callback([&flags, &chosen] {
    chosen = [&flags] { return DescribeOp(flags.server, flags.op, std::cout); };
  });
  CLI::App* health = app.add_subcommand("health", "Exit 0 when the server is SERVING");
  health->add_option("SERVICE", flags.service, "Service (default: the server as a whole)");
  health->callback([&flags, &chosen] {
    chosen = [&flags] { return Health(flags.server, flags.service, std::cout); };
  });
  app.add_subcommand("version", "Print the version of scanctl")->callback([&chosen] {
    chosen = []() -> absl::StatusOr<int> {
      std::cout << "scanctl " << kVersion << " (" << kCommit << ")\n";
      return kOk;
    };
  });
}

void AddExport(CLI::App& app, Flags& flags, Command& chosen) {
  CLI::App* perf = app.add_subcommand(
      "export-perf-data", "Write valid inputs for perf_analyzer and print its command line");
  perf->add_option("CASE", flags.op_case,
                   "Case, e.g. selective_scan_fwd:fp32:batch=2,seqlen=128,dim=64,dstate=16")
      ->required();
  perf->add_option("DIR", flags.folder, "Folder to write to; made if missing")->required();
  perf->callback([&flags, &chosen] {
    chosen = [&flags]() -> absl::StatusOr<int> {
      const auto code = ExportPerfData(flags.server, flags.op_case, flags.folder, std::cout);
      if (!absl::IsInvalidArgument(code.status())) return code;
      std::cerr << "scanctl: " << code.status().message() << "\n";
      return kUsage;  // no server is involved: the case itself is wrong
    };
  });
}

int Main(int argc, char** argv) {
  Flags flags;
  Command chosen;
  CLI::App app(
      "Asks a scanserve server what it can do, runs calls on it and verifies its results.");
  app.name("scanctl");
  app.require_subcommand(1);
  app.fallthrough();  // the options below may follow the command
  app.add_option("--server", flags.server.address, "Server as host:port")->capture_default_str();
  app.add_option("--protocol", flags.server.protocol,
                 "kernel (scanserve.v1) or oip (Open Inference Protocol)")
      ->check(CLI::IsMember({"kernel", "oip"}))
      ->capture_default_str();
  AddQueries(app, flags, chosen);
  AddRun(app, flags, chosen);
  AddVerify(app, flags, chosen);
  AddExport(app, flags, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kOk : kUsage;
  }
  KeepMemory();
  const absl::StatusOr<int> code = chosen();
  if (code.ok()) return *code;
  std::cerr << "scanctl: " << code.status() << "\n";
  return kFailed;
}

}  // namespace
}  // namespace scanserve::scanctl

int main(int argc, char** argv) { return scanserve::scanctl::Main(argc, argv); }

// run: one call on tensors from a file.
#include "absl/strings/str_format.h"
#include "client/scanctl/commands.h"
#include "common/status_macros.h"
#include "kernels/io/safetensors.h"
#include "kernels/spec/catalog.h"
#include "kernels/spec/op_case.h"

namespace scanserve::scanctl {
namespace {

double Milliseconds(uint64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-6; }

void PrintReply(const CallReply& reply, bool timing, std::ostream& out) {
  for (const NamedTensor& output : reply.outputs) {
    out << absl::StrFormat("%-14s %s %s\n", output.name, NameOf(output.tensor.dtype()),
                           ToString(output.tensor.shape()));
  }
  out << absl::StrFormat("%.3f ms, %d bytes sent, %d bytes received\n",
                         Milliseconds(static_cast<uint64_t>(reply.round_trip.count())),
                         reply.request_bytes, reply.response_bytes);
  if (!timing) return;
  const CallReport& report = reply.report;
  out << absl::StrFormat("implementation   %s\n", report.implementation);
  out << absl::StrFormat("queue            %.3f ms\n", Milliseconds(report.queue_ns));
  out << absl::StrFormat("to the device    %.3f ms\n", Milliseconds(report.h2d_ns));
  out << absl::StrFormat("compute          %.3f ms\n", Milliseconds(report.compute_ns));
  out << absl::StrFormat("from the device  %.3f ms\n", Milliseconds(report.d2h_ns));
  out << absl::StrFormat("cold start       %.3f ms\n", Milliseconds(report.cold_start_ns));
  out << absl::StrFormat("workspace        %d bytes\n", report.workspace_bytes);
  out << absl::StrFormat("device peak      %d bytes\n", report.peak_bytes);
}

}  // namespace

absl::StatusOr<int> Run(const ServerFlags& server, const RunFlags& flags, std::ostream& out) {
  SCANSERVE_ASSIGN_OR_RETURN(const Model* model, Catalog::Default().FindModel(flags.model));
  SCANSERVE_ASSIGN_OR_RETURN(const TensorFile inputs, ReadSafetensors(flags.inputs));
  CallSettings settings;
  for (const std::string& attribute : flags.attributes) {
    const size_t equals = attribute.find('=');
    settings.attributes[attribute.substr(0, equals)] = attribute.substr(equals + 1);
  }
  settings.options.implementation = flags.implementation;
  settings.options.timing = flags.timing;
  settings.timeout = std::chrono::milliseconds(flags.timeout_ms);

  SCANSERVE_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, server.Connect());
  SCANSERVE_ASSIGN_OR_RETURN(
      const CallReply reply,
      client->Call(model->spec->name, model->direction, ViewsOf(inputs.tensors), settings));
  if (!flags.outputs.empty()) {
    SCANSERVE_RETURN_IF_ERROR(
        WriteSafetensors(flags.outputs, {{"model", model->name}}, reply.outputs));
  }
  PrintReply(reply, flags.timing, out);
  return kOk;
}

}  // namespace scanserve::scanctl

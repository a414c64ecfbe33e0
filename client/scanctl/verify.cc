// verify: golden vectors through a server.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/scanctl/commands.h"
#include "common/status_macros.h"
#include "kernels/io/golden.h"
#include "kernels/spec/catalog.h"
#include "kernels/spec/op_case.h"

namespace scanserve::scanctl {
namespace {

struct Totals {
  int calls = 0;
  int tensors = 0;
  int failures = 0;
  int skipped = 0;         // files
  double worst_share = 0;  // largest error as a part of its tolerance
};

std::string TolerancesBeside(const std::string& file) {
  const size_t slash = file.find_last_of('/');
  return absl::StrCat(slash == std::string::npos ? "" : file.substr(0, slash + 1),
                      "tolerances.json");
}

class Verifier {
 public:
  Verifier(const ServerFlags& server, const VerifyFlags& flags, Client& client, DType dtype,
           std::ostream& out)
      : server_(server), flags_(flags), client_(client), dtype_(dtype), out_(out) {
    settings_.options.implementation = flags.implementation;
    if (flags.implementation.empty()) {
      settings_.options.implementation = dtype == DType::kFP64 ? "reference" : "auto";
    }
  }

  absl::Status VerifyFile(const std::string& file) {
    SCANSERVE_ASSIGN_OR_RETURN(const GoldenCase golden, ReadGolden(file));
    SCANSERVE_ASSIGN_OR_RETURN(
        const Tolerances tolerances,
        Tolerances::Read(flags_.tolerances.empty() ? TolerancesBeside(file) : flags_.tolerances));
    if (!Catalog::Default().FindOp(golden.op).ok()) {
      ++totals_.skipped;
      if (!flags_.json) {
        out_ << golden.name << "  skipped: no operator '" << golden.op << "' in this build\n";
      }
      return absl::OkStatus();
    }
    for (const Direction direction : kAllDirections) {
      SCANSERVE_RETURN_IF_ERROR(VerifyDirection(golden, tolerances, direction));
    }
    return absl::OkStatus();
  }

  const Totals& totals() const { return totals_; }

 private:
  absl::Status VerifyDirection(const GoldenCase& golden, const Tolerances& tolerances,
                               Direction direction) {
    SCANSERVE_ASSIGN_OR_RETURN(const Model* model,
                               Catalog::Default().FindModel(golden.op, direction));
    const std::vector<NamedTensor> inputs = GoldenInputs(golden, *model, dtype_);
    settings_.attributes = golden.attributes;
    const absl::StatusOr<CallReply> reply =
        client_.Call(golden.op, direction, ViewsOf(inputs), settings_);
    if (!reply.ok()) {
      return absl::Status(reply.status().code(), absl::StrCat(golden.name, " ", model->name, ": ",
                                                              reply.status().message()));
    }
    ++totals_.calls;
    const std::vector<TensorError> table =
        CheckGolden(golden, tolerances, *model, dtype_, reply->outputs);
    if (!flags_.json) {
      out_ << absl::StrFormat("%-32s %-24s %s\n", golden.name, model->name,
                              reply->report.implementation);
    }
    for (const TensorError& row : table) Count(golden, *model, reply->report.implementation, row);
    return absl::OkStatus();
  }

  void Count(const GoldenCase& golden, const Model& model, const std::string& implementation,
             const TensorError& row) {
    ++totals_.tensors;
    if (!row.ok) ++totals_.failures;
    totals_.worst_share = std::max(totals_.worst_share, row.error / row.tolerance);
    if (!flags_.json) {
      out_ << absl::StrFormat("  %-16s %9.2e  of %.1e  %s\n", row.tensor, row.error, row.tolerance,
                              row.ok ? "ok" : "BEYOND TOLERANCE");
      return;
    }
    const nlohmann::json line = {
        {"golden", golden.name},
        {"model", model.name},
        {"dtype", std::string(NameOf(dtype_))},
        {"protocol", server_.protocol},
        {"implementation", implementation},
        {"tensor", row.tensor},
        // JSON has no infinity: an error that is not finite is null.
        {"error", std::isfinite(row.error) ? nlohmann::json(row.error) : nlohmann::json()},
        {"tolerance", row.tolerance},
        {"ok", row.ok}};
    out_ << line.dump() << "\n";
  }

  const ServerFlags& server_;
  const VerifyFlags& flags_;
  Client& client_;
  const DType dtype_;
  std::ostream& out_;
  CallSettings settings_;
  Totals totals_;
};

}  // namespace

absl::StatusOr<int> Verify(const ServerFlags& server, const VerifyFlags& flags, std::ostream& out) {
  SCANSERVE_ASSIGN_OR_RETURN(const DType dtype, ParseDType(flags.dtype));
  SCANSERVE_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, server.Connect());
  Verifier verifier(server, flags, *client, dtype, out);
  for (const std::string& file : flags.files) {
    SCANSERVE_RETURN_IF_ERROR(verifier.VerifyFile(file));
  }
  const Totals& totals = verifier.totals();
  if (!flags.json) {
    out << absl::StrFormat(
        "%d calls, %d tensors, %d beyond tolerance, %d files skipped; "
        "largest error is %.2g of its tolerance\n",
        totals.calls, totals.tensors, totals.failures, totals.skipped, totals.worst_share);
  }
  // Nothing compared is nothing verified.
  return totals.failures == 0 && totals.tensors > 0 ? kOk : kFailed;
}

}  // namespace scanserve::scanctl

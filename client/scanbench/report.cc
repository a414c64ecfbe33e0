#include "client/scanbench/report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/version.h"

namespace scanserve::scanbench {
namespace {

double Mebibytes(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

std::string NameOf(const MatrixRow& row) {
  return WithPublished(row.implementation, PublishedImplementation(row.implementation));
}

// A number that JSON can hold, or null.
nlohmann::json Finite(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json();
}

void PrintHeading(const Setting& setting, std::ostream& out) {
  out << WithPublished(setting.op, PublishedFamily(setting.op)) << ", FP32, on " << setting.device
      << ", " << (setting.transport == "embedded" ? "in process" : "over " + setting.transport)
      << "\n\n";
}

std::string Cell(const std::optional<PublishedRow>& row) {
  if (!row) return "-";
  if (!row->median_ms) return "failed";
  return absl::StrFormat("%.4g%s", *row->median_ms, row->dtype_stated ? "" : "*");
}

std::optional<PublishedRow> Match(const MatrixRow& row, const std::string& op,
                                  const std::string& device,
                                  const std::vector<PublishedRow>& published) {
  for (const PublishedRow& other : published) {
    if (other.device == device && other.family == op &&
        other.implementation == row.implementation && other.mode == row.mode &&
        other.dtype == "float32" && other.batch == row.batch && other.seq == row.seq &&
        other.dim == row.dim && other.state == row.state) {
      return other;
    }
  }
  return std::nullopt;
}

}  // namespace

void PrintTable(const Setting& setting, const std::vector<MatrixRow>& rows, std::ostream& out) {
  PrintHeading(setting, out);
  out << absl::StrFormat("%-26s %-7s %5s %5s %5s %5s %9s %5s %9s %9s %9s %8s %8s %8s %8s %8s\n",
                         "impl", "mode", "batch", "seq", "dim", "state", "compile_s", "inner",
                         "median_ms", "q1_ms", "q3_ms", "temp_mb", "arg_mb", "out_mb", "peak_mb",
                         "rel_err");
  for (const MatrixRow& row : rows) {
    out << absl::StrFormat("%-26s %-7s %5d %5d %5d %5d ", NameOf(row), row.mode, row.batch, row.seq,
                           row.dim, row.state);
    if (!row.status.ok()) {
      out << "failed: " << row.status.ToString() << "\n";
      continue;
    }
    const Footprint& bytes = row.footprint;
    out << absl::StrFormat("%9.4f %5d %9.4g %9.4g %9.4g %8.2f %8.2f %8.2f %8.2f ", row.compile_s,
                           row.inner, row.median_ms, row.q1_ms, row.q3_ms, Mebibytes(bytes.temp),
                           Mebibytes(bytes.arguments), Mebibytes(bytes.outputs),
                           Mebibytes(bytes.peak));
    out << (row.rel_err < 0 ? absl::StrFormat("%8s", "-") : absl::StrFormat("%8.1e", row.rel_err))
        << (row.stable ? "\n" : "  not stable\n");
  }
  out << "\n"
         "compile_s  cold start: planning, allocation and the first call (published: first "
         "compilation)\n"
         "median_ms  of samples of `inner` calls each"
      << (setting.transport == "embedded" ? ", planned and allocated before"
                                          : ", round trips with transport")
      << "\n"
         "fwd        returns y alone. fwd_bwd returns the gradients of all inputs and no y, as "
         "published;\n"
         "           ours takes the upstream gradient dy besides (counted in arg_mb), theirs is "
         "of a scalar loss\n"
         "memory     in MiB: temp = workspace, peak = device memory of the call; nothing is kept "
         "between\n"
         "           forward and backward (residual_mb 0)\n"
         "rel_err    worst tensor against our float64 reference: max abs difference / max abs "
         "(published: against `scan`)\n";
}

void PrintJsonLines(const Setting& setting, const std::vector<MatrixRow>& rows, std::ostream& out) {
  for (const MatrixRow& row : rows) {
    nlohmann::ordered_json line = {
        {"record", absl::StrCat("scanserve ", kVersion)},
        {"device", setting.device},
        {"transport", setting.transport},
        {"family", setting.op},
        {"family_published", std::string(PublishedFamily(setting.op))},
        {"impl", row.implementation},
        {"impl_published", std::string(PublishedImplementation(row.implementation))},
        {"mode", row.mode},
        {"kind", "time"},
        {"dtype", "float32"},
        {"batch", row.batch},
        {"seq", row.seq},
        {"dim", row.dim},
        {"state", row.state}};
    if (row.status.ok()) {
      line["compile_s"] = row.compile_s;
      line["inner"] = row.inner;
      line["median_ms"] = row.median_ms;
      line["q1_ms"] = row.q1_ms;
      line["q3_ms"] = row.q3_ms;
      line["temp_mb"] = Mebibytes(row.footprint.temp);
      line["arg_mb"] = Mebibytes(row.footprint.arguments);
      line["out_mb"] = Mebibytes(row.footprint.outputs);
      line["residual_mb"] = 0.0;
      line["peak_mb"] = Mebibytes(row.footprint.peak);
      line["rel_err"] = row.rel_err < 0 ? nlohmann::json() : Finite(row.rel_err);
      line["stable"] = row.stable;
    } else {
      line["error"] = row.status.ToString();
    }
    out << line.dump() << "\n";
  }
}

void PrintComparison(const Setting& setting, const std::vector<MatrixRow>& rows,
                     const std::vector<PublishedRow>& published, std::ostream& out) {
  std::vector<std::string> devices;
  for (const PublishedRow& row : published) {
    if (row.family == setting.op &&
        std::find(devices.begin(), devices.end(), row.device) == devices.end()) {
      devices.push_back(row.device);
    }
  }
  out << "\nmedian_ms beside the published rows. The devices differ: this compares machines as "
         "much as code.\n\n";
  out << absl::StrFormat("%-26s %-7s %5s %5s  %s", "impl", "mode", "seq", "dim",
                         absl::StrCat("[", setting.device, "]"));
  for (const std::string& device : devices) out << "  [" << device << "]";
  out << "\n";
  for (const MatrixRow& row : rows) {
    const std::string ours =
        row.status.ok() ? absl::StrFormat("%.4g", row.median_ms) : std::string("failed");
    out << absl::StrFormat("%-26s %-7s %5d %5d  %*s", NameOf(row), row.mode, row.seq, row.dim,
                           static_cast<int>(setting.device.size() + 2), ours);
    for (const std::string& device : devices) {
      out << absl::StrFormat("  %*s", static_cast<int>(device.size() + 2),
                             Cell(Match(row, setting.op, device, published)));
    }
    out << "\n";
  }
  out << "\n- no published row; * the record states no dtype, FP32 is assumed\n";
}

}  // namespace scanserve::scanbench

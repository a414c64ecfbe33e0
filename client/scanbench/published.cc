#include "client/scanbench/published.h"

#include <fstream>
#include <map>
#include <sstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/spec/catalog.h"

namespace scanserve::scanbench {
namespace {

struct Word {
  absl::string_view published;
  absl::string_view ours;
};

constexpr Word kFamilies[] = {{"mamba", "selective_scan"}};
constexpr Word kImplementations[] = {
    {"scan", "recurrent"}, {"assoc", "associative"}, {"chunked", "chunked"}, {"pallas", "fused"}};

template <size_t n>
std::string Ours(const Word (&words)[n], absl::string_view name) {
  for (const Word& word : words) {
    if (word.published == name) return std::string(word.ours);
  }
  return std::string(name);
}

template <size_t n>
absl::string_view Published(const Word (&words)[n], absl::string_view ours) {
  for (const Word& word : words) {
    if (word.ours == ours) return word.published;
  }
  return "";
}

// The cells of one record; quoted cells may hold commas, doubled quotes and line breaks. Empty at
// the end of the file.
std::vector<std::string> ReadRecord(std::istream& in) {
  std::vector<std::string> cells;
  std::string cell;
  bool quoted = false;
  bool any = false;
  for (int c = in.get(); c != EOF; c = in.get()) {
    any = true;
    if (quoted) {
      if (c != '"') {
        cell.push_back(static_cast<char>(c));
      } else if (in.peek() == '"') {
        cell.push_back(static_cast<char>(in.get()));
      } else {
        quoted = false;
      }
    } else if (c == '"') {
      quoted = true;
    } else if (c == ',') {
      cells.push_back(std::exchange(cell, ""));
    } else if (c == '\n') {
      break;
    } else if (c != '\r') {
      cell.push_back(static_cast<char>(c));
    }
  }
  if (any) cells.push_back(std::move(cell));
  return cells;
}

// Cells of one record by the name of their column.
class Record {
 public:
  Record(const std::map<std::string, size_t>& columns, const std::vector<std::string>& cells)
      : columns_(columns), cells_(cells) {}

  // Empty where the file has no such column.
  std::string Text(const std::string& column) const {
    const auto it = columns_.find(column);
    return it == columns_.end() ? "" : cells_[it->second];
  }

  absl::StatusOr<int64_t> Int(const std::string& column) const {
    int64_t value = 0;
    if (absl::SimpleAtoi(Text(column), &value)) return value;
    return absl::InvalidArgumentError(
        absl::StrCat("column '", column, "' is '", Text(column), "', expected a whole number"));
  }

  absl::StatusOr<std::optional<double>> Number(const std::string& column) const {
    const std::string text = Text(column);
    double value = 0;
    if (text.empty()) return std::optional<double>();
    if (absl::SimpleAtod(text, &value)) return std::optional<double>(value);
    return absl::InvalidArgumentError(
        absl::StrCat("column '", column, "' is '", text, "', expected a number"));
  }

 private:
  const std::map<std::string, size_t>& columns_;
  const std::vector<std::string>& cells_;
};

absl::StatusOr<PublishedRow> ParseRow(const Record& record) {
  PublishedRow row;
  row.device = record.Text("device");
  row.family = OurFamily(record.Text("family"));
  row.implementation = OurImplementation(record.Text("impl"));
  row.mode = record.Text("mode");
  row.dtype = record.Text("dtype");
  row.dtype_stated = record.Text("dtype_stated") == "yes";
  row.error = record.Text("error");
  SCANSERVE_ASSIGN_OR_RETURN(row.batch, record.Int("batch"));
  SCANSERVE_ASSIGN_OR_RETURN(row.seq, record.Int("seq"));
  SCANSERVE_ASSIGN_OR_RETURN(row.dim, record.Int("dim"));
  SCANSERVE_ASSIGN_OR_RETURN(row.state, record.Int("state"));
  SCANSERVE_ASSIGN_OR_RETURN(row.median_ms, record.Number("median_ms"));
  SCANSERVE_ASSIGN_OR_RETURN(row.rel_err, record.Number("rel_err"));
  return row;
}

}  // namespace

std::string OurFamily(absl::string_view name) { return Ours(kFamilies, name); }
std::string OurImplementation(absl::string_view name) { return Ours(kImplementations, name); }
absl::string_view PublishedFamily(absl::string_view ours) { return Published(kFamilies, ours); }
absl::string_view PublishedImplementation(absl::string_view ours) {
  return Published(kImplementations, ours);
}

std::string WithPublished(absl::string_view ours, absl::string_view published) {
  if (published.empty() || published == ours) return std::string(ours);
  return absl::StrCat(ours, " (published: ", published, ")");
}

absl::StatusOr<std::vector<PublishedRow>> ReadPublishedRows(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be opened"));
  std::map<std::string, size_t> columns;
  const std::vector<std::string> header = ReadRecord(file);
  for (size_t i = 0; i < header.size(); ++i) columns[header[i]] = i;
  for (const char* needed : {"device", "family", "impl", "mode", "kind", "median_ms"}) {
    if (columns.count(needed) == 0) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": has no column '", needed, "'"));
    }
  }
  std::vector<PublishedRow> rows;
  int number = 1;
  for (auto cells = ReadRecord(file); !cells.empty(); cells = ReadRecord(file)) {
    ++number;
    if (cells.size() != header.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": record ", number, " has ", cells.size(), " cells, expected ", header.size()));
    }
    const Record record(columns, cells);
    if (record.Text("kind") != "time") continue;
    if (!Catalog::Default().FindOp(OurFamily(record.Text("family"))).ok()) continue;
    absl::StatusOr<PublishedRow> row = ParseRow(record);
    if (!row.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": record ", number, ": ", row.status().message()));
    }
    rows.push_back(*std::move(row));
  }
  return rows;
}

}  // namespace scanserve::scanbench

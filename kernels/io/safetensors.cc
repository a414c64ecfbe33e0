#include "kernels/io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"

namespace scanserve {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little,
              "tensor files are little-endian and are read in place");

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the format's own library
constexpr char kMetadataKey[] = "__metadata__";

constexpr std::pair<DType, const char*> kDTypeNames[] = {
    {DType::kFP64, "F64"},  {DType::kFP32, "F32"},  {DType::kFP16, "F16"},
    {DType::kBF16, "BF16"}, {DType::kINT64, "I64"}, {DType::kINT32, "I32"}};

struct Entry {
  std::string name;
  TensorMeta meta;
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct Header {
  std::map<std::string, std::string> metadata;
  std::vector<Entry> entries;
};

absl::Status Malformed(absl::string_view path, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

absl::StatusOr<DType> DTypeFromFile(const std::string& name) {
  for (const auto& [dtype, text] : kDTypeNames) {
    if (name == text) return dtype;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("has dtype ", name, ", expected F64, F32, F16, BF16, I64 or I32"));
}

const char* NameInFile(DType dtype) {
  for (const auto& [candidate, text] : kDTypeNames) {
    if (candidate == dtype) return text;
  }
  return "";
}

// The parser keeps the last of two equal keys; here a name that occurs twice is an error.
absl::StatusOr<Json> ParseHeaderText(const std::string& text) {
  constexpr int kMaxDepth = 4;
  std::set<std::string> names;
  std::string fault;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMaxDepth) fault = "header is nested too deeply";
    if (event == Json::parse_event_t::key && depth == 1 &&
        !names.insert(parsed.get<std::string>()).second) {
      fault = absl::StrCat("tensor '", parsed.get<std::string>(), "' occurs twice");
    }
    return fault.empty();
  };
  Json json = Json::parse(text, watch, /*allow_exceptions=*/false);
  if (!fault.empty()) return absl::InvalidArgumentError(fault);
  if (!json.is_object()) return absl::InvalidArgumentError("header is not a JSON object");
  return json;
}

absl::StatusOr<Entry> ParseEntry(const std::string& name, const Json& json) {
  Entry entry;
  entry.name = name;
  if (!json.is_object()) return absl::InvalidArgumentError("is not a JSON object");
  const auto dtype = json.find("dtype");
  if (dtype == json.end() || !dtype->is_string()) {
    return absl::InvalidArgumentError("has no dtype");
  }
  SCANSERVE_ASSIGN_OR_RETURN(entry.meta.dtype, DTypeFromFile(dtype->get<std::string>()));
  const auto is_size = [](const Json& value) { return value.is_number_unsigned(); };
  const auto shape = json.find("shape");
  if (shape == json.end() || !shape->is_array() ||
      !std::all_of(shape->begin(), shape->end(), is_size)) {
    return absl::InvalidArgumentError("has no shape of non-negative integers");
  }
  for (const Json& dim : *shape) {
    // Beyond 63 bits the value is cut to the largest, which CheckedByteSize rejects.
    entry.meta.shape.push_back(
        static_cast<int64_t>(std::min(dim.get<uint64_t>(), uint64_t{INT64_MAX})));
  }
  const auto offsets = json.find("data_offsets");
  if (offsets == json.end() || !offsets->is_array() || offsets->size() != 2 ||
      !std::all_of(offsets->begin(), offsets->end(), is_size)) {
    return absl::InvalidArgumentError("has no data_offsets of two non-negative integers");
  }
  entry.begin = (*offsets)[0].get<uint64_t>();
  entry.end = (*offsets)[1].get<uint64_t>();
  SCANSERVE_ASSIGN_OR_RETURN(const int64_t bytes,
                             CheckedByteSize(entry.meta.shape, SizeOf(entry.meta.dtype)));
  if (entry.end < entry.begin || entry.end - entry.begin != static_cast<uint64_t>(bytes)) {
    return absl::InvalidArgumentError(absl::StrCat("has bytes ", entry.begin, " to ", entry.end,
                                                   ", but its shape ", ToString(entry.meta.shape),
                                                   " takes ", bytes));
  }
  return entry;
}

absl::StatusOr<std::map<std::string, std::string>> ParseMetadata(const Json& json) {
  std::map<std::string, std::string> metadata;
  if (!json.is_object()) return absl::InvalidArgumentError("__metadata__ is not a JSON object");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat("__metadata__ entry '", key, "' is not a string"));
    }
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

// The byte ranges must tile the data exactly.
absl::Status CheckRanges(std::vector<Entry>& entries, uint64_t data_bytes) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t expected = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != expected) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor '", entry.name, "' begins at byte ", entry.begin,
          entry.begin < expected ? ", inside another tensor; expected " : ", expected ", expected));
    }
    expected = entry.end;
  }
  if (expected != data_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensors take ", expected, " bytes, but the file holds ", data_bytes, " after its header"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Header> ParseHeader(const std::string& text, uint64_t data_bytes) {
  SCANSERVE_ASSIGN_OR_RETURN(const Json json, ParseHeaderText(text));
  Header header;
  for (const auto& [key, value] : json.items()) {
    if (key == kMetadataKey) {
      SCANSERVE_ASSIGN_OR_RETURN(header.metadata, ParseMetadata(value));
      continue;
    }
    absl::StatusOr<Entry> entry = ParseEntry(key, value);
    if (!entry.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", key, "' ", entry.status().message()));
    }
    header.entries.push_back(*std::move(entry));
  }
  SCANSERVE_RETURN_IF_ERROR(CheckRanges(header.entries, data_bytes));
  return header;
}

// The header text of an open file; leaves the file at the first byte of the data.
absl::StatusOr<std::string> ReadHeaderText(std::ifstream& file, uint64_t file_bytes) {
  uint64_t length = 0;
  if (file_bytes < kLengthBytes || !file.read(reinterpret_cast<char*>(&length), kLengthBytes)) {
    return absl::InvalidArgumentError("is shorter than the 8 bytes of the header length");
  }
  if (length > kMaxHeaderBytes || length > file_bytes - kLengthBytes) {
    return absl::InvalidArgumentError(absl::StrCat("header length is ", length, ", but only ",
                                                   file_bytes - kLengthBytes, " bytes follow"));
  }
  std::string text(length, '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(length))) {
    return absl::InvalidArgumentError("header cannot be read");
  }
  return text;
}

std::string HeaderText(const std::map<std::string, std::string>& metadata,
                       absl::Span<const NamedTensor* const> tensors) {
  Json json = Json::object();
  if (!metadata.empty()) json[kMetadataKey] = metadata;
  uint64_t offset = 0;
  for (const NamedTensor* named : tensors) {
    const auto bytes = static_cast<uint64_t>(named->tensor.byte_size());
    const Shape& shape = named->tensor.shape();
    json[named->name] = {{"dtype", NameInFile(named->tensor.dtype())},
                         {"shape", std::vector<int64_t>(shape.begin(), shape.end())},
                         {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::strict);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data begins aligned
  return text;
}

absl::StatusOr<std::vector<const NamedTensor*>> InFileOrder(absl::Span<const NamedTensor> tensors) {
  std::vector<const NamedTensor*> order;
  std::set<absl::string_view> names;
  for (const NamedTensor& named : tensors) {
    if (named.name == kMetadataKey || !names.insert(named.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", named.name, "' cannot be written: its name is taken"));
    }
    order.push_back(&named);
  }
  std::sort(order.begin(), order.end(), [](const NamedTensor* a, const NamedTensor* b) {
    const size_t a_size = SizeOf(a->tensor.dtype());
    const size_t b_size = SizeOf(b->tensor.dtype());
    return a_size != b_size ? a_size > b_size : a->name < b->name;
  });
  return order;
}

}  // namespace

const Tensor* TensorFile::Find(absl::string_view name) const {
  for (const NamedTensor& named : tensors) {
    if (named.name == name) return &named.tensor;
  }
  return nullptr;
}

absl::StatusOr<TensorFile> ReadSafetensors(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be opened"));
  const std::streamoff end = file.tellg();
  if (end < 0) return Malformed(path, "is not a regular file");
  const auto file_bytes = static_cast<uint64_t>(end);
  file.seekg(0);

  absl::StatusOr<std::string> text = ReadHeaderText(file, file_bytes);
  if (!text.ok()) return Malformed(path, text.status().message());
  const uint64_t data_begin = kLengthBytes + text->size();
  absl::StatusOr<Header> header = ParseHeader(*text, file_bytes - data_begin);
  if (!header.ok()) return Malformed(path, header.status().message());

  TensorFile result;
  result.metadata = std::move(header->metadata);
  for (Entry& entry : header->entries) {  // in the order of the bytes
    Tensor tensor(entry.meta);
    if (!file.read(static_cast<char*>(tensor.data()), tensor.byte_size())) {
      return Malformed(path, absl::StrCat("tensor '", entry.name, "' cannot be read"));
    }
    result.tensors.push_back({std::move(entry.name), std::move(tensor)});
  }
  std::sort(result.tensors.begin(), result.tensors.end(),
            [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; });
  return result;
}

absl::Status WriteSafetensors(const std::string& path,
                              const std::map<std::string, std::string>& metadata,
                              absl::Span<const NamedTensor> tensors) {
  SCANSERVE_ASSIGN_OR_RETURN(const std::vector<const NamedTensor*> order, InFileOrder(tensors));
  std::string header;
  try {
    header = HeaderText(metadata, order);
  } catch (const Json::exception& error) {
    return Malformed(path, absl::StrCat("a name is not UTF-8: ", error.what()));
  }
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  const uint64_t length = header.size();
  file.write(reinterpret_cast<const char*>(&length), kLengthBytes);
  file.write(header.data(), static_cast<std::streamsize>(header.size()));
  for (const NamedTensor* named : order) {
    file.write(static_cast<const char*>(named->tensor.data()), named->tensor.byte_size());
  }
  file.close();
  if (!file) return absl::UnavailableError(absl::StrCat(path, ": cannot be written"));
  return absl::OkStatus();
}

}  // namespace scanserve

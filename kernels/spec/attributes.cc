#include "kernels/spec/attributes.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace scanserve {
namespace {

using Json = nlohmann::json;

absl::Status Mismatch(const AttributeValue& like, const AttributeValue& value) {
  return absl::InvalidArgumentError(absl::StrCat("is ", ToString(value).substr(0, 64), " (",
                                                 TypeName(value), "), expected a ",
                                                 TypeName(like)));
}

// Text that spells out a bool, a number or a list.
absl::StatusOr<AttributeValue> ParseText(const AttributeValue& like, const std::string& text) {
  const AttributeValue original = text;
  if (std::holds_alternative<double>(like)) {  // JSON has no word for these
    double number;
    if (absl::SimpleAtod(text, &number)) return AttributeValue(number);
    return Mismatch(like, original);
  }
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (std::holds_alternative<bool>(like) && json.is_boolean())
    return AttributeValue(json.get<bool>());
  if (std::holds_alternative<int64_t>(like) && json.is_number_integer()) {
    return AttributeValue(json.get<int64_t>());
  }
  if (json.is_array()) {
    bool integers = true;
    bool numbers = true;
    for (const Json& element : json) {
      integers = integers && element.is_number_integer();
      numbers = numbers && element.is_number();
    }
    if (std::holds_alternative<std::vector<int64_t>>(like) && integers) {
      return AttributeValue(json.get<std::vector<int64_t>>());
    }
    if (std::holds_alternative<std::vector<double>>(like) && numbers) {
      return AttributeValue(json.get<std::vector<double>>());
    }
  }
  return Mismatch(like, original);
}

}  // namespace

absl::string_view TypeName(const AttributeValue& value) {
  static constexpr absl::string_view kNames[] = {"bool",   "int",      "double",
                                                 "string", "int list", "double list"};
  return kNames[value.index()];
}

std::string ToString(const AttributeValue& value) {
  return std::visit(
      [](const auto& v) -> std::string {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, double>) {
          if (!std::isfinite(v)) return absl::StrCat(v);
        }
        return Json(v).dump(-1, ' ', false, Json::error_handler_t::replace);
      },
      value);
}

absl::StatusOr<AttributeValue> ConvertTo(const AttributeValue& like, const AttributeValue& value) {
  if (like.index() == value.index()) return value;
  if (const auto* text = std::get_if<std::string>(&value)) return ParseText(like, *text);
  if (const auto* number = std::get_if<int64_t>(&value)) {
    if (std::holds_alternative<double>(like) && std::abs(*number) <= int64_t{1} << 53) {
      return AttributeValue(static_cast<double>(*number));
    }
  }
  if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) {
    if (std::holds_alternative<std::vector<double>>(like)) {
      return AttributeValue(std::vector<double>(list->begin(), list->end()));
    }
  }
  return Mismatch(like, value);
}

}  // namespace scanserve

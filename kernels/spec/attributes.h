// Attribute values: the options of an operator that are not tensors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace scanserve {

using AttributeValue =
    std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>>;

// Name to value; ordered, so that everything printed from it is stable.
using Attributes = std::map<std::string, AttributeValue, std::less<>>;

// "bool", "int", "double", "string", "int list", "double list".
absl::string_view TypeName(const AttributeValue& value);

// The value as JSON text: true, 16, 0.25, "gaussian", [0.25,1.5].
std::string ToString(const AttributeValue& value);

// Converts `value` to the type of `like`: an int becomes a double, JSON text in a string becomes a
// list, a string becomes the bool or number that it spells out. INVALID_ARGUMENT where that would
// lose anything.
absl::StatusOr<AttributeValue> ConvertTo(const AttributeValue& like, const AttributeValue& value);

}  // namespace scanserve

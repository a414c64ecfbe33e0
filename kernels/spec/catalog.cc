#include "kernels/spec/catalog.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace scanserve {

Catalog::Catalog(std::vector<const OpSpec*> specs) : ops_(std::move(specs)) {
  for (const OpSpec* spec : ops_) {
    for (const Direction direction : kAllDirections) {
      models_.push_back(std::make_unique<const Model>(DeriveModel(*spec, direction)));
    }
  }
}

const Catalog& Catalog::Default() {
  static const auto* const catalog = new Catalog(AllSpecs());
  return *catalog;
}

absl::StatusOr<const OpSpec*> Catalog::FindOp(absl::string_view name) const {
  for (const OpSpec* spec : ops_) {
    if (spec->name == name) return spec;
  }
  return absl::NotFoundError(absl::StrCat(
      "unknown operator '", name.substr(0, 64),
      "', expected one of: ", absl::StrJoin(ops_, ", ", [](std::string* out, const OpSpec* spec) {
        absl::StrAppend(out, spec->name);
      })));
}

absl::StatusOr<const Model*> Catalog::FindModel(absl::string_view name) const {
  for (const auto& model : models_) {
    if (model->name == name) return model.get();
  }
  // The sentence that Triton's clients look for.
  return absl::NotFoundError(
      absl::StrCat("Request for unknown model: '", name.substr(0, 64), "' is not found"));
}

absl::StatusOr<const Model*> Catalog::FindModel(absl::string_view op, Direction direction) const {
  absl::StatusOr<const OpSpec*> spec = FindOp(op);
  if (!spec.ok()) return spec.status();
  return FindModel(absl::StrCat(op, "_", NameOf(direction)));
}

}  // namespace scanserve

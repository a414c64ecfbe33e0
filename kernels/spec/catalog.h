// The operators and models that this build knows.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/spec/model.h"

namespace scanserve {

// Immutable; thread-safe.
class Catalog {
 public:
  explicit Catalog(std::vector<const OpSpec*> specs);

  // Of all families that are built in.
  static const Catalog& Default();

  const std::vector<const OpSpec*>& ops() const { return ops_; }
  const std::vector<std::unique_ptr<const Model>>& models() const { return models_; }

  // NOT_FOUND with the names that would have been known.
  absl::StatusOr<const OpSpec*> FindOp(absl::string_view name) const;
  absl::StatusOr<const Model*> FindModel(absl::string_view name) const;
  absl::StatusOr<const Model*> FindModel(absl::string_view op, Direction direction) const;

 private:
  std::vector<const OpSpec*> ops_;
  std::vector<std::unique_ptr<const Model>> models_;
};

// The contracts of all families; the list stands in kernels/ops/all_specs.cc.
std::vector<const OpSpec*> AllSpecs();

}  // namespace scanserve

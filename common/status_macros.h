// Early return on a failed absl::Status or absl::StatusOr.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define SCANSERVE_CONCAT_INNER(a, b) a##b
#define SCANSERVE_CONCAT(a, b) SCANSERVE_CONCAT_INNER(a, b)

// Evaluates `expression` once and returns its status when that is not OK.
#define SCANSERVE_RETURN_IF_ERROR(expression)            \
  do {                                                   \
    absl::Status scanserve_status = (expression);        \
    if (!scanserve_status.ok()) return scanserve_status; \
  } while (false)

// `target` may be a declaration, so it cannot stand in parentheses.
// NOLINTBEGIN(bugprone-macro-parentheses)
#define SCANSERVE_ASSIGN_OR_RETURN_INNER(result, target, expression) \
  auto result = (expression);                                        \
  if (!result.ok()) return std::move(result).status();               \
  target = std::move(result).value()
// NOLINTEND(bugprone-macro-parentheses)

// Evaluates `expression` (a StatusOr) once; returns its status or assigns its value to `target`,
// which may declare a variable.
#define SCANSERVE_ASSIGN_OR_RETURN(target, expression)                                    \
  SCANSERVE_ASSIGN_OR_RETURN_INNER(SCANSERVE_CONCAT(scanserve_result_, __LINE__), target, \
                                   expression)

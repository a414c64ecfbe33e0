// The list of implementations, by operator, best first.
#include <map>
#include <string>

#include "kernels/runtime/implementation.h"

namespace scanserve {

const ImplementationList& SelectiveScanImplementations();

const ImplementationList& ImplementationsOf(absl::string_view op) {
  static const auto* const lists =
      new std::map<std::string, const ImplementationList*, std::less<>>{
          {"selective_scan", &SelectiveScanImplementations()},
      };
  static const auto* const none = new ImplementationList;
  const auto it = lists->find(std::string(op));
  return it == lists->end() ? *none : *it->second;
}

}  // namespace scanserve

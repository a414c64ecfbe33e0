// The list of operator families: a family is known to the whole project once it stands here.
#include "kernels/spec/catalog.h"

namespace scanserve {

const OpSpec& SelectiveScanSpec();

std::vector<const OpSpec*> AllSpecs() { return {&SelectiveScanSpec()}; }

}  // namespace scanserve

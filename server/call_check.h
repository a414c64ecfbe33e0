// What can be said about a call without looking at its contract.
#pragma once

#include "absl/status/status.h"
#include "server/call.h"

namespace scanserve {

// INVALID_ARGUMENT for a value that no server accepts, UNIMPLEMENTED for a legal one that nothing
// here offers yet.
absl::Status CheckOptions(const Call& call);

// INVALID_ARGUMENT when the bytes of an input are not as many as its shape says.
absl::Status CheckByteSize(const Call& call, const CallInput& input);

}  // namespace scanserve

// Runs one request on a device.
#pragma once

#include "absl/status/status.h"
#include "common/clock.h"
#include "kernels/runtime/device.h"
#include "server/request.h"

namespace scanserve {

// Brings the inputs to the device, runs the request's plan and leaves outputs and report in
// `request.result()`. Takes all memory from the device's pool and has given everything but the
// outputs back when it returns. The input bytes are released as soon as the device has them.
// RESOURCE_EXHAUSTED: no device memory. INVALID_ARGUMENT: check_finite found a NaN or an infinity.
absl::Status Execute(Request& request, Device& device, Stream& stream, const Clock& clock);

}  // namespace scanserve

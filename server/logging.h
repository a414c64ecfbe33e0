// The process's log.
#pragma once

#include "server/options.h"

namespace scanserve {

// Sends log lines to standard error, as the options say.
void SetUpLogging(const ServerOptions& options);

}  // namespace scanserve

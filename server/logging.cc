#include "server/logging.h"

#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace scanserve {

void SetUpLogging(const ServerOptions& options) {
  spdlog::set_default_logger(spdlog::stderr_logger_mt("scanserved"));
  spdlog::set_level(options.log_verbose > 0 ? spdlog::level::debug : spdlog::level::info);
  spdlog::set_pattern(options.log_format == "ISO8601" ? "%Y-%m-%dT%H:%M:%S.%e%z %l %v"
                                                      : "%H:%M:%S.%e %L %v");
}

}  // namespace scanserve

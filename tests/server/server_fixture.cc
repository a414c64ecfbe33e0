#include "tests/server/server_fixture.h"

#include <cstdlib>

#include "spdlog/sinks/ostream_sink.h"

namespace scanserve {

ScopedLog::ScopedLog() : previous_(spdlog::default_logger()) {
  auto logger = std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(stream_));
  logger->set_level(spdlog::level::debug);
  logger->set_pattern("%l %v");
  spdlog::set_default_logger(std::move(logger));
}

ScopedLog::~ScopedLog() { spdlog::set_default_logger(previous_); }

std::optional<double> SeriesValue(const std::string& text, const std::string& series) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(series + " ", 0) == 0) {
      return std::strtod(line.c_str() + series.size() + 1, nullptr);
    }
  }
  return std::nullopt;
}

}  // namespace scanserve

// Logging by level: LEAT_LOG_LEVEL (error, warn, info, debug, trace; default warn) to standard
// error or to LEAT_LOG_FILE. Never on the hot path. spdlog stays inside log.cc.
#pragma once

#include <string>
#include <string_view>

namespace leat::detail {

enum class LogLevel { kError, kWarn, kInfo, kDebug, kTrace };

bool log_enabled(LogLevel level) noexcept;
// Never throws; what cannot be written is lost.
void log(LogLevel level, std::string_view text) noexcept;
// As log, but the same text only once in this process.
void log_once(LogLevel level, std::string_view text) noexcept;

}  // namespace leat::detail

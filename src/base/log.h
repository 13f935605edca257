// Logging by level: LEAT_LOG_LEVEL (error, warn, info, debug, trace; default warn) to standard
// error or to LEAT_LOG_FILE. Never on the hot path. spdlog stays inside log.cc.
#pragma once

#include <initializer_list>
#include <string_view>

#include "leat/export.h"

namespace leat::detail {

enum class LogLevel { kError, kWarn, kInfo, kDebug, kTrace };

bool log_enabled(LogLevel level) noexcept;
// Never throws; text that cannot be written is lost. Exported for leat's other libraries.
LEAT_EXPORT void log(LogLevel level, std::string_view text) noexcept;
// The same for a text in parts, which are joined only here: callers that must not throw cannot
// build a string.
void log(LogLevel level, std::initializer_list<std::string_view> parts) noexcept;
// As log() of one text, but writes the same text only once in this process.
void log_once(LogLevel level, std::string_view text) noexcept;

}  // namespace leat::detail

#include "base/log.h"

#include <pthread.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <atomic>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/quote.h"
#include "base/setting_sources.h"
#include "base/setting_values.h"

namespace leat::detail {
namespace {

constexpr const char* kPattern = "%Y-%m-%d %H:%M:%S.%e leat[%P] %l: %v";

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kTrace:
      return spdlog::level::trace;
  }
  return spdlog::level::err;
}

struct LogSettings {
  LogLevel level = LogLevel::kWarn;
  std::string file;
};

void take(const std::vector<ConfiguredValue>& values, LogSettings& settings) {
  for (const ConfiguredValue& value : values) {
    if (value.name == "log_file") settings.file = value.value;
    if (value.name != "log_level") continue;
    // A bad level is reported by resolve_settings.
    if (const auto level = LogLevelCodec::parse(value.value)) {
      settings.level = static_cast<LogLevel>(*level);
    }
  }
}

LogSettings read_settings() {
  LogSettings settings;
  try {
    take(file_values(), settings);
  } catch (const std::exception&) {
    // A bad file is reported by resolve_settings; the environment still counts.
  }
  take(environment_values(), settings);
  return settings;
}

// Guards all below. A static object with a guard of its own would not do: fork() must find no lock
// held by a thread that the child does not have, not even for the first line that is logged.
constinit std::mutex mutex;

// Sinks without locks of their own, for the same reason.
class Log {
 public:
  explicit Log(const LogSettings& settings) : level_(settings.level) {
    std::string failure;
    spdlog::sink_ptr sink;
    if (!settings.file.empty()) {
      try {
        sink = std::make_shared<spdlog::sinks::basic_file_sink_st>(settings.file);
      } catch (const std::exception& error) {
        failure = error.what();
      }
    }
    if (!sink) sink = std::make_shared<spdlog::sinks::stderr_sink_st>();
    logger_ = std::make_unique<spdlog::logger>("leat", std::move(sink));
    logger_->set_level(to_spdlog(level_));
    logger_->set_pattern(kPattern);
    logger_->flush_on(spdlog::level::trace);
    if (!failure.empty()) {
      write(LogLevel::kError, "log_file cannot be used, logging here: " + printable(failure));
    }
  }

  LogLevel level() const { return level_; }
  void write(LogLevel level, std::string_view text) {
    logger_->log(to_spdlog(level), spdlog::string_view_t(text.data(), text.size()));
  }
  void write_once(LogLevel level, std::string_view text) {
    if (said_.emplace(text).second) write(level, text);
  }

 private:
  LogLevel level_;
  std::unique_ptr<spdlog::logger> logger_;
  std::set<std::string, std::less<>> said_;
};

// Never destroyed: other static objects may log as the program ends.
constinit Log* the_log = nullptr;
// As the_log's, for a look without the lock; negative until there is one.
constinit std::atomic<int> level_or_none{-1};

// At start-up, before there can be another thread.
[[maybe_unused]] const int at_fork =
    pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); }, [] { mutex.unlock(); });

// The caller holds the lock.
Log& get_log() {
  if (the_log == nullptr) {
    the_log = new Log(read_settings());
    level_or_none.store(static_cast<int>(the_log->level()), std::memory_order_relaxed);
  }
  return *the_log;
}

}  // namespace

bool log_enabled(LogLevel level) noexcept {
  int enabled = level_or_none.load(std::memory_order_relaxed);
  if (enabled < 0) {
    try {
      const std::lock_guard lock(mutex);
      enabled = static_cast<int>(get_log().level());
    } catch (...) {
      return false;
    }
  }
  return static_cast<int>(level) <= enabled;
}

void log(LogLevel level, std::string_view text) noexcept {
  if (!log_enabled(level)) return;
  try {
    const std::lock_guard lock(mutex);
    get_log().write(level, text);
  } catch (...) {
    // A log that cannot be written must not take the program down.
  }
}

void log(LogLevel level, std::initializer_list<std::string_view> parts) noexcept {
  if (!log_enabled(level)) return;
  try {
    std::string text;
    for (const std::string_view part : parts) text += part;
    log(level, text);
  } catch (...) {
    // As above.
  }
}

void log_once(LogLevel level, std::string_view text) noexcept {
  if (!log_enabled(level)) return;
  try {
    const std::lock_guard lock(mutex);
    get_log().write_once(level, text);
  } catch (...) {
    // As above.
  }
}

}  // namespace leat::detail

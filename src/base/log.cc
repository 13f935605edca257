#include "base/log.h"

#include <pthread.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <exception>
#include <functional>
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

// Sinks without a lock of their own: this class has the lock, so that fork() can hold it.
class Log {
 public:
  Log() : Log(read_settings()) {}

  bool enabled(LogLevel level) const { return level <= level_; }
  void write(LogLevel level, std::string_view text) {
    const std::lock_guard lock(mutex_);
    logger_->log(to_spdlog(level), spdlog::string_view_t(text.data(), text.size()));
  }
  void write_once(LogLevel level, std::string_view text) {
    const std::lock_guard lock(mutex_);
    if (said_.emplace(text).second) {
      logger_->log(to_spdlog(level), spdlog::string_view_t(text.data(), text.size()));
    }
  }
  std::mutex& mutex() { return mutex_; }

 private:
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

  LogLevel level_;
  std::mutex mutex_;
  std::set<std::string, std::less<>> said_;
  std::unique_ptr<spdlog::logger> logger_;
};

// Never destroyed: other static objects may log as the program ends.
Log& the_log() {
  static Log& log = *[] {
    auto* made = new Log;
    pthread_atfork([] { the_log().mutex().lock(); }, [] { the_log().mutex().unlock(); },
                   [] { the_log().mutex().unlock(); });
    return made;
  }();
  return log;
}

}  // namespace

bool log_enabled(LogLevel level) noexcept {
  try {
    return the_log().enabled(level);
  } catch (...) {
    return false;
  }
}

void log(LogLevel level, std::string_view text) noexcept {
  try {
    if (the_log().enabled(level)) the_log().write(level, text);
  } catch (...) {
    // A log that cannot be written must not take the program down.
  }
}

void log_once(LogLevel level, std::string_view text) noexcept {
  try {
    if (the_log().enabled(level)) the_log().write_once(level, text);
  } catch (...) {
    // As above.
  }
}

}  // namespace leat::detail

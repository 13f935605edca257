#include "base/setting_sources.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "base/fd.h"
#include "base/quote.h"
#include "leat/error.h"

namespace leat::detail {
namespace {

constexpr std::string_view kPrefix = "LEAT_";
constexpr std::string_view kFileVariable = "LEAT_CONF_FILE";
constexpr std::array<std::string_view, 3> kForeignPrefixes = {"LEAT_TEST_", "LEAT_VM_",
                                                              "LEAT_PRELOAD_"};
constexpr std::size_t kMaxFileBytes = 64 * 1024;

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\v\f";
  const auto first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::string_view without_comment(std::string_view line) {
  for (std::size_t at = line.find('#'); at != std::string_view::npos; at = line.find('#', at + 1)) {
    if (at == 0 || line[at - 1] == ' ' || line[at - 1] == '\t') return line.substr(0, at);
  }
  return line;
}

// The file's text. Missing or unreadable is an error only if the user named the file.
std::string read_file(const std::string& path, bool must_exist) {
  const auto fail = [&](const std::string& why) {
    return Error(ErrorCode::kInvalidArgument, "configuration file " + quoted(path) + ": " + why,
                 "It is named by " + std::string(kFileVariable) + ": correct or unset that.");
  };
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) {
    if (must_exist) throw fail(std::generic_category().message(errno));
    return {};
  }
  std::string text(kMaxFileBytes + 1, '\0');
  std::size_t bytes = 0;
  while (bytes < text.size()) {
    const ssize_t got = read(file.get(), text.data() + bytes, text.size() - bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && must_exist) throw fail(std::generic_category().message(errno));
    if (got <= 0) break;
    bytes += static_cast<std::size_t>(got);
  }
  if (bytes > kMaxFileBytes) {
    throw Error(ErrorCode::kInvalidArgument,
                "configuration file " + quoted(path) + " is larger than 64 KiB",
                "A configuration file has lines such as: spin_us = 50");
  }
  text.resize(bytes);
  return text;
}

void append_file(const std::string& path, bool must_exist, std::vector<ConfiguredValue>& values) {
  for (ConfiguredValue& value : parse_settings_file(read_file(path, must_exist), path)) {
    values.push_back(std::move(value));
  }
}

}  // namespace

std::string variable_of(std::string_view setting) {
  std::string variable(kPrefix);
  for (const char c : setting) {
    variable += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return variable;
}

std::vector<ConfiguredValue> parse_settings_file(std::string_view text, const std::string& path) {
  std::vector<ConfiguredValue> values;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = trim(without_comment(text.substr(0, end)));
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    ++number;
    if (line.empty()) continue;
    const std::string place = path + ":" + std::to_string(number);
    const std::size_t equals = line.find('=');
    const std::string_view key = trim(line.substr(0, equals));
    if (equals == std::string_view::npos || key.empty() || has_control_characters(line)) {
      throw Error(ErrorCode::kInvalidArgument, place + ": " + quoted(line) + " is not a setting",
                  "Write: name = value");
    }
    values.push_back({std::string(key), std::string(trim(line.substr(equals + 1))), place, path});
  }
  return values;
}

std::vector<ConfiguredValue> file_values() {
  std::vector<ConfiguredValue> values;
  append_file("/etc/leat.conf", false, values);
  const char* home = secure_getenv("HOME");
  if (home != nullptr && *home == '/') {
    append_file(std::string(home) + "/.leat.conf", false, values);
  }
  const char* named = secure_getenv(kFileVariable.data());
  if (named != nullptr && *named != '\0') append_file(named, true, values);
  return values;
}

std::vector<ConfiguredValue> environment_values() {
  std::vector<ConfiguredValue> values;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (!text.starts_with(kPrefix) || equals == std::string_view::npos) continue;
    const std::string variable(text.substr(0, equals));
    bool foreign = variable == kFileVariable;
    for (const std::string_view prefix : kForeignPrefixes) {
      foreign = foreign || variable.starts_with(prefix);
    }
    // Empty means unset, so that a script can take a setting back. secure_getenv: nothing for a
    // set-user-id program.
    if (foreign || equals + 1 == text.size() || secure_getenv(variable.c_str()) == nullptr)
      continue;
    std::string name;
    for (const char c : variable.substr(kPrefix.size())) {
      name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    // LEAT_Spin_us is not LEAT_SPIN_US: it stays as written, and so unknown.
    if (variable_of(name) != variable) name = variable;
    values.push_back({name, std::string(text.substr(equals + 1)), variable, "environment"});
  }
  return values;
}

}  // namespace leat::detail

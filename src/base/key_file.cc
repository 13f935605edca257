#include "base/key_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/log.h"
#include "base/quote.h"
#include "base/system_error.h"
#include "leat/error.h"

namespace leat::detail {
namespace {

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string reason() { return std::generic_category().message(errno); }

}  // namespace

void refuse_file(const char* setting, const std::string& path, const std::string& why,
                 const std::string& advice) {
  throw Error(ErrorCode::kInvalidArgument, std::string(setting) + " " + quoted(path) + ": " + why,
              advice);
}

Fd open_secret(const char* setting, const std::string& path) {
  Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!file || fstat(file.get(), &status) != 0) {
    // Not the file's fault.
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
      throw system_error(std::string(setting) + " " + quoted(path) + ": open", errno);
    refuse_file(setting, path, reason());
  }
  if (S_ISREG(status.st_mode) && (status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    log_once(LogLevel::kWarn,
             std::string(setting) + " " + quoted(path) +
                 " is open to other users of this host. chmod 600 keeps it secret.");
  }
  return file;
}

std::vector<unsigned char> read_key_file(const KeyFile& key) {
  const Fd file = open_secret(key.setting, key.path);
  std::string text(2 * key.max_bytes + 64, '\0');
  const ssize_t got = read(file.get(), text.data(), text.size());
  if (got < 0) refuse_file(key.setting, key.path, reason());
  text.resize(static_cast<std::size_t>(got));
  std::vector<unsigned char> bytes = parse_key(text, key);
  explicit_bzero(text.data(), text.size());
  return bytes;
}

std::vector<unsigned char> parse_key(const std::string& text, const KeyFile& file) {
  const auto refuse = [&](const std::string& why) {
    refuse_file(file.setting, file.path, why, "Make one with: openssl rand -hex 32");
  };
  std::string digits = text;
  while (!digits.empty() && std::strchr(" \t\r\n", digits.back()) != nullptr) digits.pop_back();
  std::vector<unsigned char> key;
  key.reserve(digits.size() / 2);  // so that no copy is left behind
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    const int high = digit(digits[i]);
    const int low = digit(digits[i + 1]);
    if (high < 0 || low < 0) refuse("must be one line of hexadecimal digits");
    key.push_back(static_cast<unsigned char>(high * 16 + low));
  }
  if (digits.size() % 2 != 0) refuse("the number of hexadecimal digits is odd");
  if (key.size() < file.min_bytes)
    refuse("a key has at least " + std::to_string(2 * file.min_bytes) + " hexadecimal digits");
  if (key.size() > file.max_bytes)
    refuse("a key has at most " + std::to_string(2 * file.max_bytes) + " hexadecimal digits");
  explicit_bzero(digits.data(), digits.size());
  return key;
}

}  // namespace leat::detail

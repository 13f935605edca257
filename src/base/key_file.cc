#include "base/key_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "base/quote.h"
#include "base/system_error.h"
#include "base/users.h"
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

// As chmod takes it.
std::string octal(mode_t mode) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%04o", static_cast<unsigned>(mode));
  return text.data();
}

void check_secret(const char* setting, const std::string& path, const struct stat& status) {
  const uid_t own = geteuid();
  const auto most = most_open_mode(status.st_uid, own);
  if (!most)
    refuse_file(
        setting, path,
        "it is " + describe_user(status.st_uid) + "'s and must be " + describe_user(own) +
            (own == 0 ? "'s" : "'s or root's"),
        "chown " + std::to_string(own) + " " + quoted(path) + " && chmod 0600 " + quoted(path));
  const mode_t mode = status.st_mode & 07777;
  if ((mode & (S_IRWXG | S_IRWXO) & ~*most) == 0) return;
  refuse_file(setting, path,
              "other users of this host may use it: its mode is " + octal(mode) +
                  ", and must be at most " + octal(*most),
              "chmod " + octal(*most) + " " + quoted(path));
}

}  // namespace

std::optional<mode_t> most_open_mode(uid_t owner, uid_t own) {
  if (owner == 0) return 0640;
  return owner == own ? std::optional<mode_t>(0600) : std::nullopt;
}

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
  if (!S_ISDIR(status.st_mode)) check_secret(setting, path, status);
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
    refuse_file(file.setting, file.path, why,
                "Make one with: (umask 077; openssl rand -hex 32 >FILE)");
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

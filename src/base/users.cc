#include "base/users.h"

#include <pwd.h>

#include <cerrno>
#include <vector>

#include "base/setting_values.h"
#include "base/user_namespace.h"

namespace leat::detail {
namespace {

// `find`: getpwnam_r or getpwuid_r with its first argument. Calls `found` with the entry.
template <typename Find, typename Found>
void look_up(const Find& find, const Found& found) {
  std::vector<char> text(1024);
  passwd entry{};
  passwd* result = nullptr;
  while (find(&entry, text.data(), text.size(), &result) == ERANGE) text.resize(2 * text.size());
  if (result != nullptr) found(*result);
}

}  // namespace

std::optional<uid_t> user_of(const std::string& name_or_number) {
  std::optional<uid_t> user;
  look_up([&](auto... rest) { return getpwnam_r(name_or_number.c_str(), rest...); },
          [&](const passwd& entry) { user = entry.pw_uid; });
  if (user) return user;
  const auto number = parse_number(name_or_number);
  if (number && *number < kNoUser) user = static_cast<uid_t>(*number);
  return user;
}

std::string describe_user(uid_t user) {
  std::string text = "user " + std::to_string(user);
  look_up([&](auto... rest) { return getpwuid_r(user, rest...); },
          [&](const passwd& entry) {
            text = std::string(entry.pw_name) + " (" + std::to_string(user) + ")";
          });
  return text;
}

}  // namespace leat::detail

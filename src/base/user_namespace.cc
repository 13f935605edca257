#include "base/user_namespace.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace leat::detail {
namespace {

constexpr uid_t kUsualOverflow = 65534;
constexpr std::uint64_t kAllUsers = 0xffff'ffff;  // the number itself stands for none

// The text of a short file of the kernel's; empty if it cannot be read.
using Text = std::array<char, 4096>;
const char* read_text(const char* path, Text& text, SystemCall call) noexcept {
  const long file = call(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  const long got = file >= 0 ? call(SYS_read, file, text.data(), text.size() - 1) : 0;
  text[got > 0 ? static_cast<std::size_t>(got) : 0] = '\0';
  if (file >= 0) call(SYS_close, file);
  return text.data();
}

uid_t overflow_user(SystemCall call) noexcept {
  Text text;
  char* end = nullptr;
  const char* const begin = read_text("/proc/sys/kernel/overflowuid", text, call);
  const unsigned long user = std::strtoul(begin, &end, 10);
  return end == begin ? kUsualOverflow : static_cast<uid_t>(user);
}

// Lines of three numbers, the last of which says how many users are mapped.
bool maps_all_users(SystemCall call) noexcept {
  Text text;
  std::uint64_t mapped = 0;
  const char* at = read_text("/proc/self/uid_map", text, call);
  for (int number = 1;; ++number) {
    char* end = nullptr;
    const std::uint64_t value = std::strtoull(at, &end, 10);
    if (end == at) break;
    if (number % 3 == 0) mapped += value;
    at = end;
  }
  return mapped == kAllUsers;
}

}  // namespace

uid_t number_of_unmapped_users(SystemCall call) noexcept {
  return maps_all_users(call) ? kNoUser : overflow_user(call);
}

}  // namespace leat::detail

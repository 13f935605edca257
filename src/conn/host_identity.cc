#include "conn/host_identity.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.h"
#include "base/system_error.h"

namespace leat::detail {
namespace {

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// "b1a2...-....", 32 digits with dashes between.
std::array<std::byte, 16> read_boot_id() {
  const Fd file(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  if (!file && (errno == EMFILE || errno == ENFILE)) throw system_error("open(boot_id)", errno);
  char text[64];
  const ssize_t got = file ? read(file.get(), text, sizeof text) : -1;
  std::array<std::byte, 16> id{};
  std::size_t digits = 0;
  for (ssize_t i = 0; i < got && digits < 32; ++i) {
    const int value = digit(text[i]);
    if (value < 0) continue;
    id[digits / 2] = static_cast<std::byte>(std::to_integer<int>(id[digits / 2]) * 16 + value);
    ++digits;
  }
  if (digits != 32) return {};
  return id;
}

}  // namespace

HostIdentity host_identity() {
  HostIdentity identity;
  identity.boot_id = read_boot_id();
  identity.user = geteuid();
  struct stat status {};
  if (stat("/proc/self/ns/net", &status) == 0) identity.network = status.st_ino;
  return identity;
}

}  // namespace leat::detail

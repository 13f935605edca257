#include "verbs/host_identity.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/fd.h"
#include "base/fork.h"
#include "base/system_error.h"
#include "base/user_namespace.h"

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

Secret this_process() {
  // No lock, which a fork might find held. Relaxed: the number stands for itself.
  static constinit std::atomic<std::uint64_t> chosen{0};
  std::uint64_t random = chosen.load(std::memory_order_relaxed);
  if (random == 0) {
    const Secret fresh = random_secret();
    std::uint64_t mine = 0;
    std::memcpy(&mine, fresh.data(), sizeof mine);
    mine |= 1;
    random =
        chosen.compare_exchange_strong(random, mine, std::memory_order_relaxed) ? mine : random;
  }
  // The random half is inherited, the rest is not.
  const std::uint64_t own =
      std::uint64_t{static_cast<std::uint32_t>(getpid())} << 32 | ForkGeneration::start();
  Secret process{};
  std::memcpy(process.data(), &random, sizeof random);
  std::memcpy(process.data() + sizeof random, &own, sizeof own);
  return process;
}

HostIdentity host_identity() {
  HostIdentity identity;
  identity.boot_id = read_boot_id();
  const uid_t user = geteuid();
  identity.user = is_one_user(user) ? user : HostIdentity::kUnknownUser;
  struct stat status {};
  if (stat("/proc/self/ns/net", &status) == 0) identity.network = status.st_ino;
  return identity;
}

}  // namespace leat::detail

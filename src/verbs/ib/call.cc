#include "verbs/ib/call.h"

#include <sys/resource.h>

#include <system_error>

namespace leat::detail {
namespace {

bool memlock_limited(rlimit& limit) {
  return getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

}  // namespace

std::string memlock_limit() {
  rlimit limit{};
  if (!memlock_limited(limit)) return "unlimited";
  return std::to_string(limit.rlim_cur / 1024) + " kB";
}

std::string memlock_advice() {
  return "Raise the locked-memory limit (current: " + memlock_limit() +
         "): ulimit -l unlimited, limits.conf, or LimitMEMLOCK= in systemd. "
         "In a container: --ulimit memlock=-1.";
}

std::string size_text(std::size_t bytes) {
  constexpr std::size_t kKiB = 1024;
  constexpr std::size_t kMiB = 1024 * kKiB;
  constexpr std::size_t kGiB = 1024 * kMiB;
  if (bytes >= kGiB && bytes % kGiB == 0) return std::to_string(bytes / kGiB) + " GiB";
  if (bytes >= kMiB && bytes % kMiB == 0) return std::to_string(bytes / kMiB) + " MiB";
  if (bytes >= kKiB && bytes % kKiB == 0) return std::to_string(bytes / kKiB) + " KiB";
  return std::to_string(bytes) + " bytes";
}

Error ib_error(const std::string& call, const std::string& where, int system_errno) {
  const std::string failure = call + " on " + where + " failed: " +
                              std::error_code(system_errno, std::generic_category()).message();
  rlimit memlock{};
  const bool limited = memlock_limited(memlock);
  // The kernel says "not permitted" where the limit is 0, and "no memory" where it is too small.
  if (limited && (system_errno == ENOMEM || (system_errno == EPERM && memlock.rlim_cur == 0))) {
    return {ErrorCode::kResource, failure, memlock_advice(), system_errno};
  }
  switch (system_errno) {
    case ENOMEM:
      return {ErrorCode::kResource, failure,
              "Out of memory: use smaller rings (ring_bytes) or fewer connections.", system_errno};
    case EMFILE:
    case ENFILE:
      return {ErrorCode::kResource, failure, "Raise the limit of open files: ulimit -n.",
              system_errno};
    case EACCES:
    case EPERM:
      return {ErrorCode::kUnavailable, failure,
              "Give this user access to /dev/infiniband (usually mode 0666, by rdma-core's udev "
              "rules). In a container: --device=/dev/infiniband --cap-add=IPC_LOCK.",
              system_errno};
    case ENODEV:
    case ENOENT:
    case ENXIO:
      return {ErrorCode::kUnavailable, failure,
              "Load the kernel modules ib_uverbs and rdma_ucm. In a container: "
              "--device=/dev/infiniband --network=host.",
              system_errno};
    case EADDRNOTAVAIL:
    case EADDRINUSE:
    case ENETUNREACH:
    case EHOSTUNREACH:
      return {ErrorCode::kAddress, failure, {}, system_errno};
    default:
      return {ErrorCode::kSystem, failure, {}, system_errno};
  }
}

}  // namespace leat::detail

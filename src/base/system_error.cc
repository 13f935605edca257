#include "base/system_error.h"

#include <sys/resource.h>

#include <cerrno>
#include <system_error>

namespace leat::detail {
namespace {

std::string current_limit(decltype(RLIMIT_NOFILE) resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return std::to_string(limit.rlim_cur);
}

}  // namespace

Error system_error(const std::string& call, int system_errno) {
  const std::string failure =
      call + " failed: " + std::error_code(system_errno, std::generic_category()).message();
  switch (system_errno) {
    case EMFILE:
      return {ErrorCode::kResource, failure,
              "Raise the limit of open files (current: " + current_limit(RLIMIT_NOFILE) +
                  "): ulimit -n, limits.conf, or LimitNOFILE= in systemd.",
              system_errno};
    case ENFILE:
      return {ErrorCode::kResource, failure,
              "The whole system is out of file descriptors: raise fs.file-max.", system_errno};
    case ENOMEM:
    case ENOBUFS:
    case ENOSPC:
      return {
          ErrorCode::kResource, failure,
          "Out of memory: use smaller rings (ring_bytes), fewer connections, or a larger limit.",
          system_errno};
    case ECONNREFUSED:
      return {ErrorCode::kRefused, failure, {}, system_errno};
    case ETIMEDOUT:
      return {ErrorCode::kTimeout, failure, {}, system_errno};
    case ECONNRESET:
    case EPIPE:
      return {ErrorCode::kPeerDied, failure, {}, system_errno};
    case EADDRINUSE:
    case EADDRNOTAVAIL:
    case EHOSTUNREACH:
    case ENETUNREACH:
      return {ErrorCode::kAddress, failure, {}, system_errno};
    default:
      return {ErrorCode::kSystem, failure, {}, system_errno};
  }
}

int check(int result, const char* call) {
  if (result < 0) throw system_error(call, errno);
  return result;
}

}  // namespace leat::detail

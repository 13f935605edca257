#include "leat/error.h"

#include <cerrno>

namespace leat {
namespace {

int nearest_errno(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return EINVAL;
    case ErrorCode::kUnavailable:
      return ENODEV;
    case ErrorCode::kRefused:
      return ECONNREFUSED;
    case ErrorCode::kAddress:
      return EADDRNOTAVAIL;
    case ErrorCode::kTimeout:
      return ETIMEDOUT;
    case ErrorCode::kPeerDied:
      return ECONNRESET;
    case ErrorCode::kClosed:
      return EPIPE;
    case ErrorCode::kProtocol:
    case ErrorCode::kVersion:
      return EPROTO;
    case ErrorCode::kAuthentication:
      return EACCES;
    case ErrorCode::kResource:
      return ENOMEM;
    case ErrorCode::kTooLarge:
      return EMSGSIZE;
    case ErrorCode::kSystem:
      return EIO;
  }
  return EIO;
}

std::string join(const std::string& failure, const std::string& advice) {
  std::string text = failure;
  if (!advice.empty()) text.append(". ").append(advice);
  return text;
}

}  // namespace

std::string_view to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid argument";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kRefused:
      return "refused";
    case ErrorCode::kAddress:
      return "address";
    case ErrorCode::kTimeout:
      return "timeout";
    case ErrorCode::kPeerDied:
      return "peer died";
    case ErrorCode::kClosed:
      return "closed";
    case ErrorCode::kProtocol:
      return "protocol";
    case ErrorCode::kVersion:
      return "version";
    case ErrorCode::kAuthentication:
      return "authentication";
    case ErrorCode::kResource:
      return "resource";
    case ErrorCode::kTooLarge:
      return "too large";
    case ErrorCode::kSystem:
      return "system";
  }
  return "unknown";
}

Error::Error(ErrorCode code, const std::string& failure, const std::string& advice,
             int system_errno)
    : std::runtime_error(join(failure, advice)),
      code_(code),
      system_errno_(system_errno != 0 ? system_errno : nearest_errno(code)) {}

}  // namespace leat

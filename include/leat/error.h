// What leat throws: one exception type with a code for programs and a sentence for people.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "leat/export.h"

namespace leat {

enum class ErrorCode {
  kInvalidArgument,  // a parameter, URI, setting or file of the caller's is wrong
  kUnavailable,      // the device or transport asked for cannot be had here or at the peer
  kRefused,          // nobody listens at that address
  kAddress,          // the name does not resolve, the port is in use, or there is no route
  kTimeout,          // the deadline passed; nothing was half done
  kPeerDied,         // the peer went away without saying that it ended
  kClosed,           // the caller closed or shut down this object before
  kProtocol,         // the peer sent what leat's protocol does not allow
  kVersion,          // the peer speaks another version of leat's protocol
  kAuthentication,   // TLS failed, or a stranger knocked
  kResource,         // out of memory, descriptors or lockable memory
  kTooLarge,         // above a limit that the text names
  kSystem,           // any other failure of the operating system or of the device
};

// The enumerator's name without the k, in lower case: "peer died".
LEAT_EXPORT std::string_view to_string(ErrorCode code) noexcept;

// Thrown by leat's C++ API. `what()` reads "<what failed, where, why>. <what you can do>".
// Would-block is never an error. Value type; safe to copy between threads.
class LEAT_EXPORT Error : public std::runtime_error {
 public:
  // `system_errno`: the errno behind this failure, 0 if there is none.
  Error(ErrorCode code, const std::string& failure, const std::string& advice = {},
        int system_errno = 0);

  ErrorCode code() const noexcept { return code_; }

  // An errno for callers that think in errno: the system's own if there is one, else the nearest
  // (kPeerDied: ECONNRESET, kTimeout: ETIMEDOUT, ...). Never 0.
  int system_errno() const noexcept { return system_errno_; }

 private:
  ErrorCode code_;
  int system_errno_;
};

}  // namespace leat

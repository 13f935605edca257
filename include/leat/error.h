// What leat throws: one exception type, with a code for programs and a sentence for people.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "leat/cxx20.h"
#include "leat/export.h"

namespace leat {

enum class ErrorCode {
  kInvalidArgument,  // the caller's parameter, URI, setting or file is wrong
  kUnavailable,      // this host or the peer lacks the requested device or transport
  kRefused,          // no process listens at that address
  kAddress,          // the name does not resolve, the port is in use, or no route exists
  kTimeout,          // the deadline passed; a message arrives whole or not at all
  kPeerDied,         // the peer went away without ending in order
  kClosed,           // the caller has closed, shut down or moved this object
  kProtocol,         // the peer sent what leat's protocol does not allow
  kVersion,          // the peer speaks another version of leat's protocol
  kAuthentication,   // TLS failed, or the peer is not admitted
  kResource,         // out of memory, descriptors or lockable memory
  kTooLarge,         // above a limit that the text names
  kSystem,           // any other failure of the operating system or of the device
};

// The enumerator's name without the k, as lower-case words: "peer died".
LEAT_EXPORT std::string_view to_string(ErrorCode code) noexcept;

// Thrown by leat's C++ API. what() reads "<what failed, where, why>. <what you can do>".
// Would-block is a value, never an error. Value type; may be copied between threads.
class LEAT_EXPORT Error : public std::runtime_error {
 public:
  // `system_errno`: the errno behind this failure; 0: none.
  Error(ErrorCode code, const std::string& failure, const std::string& advice = {},
        int system_errno = 0);

  ErrorCode code() const noexcept { return code_; }

  // An errno value for callers that need one: the system's own if there is one, else the nearest
  // (kPeerDied: ECONNRESET, kTimeout: ETIMEDOUT, ...). Never 0.
  int system_errno() const noexcept { return system_errno_; }

 private:
  ErrorCode code_;
  int system_errno_;
};

}  // namespace leat

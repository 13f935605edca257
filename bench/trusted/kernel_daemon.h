// What the two ways to keep kernels in a process of their own share: attest_home.h, kernel_homes.h.
#pragma once

#include <chrono>
#include <string>

#include "attestd/server.h"
#include "forked_peer.h"

namespace leat::bench {

// How long the clients of a kernel with a core of its own spin for it.
inline constexpr std::chrono::microseconds kNeverSleep{-1};

// A folder of its own, which has to be empty when it is removed, at the end.
class ScratchFolder {
 public:
  ScratchFolder();  // throws std::system_error
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// As leat-attestd after attestd::hide_memory(), but for the user, who stays the same. Tells
// "ready"; returns only when killed.
void serve_kernel(const attestd::ServerOptions& options, const attestd::Holdings& holdings,
                  const ForkedPeer::Tell& tell);

}  // namespace leat::bench

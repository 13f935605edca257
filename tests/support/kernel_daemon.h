// A leat-attestd that has got its sessions as from a controller. The vendor's part is the test's.
#pragma once

#include <sys/types.h>

#include <string>

#include "trusted/remote/messages.h"

namespace leat::trusted::remote {

// Owner: a test. Killed at the end.
class KernelDaemon {
 public:
  // Returns when it serves at that path, enabled. Throws leat::Error.
  KernelDaemon(const Secrets& secrets, const std::string& socket);
  KernelDaemon(const KernelDaemon&) = delete;
  KernelDaemon& operator=(const KernelDaemon&) = delete;
  ~KernelDaemon();

 private:
  pid_t pid_ = 0;
};

// A group session in which device `sender` sends and the other devices from 1 to `devices` receive.
SessionSecret group_session(std::uint32_t id, std::uint32_t sender, std::uint32_t devices,
                            SecretBytes key);

}  // namespace leat::trusted::remote

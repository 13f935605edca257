// The attestation kernel as a process of its own, which the controller starts, and the only channel
// that gives it keys: a socket pair that it inherits as descriptor 3. It carries frames of
// messages.h, each once: SECRETS down, READY up, ENABLE down, ENABLED up.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "net/stream.h"
#include "trusted/remote/controller.h"

namespace leat::trusted::remote {

inline constexpr int kKernelDescriptor = 3;

// A copy in memory of the program at `path`, which nobody can change from now on; it is closed by
// exec. Throws Refused(kKernel) for a script, for more than 256 MiB, and if there can be none.
leat::detail::Fd sealed_copy_of(const std::string& path);
// Whoever runs that copy from now on may not read it, unless it is root. Therefore Linux hides the
// process from others of its user from the first instruction on, before the program could do that.
void hide_process_of(const leat::detail::Fd& copy);

// Owner: the controller, in one thread. On its destruction the attestation kernel sees the channel
// end; if it was enabled, it goes on and keeps its keys.
class KernelProcess final : public KernelHome {
 public:
  // `command`: a program's path and its arguments; it runs only after start().
  explicit KernelProcess(std::vector<std::string> command,
                         std::chrono::milliseconds timeout = std::chrono::seconds(10));

  // Measures and runs a sealed copy in memory, so that the program can neither be exchanged nor
  // rewritten in between, with an empty environment. The arguments, the working directory, the
  // other descriptors that exec passes on, and the shared libraries are not measured. Throws
  // Refused(kImage) for another program; Refused(kKernel) for a script, for more than 256 MiB, and
  // if it cannot be run.
  Digest start(const Digest& expected) override;
  void provision(const Secrets& secrets) override;
  void enable(const Enable& enable) override;

  // 0 before start(). The caller reaps the process.
  pid_t pid() const { return pid_; }

 private:
  const std::vector<std::string> command_;
  const std::chrono::milliseconds timeout_;
  pid_t pid_ = 0;
  std::unique_ptr<leat::detail::Stream> stream_;
};

// The attestation kernel's end. It takes one set of keys in the life of the process, and no message
// reads one back. Owner: one thread, at the start of the process.
class KernelEnd {
 public:
  // Throws kInvalidArgument if `socket` is not a controller's: no controller started this process.
  explicit KernelEnd(leat::detail::Fd socket);

  // Receives the keys; blocks. Throws Refused, kTimeout, kPeerDied.
  Secrets receive_secrets(leat::detail::Deadline deadline);
  // Reports that they were taken, then waits for ENABLE, before which nothing may be attested.
  Enable wait_enable(leat::detail::Deadline deadline);
  // Reports that the attestation kernel attests from now on.
  void enabled();

 private:
  enum class State { kNew, kProvisioned, kEnabling, kOver };
  void enter(State state);

  std::unique_ptr<leat::detail::Stream> stream_;
  std::uint64_t epoch_ = 0;
  State state_ = State::kNew;
};

}  // namespace leat::trusted::remote

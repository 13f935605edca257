// Whether this process is still the one that made something.
#pragma once

#include <atomic>

namespace leat::detail {

// Changes in the child of a fork.
class ForkGeneration {
 public:
  // Starts the counting, so that children of forks from now on differ. Any thread.
  static unsigned start() noexcept;
  // The present one. Relaxed: a fork copies one thread, for which everything before it happened.
  static unsigned now() noexcept { return generation.load(std::memory_order_relaxed); }

 private:
  static std::atomic<unsigned> generation;
};

// What a process got from its parent by fork() stays the parent's: connections in the kernel, in
// shared memory and at the peer are the same objects for both.
class MadeHere {
 public:
  // False in a child of the process that constructed this.
  explicit operator bool() const noexcept { return generation_ == ForkGeneration::now(); }

 private:
  unsigned generation_ = ForkGeneration::start();
};

// A descriptor that children of forks do not have, although they may live long after this process:
// what the kernel does when the last one who has it ends, it does when this process ends. In them
// the number stands for /dev/null. Any thread; must go before the descriptor is closed.
class NotInherited {
 public:
  explicit NotInherited(int fd);
  NotInherited(const NotInherited&) = delete;
  NotInherited& operator=(const NotInherited&) = delete;
  ~NotInherited();

 private:
  const int fd_;
};

}  // namespace leat::detail

// Tells whether this process is still the one that made an object.
#pragma once

#include <atomic>

#include "leat/export.h"

namespace leat::detail {

// Changes in the child of a fork.
class LEAT_EXPORT ForkGeneration {
 public:
  // Starts counting, so that children of later forks have other numbers. Any thread.
  static unsigned start() noexcept;
  // The number of this process. Relaxed: a fork copies one thread, for which everything before it
  // has happened.
  static unsigned now() noexcept { return generation.load(std::memory_order_relaxed); }

 private:
  static std::atomic<unsigned> generation;
};

// What a process inherited by fork() remains its parent's: connections in the kernel, in shared
// memory and at the peer are the same objects for both.
class MadeHere {
 public:
  // False in a child of the process that constructed this.
  explicit operator bool() const noexcept { return generation_ == ForkGeneration::now(); }

 private:
  unsigned generation_ = ForkGeneration::start();
};

// Keeps a descriptor from children of fork(), which may live long after this process: the kernel's
// actions at the last close of its file then happen when this process ends. In a child the number
// stands for /dev/null. Any thread; destroy this object before closing the descriptor.
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

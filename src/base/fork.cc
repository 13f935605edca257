#include "base/fork.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <cstddef>
#include <mutex>
#include <new>
#include <vector>

namespace leat::detail {
namespace {

// Those of all NotInherited. Never destroyed: what lingers at the end of the program has some.
struct Kept {
  std::mutex mutex;
  std::vector<int> descriptors;
};

Kept& kept() {
  alignas(Kept) static std::byte place[sizeof(Kept)];
  static Kept* const all = new (place) Kept;
  return *all;
}

// In the child. The numbers stay in use, so that a later close() of them closes nothing else.
void leave_to_parent(const std::vector<int>& descriptors) {
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : descriptors)
    if (nothing < 0 || dup3(nothing, fd, O_CLOEXEC) < 0) close(fd);
  if (nothing >= 0) close(nothing);
}

}  // namespace

std::atomic<unsigned> ForkGeneration::generation{0};

unsigned ForkGeneration::start() noexcept {
  static const bool watching [[maybe_unused]] =
      pthread_atfork([] { kept().mutex.lock(); }, [] { kept().mutex.unlock(); },
                     [] {
                       generation.fetch_add(1, std::memory_order_relaxed);
                       leave_to_parent(kept().descriptors);
                       kept().descriptors.clear();
                       kept().mutex.unlock();
                     }) == 0;
  return now();
}

NotInherited::NotInherited(int fd) : fd_(fd) {
  ForkGeneration::start();
  const std::lock_guard lock(kept().mutex);
  kept().descriptors.push_back(fd);
}

NotInherited::~NotInherited() {
  const std::lock_guard lock(kept().mutex);
  std::erase(kept().descriptors, fd_);
}

}  // namespace leat::detail

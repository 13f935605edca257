#include "preload/rings.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string_view>

#include "preload/configuration.h"
#include "preload/descriptors.h"
#include "preload/real.h"
#include "preload/undisturbed.h"

namespace leat::preload {
namespace {

// The kernel gives the lowest number that is free, so that after so many free ones in a row hardly
// anything follows.
constexpr int kFreeInARow = 4;

std::atomic<bool> found_ring{false};

bool is_ring(int fd) {
  char path[32];
  char target[32];
  snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
  const ssize_t bytes = readlink(path, target, sizeof(target));
  return bytes > 0 &&
         std::string_view(target, static_cast<std::size_t>(bytes)) == "anon_inode:[io_uring]";
}

}  // namespace

void expect_rings_of_liburing() noexcept {
  if (dlsym(RTLD_DEFAULT, "io_uring_queue_init") == nullptr) return;
  found_ring.store(true, std::memory_order_relaxed);
  log(Level::kInfo, "this program has liburing: its connections stay with TCP");
}

bool has_ring() noexcept {
  // Relaxed: once true it stays so, and nothing else goes with it.
  if (found_ring.load(std::memory_order_relaxed)) return true;
  const Undisturbed undisturbed;
  for (int fd = 0, free = 0; fd < kMostDescriptors && free < kFreeInARow; ++fd) {
    if (descriptor_entry(fd).load(std::memory_order_relaxed) != nullptr) {
      free = 0;
      continue;
    }
    struct stat status {};
    free = system_call(SYS_fstat, fd, &status) == 0 ? 0 : free + 1;
    if (free != 0) continue;
    // Only what the kernel makes without a name has no type.
    if ((status.st_mode & S_IFMT) != 0 || !is_ring(fd)) continue;
    found_ring.store(true, std::memory_order_relaxed);
    log(Level::kInfo, "descriptor %d is an io_uring: new connections of this process stay with TCP",
        fd);
    return true;
  }
  return false;
}

}  // namespace leat::preload

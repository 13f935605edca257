#include "trusted/a2m/storage.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/system_error.h"
#include "leat/error.h"

namespace leat::trusted::detail {
namespace {

constexpr std::size_t kLeastExtent = std::size_t{64} << 10;
constexpr std::size_t kMostExtent = std::size_t{64} << 20;
// Of every system that this runs on; a multiple of the others' pages is fine.
constexpr std::size_t kPage = 4096;

constexpr std::size_t round_up(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

A2mStorage::A2mStorage(std::size_t most_bytes)
    : most_bytes_(round_up(most_bytes)), access_(Access::kWrite) {
  reserve();
}

A2mStorage::A2mStorage(const std::string& path, std::size_t most_bytes, Access access)
    : path_(path), most_bytes_(round_up(most_bytes)), access_(access) {
  const bool writes = access == Access::kWrite;
  fd_ = open(path.c_str(), (writes ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW);
  if (fd_ < 0) throw leat::detail::system_error("open " + path, errno);
  try {
    if (writes && flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) throw leat::detail::system_error("flock " + path, errno);
      throw Error(ErrorCode::kUnavailable, path + " is open in another process",
                  "A log has one writer. End the other one, or choose another folder.");
    }
    struct stat status {};
    if (fstat(fd_, &status) != 0) throw leat::detail::system_error("fstat " + path, errno);
    if (!S_ISREG(status.st_mode))
      throw Error(ErrorCode::kInvalidArgument, path + " is not a file", "Choose another folder.");
    const auto bytes = static_cast<std::size_t>(status.st_size);
    if (bytes > most_bytes_)
      throw Error(ErrorCode::kTooLarge,
                  path + " has " + std::to_string(bytes) + " bytes, more than max_entries allows",
                  "Open it with as many entries as it was made for.");
    found_bytes_ = bytes;
    // A file that was cut may end within a page.
    const std::size_t whole = round_up(bytes);
    if (writes && whole > bytes) {
      const int failed =
          posix_fallocate(fd_, static_cast<off_t>(bytes), static_cast<off_t>(whole - bytes));
      if (failed != 0) throw leat::detail::system_error("posix_fallocate " + path, failed);
    }
    reserve();
    if (whole > 0) map(0, whole);
  } catch (...) {
    if (data_ != nullptr) munmap(data_, most_bytes_);
    close(fd_);
    throw;
  }
}

A2mStorage::~A2mStorage() {
  munmap(data_, most_bytes_);
  if (fd_ >= 0) close(fd_);
}

void A2mStorage::reserve() {
  void* memory =
      mmap(nullptr, most_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw leat::detail::system_error(
        "mmap of " + std::to_string(most_bytes_) + " bytes of address space", errno);
  data_ = static_cast<std::byte*>(memory);
}

void A2mStorage::map(std::size_t from, std::size_t to) {
  const bool file = fd_ >= 0;
  void* memory =
      mmap(data_ + from, to - from, access_ == Access::kWrite ? PROT_READ | PROT_WRITE : PROT_READ,
           MAP_FIXED | (file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS), fd_,
           file ? static_cast<off_t>(from) : 0);
  if (memory == MAP_FAILED) throw leat::detail::system_error("mmap " + path_, errno);
  // Fewer misses of the address translation in long logs; without, it is only slower.
  if (!file) (void)madvise(memory, to - from, MADV_HUGEPAGE);
  size_.store(to, std::memory_order_release);
}

void A2mStorage::grow(std::size_t bytes) {
  const std::size_t before = size();
  if (bytes <= before) return;
  const std::size_t extent = std::clamp(before, kLeastExtent, kMostExtent);
  const std::size_t to = std::min(std::max(round_up(bytes), before + extent), most_bytes_);
  if (fd_ >= 0) {
    // Room now: a page that the disk has none for would be a signal later, in the middle of a copy.
    const int failed =
        posix_fallocate(fd_, static_cast<off_t>(before), static_cast<off_t>(to - before));
    if (failed == ENOSPC || failed == EFBIG || failed == EDQUOT)
      throw Error(ErrorCode::kResource, "no room on the disk for " + path_,
                  "Make room, or truncate the log.", failed);
    if (failed != 0) throw leat::detail::system_error("posix_fallocate " + path_, failed);
  }
  map(before, to);
}

void A2mStorage::release(std::size_t from, std::size_t to) noexcept {
  from = round_up(from);
  to = to / kPage * kPage;
  if (from >= to) return;
  // Both are to save memory: where they fail, the forgotten bytes stay until the log goes.
  if (fd_ < 0)
    (void)madvise(data_ + from, to - from, MADV_DONTNEED);
  else
    (void)fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(from),
                    static_cast<off_t>(to - from));
}

void A2mStorage::sync() {
  if (fd_ < 0 || size() == 0) return;
  if (msync(data_, size(), MS_SYNC) != 0 || fdatasync(fd_) != 0)
    throw leat::detail::system_error("sync of " + path_, errno);
}

}  // namespace leat::trusted::detail

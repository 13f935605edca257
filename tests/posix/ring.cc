#include "ring.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "case.h"

namespace posix_cases {
namespace {

constexpr unsigned kEntries = 4;

std::atomic_ref<unsigned> word(unsigned char* ring, std::size_t offset) {
  return std::atomic_ref<unsigned>(*reinterpret_cast<unsigned*>(ring + offset));
}

long address_of(const void* data) { return reinterpret_cast<long>(data); }

}  // namespace

Ring::Ring(SystemCall system_call)
    : system_call_(system_call),
      fd_(static_cast<int>(
          system_call(SYS_io_uring_setup, kEntries, address_of(&parameters_), 0, 0, 0, 0))) {
  if (fd_ < 0) return;
  submissions_ = static_cast<unsigned char*>(
      map(parameters_.sq_off.array + kEntries * sizeof(unsigned), IORING_OFF_SQ_RING));
  completions_ = static_cast<unsigned char*>(map(
      parameters_.cq_off.cqes + parameters_.cq_entries * sizeof(io_uring_cqe), IORING_OFF_CQ_RING));
  entries_ = static_cast<io_uring_sqe*>(map(kEntries * sizeof(io_uring_sqe), IORING_OFF_SQES));
}

Ring::~Ring() {
  if (fd_ >= 0) system_call_(SYS_close, fd_, 0, 0, 0, 0, 0);
}

void* Ring::map(std::size_t bytes, unsigned long offset) {
  void* place = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_,
                     static_cast<off_t>(offset));
  require(place != MAP_FAILED, "mmap of a ring");
  return place;
}

long Ring::submit(const io_uring_sqe& operation, bool& done) {
  done = false;
  if (fd_ < 0) return -1;
  // Relaxed: only this thread submits.
  const unsigned place =
      word(submissions_, parameters_.sq_off.tail).load(std::memory_order_relaxed);
  const unsigned index = place % kEntries;
  entries_[index] = operation;
  word(submissions_, parameters_.sq_off.array + index * sizeof(unsigned))
      .store(index, std::memory_order_relaxed);
  // Release: the kernel that sees the place taken sees what is in it.
  word(submissions_, parameters_.sq_off.tail).store(place + 1, std::memory_order_release);
  long entered = -1;
  do {
    entered = system_call_(SYS_io_uring_enter, fd_, 1, 1, IORING_ENTER_GETEVENTS, 0, 0);
  } while (entered < 0 && errno == EINTR);
  require(entered >= 0, "io_uring_enter");
  const auto head = word(completions_, parameters_.cq_off.head);
  const unsigned first = head.load(std::memory_order_relaxed);
  // Acquire, with the kernel's release of what it has put there.
  require(first != word(completions_, parameters_.cq_off.tail).load(std::memory_order_acquire),
          "a completion");
  const auto* results =
      reinterpret_cast<const io_uring_cqe*>(completions_ + parameters_.cq_off.cqes);
  const int result = results[first % parameters_.cq_entries].res;
  head.store(first + 1, std::memory_order_release);  // the kernel may use the place again
  done = result != -EINVAL && result != -EOPNOTSUPP;
  if (result < 0) errno = -result;
  return result < 0 ? -1 : result;
}

int Ring::control(int set, int operation, int fd, epoll_event* event) {
  io_uring_sqe entry{};
  entry.opcode = IORING_OP_EPOLL_CTL;
  entry.fd = set;
  entry.len = static_cast<std::uint32_t>(operation);
  entry.off = static_cast<std::uint64_t>(fd);
  entry.addr = static_cast<std::uint64_t>(address_of(event));
  bool done = false;
  const long result = submit(entry, done);
  return done ? static_cast<int>(result) : ::epoll_ctl(set, operation, fd, event);
}

long Ring::send(int fd, const void* data, std::size_t bytes) {
  io_uring_sqe entry{};
  entry.opcode = IORING_OP_SEND;
  entry.fd = fd;
  entry.addr = static_cast<std::uint64_t>(address_of(data));
  entry.len = static_cast<std::uint32_t>(bytes);
  bool done = false;
  const long result = submit(entry, done);
  return done ? result : ::send(fd, data, bytes, 0);
}

long Ring::recv(int fd, void* data, std::size_t bytes) {
  io_uring_sqe entry{};
  entry.opcode = IORING_OP_RECV;
  entry.fd = fd;
  entry.addr = static_cast<std::uint64_t>(address_of(data));
  entry.len = static_cast<std::uint32_t>(bytes);
  bool done = false;
  const long result = submit(entry, done);
  return done ? result : ::recv(fd, data, bytes, 0);
}

}  // namespace posix_cases

// close, dup and their kin.
#include <fcntl.h>
#include <stdarg.h>
#include <sys/resource.h>

#include <climits>

#include "preload/call.h"
#include "preload/epoll_set.h"
#include "preload/hidden.h"
#include "preload/socket_facts.h"
#include "preload/stdio_streams.h"

namespace leat::preload {
namespace {

// After the kernel's dup2.
void duplicated(int from, int to) {
  // A copy of what may become a connection or a listener becomes the same.
  if (!find_current(from) && is_connectable(from)) add(from, Kind::kSocket);
  add_duplicate(from, to);
  if (to > STDERR_FILENO) return;
  const Reference object = find(to);
  if (object.is(Kind::kConnection) || object.awaits_offer()) replace_standard_stream(to);
}

// To the program, leat's own descriptors are not open: refuses one with EBADF.
bool refuse_hidden(int fd) {
  if (!is_hidden(fd)) return false;
  errno = EBADF;
  return true;
}

// One of our numbers to which nothing can be copied, though it is open: the limit was lowered
// since.
bool is_beyond_limit(int fd) {
  rlimit limit{};
  return find(fd) && getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
         static_cast<rlim_t>(fd) >= limit.rlim_cur;
}

}  // namespace

void closing(int fd) noexcept {
  Reference object = find(fd);
  if (!object) return;
  const bool sets_know = EpollSet::descriptor_is_closed(fd);
  // References: each number's, ours, and those of calls. As long as this process has another number
  // nothing ends.
  const int numbers = object->numbers.load(std::memory_order_relaxed);
  const bool in_use =
      static_cast<int>(object->references.load(std::memory_order_relaxed)) > numbers + 1;
  if (object.is(Kind::kConnection) && numbers == 1) object->connection.note_closing(fd, in_use);
  // The connecting side may have offered, and sent the byte that tells so: unread it would make the
  // close a reset, as of one that was never accepted.
  if (numbers == 1 && !in_use && object.awaits_offer() &&
      !object->forked.load(std::memory_order_relaxed) && !resets_at_close(fd))
    real().shutdown(fd, SHUT_WR);
  forget(fd);
  if (!sets_know) EpollSet::note_missed();
}

}  // namespace leat::preload

using namespace leat::preload;  // NOLINT: the functions below are C's

// The C library's headers call the parameters otherwise.
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name)

LEAT_CALL int close(int fd) {
  if (fd >= 0 && fd < kMostDescriptors &&
      descriptor_entry(fd).load(std::memory_order_relaxed) != nullptr) [[unlikely]] {
    if (refuse_hidden(fd)) return -1;
    closing(fd);
  }
  return real().close(fd);
}

LEAT_CALL int dup(int fd) noexcept {
  const int copy = real().dup(fd);
  if (copy >= 0) duplicated(fd, copy);
  return copy;
}

LEAT_CALL int dup2(int fd, int copy) noexcept {
  if (fd == copy) return real().dup2(fd, copy);
  if (refuse_hidden(fd) || refuse_hidden(copy)) return -1;
  if (real().fcntl(fd, F_GETFD, nullptr) < 0) return -1;
  if (!is_beyond_limit(copy)) closing(copy);
  const int result = real().dup2(fd, copy);
  if (result >= 0) duplicated(fd, copy);
  return result;
}

LEAT_CALL int dup3(int fd, int copy, int flags) noexcept {
  if (fd == copy || (flags & ~O_CLOEXEC) != 0) return real().dup3(fd, copy, flags);  // refuses
  if (refuse_hidden(fd) || refuse_hidden(copy)) return -1;
  if (real().fcntl(fd, F_GETFD, nullptr) < 0) return -1;
  if (!is_beyond_limit(copy)) closing(copy);
  const int result = real().dup3(fd, copy, flags);
  if (result >= 0) duplicated(fd, copy);
  return result;
}

LEAT_CALL int fcntl64(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  const int result = real().fcntl(fd, command, argument);
  if ((command == F_DUPFD || command == F_DUPFD_CLOEXEC) && result >= 0) duplicated(fd, result);
  return result;
}

LEAT_CALL int fcntl(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  return fcntl64(fd, command, argument);
}

LEAT_CALL int close_range(unsigned first, unsigned last, int flags) noexcept {
  constexpr unsigned kFlags = CLOSE_RANGE_CLOEXEC | CLOSE_RANGE_UNSHARE;
  if (first > last || (static_cast<unsigned>(flags) & ~kFlags) != 0)
    return real().close_range(first, last, flags);  // refuses
  // In pieces between our own.
  const int end = static_cast<int>(last < INT_MAX ? last : INT_MAX - 1U);
  unsigned from = first;
  for (int fd = static_cast<int>(first < INT_MAX ? first : INT_MAX - 1U);
       fd <= end && fd <= highest_known(); ++fd) {
    if (descriptor_entry(fd).load(std::memory_order_relaxed) == nullptr) continue;
    const auto number = static_cast<unsigned>(fd);
    if (!is_hidden(fd)) {
      if ((flags & CLOSE_RANGE_CLOEXEC) == 0) closing(fd);
      continue;
    }
    if (number > from && real().close_range(from, number - 1, flags) != 0) return -1;
    from = number + 1;
  }
  return from > last ? 0 : real().close_range(from, last, flags);
}

LEAT_CALL int daemon(int keeps_folder, int keeps_streams) noexcept {
  const int result = real().daemon(keeps_folder, keeps_streams);
  // The C library has put /dev/null there, past our dup2().
  for (int fd = STDIN_FILENO; result == 0 && keeps_streams == 0 && fd <= STDERR_FILENO; ++fd)
    closing(fd);
  return result;
}

LEAT_CALL void closefrom(int first) noexcept {
  close_range(static_cast<unsigned>(first < 0 ? 0 : first), UINT_MAX, 0);
}
// NOLINTEND(readability-inconsistent-declaration-parameter-name)

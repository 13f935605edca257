// fdopen, fileno and dprintf.
#include <stdarg.h>
#include <stdlib.h>

#include "preload/call.h"
#include "preload/socket_facts.h"
#include "preload/stdio_streams.h"

namespace leat::preload {
namespace {

// Whether the mode says nothing that the descriptor forbids; as fdopen, only the letter counts.
bool good_mode(const char* mode) {
  return mode != nullptr && (mode[0] == 'r' || mode[0] == 'w' || mode[0] == 'a');
}

}  // namespace

void closing_stream(FILE* file) noexcept {
  const int kept_errno = errno;
  closing(real().fileno(file));
  errno = kept_errno;
}

}  // namespace leat::preload

using namespace leat::preload;  // NOLINT: the functions below are C's

// The C library's headers call the parameters otherwise.
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name)

LEAT_CALL FILE* fdopen(int fd, const char* mode) noexcept {
  // One that is not connected yet may be carried later.
  const bool ours = known_carried(fd) || find(fd).awaits_offer() || is_connectable(fd);
  if (!ours || !good_mode(mode)) return real().fdopen(fd, mode);
  return open_stream(fd, mode);
}

LEAT_CALL int fileno(FILE* file) noexcept {
  const int fd = stream_descriptor(file);
  return fd >= 0 ? fd : real().fileno(file);
}

LEAT_CALL int fileno_unlocked(FILE* file) noexcept {
  const int fd = stream_descriptor(file);
  return fd >= 0 ? fd : real().fileno_unlocked(file);
}

LEAT_CALL FILE* freopen(const char* path, const char* mode, FILE* file) {
  closing_stream(file);
  return real().freopen(path, mode, file);
}

LEAT_CALL FILE* freopen64(const char* path, const char* mode, FILE* file) {
  closing_stream(file);
  return real().freopen64(path, mode, file);
}

LEAT_CALL int vdprintf(int fd, const char* format, va_list arguments) {
  if (!carried(fd)) return real().vdprintf(fd, format, arguments);
  char* text = nullptr;
  const int bytes = vasprintf(&text, format, arguments);
  for (int done = 0; done < bytes;) {
    const ssize_t put = ::write(fd, text + done, static_cast<size_t>(bytes - done));
    if (put < 0) {
      free(text);
      return -1;
    }
    done += static_cast<int>(put);
  }
  free(text);
  return bytes;
}

LEAT_CALL int dprintf(int fd, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int bytes = vdprintf(fd, format, arguments);
  va_end(arguments);
  return bytes;
}

// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
LEAT_CALL int __vdprintf_chk(int fd, int, const char* format, va_list arguments) {
  return vdprintf(fd, format, arguments);
}

// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
LEAT_CALL int __dprintf_chk(int fd, int, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int bytes = vdprintf(fd, format, arguments);
  va_end(arguments);
  return bytes;
}
// NOLINTEND(readability-inconsistent-declaration-parameter-name)

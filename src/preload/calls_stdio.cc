// FILE* on a carried connection. The C library's own streams call the kernel past us, so such a
// stream is made of functions that call us.
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <mutex>
#include <new>
#include <unordered_map>

#include "base/spin_lock.h"
#include "preload/call.h"

namespace leat::preload {
namespace {

struct Stream {
  FILE* file = nullptr;
  int fd = -1;
};

struct Streams {
  detail::SpinLock lock;
  std::unordered_map<const FILE*, int> descriptors;
};

Streams& streams() {
  static Streams* const kept = new Streams;
  return *kept;
}

ssize_t read_stream(void* cookie, char* bytes, size_t count) {
  return ::read(static_cast<Stream*>(cookie)->fd, bytes, count);
}

// All of it: stdio takes a short count for an error.
ssize_t write_stream(void* cookie, const char* bytes, size_t count) {
  size_t done = 0;
  while (done < count) {
    const ssize_t put = ::write(static_cast<Stream*>(cookie)->fd, bytes + done, count - done);
    if (put < 0) return done != 0 ? static_cast<ssize_t>(done) : 0;
    done += static_cast<size_t>(put);
  }
  return static_cast<ssize_t>(done);
}

int close_stream(void* cookie) {
  auto* stream = static_cast<Stream*>(cookie);
  {
    const std::lock_guard guard(streams().lock);
    streams().descriptors.erase(stream->file);
  }
  const int fd = stream->fd;
  delete stream;
  return ::close(fd);
}

int descriptor_of(const FILE* file) {
  const std::lock_guard guard(streams().lock);
  const auto found = streams().descriptors.find(file);
  return found == streams().descriptors.end() ? -1 : found->second;
}

// Whether the mode says nothing that the descriptor forbids; as fdopen, only the letter counts.
bool good_mode(const char* mode) {
  return mode != nullptr && (mode[0] == 'r' || mode[0] == 'w' || mode[0] == 'a');
}

}  // namespace

FILE* open_stream(int fd, const char* mode) {
  auto* stream = new (std::nothrow) Stream;
  if (stream == nullptr) return nullptr;
  stream->fd = fd;
  // Sockets can be read and written, whatever else is asked for.
  const char how[3] = {mode[0], strchr(mode, '+') != nullptr ? '+' : '\0', '\0'};
  stream->file = fopencookie(stream, how, {read_stream, write_stream, nullptr, close_stream});
  if (stream->file == nullptr) {
    delete stream;
    return nullptr;
  }
  const std::lock_guard guard(streams().lock);
  streams().descriptors.emplace(stream->file, fd);
  return stream->file;
}

void forget_stream_lock() noexcept { streams().lock.unlock(); }

}  // namespace leat::preload

using namespace leat::preload;  // NOLINT: the functions below are C's

LEAT_CALL FILE* fdopen(int fd, const char* mode) noexcept {
  if (!carried(fd, false) || !good_mode(mode)) return real().fdopen(fd, mode);
  return open_stream(fd, mode);
}

LEAT_CALL int fileno(FILE* file) noexcept {
  const int fd = descriptor_of(file);
  return fd >= 0 ? fd : real().fileno(file);
}

LEAT_CALL int fileno_unlocked(FILE* file) noexcept {
  const int fd = descriptor_of(file);
  return fd >= 0 ? fd : real().fileno_unlocked(file);
}

LEAT_CALL int vdprintf(int fd, const char* format, va_list arguments) {
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

LEAT_CALL int __vdprintf_chk(int fd, int, const char* format, va_list arguments) {
  return vdprintf(fd, format, arguments);
}

LEAT_CALL int __dprintf_chk(int fd, int, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int bytes = vdprintf(fd, format, arguments);
  va_end(arguments);
  return bytes;
}

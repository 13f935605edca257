#include "preload/stdio_streams.h"

#include <stdio_ext.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <unordered_map>

namespace leat::preload {
namespace {

struct Stream {
  FILE* file = nullptr;
  int fd = -1;
};

// Neither is made at the first use: the child of a fork lets go of the lock, and may have no
// malloc.
constinit SignalSafeLock lock;

std::unordered_map<const FILE*, int>& descriptors() {
  static auto* const kept = new std::unordered_map<const FILE*, int>;
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

int seek_stream(void*, off64_t*, int) {
  errno = ESPIPE;
  return -1;
}

int close_stream(void* cookie) {
  auto* stream = static_cast<Stream*>(cookie);
  {
    const Locked locked(lock);
    if (locked) descriptors().erase(stream->file);
  }
  const int fd = stream->fd;
  delete stream;
  return ::close(fd);
}

}  // namespace

FILE* open_stream(int fd, const char* mode) {
  auto* stream = new (std::nothrow) Stream;
  if (stream == nullptr) return nullptr;
  stream->fd = fd;
  // Sockets can be read and written, whatever else is asked for.
  const char how[3] = {mode[0], std::strchr(mode, '+') != nullptr ? '+' : '\0', '\0'};
  stream->file = fopencookie(stream, how, {read_stream, write_stream, seek_stream, close_stream});
  if (stream->file == nullptr) {
    delete stream;
    return nullptr;
  }
  const Locked locked(lock);
  if (locked) descriptors().emplace(stream->file, fd);
  return stream->file;
}

int stream_descriptor(const FILE* file) {
  const Locked locked(lock);
  if (!locked) return -1;  // in a signal handler that interrupted a change
  const auto found = descriptors().find(file);
  return found == descriptors().end() ? -1 : found->second;
}

void replace_standard_stream(int fd) {
  if (fd < STDIN_FILENO || fd > STDERR_FILENO) return;
  FILE*& stream = fd == STDIN_FILENO ? stdin : (fd == STDOUT_FILENO ? stdout : stderr);
  if (stream_descriptor(stream) == fd) return;
  FILE* replacement = open_stream(fd, fd == STDIN_FILENO ? "r" : "w");
  if (replacement == nullptr) return;
  if (fd == STDERR_FILENO) setvbuf(replacement, nullptr, _IONBF, 0);
  // What waits in the old one would go to the new descriptor at the next flush.
  if (const size_t waiting = fd == STDIN_FILENO ? 0 : __fpending(stream); waiting != 0) {
    fwrite(stream->_IO_write_base, 1, waiting, replacement);
    __fpurge(stream);
  }
  stream = replacement;
}

SignalSafeLock& lock_of_streams() noexcept { return lock; }

}  // namespace leat::preload

// A connected TCP socket, in clear or inside TLS 1.3. Never blocks unless a call says so.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/fd.h"

namespace leat::detail {

// Threads: one may read while another writes. Errors: kPeerDied at a reset, kAuthentication for
// TLS.
class Stream {
 public:
  virtual ~Stream() = default;

  // How many bytes were read; 0 at the peer's end; no value if there are none now.
  virtual std::optional<std::size_t> try_read(std::span<std::byte> bytes) = 0;
  // How many were taken, at least 1; no value if there is no room now: the next call must then
  // begin with the same bytes, because TLS may have encrypted them (kInvalidArgument if it does
  // not).
  virtual std::optional<std::size_t> try_write(std::span<const std::byte> bytes) = 0;

  // Whether the peer has closed its end or reset; looks without consuming. One system call.
  virtual bool peer_closed() noexcept = 0;
  // The socket, for poll. Bytes may be waiting inside TLS although it is not readable: try_read
  // until there is no value before waiting.
  virtual int fd() const = 0;
  virtual bool encrypted() const = 0;
  // Ends both directions at once; wakes whoever waits. Any thread.
  virtual void abort() noexcept = 0;
};

// In clear. Makes the socket non-blocking, without Nagle's delay, and watched by the kernel, so
// that a silent death of the peer's host ends an idle connection after about half a minute.
std::unique_ptr<Stream> plain_stream(Fd socket);
// The part of it that TLS needs too.
void prepare_socket(int socket);
// The kernel asks a peer that has been silent for 10 seconds at least so much longer before it
// gives it up, if that is more than 15 seconds. Negative: as long as it can.
void outlast(int socket, std::chrono::milliseconds patience);

// Blocks until poll(2) reports one of `events`. At the deadline throws kTimeout with the text
// `what`.
void wait_ready(int fd, short events, Deadline deadline, const char* what);

// Whether the peer of a socket has closed its end or reset. One system call.
bool socket_peer_closed(int socket) noexcept;

// Says that nothing more comes and waits, but not long, until the peer has closed: so that our last
// words are not lost to the reset which closing with unread bytes causes.
void linger_close(Stream& stream, Deadline deadline) noexcept;

// Block until all is done; throw kTimeout at the deadline and kPeerDied at an early end.
void read_all(Stream& stream, std::span<std::byte> bytes, Deadline deadline);
void write_all(Stream& stream, std::span<const std::byte> bytes, Deadline deadline);

}  // namespace leat::detail

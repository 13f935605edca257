// A connected TCP socket, in clear or inside TLS 1.3. No call blocks unless its comment says so.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/fd.h"

namespace leat::detail {

// Advice against connections in clear.
inline constexpr const char* kSetAKey =
    "Set tls_psk_file on both sides; (umask 077; openssl rand -hex 32 >FILE) makes a key.";

// The state of a stream that serves as lifeline: neither side writes to it any more.
enum class Lifeline { kSilent, kSpoke, kClosed };

// Threads: one may read while another writes. Errors: kPeerDied at a reset, kAuthentication for
// TLS. Children of fork() do not inherit the socket, so the death of its owner ends the connection.
class Stream {
 public:
  virtual ~Stream() = default;

  // Returns how many bytes it read; 0 at the peer's end; no value if none are there now.
  virtual std::optional<std::size_t> try_read(std::span<std::byte> bytes) = 0;
  // Returns how many bytes it took, at least 1, or no value if there is no room now. The next call
  // must then begin with the same bytes, because TLS may have encrypted them; otherwise it throws
  // kInvalidArgument.
  virtual std::optional<std::size_t> try_write(std::span<const std::byte> bytes) = 0;

  // Whether the peer has closed or reset its end; consumes nothing. One system call.
  virtual bool peer_closed() noexcept = 0;
  // The same for a lifeline, where any byte from the peer breaks the protocol. In clear it consumes
  // nothing; TLS takes in its own records. Not for a stream from which a caller reads.
  virtual Lifeline look_as_lifeline() noexcept = 0;
  // The socket, for poll. Bytes may be waiting inside TLS although it is not readable: before
  // waiting, call try_read() until it returns no value.
  virtual int fd() const = 0;
  virtual bool encrypted() const = 0;
  // Fills `bytes` with a value that only the two ends can know, different for each label and
  // context. Not before the handshake of TLS. Throws kUnavailable in clear, which has no such
  // value.
  virtual void exported(std::string_view label, std::span<const std::byte> context,
                        std::span<std::byte> bytes);
  // Ends both directions at once and wakes every waiter. Any thread.
  virtual void abort() noexcept = 0;
};

// A stream in clear. Makes the socket non-blocking, turns off Nagle's delay, and has the kernel
// watch it, so that a silent death of the peer's host ends an idle connection after about half a
// minute.
std::unique_ptr<Stream> plain_stream(Fd socket);
// The part of that which TLS needs too.
void prepare_socket(int socket);
// Makes the kernel probe a peer that has been silent for 10 seconds for at least `patience` before
// it gives the peer up, if that is more than 15 seconds. Negative: as long as it can.
void outlast(int socket, std::chrono::milliseconds patience);

// Blocks until poll(2) reports one of `events`. At the deadline throws kTimeout with the text
// `what`.
void wait_ready(int fd, short events, Deadline deadline, const char* what);

// Whether the peer of a socket has closed its end or reset. One system call.
bool socket_peer_closed(int socket) noexcept;
// Whether the peer's kernel has acknowledged every byte that was written, or never will: what it
// has not would be lost by closing with unread input. One system call, or two.
bool socket_drained(int socket) noexcept;
// Stream::look_as_lifeline() for a socket in clear.
Lifeline socket_as_lifeline(int socket) noexcept;

// Sends the end of the stream and waits briefly until the peer has closed, so that the last bytes
// sent are not lost to the reset that closing with unread bytes causes.
void linger_close(Stream& stream, Deadline deadline) noexcept;

// Block until everything is transferred; throw kTimeout at the deadline and kPeerDied at an early
// end.
void read_all(Stream& stream, std::span<std::byte> bytes, Deadline deadline);
void write_all(Stream& stream, std::span<const std::byte> bytes, Deadline deadline);

}  // namespace leat::detail

// A connected TCP socket, in clear or inside TLS 1.3. Never blocks unless a call says so.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/clock.h"

namespace leat::detail {

// Threads: one may read while another writes. Errors: kPeerDied at a reset, kAuthentication for TLS.
class Stream {
 public:
  virtual ~Stream() = default;

  // How many bytes were read; 0 at the peer's end; no value if there are none now.
  virtual std::optional<std::size_t> try_read(std::span<std::byte> bytes) = 0;
  // How many were taken, at least 1; no value if there is no room now.
  virtual std::optional<std::size_t> try_write(std::span<const std::byte> bytes) = 0;

  // Whether the peer has closed its end or reset; looks without consuming. One system call.
  virtual bool peer_closed() noexcept = 0;
  // The socket, for poll. Bytes may be waiting inside TLS although it is not readable: try_read until
  // there is no value before waiting.
  virtual int fd() const = 0;
  virtual bool encrypted() const = 0;
  // Ends both directions at once; wakes whoever waits. Any thread.
  virtual void abort() noexcept = 0;
};

// Block until all is done; throw kTimeout at the deadline and kPeerDied at an early end.
void read_all(Stream& stream, std::span<std::byte> bytes, Deadline deadline);
void write_all(Stream& stream, std::span<const std::byte> bytes, Deadline deadline);

}  // namespace leat::detail

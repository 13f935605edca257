// A TCP stream inside TLS 1.3.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "conn/stream.h"
#include "conn/tls_context.h"

struct ssl_st;

namespace leat::detail {

// As every Stream, one thread may read while another writes: a lock inside serializes them, because
// OpenSSL's state is one for both directions. Says goodbye (close_notify) when destroyed; an end
// without it is kPeerDied, as somebody may have cut the connection.
class TlsStream final : public Stream {
 public:
  // No byte moves before handshake().
  TlsStream(Fd socket, std::unique_ptr<TlsContext> context);
  ~TlsStream() override;

  // Blocks. Throws kAuthentication if the peer has another key or none, kTimeout, kPeerDied.
  void handshake(Deadline deadline);
  // Fills `bytes` with what only the two ends of this handshake can know, another for each label
  // and context (RFC 8446, section 7.5). After handshake().
  void exported(std::string_view label, std::span<const std::byte> context,
                std::span<std::byte> bytes);
  // After a handshake that failed: the peer did not speak TLS at all.
  bool peer_in_clear() const { return peer_in_clear_; }

  std::optional<std::size_t> try_read(std::span<std::byte> bytes) override;
  std::optional<std::size_t> try_write(std::span<const std::byte> bytes) override;
  bool peer_closed() noexcept override { return socket_peer_closed(io_.socket.get()); }
  int fd() const override { return io_.socket.get(); }
  bool encrypted() const override { return true; }
  void abort() noexcept override;

 private:
  // What OpenSSL reads and writes through.
  struct Io {
    Fd socket;
    int error = 0;  // errno of the last transfer that failed
    bool ended = false;
  };
  struct SocketMethod;
  struct Free {
    void operator()(ssl_st* ssl) const;
  };

  [[noreturn]] void fail(const char* what);
  [[noreturn]] void fail_handshake();

  std::unique_ptr<TlsContext> context_;
  Io io_;
  std::mutex mutex_;
  std::unique_ptr<ssl_st, Free> ssl_;
  std::vector<std::byte> blocked_;  // encrypted, but the kernel had no room
  bool usable_ = false;
  bool peer_in_clear_ = false;
};

}  // namespace leat::detail

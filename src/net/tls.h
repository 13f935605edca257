// A TCP stream inside TLS 1.3.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/fork.h"
#include "net/stream.h"
#include "net/tls_context.h"

struct ssl_st;

namespace leat::detail {

// As for every Stream, one thread may read while another writes; a lock inside serializes them,
// because OpenSSL has one state for both directions. Destruction sends close_notify; an end without
// it is kPeerDied, because an attacker may have cut the connection.
class TlsStream final : public Stream {
 public:
  // No byte moves before the handshake.
  TlsStream(Fd socket, std::unique_ptr<TlsContext> context);
  ~TlsStream() override;

  // Continues the handshake as far as possible without waiting. Returns 0 once it is complete, else
  // the event of poll(2) to wait for. Throws kAuthentication if the peer has another key or none,
  // kPeerDied.
  short try_handshake();
  // The same, blocking. Also throws kTimeout.
  void handshake(Deadline deadline);
  // After a handshake that failed: the peer did not speak TLS at all.
  bool peer_in_clear() const { return peer_in_clear_; }

  std::optional<std::size_t> try_read(std::span<std::byte> bytes) override;
  std::optional<std::size_t> try_write(std::span<const std::byte> bytes) override;
  bool peer_closed() noexcept override { return socket_peer_closed(io_.socket.get()); }
  Lifeline look_as_lifeline() noexcept override;
  int fd() const override { return io_.socket.get(); }
  bool encrypted() const override { return true; }
  // RFC 8446, section 7.5.
  void exported(std::string_view label, std::span<const std::byte> context,
                std::span<std::byte> bytes) override;
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
  std::optional<NotInherited> stays_;  // of io_.socket
  std::mutex mutex_;
  std::unique_ptr<ssl_st, Free> ssl_;
  std::vector<std::byte> blocked_;  // encrypted, while the kernel had no room
  bool usable_ = false;
  bool peer_in_clear_ = false;
  std::atomic<Lifeline> lifeline_{
      Lifeline::kSilent};  // what OpenSSL found in bytes that it took in
};

}  // namespace leat::detail

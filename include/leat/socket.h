// A byte stream with TCP's promises, over a Channel.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "leat/channel.h"
#include "leat/listener.h"

namespace leat {

// A stream of bytes: in order, no message boundaries, partial reads, 0 at the peer's orderly end,
// an error (kPeerDied) if the peer vanished or closed with our bytes unread. Threads: one sends
// while another receives. Move-only.
class LEAT_EXPORT Socket {
 public:
  enum class Shutdown { kReceive, kSend, kBoth };

  static Socket connect(const std::string& address, const Options& options = {});
  static Socket accept(Listener& listener);
  // Takes over a channel; uses its context 0.
  explicit Socket(Channel channel);
  Socket(Socket&&) noexcept;
  Socket& operator=(Socket&&) noexcept;
  ~Socket();  // close()

  // Sends at least one byte (if given any) and at most all; returns how many. Blocks while the peer
  // has no room.
  std::size_t send(std::span<const std::byte> bytes);
  // Without blocking: no value if there is no room.
  std::optional<std::size_t> try_send(std::span<const std::byte> bytes);
  void send_all(std::span<const std::byte> bytes);

  // Receives at least one byte and at most the span; 0 means that the peer ended. Blocks.
  std::size_t recv(std::span<std::byte> bytes);
  // Without blocking: no value if nothing is there.
  std::optional<std::size_t> try_recv(std::span<std::byte> bytes);
  // Fills the span; false if the peer ended before its first byte; kPeerDied if it ended within.
  bool recv_all(std::span<std::byte> bytes);
  // As recv and try_recv, but the bytes stay to be received again.
  std::size_t peek(std::span<std::byte> bytes);
  std::optional<std::size_t> try_peek(std::span<std::byte> bytes);

  // kSend: the peer reads 0 after what was sent. kReceive: what still comes is dropped.
  void shutdown(Shutdown how);
  // Flushes for at most the option `linger`, then closes. With unread bytes the peer gets an error,
  // as TCP's reset.
  void close() noexcept;

  // Limits of one blocking call; negative: none.
  void set_send_timeout(std::chrono::milliseconds timeout);
  void set_receive_timeout(std::chrono::milliseconds timeout);

  int fd();  // as Channel::fd
  Stats stats() const;
  std::string transport() const;
  std::string device() const;
  std::string peer_address() const;
  std::string local_address() const;
  Channel& channel();

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace leat

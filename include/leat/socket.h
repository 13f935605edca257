// A byte stream with TCP's guarantees, over a Channel.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "leat/channel.h"
#include "leat/held.h"
#include "leat/listener.h"

namespace leat {

// A stream of bytes: in order, without message boundaries, with partial reads. recv() returns 0 at
// the peer's orderly end, and throws kPeerDied if the peer vanished or closed before it had read
// all our bytes.
// Owner: the caller that made it; move-only. Threads: one thread may send while another receives.
// After close() or a move every call throws kClosed. Processes and other errors: as for Channel.
class LEAT_EXPORT Socket {
 public:
  enum class Shutdown { kReceive, kSend, kBoth };

  static Socket connect(const std::string& address, const Options& options = {});
  static Socket accept(Listener& listener);
  // Takes over a channel, and uses its context 0.
  explicit Socket(Channel channel);
  Socket(Socket&&) noexcept;
  Socket& operator=(Socket&&) noexcept;
  ~Socket();  // close()

  // Sends at least one byte (if there are any) and at most all of them; returns how many. Blocks
  // while the peer has no room. If it throws kTimeout, it has sent none of them.
  std::size_t send(std::span<const std::byte> bytes);
  // The same without blocking: no value if the peer has no room, and then nothing was sent. (With
  // transports attested+X and sealed+X such bytes may hold a place in the order already; then the
  // caller must try the same bytes again.)
  std::optional<std::size_t> try_send(std::span<const std::byte> bytes);
  void send_all(std::span<const std::byte> bytes);

  // Receives at least one byte and at most bytes.size(); blocks. Returns 0 once the peer has ended.
  std::size_t recv(std::span<std::byte> bytes);
  // The same without blocking: no value if no byte is there yet.
  std::optional<std::size_t> try_recv(std::span<std::byte> bytes);
  // Fills the span and returns true. Returns false if the peer ended before the first byte; throws
  // kPeerDied if it ended after that.
  bool recv_all(std::span<std::byte> bytes);
  // As recv() and try_recv(), but leave the bytes in the stream.
  std::size_t peek(std::span<std::byte> bytes);
  std::optional<std::size_t> try_peek(std::span<std::byte> bytes);

  // kSend: the peer reads 0 after the last byte sent; blocks as Channel::shutdown(). kReceive: a
  // thread of the socket drops what still arrives, so that the peer is never blocked, and recv()
  // returns 0 from now on; throws kResource if that thread cannot start.
  void shutdown(Shutdown how);
  // Flushes for at most the option `linger`, then closes. If received bytes are unread, the peer
  // gets an error instead, as from TCP's reset.
  void close() noexcept;

  // The limit of one blocking call; negative: none.
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
  class LEAT_HIDDEN State;
  detail::Held<std::unique_ptr<State>> state_;
};

}  // namespace leat

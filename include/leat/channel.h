// Messages in order, per protocol context, between two processes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "leat/error.h"
#include "leat/export.h"
#include "leat/options.h"
#include "leat/stats.h"

namespace leat {

namespace detail {
class ChannelCore;
struct Delivery;
}  // namespace detail

inline constexpr unsigned kContexts = 16;

// A received message: a view of its bytes where RDMA put them. Destroying it gives that memory back
// to the sender. Space comes back in order, so one that is kept holds up what was received after it
// in its context once the ring has gone round: copy what you keep for long. Messages up to 48
// bytes, and those above max_in_place_bytes, carry their bytes and may be kept. Belongs to the
// receiving side of its channel: use and destroy it in the thread that receives, or order the
// threads yourself. May outlive its channel. A moved message invalidates earlier views (a small one
// carries its bytes within itself).
class LEAT_EXPORT Message {
 public:
  Message() noexcept = default;  // as at the peer's end: false, empty
  Message(Message&& other) noexcept;
  Message& operator=(Message&& other) noexcept;
  ~Message();

  // False: not a message, the peer has ended its side.
  explicit operator bool() const noexcept { return core_ != nullptr; }

  std::span<const std::byte> bytes() const noexcept { return {data(), size_}; }
  std::string_view text() const noexcept { return {reinterpret_cast<const char*>(data()), size_}; }
  const std::byte* data() const noexcept { return data_ != nullptr ? data_ : small_.data(); }
  std::size_t size() const noexcept { return size_; }
  unsigned context() const noexcept { return context_; }

  // Gives the memory back now; the message becomes empty.
  void release() noexcept;

 private:
  friend class Channel;
  friend class detail::ChannelCore;

  detail::ChannelCore* core_ = nullptr;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::uint64_t ticket_ = 0;
  unsigned context_ = 0;
  bool must_release_ = false;
  bool on_heap_ = false;
  alignas(16) std::array<std::byte, 48> small_;
};

// A connection that carries messages. Up to 16 protocol contexts (0..15) flow independently: order
// holds within a context, and one whose reader is slow does not hold up the others.
//
// Owner: whoever constructed it; move-only. Threads: one thread may send while another receives;
// each side by itself is for one thread at a time. stats() and close() are for any thread that does
// not run at the same time as a destructor.
// Processes: a channel stays with the process that made it. In a child of a fork() it only throws
// kClosed, and destroying it there changes nothing: connect after forking. A child that lives on
// does not keep the connection alive when its parent ends.
// Errors: leat::Error. kPeerDied once the peer vanished, kTimeout at the `timeout` option,
// kClosed after close(), kTooLarge, kInvalidArgument for a context above 15.
class LEAT_EXPORT Channel {
 public:
  // Connects to a Listener: "leat://host:port?device=auto&transport=ring" or "host:port". Blocks
  // until both sides can send. Throws kRefused, kTimeout, kUnavailable, ...
  static Channel connect(const std::string& address, const Options& options = {});

  Channel(Channel&&) noexcept;
  Channel& operator=(Channel&&) noexcept;
  ~Channel();  // close()

  // Sends one message, 0 to max_message_bytes(). Blocks while the peer has no room. The bytes are
  // the caller's again on return.
  void send(std::span<const std::byte> message, unsigned context = 0);
  void send(std::string_view message, unsigned context = 0);

  // As send, but returns false instead of blocking. A message above max_in_place_bytes(), and with
  // transport chunked one above 32 KiB, goes in pieces: after false call again with the same
  // message; other contexts may be used in between.
  [[nodiscard]] bool try_send(std::span<const std::byte> message, unsigned context = 0);

  // Memory for a message of `bytes` (at most max_in_place_bytes()), to be filled by the caller and
  // sent by commit(): on shm it is the peer's own memory. Blocks while there is no room. One
  // reservation at a time; it ends with commit or abandon.
  [[nodiscard]] std::span<std::byte> reserve(std::size_t bytes, unsigned context = 0);
  void commit(std::size_t bytes);
  void abandon();

  // The next message of that context; blocks. False at the peer's orderly end.
  [[nodiscard]] Message receive(unsigned context = 0);
  // The same without blocking: no value if there is nothing now, a false Message at the end.
  [[nodiscard]] std::optional<Message> try_receive(unsigned context = 0);

  // Blocks until everything sent is in the peer's memory (transport tcp: handed to the kernel).
  void flush();
  // The same without blocking: true once it is so.
  [[nodiscard]] bool try_flush();
  // Says the peer that nothing more comes: its receive() returns false after the last message.
  // Receiving goes on. Blocks while there is no room for that word.
  void shutdown();
  // Ends the connection. Does not block, but waits the moment that a send in another thread needs
  // to throw kClosed; who holds a reservation there must not fill it any more. What was sent but
  // not flushed goes on in the background for the option `linger`, also while the program exits,
  // but not past _exit or a signal. Not a promise: flush first where it matters.
  void close() noexcept;

  // Readable when try_receive may find something; for poll, select, epoll. After it became readable
  // call try_receive until it gives no value. Owned by the channel.
  int fd();

  std::size_t max_message_bytes() const;
  // Messages up to this size are received in place, without a copy.
  std::size_t max_in_place_bytes(unsigned context = 0) const;

  Stats stats() const;
  std::string transport() const;     // "ring", "planned", "tcp"
  std::string device() const;        // "shm", "ib:mlx5_0", "tcp"
  std::string description() const;   // the line that was logged: device, port, GID, MTU, why
  std::string peer_address() const;  // "host:port"
  std::string local_address() const;

 private:
  friend class Listener;
  friend class PlannedChannel;
  friend class Socket;
  friend class detail::ChannelCore;
  explicit Channel(std::unique_ptr<detail::ChannelCore> core) noexcept;

  detail::ChannelCore* core_ = nullptr;  // lives on while messages do
};

}  // namespace leat

// Ordered messages between two processes, in up to 16 independent protocol contexts.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "leat/delivery.h"
#include "leat/error.h"
#include "leat/export.h"
#include "leat/held.h"
#include "leat/options.h"
#include "leat/stats.h"

namespace leat {

namespace detail {
class ChannelCore;
}  // namespace detail

inline constexpr unsigned kContexts = 16;

// A received message: a view of its bytes where RDMA put them. Its destruction gives that memory
// back to the sender. Space is given back in order, so a message that the receiver keeps blocks
// later messages of its context once the sender has filled the rest of the ring: copy what you keep
// for long. Messages of up to 48 bytes and those above max_in_place_bytes() hold a copy of their
// own and may be kept (but with transport tcp small ones take up room of their context too).
// A Message belongs to the receive side of its channel: use and destroy it in the thread that
// receives, or order the threads yourself. It may outlive its channel. Moving a message invalidates
// views of its bytes, because a small message carries them within itself.
class LEAT_EXPORT Message {
 public:
  Message() noexcept = default;  // empty and false, as at the peer's end
  Message(Message&& other) noexcept;
  Message& operator=(Message&& other) noexcept;
  ~Message() {
    if (core_ != nullptr && delivery_.must_release) give_back();
  }

  // False if this is not a message: the peer has ended its side, or the message was released.
  explicit operator bool() const noexcept { return core_ != nullptr; }

  std::span<const std::byte> bytes() const noexcept { return {data(), size()}; }
  std::string_view text() const noexcept { return {reinterpret_cast<const char*>(data()), size()}; }
  const std::byte* data() const noexcept { return delivery_.begin(); }
  std::size_t size() const noexcept { return delivery_.bytes; }
  unsigned context() const noexcept { return delivery_.context; }

  // Gives the memory back now. The message becomes empty and false.
  void release() noexcept;

 private:
  friend class Channel;
  friend class detail::ChannelCore;

  void give_back() noexcept;

  // Aligned so that the bytes of a small message, which end the object, are aligned to 16.
  alignas(16) detail::ChannelCore* core_ = nullptr;
  detail::Delivery delivery_;
};

// A connection that carries messages. Its 16 protocol contexts (0 to 15) flow independently:
// messages keep their order within a context, and a context whose reader is slow does not delay the
// others.
//
// Owner: the caller that constructed it; move-only. Threads: one thread may send while another
// receives; each side admits one thread at a time. stats() and close() may be called from any
// thread, but not while the channel is being destroyed.
// Processes: a channel belongs to the process that made it. In a child of fork() every call throws
// kClosed and destruction changes nothing: connect after forking. Such a child does not keep the
// connection alive when its parent ends.
// Errors: leat::Error. kPeerDied once the peer has vanished; kProtocol if the peer broke the
// protocol; kTimeout when a call has blocked for the option `timeout`; kClosed after close() or a
// move; kTooLarge; kInvalidArgument for a context above 15, and for a second thread on a side where
// another thread waits.
class LEAT_EXPORT Channel {
 public:
  // Connects to the Listener at "leat://host:port?device=auto&transport=ring" or "host:port".
  // Blocks until both sides can send, at most for the option `connect_timeout`. Throws kRefused,
  // kAddress, kTimeout, kUnavailable, kVersion, kAuthentication and others.
  static Channel connect(const std::string& address, const Options& options = {});

  Channel(Channel&&) noexcept;
  Channel& operator=(Channel&&) noexcept;
  ~Channel();  // close()

  // Sends one message of 0 to max_message_bytes() bytes. Blocks while the peer has no room. On
  // return the caller may reuse the bytes. If send() throws, it has given the message up (see
  // try_send).
  void send(std::span<const std::byte> message, unsigned context = 0);
  void send(std::string_view message, unsigned context = 0);

  // As send(), but returns false instead of blocking. A message above max_in_place_bytes() is sent
  // in pieces, and so is one above 32 KiB (or chunked_chunk_bytes, if that is less) with transport
  // chunked; when try_send() returns false, some of its pieces may have left. The caller then
  // either calls again with the same message until true (its bytes may lie elsewhere by then), or
  // gives the message up: by abandon_send(), send(), reserve(), shutdown(), or try_send() of
  // another message. try_send() recognizes another message by its size and its first 256 bytes;
  // call abandon_send() first if those may be equal. Other contexts may be used meanwhile. The peer
  // drops its part of a message that was given up; its receive() never returns a part. The one
  // exception: with transports attested+X and sealed+X a message cannot be taken back once it has
  // its place in the order (docs/transports/attested.md). Its context then refuses every other
  // message with kInvalidArgument.
  [[nodiscard]] bool try_send(std::span<const std::byte> message, unsigned context = 0);
  [[nodiscard]] bool try_send(std::string_view message, unsigned context = 0);
  // Gives up the message that try_send() has begun in that context; does nothing if there is none.
  // Does not block.
  void abandon_send(unsigned context = 0);

  // Returns memory for a message of `bytes` bytes, at most max_in_place_bytes(). The caller fills
  // it and sends its first bytes with commit(), or returns it with abandon(). On shm this is the
  // peer's own memory, so nothing is copied. Blocks while the peer has no room. A channel has one
  // reservation at a time.
  [[nodiscard]] std::span<std::byte> reserve(std::size_t bytes, unsigned context = 0);
  void commit(std::size_t bytes);
  void abandon();

  // Returns the next message of that context; blocks until it arrives. Returns a false Message
  // after the last one, once the peer has ended its side in order.
  [[nodiscard]] Message receive(unsigned context = 0);
  // The same without blocking: no value if no message is there yet, a false Message at the end.
  [[nodiscard]] std::optional<Message> try_receive(unsigned context = 0);

  // Blocks until everything sent is in the peer's memory (transport tcp: until Linux has it).
  void flush();
  // The same without blocking. Returns true once that is so.
  [[nodiscard]] bool try_flush();
  // Whether a message that was sent reaches the peer without any further call of this side. If not,
  // a caller that turns to other work after sending should flush() first.
  bool leaves_by_itself() const;
  // Tells the peer that no more messages will follow: its receive() returns false after the last
  // one. Receiving goes on. Blocks as flush() does. It is not an error here if the peer has gone.
  void shutdown();
  // Ends the connection. It blocks only for the moment that a send in another thread needs to
  // notice and throw kClosed; a thread that holds a reservation must not fill it any more. A
  // background thread goes on sending what was not flushed, for the option `linger`, also while the
  // program exits, but not past _exit() or a fatal signal. Do not rely on it: where delivery
  // matters, call flush() first.
  void close() noexcept;

  // A descriptor for poll, select and epoll. It becomes readable when try_receive() may find
  // something; then call try_receive() until it returns no value. The channel owns it.
  int fd();

  std::size_t max_message_bytes() const;
  // Messages up to this size are received in place, without a copy.
  std::size_t max_in_place_bytes(unsigned context = 0) const;

  // The option `timeout`: how long a call blocks at most. Negative: without limit.
  std::chrono::milliseconds timeout() const;

  Stats stats() const;
  std::string transport() const;     // "ring", "planned", "tcp"
  std::string device() const;        // "shm", "ib:mlx5_0", "tcp"
  std::string description() const;   // the line that was logged: device, port, GID, MTU, reasons
  std::string peer_address() const;  // "host:port"
  std::string local_address() const;

 private:
  friend class Listener;
  friend class PlannedChannel;
  friend class Socket;
  friend class detail::ChannelCore;
  explicit Channel(std::unique_ptr<detail::ChannelCore> core) noexcept;

  detail::Held<detail::ChannelCore*> core_;  // outlives this object while messages do
};

}  // namespace leat

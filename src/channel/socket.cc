#include "leat/socket.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/fork.h"
#include "base/log.h"
#include "base/signals_held.h"
#include "channel/channel_core.h"

namespace leat {

// A stream consists of the bytes of context 0's messages; empty messages are skipped.
class Socket::State {
 public:
  static constexpr const char* kWhenEmpty = "this socket was closed, or moved from";

  explicit State(Channel made) : channel(std::move(made)) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (dropper == nullptr) return;
    if (made_here) {
      channel.core_->interrupt();
      dropper->join();
    } else {
      // A child of a fork has no such thread, and std::thread cannot be told so.
      static_cast<void>(dropper.release());
    }
  }

  // Makes unread bytes available. Returns false if there are none now (only if not blocking), or at
  // the end.
  bool fill(bool block) {
    while (!ended && unread().empty()) {
      if (block) {
        current = channel.receive(0);
      } else {
        std::optional<Message> next = channel.try_receive(0);
        if (!next) return false;
        current = std::move(*next);
      }
      taken = 0;
      ended = !current;
    }
    return !unread().empty();
  }

  std::span<const std::byte> unread() const { return current.bytes().subspan(taken); }

  std::size_t copy_out(std::span<std::byte> bytes, bool consume) {
    const auto from = unread().first(std::min(bytes.size(), unread().size()));
    if (!from.empty()) std::memcpy(bytes.data(), from.data(), from.size());
    if (!consume) return from.size();
    taken += from.size();
    if (unread().empty()) {
      current.release();
      taken = 0;
    }
    return from.size();
  }

  std::size_t receive(std::span<std::byte> bytes, bool consume) {
    if (bytes.empty() || dropping || !fill(true)) return 0;
    return copy_out(bytes, consume);
  }

  std::optional<std::size_t> try_receive(std::span<std::byte> bytes, bool consume) {
    if (bytes.empty() || dropping) return 0;
    if (fill(false)) return copy_out(bytes, consume);
    if (ended) return 0;
    return std::nullopt;
  }

  // One message for each call, as large as is received in place; for try_ calls one that is sent
  // whole or not at all, so that no part can leave before the call reports that there is no room.
  std::span<const std::byte> first_part(std::span<const std::byte> bytes) const {
    return bytes.first(std::min(bytes.size(), channel.max_in_place_bytes()));
  }
  std::span<const std::byte> first_part_at_once(std::span<const std::byte> bytes) const {
    const detail::Transport& transport = *channel.core_->connection().transport;
    return bytes.first(std::min(bytes.size(), transport.max_at_once_bytes(0)));
  }

  // From now on a thread drops what arrives, as it arrives, so that the peer never waits for room;
  // the caller no longer uses the receive side.
  void drop_what_comes() {
    if (dropping) return;
    dropping = true;
    current.release();
    taken = 0;
    if (ended) return;
    const int fd = channel.fd();
    try {
      const detail::SignalsHeld not_for_the_thread;
      dropper = std::make_unique<std::thread>([this, fd] { drop_until_the_end(fd); });
    } catch (const std::system_error& error) {
      throw Error(ErrorCode::kResource,
                  std::string("no thread to drop what the peer sends: ") + error.what());
    }
  }

  void drop_until_the_end(int fd) {
    constexpr auto kNap = std::chrono::milliseconds(1);
    try {
      for (bool in_vain = false;;) {
        const std::optional<Message> message = channel.try_receive(0);
        if (message && !*message) return;
        if (!message) {
          // Messages in other contexts can keep it readable for long.
          if (in_vain) std::this_thread::sleep_for(kNap);
          pollfd wait{fd, POLLIN, 0};
          ::poll(&wait, 1, -1);
        }
        in_vain = !message;
      }
    } catch (const std::exception& error) {
      // The socket was closed, or the peer has gone: the next send reports it.
      detail::log(detail::LogLevel::kDebug, {"dropping: ", error.what()});
    }
  }

  const detail::MadeHere made_here;
  Channel channel;
  std::unique_ptr<std::thread> dropper;  // uses the receive side
  Message current;
  std::size_t taken = 0;  // bytes of current that the caller has
  bool ended = false;     // by the peer
  bool dropping = false;  // by shutdown(kReceive)
};

Socket Socket::connect(const std::string& address, const Options& options) {
  return Socket(Channel::connect(address, options));
}
Socket Socket::accept(Listener& listener) { return Socket(listener.accept()); }

Socket::Socket(Channel channel) : state_(std::make_unique<State>(std::move(channel))) {}
Socket::Socket(Socket&&) noexcept = default;
Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    close();
    state_ = std::move(other.state_);
  }
  return *this;
}
Socket::~Socket() { close(); }

std::size_t Socket::send(std::span<const std::byte> bytes) {
  if (bytes.empty()) return 0;
  const auto part = state_->first_part(bytes);
  state_->channel.send(part);
  return part.size();
}

std::optional<std::size_t> Socket::try_send(std::span<const std::byte> bytes) {
  if (bytes.empty()) return 0;
  const auto part = state_->first_part_at_once(bytes);
  if (!state_->channel.try_send(part)) return std::nullopt;
  return part.size();
}

void Socket::send_all(std::span<const std::byte> bytes) {
  while (!bytes.empty()) bytes = bytes.subspan(send(bytes));
}

std::size_t Socket::recv(std::span<std::byte> bytes) { return state_->receive(bytes, true); }
std::optional<std::size_t> Socket::try_recv(std::span<std::byte> bytes) {
  return state_->try_receive(bytes, true);
}
std::size_t Socket::peek(std::span<std::byte> bytes) { return state_->receive(bytes, false); }
std::optional<std::size_t> Socket::try_peek(std::span<std::byte> bytes) {
  return state_->try_receive(bytes, false);
}

bool Socket::recv_all(std::span<std::byte> bytes) {
  const std::size_t wanted = bytes.size();
  while (!bytes.empty()) {
    const std::size_t got = recv(bytes);
    if (got == 0) {
      if (bytes.size() == wanted) return false;
      throw Error(ErrorCode::kPeerDied, "the peer ended after " +
                                            std::to_string(wanted - bytes.size()) + " of " +
                                            std::to_string(wanted) + " bytes");
    }
    bytes = bytes.subspan(got);
  }
  return true;
}

void Socket::shutdown(Shutdown how) {
  if (how != Shutdown::kReceive) state_->channel.shutdown();
  if (how != Shutdown::kSend) state_->drop_what_comes();
}

void Socket::close() noexcept {
  if (state_ == nullptr) return;
  try {
    detail::ChannelCore& core = *state_->channel.core_;  // throws if the channel was moved from
    // Bytes have come but were not read: the peer must not believe that they were.
    const bool unread = !state_->dropping && state_->fill(false);
    if (unread) {
      core.reset();
    } else {
      core.set_send_timeout(core.settings().linger);
      core.flush();
    }
  } catch (const std::exception& error) {
    detail::log(detail::LogLevel::kDebug, {"closing a socket: ", error.what()});
  }
  static_cast<void>(state_.take());
}

void Socket::set_send_timeout(std::chrono::milliseconds timeout) {
  state_->channel.core_->set_send_timeout(timeout);
}
void Socket::set_receive_timeout(std::chrono::milliseconds timeout) {
  state_->channel.core_->set_receive_timeout(timeout);
}

int Socket::fd() { return state_->channel.fd(); }
Stats Socket::stats() const { return state_->channel.stats(); }
std::string Socket::transport() const { return state_->channel.transport(); }
std::string Socket::device() const { return state_->channel.device(); }
std::string Socket::peer_address() const { return state_->channel.peer_address(); }
std::string Socket::local_address() const { return state_->channel.local_address(); }
Channel& Socket::channel() { return state_->channel; }

}  // namespace leat

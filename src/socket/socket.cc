#include "leat/socket.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "socket/channel_core.h"

namespace leat {

// A stream is the bytes of the messages of context 0, empty ones left out.
class Socket::State {
 public:
  explicit State(Channel made) : channel(std::move(made)) {}

  // Makes unread bytes available. False: nothing now (only if not blocking), or the end.
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

  // One message a call, as large as is received in place.
  std::span<const std::byte> first_part(std::span<const std::byte> bytes) const {
    return bytes.first(std::min(bytes.size(), channel.max_in_place_bytes()));
  }

  Channel channel;
  Message current;
  std::size_t taken = 0;  // bytes of current that the caller has
  bool ended = false;     // the peer's side
  bool dropping = false;  // ours, by shutdown(kReceive)
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
  const auto part = state_->first_part(bytes);
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
  if (how != Shutdown::kSend) {
    state_->dropping = true;
    state_->current.release();
    state_->taken = 0;
  }
}

void Socket::close() noexcept {
  if (state_ == nullptr) return;
  detail::ChannelCore& core = *state_->channel.core_;
  try {
    // Bytes that came but were not read: the peer must not think that they were.
    const bool unread = !state_->dropping && state_->fill(false);
    if (unread) {
      core.reset();
    } else {
      core.set_send_timeout(core.settings().linger);
      core.flush();
    }
  } catch (const std::exception& error) {
    detail::log(detail::LogLevel::kDebug, std::string("closing a socket: ") + error.what());
  }
  state_.reset();
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

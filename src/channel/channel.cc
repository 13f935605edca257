#include "leat/channel.h"

#include <utility>

#include "base/settings.h"
#include "base/uri.h"
#include "channel/channel_core.h"

namespace leat {

// --- Message

Message::Message(Message&& other) noexcept
    : core_(std::exchange(other.core_, nullptr)), delivery_(std::move(other.delivery_)) {
  other.delivery_.data = nullptr;
  other.delivery_.bytes = 0;
}

Message& Message::operator=(Message&& other) noexcept {
  if (this != &other) {
    release();
    new (this) Message(std::move(other));
  }
  return *this;
}

void Message::release() noexcept {
  if (core_ == nullptr) return;
  if (delivery_.must_release) give_back();
  core_ = nullptr;
  delivery_.heap.reset();
  delivery_.data = nullptr;
  delivery_.bytes = 0;
}

void Message::give_back() noexcept { core_->release(delivery_); }

// --- Channel

Channel Channel::connect(const std::string& address, const Options& options) {
  const detail::Uri uri = detail::parse_uri(address);
  const detail::Settings settings = detail::resolve_settings(options, uri.parameters);
  return Channel(
      std::make_unique<detail::ChannelCore>(detail::open_connection(uri, settings), settings));
}

Channel::Channel(std::unique_ptr<detail::ChannelCore> core) noexcept : core_(core.release()) {}

Channel::Channel(Channel&&) noexcept = default;

Channel& Channel::operator=(Channel&& other) noexcept {
  if (this != &other) {
    detail::ChannelCore::orphan(core_.take());
    core_ = std::move(other.core_);
  }
  return *this;
}

Channel::~Channel() { detail::ChannelCore::orphan(core_.take()); }

void Channel::send(std::span<const std::byte> message, unsigned context) {
  core_->send(message, context);
}
void Channel::send(std::string_view message, unsigned context) {
  core_->send(std::as_bytes(std::span(message)), context);
}
bool Channel::try_send(std::span<const std::byte> message, unsigned context) {
  return core_->try_send(message, context);
}
bool Channel::try_send(std::string_view message, unsigned context) {
  return core_->try_send(std::as_bytes(std::span(message)), context);
}
void Channel::abandon_send(unsigned context) { core_->give_up(context); }
std::span<std::byte> Channel::reserve(std::size_t bytes, unsigned context) {
  return core_->reserve(bytes, context);
}
void Channel::commit(std::size_t bytes) { core_->commit(bytes); }
void Channel::abandon() { core_->abandon(); }

Message Channel::receive(unsigned context) { return core_->receive(context); }
std::optional<Message> Channel::try_receive(unsigned context) {
  return core_->try_receive(context);
}

void Channel::flush() { core_->flush(); }
bool Channel::try_flush() { return core_->try_flush(); }
bool Channel::leaves_by_itself() const {
  return core_->connection().transport->facts().leaves_by_itself;
}
void Channel::shutdown() { core_->shutdown(); }
void Channel::close() noexcept {
  if (core_ != nullptr) core_->close();
}

int Channel::fd() { return core_->fd(); }

std::size_t Channel::max_message_bytes() const {
  return core_->connection().transport->max_message_bytes();
}
std::size_t Channel::max_in_place_bytes(unsigned context) const {
  return core_->connection().transport->max_in_place_bytes(context % kContexts);
}

std::chrono::milliseconds Channel::timeout() const { return core_->settings().timeout; }
Stats Channel::stats() const { return core_->stats(); }
std::string Channel::transport() const { return core_->connection().transport_name; }
std::string Channel::device() const { return core_->connection().device_name; }
std::string Channel::description() const { return core_->connection().description; }
std::string Channel::peer_address() const { return core_->connection().peer_address; }
std::string Channel::local_address() const { return core_->connection().local_address; }

}  // namespace leat

#include "leat/listener.h"

#include "base/settings.h"
#include "base/uri.h"
#include "channel/listener_core.h"
#include "handshake/connection.h"

namespace leat {

Listener::Listener(const std::string& address, const Options& options) {
  const detail::Uri uri = detail::parse_uri(address);
  const detail::Settings settings = detail::resolve_settings(options, uri.parameters);
  detail::check_settings(settings);
  core_ = std::make_unique<detail::ListenerCore>(uri, settings);
}
Listener::Listener(Listener&&) noexcept = default;
Listener& Listener::operator=(Listener&&) noexcept = default;
Listener::~Listener() = default;

Channel Listener::accept() {
  return Channel(core_->accept(detail::deadline_after(core_->settings().timeout)));
}

std::optional<Channel> Listener::try_accept() {
  auto core = core_->try_accept();
  if (core == nullptr) return std::nullopt;
  return Channel(std::move(core));
}

const detail::Settings& Listener::settings() const { return core_->settings(); }

std::string Listener::address() const { return core_->address(); }

unsigned Listener::port() const {
  const std::string& address = core_->address();
  return static_cast<unsigned>(std::stoul(address.substr(address.rfind(':') + 1)));
}

int Listener::fd() const { return core_->fd(); }

void Listener::close() noexcept {
  if (core_ != nullptr) core_->close();
}

}  // namespace leat

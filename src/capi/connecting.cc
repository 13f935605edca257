#include "capi/connecting.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "base/epoll.h"
#include "base/system_error.h"
#include "capi/call.h"

namespace leat::detail::c {

Connecting::Connecting(Fd socket, Settings settings)
    : settings_(std::move(settings)), news_(new_event()), watched_(one_more(socket.get())) {
  const SignalsHeld not_for_the_thread;
  thread_ = std::thread([this, fd = socket.release()] { run(Fd(fd)); });
}

Connecting::~Connecting() {
  if (outcome() == Outcome::kNone) ::shutdown(watched_.get(), SHUT_RDWR);
  thread_.join();
  if (core_ != nullptr) {
    core_->reset();
    ChannelCore::orphan(core_.release());
  }
}

void Connecting::run(Fd socket) noexcept {
  Outcome outcome = Outcome::kLeatFailed;
  try {
    pollfd entry{socket.get(), POLLOUT, 0};
    int ready = 0;
    while ((ready = poll(&entry, 1, -1)) < 0 && errno == EINTR) {
    }
    if (ready < 0) throw system_error("poll", errno);
    if ((entry.revents & (POLLERR | POLLHUP)) != 0) {
      outcome = Outcome::kTcpFailed;
    } else {
      core_ =
          std::make_unique<ChannelCore>(open_connection(std::move(socket), settings_), settings_);
      outcome = Outcome::kConnected;
    }
  } catch (const Error& error) {
    error_ = error.code() == ErrorCode::kPeerDied ? ECONNRESET : error.system_errno();
    text_ = error.what();
  } catch (const std::exception& error) {
    error_ = ENOMEM;
    text_ = error.what();
  }
  // Release: a thread that sees it sees the result.
  outcome_.store(outcome, std::memory_order_release);
  eventfd_write(news_.get(), 1);
}

}  // namespace leat::detail::c

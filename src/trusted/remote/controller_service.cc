#include "trusted/remote/controller_service.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/epoll.h"
#include "base/signals_held.h"
#include "base/system_error.h"

namespace leat::trusted::remote {
namespace {

using leat::detail::Fd;

// A client that has not proved to be the vendor, and the thread that hears it.
class Newcomer {
 public:
  // `news` becomes readable when it is over.
  Newcomer(Fd socket, const ControllerService& service, const Fd& news)
      : end_(fcntl(socket.get(), F_DUPFD_CLOEXEC, 0)),
        session_(service.boot, service.vendor_key, service.record, service.save, service.kernel) {
    if (!end_) throw leat::detail::system_error("fcntl", errno);
    const leat::detail::SignalsHeld held;
    thread_ = std::thread([this, &service, &news, socket = std::move(socket)]() mutable {
      try {
        stream_ = admit_vendor(std::move(socket), session_, service.boot, service.limits);
      } catch (const std::exception& error) {
        why_ = error.what();
      }
      // Release: what is above is seen with it.
      over_.store(true, std::memory_order_release);
      eventfd_write(news.get(), 1);
    });
  }
  Newcomer(const Newcomer&) = delete;
  Newcomer& operator=(const Newcomer&) = delete;
  ~Newcomer() {
    send_away();
    if (thread_.joinable()) thread_.join();
  }

  // Acquire: with the release of the thread.
  bool over() const { return over_.load(std::memory_order_acquire); }
  void send_away() const { shutdown(end_.get(), SHUT_RDWR); }
  // Waits for the thread. Returns why it is not the vendor; no value if it is.
  std::optional<std::string> verdict() {
    thread_.join();
    return stream_ ? std::nullopt : std::optional(why_);
  }
  void serve(const ControllerLimits& limits) { serve_admitted(*stream_, session_, limits); }

 private:
  const Fd end_;  // the same socket
  ControllerSession session_;
  std::unique_ptr<leat::detail::TlsStream> stream_;
  std::string why_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

class Service {
 public:
  Service(int listener, const ControllerService& service)
      : listener_(listener), service_(service) {}

  // The first client that has proved to be the vendor; all others are gone then.
  std::unique_ptr<Newcomer> vendor() {
    for (;;) {
      // The last place is for the next one: whoever came first and is not known yet makes room.
      const bool full = newcomers_.size() == ControllerService::kMostNewcomers;
      if (full) newcomers_.front()->send_away();
      std::array<pollfd, 2> polled{pollfd{full ? -1 : listener_, POLLIN, 0},
                                   pollfd{news_.get(), POLLIN, 0}};
      if (poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR)
        throw leat::detail::system_error("poll", errno);
      eventfd_t count = 0;
      eventfd_read(news_.get(), &count);
      for (auto one = newcomers_.begin(); one != newcomers_.end();) {
        if (!(*one)->over()) {
          ++one;
          continue;
        }
        auto heard = std::move(*one);
        one = newcomers_.erase(one);
        if (!is_stranger(*heard)) return heard;
      }
      if (polled[0].revents != 0) accept();
    }
  }
  void send_all_away() {
    for (const auto& newcomer : newcomers_) newcomer->send_away();
    for (; !newcomers_.empty(); newcomers_.pop_front()) is_stranger(*newcomers_.front());
  }

 private:
  bool is_stranger(Newcomer& newcomer) const {
    const auto why = newcomer.verdict();
    if (why && service_.on_stranger) service_.on_stranger(*why);
    return why.has_value();
  }

  void accept() {
    Fd socket(accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket) {
      // The newcomer may have gone already.
      if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
      throw leat::detail::system_error("accept4", errno);
    }
    try {
      newcomers_.push_back(std::make_unique<Newcomer>(std::move(socket), service_, news_));
    } catch (const std::system_error& error) {  // no thread for it
      if (service_.on_stranger) service_.on_stranger(error.what());
    }
  }

  const int listener_;
  const ControllerService& service_;
  const Fd news_ = leat::detail::new_event();
  std::list<std::unique_ptr<Newcomer>> newcomers_;  // in the order of arrival
};

}  // namespace

void serve_until_enabled(int listener, const ControllerService& service) {
  Service newcomers(listener, service);
  const std::unique_ptr<Newcomer> vendor = newcomers.vendor();
  newcomers.send_all_away();
  vendor->serve(service.limits);
}

}  // namespace leat::trusted::remote

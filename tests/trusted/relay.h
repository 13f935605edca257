// A TCP port in front of another, whose connections a test can cut, and which can say again what it
// has heard.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <list>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/uri.h"
#include "leat/error.h"
#include "net/tcp.h"
#include "support/scale.h"

namespace leat::trusted {

class Relay {
 public:
  explicit Relay(std::string target)
      : target_(std::move(target)),
        listener_(leat::detail::listen_tcp(leat::detail::parse_uri("127.0.0.1:0"))),
        address_(leat::detail::local_address(listener_.get())) {}
  ~Relay() {
    stop_.store(true, std::memory_order_relaxed);
    if (thread_.joinable()) thread_.join();
  }

  // Once the processes of the test have been started.
  void start() {
    thread_ = std::thread([this] { run(); });
  }

  const std::string& address() const { return address_; }
  // Ends all connections, now, and those that come, until mend().
  void cut() {
    cut_.store(true, std::memory_order_relaxed);
    while (!is_cut_.load(std::memory_order_relaxed)) std::this_thread::yield();
  }
  void mend() { cut_.store(false, std::memory_order_relaxed); }
  // Passes on the next bytes that come twice. Returns when that is done.
  void say_again() {
    again_.store(true, std::memory_order_relaxed);
    while (again_.load(std::memory_order_relaxed)) std::this_thread::yield();
  }

 private:
  using Pair = std::array<leat::detail::Fd, 2>;

  // False when the connection has ended.
  bool move(const leat::detail::Fd& from, const leat::detail::Fd& to) {
    std::array<char, 65536> bytes;
    const ssize_t got = recv(from.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    const std::span chunk = std::span(bytes).first(static_cast<std::size_t>(got));
    if (!pass_on(chunk, to)) return false;
    if (got > 0 && again_.exchange(false, std::memory_order_relaxed) && !pass_on(chunk, to))
      return false;
    return got > 0;
  }
  static bool pass_on(std::span<const char> bytes, const leat::detail::Fd& to) {
    while (!bytes.empty()) {
      const ssize_t sent = send(to.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN && errno != EINTR) return false;
      pollfd room{to.get(), POLLOUT, 0};
      if (sent < 0)
        poll(&room, 1, 10);
      else
        bytes = bytes.subspan(static_cast<std::size_t>(sent));
    }
    return true;
  }
  void run() {
    std::list<Pair> pairs;
    while (!stop_.load(std::memory_order_relaxed)) {
      std::vector<pollfd> polled{{listener_.get(), POLLIN, 0}};
      for (const Pair& pair : pairs)
        for (const auto& end : pair) polled.push_back({end.get(), POLLIN, 0});
      poll(polled.data(), polled.size(), 5);
      const bool cut = cut_.load(std::memory_order_relaxed);
      if (cut) pairs.clear();
      is_cut_.store(cut, std::memory_order_relaxed);
      if (polled[0].revents != 0) {
        leat::detail::Fd client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (client && !cut) connect(std::move(client), pairs);
      }
      pairs.remove_if(
          [&](const Pair& pair) { return !move(pair[0], pair[1]) || !move(pair[1], pair[0]); });
    }
  }
  void connect(leat::detail::Fd client, std::list<Pair>& pairs) const {
    try {
      pairs.push_back(
          {std::move(client), leat::detail::connect_tcp(leat::detail::parse_uri(target_),
                                                        leat::detail::hang_deadline(), true)});
    } catch (const Error&) {
      // Its target is not there.
    }
  }

  const std::string target_;
  const leat::detail::Fd listener_;
  const std::string address_;
  // Relaxed: they order nothing.
  std::atomic<bool> cut_{false}, is_cut_{false}, again_{false}, stop_{false};
  std::thread thread_;
};

}  // namespace leat::trusted

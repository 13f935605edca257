#include "attestd/server.h"

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/spin_budget.h"
#include "base/system_error.h"
#include "base/unix_socket.h"
#include "leat/error.h"

namespace leat::attestd {

using leat::detail::check;
using leat::detail::Clock;
using leat::detail::Fd;
using leat::detail::log;
using leat::detail::LogLevel;
using trusted::detail::Welcome;

namespace {

constexpr unsigned kTurnsPerClock = 16;
constexpr auto kLookEvery = std::chrono::milliseconds(1);  // at sockets, without sleeping
constexpr int kNobody = -1;
constexpr unsigned kAcceptsPerLook = 16;
constexpr auto kWhenOutOfDescriptors = std::chrono::milliseconds(1);

Error cannot_bind(const std::string& path, int failure) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (failure == ENOENT || failure == ENOTDIR)
    return {ErrorCode::kInvalidArgument, "--socket " + path + ": there is no folder " + folder,
            "Make it, for the user that leat-attestd runs as: install -d -o USER " + folder,
            failure};
  if (failure == EACCES)
    return {ErrorCode::kInvalidArgument,
            "--socket " + path + ": this user may make no socket in " + folder,
            "Choose another folder, or make it this user's: install -d -o USER " + folder, failure};
  return leat::detail::system_error("bind(" + path + ")", failure);
}

Fd listen_at(const std::string& path, unsigned mode) {
  const auto address = leat::detail::unix_address(path);
  if (!address)
    throw Error(ErrorCode::kInvalidArgument,
                "--socket " + path + ": the path is empty or too long for a socket");
  const auto* where = reinterpret_cast<const sockaddr*>(&*address);
  const auto make = [] {
    return Fd(check(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
                    "socket(AF_UNIX)"));
  };
  // What an earlier one left behind, if nobody serves there.
  struct stat status {};
  if (lstat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode)) {
    const Fd knock = make();
    if (connect(knock.get(), where, sizeof *address) == 0 || errno == EAGAIN)
      throw Error(ErrorCode::kInvalidArgument, "somebody serves at " + path + " already");
    if (errno == ECONNREFUSED) unlink(path.c_str());
  }
  Fd listener = make();
  // Nobody gets in between bind and chmod.
  const mode_t before = umask(0177);
  const int bound = bind(listener.get(), where, sizeof *address);
  const int failure = errno;
  umask(before);
  if (bound != 0) throw cannot_bind(path, failure);
  check(chmod(path.c_str(), mode), "chmod(socket)");
  check(listen(listener.get(), 64), "listen");
  return listener;
}

// Two descriptors for each client, and some of our own.
void need_descriptors(std::size_t clients) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t needed = 2 * clients + 32;
  if (limit.rlim_cur >= needed) return;
  limit.rlim_cur = std::min(limit.rlim_max, needed);
  setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < needed)
    throw Error(ErrorCode::kResource,
                std::to_string(clients) + " clients need " + std::to_string(needed) +
                    " descriptors, " + std::to_string(limit.rlim_cur) + " are allowed",
                "ulimit -n, or LimitNOFILE= in systemd.");
}

}  // namespace

Server::Server(const ServerOptions& options, const Holdings& holdings, const AccessRules& rules)
    : options_(options),
      holdings_(holdings),
      rules_(rules),
      listener_(listen_at(options.path, options.mode)),
      epoll_(check(epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
      scratch_(options.shape.max_data_bytes()) {
  need_descriptors(options.max_clients);
  watch(listener_.get(), EPOLLIN, listener_.get());
}

Server::~Server() { unlink(options_.path.c_str()); }

void Server::watch(int descriptor, unsigned events, int concerns) {
  epoll_event event{};
  event.events = events;
  event.data.fd = concerns;
  check(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event), "epoll_ctl");
}

void Server::run(int stop) {
  stop_ = stop;
  watch(stop, EPOLLIN, stop);
  leat::detail::SpinBudget budget;
  Clock::time_point last_look{};
  for (unsigned turns = 1;; ++turns) {
    if (take_turns()) {
      if (turns % kTurnsPerClock != 0) continue;
      const auto now = Clock::now();
      if (now - last_look < kLookEvery) continue;
      if (!handle_events(0)) return;
      last_look = now;
      continue;
    }
    bool worked = false;
    for (leat::detail::Spin spin(budget, options_.spin); !worked && spin.again();) {
      worked = take_turns();
      if (worked) spin.found();
      if (worked || !spin.looked() || spin.now() - last_look < kLookEvery) continue;
      if (!handle_events(0)) return;
      last_look = spin.now();
    }
    if (!worked && !sleep()) return;
  }
}

bool Server::take_turns() noexcept {
  bool worked = false;
  for (Client& client : clients_) worked = client.serve(scratch_) || worked;
  return worked;
}

bool Server::sleep() {
  for (Client& client : clients_) client.set_sleeping(true);
  // With each client's between its request and its look whether we sleep.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const bool wanted = std::ranges::any_of(clients_, &Client::has_request);
  const bool go_on = handle_events(wanted ? 0 : -1);
  for (Client& client : clients_) client.set_sleeping(false);
  return go_on;
}

bool Server::handle_events(int timeout_ms) {
  std::array<epoll_event, 32> events;
  const int count = epoll_wait(epoll_.get(), events.data(), events.size(), timeout_ms);
  if (count < 0 && errno != EINTR) throw leat::detail::system_error("epoll_wait", errno);
  for (int i = 0; i < count; ++i) {
    const int descriptor = events[static_cast<std::size_t>(i)].data.fd;
    if (descriptor == stop_) return false;
    if (descriptor == listener_.get()) {
      accept_clients();
    } else {
      drop(descriptor);
    }
  }
  return true;
}

void Server::accept_clients() {
  for (unsigned i = 0; i < kAcceptsPerLook; ++i) {
    Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      if (errno == EAGAIN) return;
      if (errno == EINTR || errno == ECONNABORTED) continue;
      log(LogLevel::kWarn, leat::detail::system_error("accept4", errno).what());
      std::this_thread::sleep_for(kWhenOutOfDescriptors);
      return;
    }
    try {
      let_in(std::move(socket));
    } catch (const std::exception& error) {
      log(LogLevel::kWarn, std::string("a client cannot be served: ") + error.what());
    }
  }
}

void Server::let_in(Fd socket) {
  const auto peer = leat::detail::peer_of(socket.get());
  if (!peer) return;
  const auto of_user = static_cast<std::size_t>(
      std::ranges::count(clients_, peer->uid, [](const Client& client) { return client.user(); }));
  Welcome welcome{.shape = options_.shape};
  if (peer->uid == unmapped_users_ || !rules_.allows(peer->uid)) {
    welcome.answer = Welcome::Answer::kStranger;
  } else if (clients_.size() >= options_.max_clients || of_user >= options_.max_clients_per_user) {
    welcome.answer = Welcome::Answer::kFull;
  }
  if (welcome.answer != Welcome::Answer::kServed) {
    leat::detail::send_message(socket.get(), trusted::detail::encode(welcome), {});
    return;
  }
  if (const auto* device = holdings_.device()) {
    welcome.device = device->device();
    welcome.epoch = device->epoch();
  }
  const int descriptor = socket.get();
  clients_.emplace_back(std::move(socket), peer->uid, options_.shape,
                        Requests(holdings_, rules_, peer->uid, options_.max_kernels));
  Client& client = clients_.back();
  try {
    if (!client.welcome(welcome)) throw Error(ErrorCode::kPeerDied, "it went away");
    // A client has nothing to say here: any event is its end.
    watch(descriptor, EPOLLIN | EPOLLRDHUP, descriptor);
    // Edge-triggered: each write of the client wakes us, and nothing needs to be read.
    watch(client.wake_event(), EPOLLIN | EPOLLET, kNobody);
  } catch (...) {
    clients_.pop_back();
    throw;
  }
}

void Server::drop(int socket) noexcept {
  const auto client = std::ranges::find(clients_, socket, &Client::socket);
  if (client == clients_.end()) return;
  // The client may keep its copy of the event, so that closing ours would not end our watching.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, client->wake_event(), nullptr);
  clients_.erase(client);
}

}  // namespace leat::attestd

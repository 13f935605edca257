#include "socket/listener_core.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "base/signals_held.h"
#include "base/system_error.h"
#include "conn/link.h"

namespace leat::detail {
namespace {

constexpr std::size_t kMaxHandshakes = 64;  // at the same time; more wait in the kernel's backlog

}  // namespace

ListenerCore::ListenerCore(const Uri& uri, const Settings& settings)
    : ListenerCore(listen_tcp(uri), settings) {}

ListenerCore::ListenerCore(Fd socket, const Settings& settings)
    : settings_(settings),
      socket_(std::move(socket)),
      address_(local_address(socket_.get())),
      done_(check(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")),
      wait_(check(epoll_create1(EPOLL_CLOEXEC), "epoll_create1")) {
  epoll_event wanted{};
  wanted.events = EPOLLIN;
  check(epoll_ctl(wait_.get(), EPOLL_CTL_ADD, socket_.get(), &wanted), "epoll_ctl");
  check(epoll_ctl(wait_.get(), EPOLL_CTL_ADD, done_.get(), &wanted), "epoll_ctl");
}

ListenerCore::~ListenerCore() {
  if (!made_here_) {
    // The handshakes and their threads are the parent's; freeing a connection would end it.
    for (Handshake& handshake : handshakes_) {
      static_cast<void>(handshake.core.release());
      static_cast<void>(handshake.thread.release());
    }
    return;
  }
  close();
  std::unique_lock lock(mutex_);
  for (Handshake& handshake : handshakes_) {
    if (handshake.stream != nullptr) handshake.stream->abort();
    if (handshake.socket >= 0) ::shutdown(handshake.socket, SHUT_RDWR);
  }
  ended_.wait(lock, [&] { return std::ranges::all_of(handshakes_, &Handshake::ended); });
  forget_ended_handshakes();
}

std::unique_ptr<ChannelCore> ListenerCore::accept(Deadline deadline) {
  for (;;) {
    if (auto core = try_accept()) return core;
    pollfd wait{wait_.get(), POLLIN, 0};
    const int ready = poll(&wait, 1, poll_timeout_ms(deadline));
    if (ready < 0 && errno != EINTR) throw system_error("poll", errno);
    if (ready == 0 && passed(deadline))
      throw Error(ErrorCode::kTimeout, "accept at " + address_ + ": nobody came in time");
  }
}

std::unique_ptr<ChannelCore> ListenerCore::try_accept() {
  if (!made_here_)
    throw Error(ErrorCode::kClosed,
                "accept: the listener at " + address_ +
                    " belongs to the process that this one was forked from",
                "Listen after fork().");
  const std::lock_guard lock(mutex_);
  forget_ended_handshakes();
  if (closed_)
    throw Error(ErrorCode::kClosed, "accept: the listener at " + address_ + " was closed");
  eventfd_t events = 0;
  eventfd_read(done_.get(), &events);
  try {
    while (handshakes_under_way() < kMaxHandshakes && start_handshake()) {
    }
  } catch (const Error&) {
    watch_newcomers(true);  // who could not be taken is still there
    auto core = take_next();
    if (core == nullptr) throw;
    return core;
  }
  // While it takes nobody, newcomers must not wake who waits: the end of a handshake does.
  watch_newcomers(handshakes_under_way() < kMaxHandshakes);
  return take_next();
}

// All with the lock.

// Its thread may not have got so far, and needs nothing more of the client.
bool ListenerCore::Handshake::is_done_for_client() const {
  if (ended || last_word == LastWord::kNotYet) return false;
  pollfd entry{stream != nullptr ? stream->fd() : -1, POLLIN, 0};
  return last_word == LastWord::kHeard || poll(&entry, 1, 0) > 0;
}

std::size_t ListenerCore::handshakes_under_way() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(handshakes_, [](const Handshake& one) { return !one.ended; }));
}

// Who had connected before another one knocked comes before that one, as with TCP. Who is slow is
// overtaken.
std::unique_ptr<ChannelCore> ListenerCore::take_next() {
  for (Handshake& handshake : handshakes_) {
    if (handshake.is_done_for_client()) return nullptr;
    if (handshake.core == nullptr) continue;
    auto core = std::move(handshake.core);
    const auto is_ready = [](const Handshake& one) { return one.core != nullptr; };
    if (std::ranges::any_of(handshakes_, is_ready)) eventfd_write(done_.get(), 1);
    return core;
  }
  return nullptr;
}

void ListenerCore::close() noexcept {
  if (!made_here_) return;
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  closed_ = true;
  // Others may have this socket too: theirs stays as they have shut it down.
  int listens = 0;
  socklen_t bytes = sizeof listens;
  getsockopt(socket_.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes);
  if (listens != 0) ::shutdown(socket_.get(), SHUT_RDWR);
  socket_stays_.reset();
  socket_.reset();
  eventfd_write(done_.get(), 1);  // stays readable: every accept wakes and says kClosed
}

void ListenerCore::watch_newcomers(bool wanted) {
  if (wanted == watches_newcomers_) return;
  epoll_event events{};
  events.events = wanted ? EPOLLIN : 0U;
  check(epoll_ctl(wait_.get(), EPOLL_CTL_MOD, socket_.get(), &events), "epoll_ctl");
  watches_newcomers_ = wanted;
}

// False: nobody knocks. Throws if descriptors or memory run out; the newcomer stays in the
// backlog.
bool ListenerCore::start_handshake() {
  Fd socket(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) {
    const int error = errno;
    if (error == EAGAIN || error == EINTR || error == ECONNABORTED) return false;
    // Without a free descriptor the kernel does not even look whether somebody knocks.
    pollfd knocks{socket_.get(), POLLIN, 0};
    if (error == EMFILE && poll(&knocks, 1, 0) == 0) return false;
    throw system_error("accept at " + address_, error);
  }
  Handshake& handshake = handshakes_.emplace_back();
  handshake.socket = socket.get();
  try {
    const SignalsHeld not_for_the_thread;
    handshake.thread = std::make_unique<std::thread>(
        [this, &handshake, fd = socket.get()] { run(Fd(fd), handshake); });
    socket.release();
  } catch (const std::exception& error) {
    handshakes_.pop_back();
    throw Error(ErrorCode::kResource,
                std::string("accept: cannot start a thread: ") + error.what());
  }
  return true;
}

// Joins their threads, so that none is still on its way out when the program ends: what libraries
// keep for a thread (OpenSSL its errors) goes with it.
void ListenerCore::forget_ended_handshakes() {
  handshakes_.remove_if([](Handshake& handshake) {
    if (!handshake.ended) return false;
    if (handshake.thread != nullptr) handshake.thread->join();
    handshake.thread.reset();
    return handshake.core == nullptr;
  });
}

void ListenerCore::run(Fd socket, Handshake& handshake) noexcept {
  std::unique_ptr<ChannelCore> core;
  std::string peer = "a newcomer";
  try {
    peer = peer_address(socket.get());  // throws if it has hung up already
    const auto on_stream = [&](Stream* stream) {
      const std::lock_guard lock(mutex_);
      handshake.stream = stream;
      handshake.socket = -1;
      if (closed_ && stream != nullptr) stream->abort();
    };
    const auto on_last_word = [&](LastWord word) {
      const std::lock_guard lock(mutex_);
      handshake.last_word = word;
    };
    Connection connection =
        accept_connection(std::move(socket), settings_, {on_stream, on_last_word});
    {
      const std::lock_guard lock(mutex_);
      handshake.stream = nullptr;  // nothing blocks any more, and a failure would destroy it
    }
    core = std::make_unique<ChannelCore>(std::move(connection), settings_);
  } catch (const std::exception& error) {
    log(LogLevel::kWarn,
        "the handshake with " + peer + " at " + address_ + " failed: " + error.what());
  }
  const std::lock_guard lock(mutex_);
  handshake.ended = true;
  if (!closed_) handshake.core = std::move(core);
  // Also after a failure: the next in the backlog may start now.
  eventfd_write(done_.get(), 1);
  ended_.notify_all();
}

}  // namespace leat::detail

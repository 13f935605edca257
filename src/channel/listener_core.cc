#include "channel/listener_core.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/epoll.h"
#include "base/log.h"
#include "base/signals_held.h"
#include "base/system_error.h"
#include "channel/newcomers.h"
#include "net/tcp.h"

namespace leat::detail {
namespace {

// How many newcomers are admitted before the present ones are served again.
constexpr int kAdmittedAtOnce = 64;
// The time between tries while descriptors, threads or memory are exhausted.
constexpr std::chrono::milliseconds kRest{10};

std::unique_ptr<std::thread> start_thread(std::function<void()> work) {
  const SignalsHeld not_for_the_thread;
  try {
    return std::make_unique<std::thread>(std::move(work));
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kResource, std::string("cannot start a thread: ") + error.what(), {},
                ENOMEM);
  }
}

// Without memory even for the words there is no error.
std::optional<Error> out_of_memory(const std::string& address,
                                   const std::exception& error) noexcept {
  try {
    return Error(ErrorCode::kResource, "accept at " + address + ": " + error.what(), {}, ENOMEM);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace

ListenerCore::ListenerCore(const Uri& uri, const Settings& settings)
    : ListenerCore(listen_tcp(uri), settings) {}

ListenerCore::ListenerCore(Fd socket, const Settings& settings)
    : settings_(settings),
      socket_(std::move(socket)),
      address_(local_address(socket_.get())),
      news_(new_event()),
      wake_(new_event()),
      backlog_(std::max<std::size_t>(settings.backlog, 1)) {
  door_ = start_thread([this] { keep_door(); });
}

ListenerCore::~ListenerCore() {
  if (!made_here_) {
    // The handshakes and the threads are the parent's; freeing a connection would end it.
    static_cast<void>(door_.release());
    for (Handshake& handshake : handshakes_) {
      static_cast<void>(handshake.client.stream.release());
      static_cast<void>(handshake.core.release());
      static_cast<void>(handshake.thread.release());
    }
    return;
  }
  if (watch_ != nullptr) watch_->leave();
  close();
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return std::ranges::all_of(handshakes_, &Handshake::ended); });
  forget_ended_handshakes();
}

std::unique_ptr<ChannelCore> ListenerCore::accept(Deadline deadline) {
  // The cause of an earlier failure may have gone: the door tries again and says so if it has not.
  const std::optional<Error> earlier = take_error();
  for (;;) {
    if (auto core = try_accept()) return core;
    pollfd wait{news_.get(), POLLIN, 0};
    const int ready = poll(&wait, 1, poll_timeout_ms(deadline));
    if (ready < 0 && errno != EINTR) throw system_error("poll", errno);
    if (ready == 0 && passed(deadline)) {
      if (earlier) throw Error(*earlier);
      throw Error(ErrorCode::kTimeout, "accept at " + address_ + ": nobody came in time");
    }
  }
}

std::optional<Error> ListenerCore::take_error() {
  if (!made_here_) return std::nullopt;  // the lock may be held for ever
  const std::lock_guard lock(mutex_);
  return std::exchange(error_, std::nullopt);
}

std::unique_ptr<ChannelCore> ListenerCore::try_accept() {
  if (!made_here_)
    throw Error(ErrorCode::kClosed,
                "accept: the listener at " + address_ +
                    " belongs to the process that this one was forked from",
                "Listen after fork().");
  const std::lock_guard lock(mutex_);
  if (closed_)
    throw Error(ErrorCode::kClosed, "accept: the listener at " + address_ + " was closed");
  eventfd_t events = 0;
  eventfd_read(news_.get(), &events);
  Handshake* const next = first_ready();
  if (next == nullptr) {
    if (const auto error = std::exchange(error_, std::nullopt)) throw Error(*error);
    return nullptr;
  }
  auto core = std::move(next->core);
  const bool more = std::ranges::any_of(handshakes_, [](const auto& one) { return !!one.core; });
  if (more || error_) eventfd_write(news_.get(), 1);
  eventfd_write(wake_.get(), 1);  // a place is free again
  return core;
}

bool ListenerCore::ready() {
  const std::lock_guard lock(mutex_);
  return error_ || first_ready() != nullptr;
}

void ListenerCore::set_backlog(std::size_t backlog) {
  const std::lock_guard lock(mutex_);
  backlog_ = std::max<std::size_t>(backlog, 1);
  eventfd_write(wake_.get(), 1);
}

void ListenerCore::close() noexcept {
  if (!made_here_) return;
  const std::lock_guard one_at_a_time(closing_);
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    eventfd_write(news_.get(), 1);  // stays readable: every accept wakes and throws kClosed
    eventfd_write(wake_.get(), 1);
  }
  // Other processes may have this socket too: if they have shut it down, it is left so.
  int listens = 0;
  socklen_t bytes = sizeof listens;
  getsockopt(socket_.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes);
  if (listens != 0) ::shutdown(socket_.get(), SHUT_RDWR);
  door_->join();
  socket_stays_.reset();
  socket_.reset();
  const std::lock_guard lock(mutex_);
  for (Handshake& handshake : handshakes_) {
    if (handshake.stream != nullptr) handshake.stream->abort();
    if (handshake.core == nullptr) continue;
    handshake.core->reset();  // as TCP does with connections that were not accepted
    ChannelCore::orphan(handshake.core.release());
  }
}

bool ListenerCore::closed() {
  const std::lock_guard lock(mutex_);
  return closed_;
}

// --- all under the lock

// Its thread may not have got so far, and needs nothing more from the client.
bool ListenerCore::Handshake::is_done_for_client() const {
  if (ended || last_word == LastWord::kNotYet) return false;
  pollfd entry{stream != nullptr ? stream->fd() : -1, POLLIN, 0};
  return last_word == LastWord::kHeard || poll(&entry, 1, 0) > 0;
}

std::size_t ListenerCore::under_way() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(handshakes_, [](const Handshake& one) { return !one.ended; }));
}

// A client that had connected before another one arrived comes first, as with TCP. A slow one is
// overtaken.
ListenerCore::Handshake* ListenerCore::first_ready() {
  for (Handshake& handshake : handshakes_) {
    if (handshake.is_done_for_client()) return nullptr;
    if (handshake.core != nullptr) return &handshake;
  }
  return nullptr;
}

// Joins their threads, so that none is still ending when the program ends: what libraries keep for
// a thread (OpenSSL its errors) is freed with it.
void ListenerCore::forget_ended_handshakes() {
  handshakes_.remove_if([](Handshake& handshake) {
    if (!handshake.ended) return false;
    if (handshake.thread != nullptr) handshake.thread->join();
    handshake.thread.reset();
    return handshake.core == nullptr;
  });
}

void ListenerCore::start_handshakes(Newcomers& newcomers) {
  const auto of_source = [&](const std::string& source) {
    return static_cast<std::size_t>(std::ranges::count_if(
        handshakes_, [&](const auto& one) { return !one.ended && one.source == source; }));
  };
  look_again_ = kNoDeadline;
  const std::size_t most = std::min(kMostHandshakes, backlog_);
  for (;;) {
    // Handshakes that have not ended, and connections that wait for accept.
    if (handshakes_.size() >= backlog_ || under_way() >= kMostHandshakes) break;
    Greeting* const greeting = newcomers.next(of_source, std::max<std::size_t>(most * 3 / 4, 1));
    if (greeting == nullptr) break;
    start_handshake(newcomers, *greeting);
  }
  newcomers.set_places_free(handshakes_.size() < backlog_ && under_way() < kMostHandshakes);
  if (const std::size_t waiting = newcomers.count_heard(); waiting > 0) end_slow_ones(waiting);
}

void ListenerCore::start_handshake(Newcomers& newcomers, Greeting& greeting) {
  Handshake& handshake = handshakes_.emplace_back();
  handshake.source = greeting.source();
  handshake.begun = Clock::now();
  try {
    handshake.thread = start_thread([this, &handshake] { run(handshake); });
  } catch (...) {
    handshakes_.pop_back();
    throw;
  }
  // Its thread waits for the lock.
  handshake.client = newcomers.take(greeting);
  handshake.stream = handshake.client.stream.get();
}

// Ends handshakes that have had more than their share of time, as many as others are waiting.
void ListenerCore::end_slow_ones(std::size_t waiting) {
  for (Handshake& handshake : handshakes_) {
    if (handshake.ended || handshake.slow) continue;
    const Deadline end = handshake.begun + patience(settings_);
    if (!passed(end)) {
      look_again_ = std::min(look_again_, end);
    } else if (waiting > 0 && handshake.stream != nullptr) {
      --waiting;
      handshake.slow = true;
      handshake.stream->abort();
    }
  }
}

// --- the door

void ListenerCore::keep_door() noexcept {
  Newcomers newcomers(settings_, address_);
  for (;;) {
    std::optional<Error> failure;
    try {
      while (serve_door(newcomers)) {
      }
      return;
    } catch (const Error& error) {
      failure = error;
    } catch (const std::exception& error) {
      failure = out_of_memory(address_, error);
    }
    rest_after(std::move(failure));
  }
}

// False once the listener is closed.
bool ListenerCore::serve_door(Newcomers& newcomers) {
  const bool rests = !passed(rests_until_);
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    forget_ended_handshakes();
    if (!rests) start_handshakes(newcomers);
  }
  const bool admits = !rests && newcomers.has_room();
  std::vector<pollfd> polled{{wake_.get(), POLLIN, 0}, {admits ? socket_.get() : -1, POLLIN, 0}};
  newcomers.watch(polled);
  const Deadline due = std::min(newcomers.next_deadline(), rests ? rests_until_ : look_again_);
  if (poll(polled.data(), polled.size(), poll_timeout_ms(due)) < 0) {
    if (errno == EINTR) return true;
    throw system_error("poll", errno);
  }
  eventfd_t events = 0;
  if (polled[0].revents != 0) eventfd_read(wake_.get(), &events);
  newcomers.serve(std::span(polled).subspan(2));
  if (polled[1].revents != 0) admit(newcomers);
  return true;
}

// Throws if descriptors or memory run out; the newcomer stays in the kernel's backlog.
void ListenerCore::admit(Newcomers& newcomers) {
  for (int count = 0; count < kAdmittedAtOnce && newcomers.has_room(); ++count) {
    Fd socket(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      const int error = errno;
      if (error == EAGAIN || error == EINTR || error == ECONNABORTED) return;
      // Without a free descriptor the kernel does not even look whether a client is there.
      pollfd knocks{socket_.get(), POLLIN, 0};
      if (error == EMFILE && poll(&knocks, 1, 0) == 0) return;
      if (error == EMFILE && newcomers.drop_one()) continue;
      const std::lock_guard lock(mutex_);
      if (closed_) return;  // which shuts the socket down
      throw system_error("accept at " + address_, error);
    }
    newcomers.admit(std::move(socket));
    const std::lock_guard lock(mutex_);
    error_.reset();
  }
}

// The error changes hands whole: its words have one owner, not one in each thread.
void ListenerCore::rest_after(std::optional<Error> error) {
  rests_until_ = deadline_after(kRest);
  log_once(LogLevel::kWarn, error ? error->what() : "a listener is out of memory");
  const std::lock_guard lock(mutex_);
  error_ = std::move(error);
  eventfd_write(news_.get(), 1);
}

// --- the thread of a handshake

void ListenerCore::run(Handshake& handshake) noexcept {
  std::unique_ptr<ChannelCore> core;
  Heard client;
  {
    const std::lock_guard lock(mutex_);
    client = std::move(handshake.client);
  }
  const auto on_stream_end = [&] {
    const std::lock_guard lock(mutex_);
    handshake.stream = nullptr;
  };
  const auto on_last_word = [&](LastWord word) {
    const std::lock_guard lock(mutex_);
    handshake.last_word = word;
  };
  try {
    Connection connection =
        accept_connection(std::move(client), settings_, {on_stream_end, on_last_word});
    on_stream_end();  // nothing blocks any more, and a failure would destroy it
    core = std::make_unique<ChannelCore>(std::move(connection), settings_);
  } catch (const std::exception& error) {
    log(LogLevel::kWarn, {"listener at ", address_, ": ", error.what()});
  }
  const std::lock_guard lock(mutex_);
  handshake.ended = true;
  if (!closed_) handshake.core = std::move(core);
  // Also after a failure: the next one may begin now.
  eventfd_write(wake_.get(), 1);
  eventfd_write(news_.get(), 1);
  ended_.notify_all();
}

}  // namespace leat::detail

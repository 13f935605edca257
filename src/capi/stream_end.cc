#include "capi/stream_end.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/wire.h"

namespace leat::detail::c {

using namespace posix;

namespace {

constexpr std::size_t kMostRoomBytes = 4096;

bool natively_readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, 0) > 0;
}

// A close says in this context, before the end, how many bytes it has had of the peer (8). TCP
// answers what came after those, and what will come, by a reset.
constexpr unsigned kClosingContext = 1;

// The end of a process closes one after the other: the transport may see it before the lifeline
// does. A lifeline that is silent for so long will not end: the device has failed.
constexpr auto kLifelinePatience = std::chrono::seconds(1);

}  // namespace

StreamEnd::StreamEnd(std::unique_ptr<ChannelCore> core)
    : core_(core.release()),
      part_bytes_(core_->connection().transport->max_at_once_bytes(0)),
      room_bytes_(std::min(kMostRoomBytes, part_bytes_ / 4 + 1)),
      probes_room_(core_->connection().transport->facts().reserves_room),
      whole_parts_(!core_->connection().transport->facts().takes_back),
      keeps_output_(core_->connection().transport->facts().stream == StreamUse::kMessages) {
  core_->set_send_timeout(std::chrono::milliseconds(-1));
  core_->fd();
}

StreamEnd::~StreamEnd() {
  bool reset = abort_.load(std::memory_order_relaxed);
  try {
    if (!reset) {
      const std::lock_guard lock(receive_mutex_);
      reset = pull();
    }
  } catch (const std::exception& error) {
    log(LogLevel::kDebug, {"closing a handle: ", error.what()});
  }
  if (reset && !flag(kPeerGone)) core_->reset();
  if (!reset) end_at_once();
  arrivals_.clear();
  ChannelCore::orphan(core_);
}

// If it can be so: then the peer sees our end and the lifeline's together, as with TCP.
void StreamEnd::end_at_once() {
  constexpr int kTries = 3;  // a flush is asked for first, and over then
  try {
    std::array<std::byte, sizeof(std::uint64_t)> statement{};
    WireWriter(statement).number(taken_bytes_);
    if (!flag(kWriteShut)) static_cast<void>(core_->try_send(statement, kClosingContext));
    for (int i = 0; i < kTries && core_->try_shutdown(); ++i)
      if (core_->try_flush()) break;
  } catch (const std::exception&) {
    // The peer is gone, or there is no memory to say more to it.
  }
}

void StreamEnd::raise(unsigned flags) {
  // Release: a thread that sees the flag sees what was stored before it.
  tcp_.raise(flags);
  changes_.fetch_add(1, std::memory_order_relaxed);
}

// --- receiving, all with the lock

void StreamEnd::keep(Message message) {
  if (!message) {
    receive_over_ = true;
    raise(kEnded | hear_closing_statement());
    kick();
    return;
  }
  came_.fetch_add(1, std::memory_order_relaxed);
  arrivals_.add(std::move(message));
}

// What the end means besides.
unsigned StreamEnd::hear_closing_statement() {
  const auto statement = core_->glance(kClosingContext);
  // Relaxed: it only says whether to look again.
  statement_due_.store(!statement && core_->connection().transport->checking(),
                       std::memory_order_relaxed);
  if (!statement || statement->size() != sizeof(std::uint64_t)) return 0;
  if (WireReader(statement->bytes()).number<std::uint64_t>() == sent_bytes_.get()) return kPeerGone;
  tcp_.fail(EPIPE);  // as TCP that has had the end
  return kPeerGone | kReset;
}

// Takes in what comes next. False: nothing now, or no more.
bool StreamEnd::next() {
  if (receive_over_ && !statement_due_.load(std::memory_order_relaxed)) return false;
  try {
    if (receive_over_) {
      if (const unsigned flags = hear_closing_statement(); flags != 0) {
        raise(flags);
        kick();
      }
      return false;
    }
    auto message = core_->glance();
    if (!message) return false;
    keep(std::move(*message));
    return true;
  } catch (const Error& error) {
    transport_failed(error);
    receive_over_ = true;
    return false;
  }
}

// Whether there are bytes.
bool StreamEnd::pull() {
  while (arrivals_.empty() && next()) {
  }
  return !arrivals_.empty();
}

void StreamEnd::pull_all() {
  while (!arrivals_.full() && next()) {
  }
}

std::size_t StreamEnd::take(Buffers& to, bool peek) {
  const std::lock_guard lock(receive_mutex_);
  const EdgeMarks before = marks();
  std::size_t total = 0;
  if (peek) {
    while (arrivals_.bytes() < to.sound() && !arrivals_.full() && next()) {
    }
    total = arrivals_.peek(to);
  } else {
    while (to.sound() != 0 && pull()) total += arrivals_.take(to);
    taken_bytes_ += total;
  }
  if (marks() != before) show_the_rest();
  return total;
}

// What was taken in and left is there for a waiter that polls fd() from now on, though the event
// that told of it may still be on its way.
void StreamEnd::show_the_rest() {
  if (prepared_ && !arrivals_.empty()) kick();
}

std::size_t StreamEnd::readable_bytes() {
  const std::lock_guard lock(receive_mutex_);
  pull_all();
  show_the_rest();
  return arrivals_.bytes();
}

void StreamEnd::drain() {
  const std::lock_guard lock(receive_mutex_);
  pull_all();
  prepare();
}

void StreamEnd::kick() {
  if (!core_->kicked()) core_->kick();
}

// fd() becomes readable by what comes next; it stays so while there is something.
void StreamEnd::prepare() {
  if (flag(kEnded | kPeerGone | kReadShut) || arrivals_.full()) return kick();
  if (receive_over_ || (prepared_ && !natively_readable(core_->fd()))) return;
  prepared_ = false;
  try {
    auto message = core_->try_receive(0);
    if (message) {
      keep(std::move(*message));
      return kick();
    }
    prepared_ = true;
  } catch (const Error& error) {
    transport_failed(error);
    receive_over_ = true;
  }
  if (!arrivals_.empty() || flag(kPeerGone)) kick();
}

int StreamEnd::receive_state(bool begun) {
  if (flag(kEnded | kFailed)) look_at_lifeline();
  const std::lock_guard lock(receive_mutex_);
  if (core_->may_be_gone()) look_at_lifeline();
  return pull() ? 0 : tcp_.receive_state(false, begun);
}

// --- the peer's end

// The transport has found the peer gone. Whether by an end or by a reset the lifeline tells, at
// once or soon. Anything else is the call's failure. With the lock of that side.
void StreamEnd::transport_failed(const Error& error) {
  if (error.code() != ErrorCode::kPeerDied && !core_->peer_spoke()) throw error;
  if (!flag(kFailed)) {
    failure_.store(error.system_errno(), std::memory_order_relaxed);
    failure_deadline_.store(deadline_after(kLifelinePatience), std::memory_order_relaxed);
    tcp_.raise(kFailed);
  }
  look_at_lifeline();
}

void StreamEnd::look_at_lifeline() {
  if (flag(kPeerGone)) return;
  if (core_->lifeline_ended(Side::kReceive)) return peer_gone();
  if (flag(kFailed) && passed(failure_deadline_.load(std::memory_order_relaxed))) peer_gone();
}

// The lifeline's end tells, or without a lifeline the transport's.
void StreamEnd::peer_gone() {
  const std::lock_guard lock(end_mutex_);
  if (flag(kPeerGone)) return;
  const int socket = core_->connection().stream->fd();
  int error = 0;
  socklen_t bytes = sizeof error;
  tcp_info info{};
  socklen_t info_bytes = sizeof info;
  const bool known = getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 &&
                     getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &info_bytes) == 0;
  if (core_->peer_spoke()) error = EPROTO;
  const bool reset = !known || error != 0 || info.tcpi_state == TCP_CLOSE ||
                     !core_->lifeline_ended(Side::kReceive);
  if (reset && error == 0)
    error = flag(kFailed) ? failure_.load(std::memory_order_relaxed) : ECONNRESET;
  // No event for an edge-triggered waiter if the end came before.
  if (tcp_.peer_gone(!reset, error)) changes_.fetch_add(1, std::memory_order_relaxed);
}

// --- waiting

unsigned StreamEnd::mask(bool closely) {
  bool readable = false;
  {
    const std::lock_guard lock(receive_mutex_);
    readable = pull();
    if (!readable && closely) {
      prepare();
      readable = pull();
    }
    // The end shows though bytes before it are unread.
    if (readable && closely) pull_all();
    if (readable && !closely && !arrivals_.full()) next();
  }
  if (closely || flag(kEnded | kFailed)) look_at_lifeline();
  if (flag(kWriteShut)) {
    const std::lock_guard lock(send_mutex_);
    try_to_end();
  }
  return tcp_.mask(false, readable, [this] { return room(); });
}

bool StreamEnd::waits_silently(unsigned events) {
  if ((events & (POLLOUT | POLLWRNORM)) != 0) return true;
  if (flag(kEnded | kFailed) && !flag(kPeerGone)) return true;
  const std::scoped_lock lock(receive_mutex_, send_mutex_);
  return end_wanted_ || (keeps_output_ && full_) || arrivals_.full() || core_->receives_silently();
}

}  // namespace leat::detail::c

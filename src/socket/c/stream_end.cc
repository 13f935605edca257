#include "socket/c/stream_end.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/log.h"

namespace leat::detail::c {
namespace {

// What transport chunked takes at once; larger messages it takes in parts, over several calls.
constexpr std::size_t kChunkedPartBytes = std::size_t{32} << 10;
constexpr std::size_t kMostRoomBytes = 4096;
// Where room cannot be asked for, a sender that found none is told to try again after this.
constexpr auto kRetryInterval = std::chrono::milliseconds(1);

std::size_t part_bytes(const ChannelCore& core) {
  const std::size_t in_place = core.connection().transport->max_in_place_bytes(0);
  const bool chunked = core.connection().transport_name.ends_with("chunked");
  return chunked ? std::min(in_place, kChunkedPartBytes) : in_place;
}

bool natively_readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, 0) > 0;
}

// The end of a process closes one after the other: the transport may see it before the lifeline
// does.
constexpr auto kEndInterval = std::chrono::milliseconds(50);

void wait_for_end(int lifeline) {
  const Deadline deadline = deadline_after(kEndInterval);
  pollfd entry{lifeline, POLLRDHUP, 0};
  while (poll(&entry, 1, poll_timeout_ms(deadline)) < 0 && errno == EINTR && !passed(deadline)) {
  }
}

}  // namespace

StreamEnd::StreamEnd(std::unique_ptr<ChannelCore> core)
    : core_(core.release()),
      part_bytes_(part_bytes(*core_)),
      room_bytes_(std::min(kMostRoomBytes, part_bytes_ / 4 + 1)),
      probes_room_([&] {
        const std::string_view name = core_->connection().transport_name;
        return name != "tcp" && !name.ends_with("chunked") && !name.starts_with("attested");
      }()),
      whole_parts_(core_->connection().transport_name.starts_with("attested")),
      keeps_output_(core_->connection().transport_name.ends_with("tcp")) {
  core_->set_send_timeout(std::chrono::milliseconds(-1));
  core_->fd();
  kicked_ = true;  // as fd() begins
}

StreamEnd::~StreamEnd() {
  bool reset = abort_.load(std::memory_order_relaxed);
  try {
    if (!reset) {
      const std::lock_guard lock(receive_mutex_);
      reset = pull();
    }
  } catch (const std::exception& error) {
    log(LogLevel::kDebug, std::string("closing a handle: ") + error.what());
  }
  if (reset && !flag(kPeerGone)) core_->reset();
  if (!reset) end_at_once();
  current_.release();
  waiting_.clear();
  ChannelCore::orphan(core_);
}

// If it can be so: then the peer sees our end and the lifeline's together, as with TCP.
void StreamEnd::end_at_once() {
  constexpr int kTries = 3;  // a flush is asked for first, and over then
  try {
    for (int i = 0; i < kTries && core_->try_shutdown(); ++i)
      if (core_->try_flush()) break;
  } catch (const Error&) {
    // Nobody is there any more.
  }
}

void StreamEnd::raise(unsigned flags) {
  // Release: who sees the flag sees what was stored before it.
  flags_.fetch_or(flags, std::memory_order_acq_rel);
  edges_.fetch_add(1, std::memory_order_relaxed);
}

// --- receiving, all with the lock

void StreamEnd::keep(Message message) {
  if (!message) {
    receive_over_ = true;
    if (!flag(kEnded)) raise(kEnded);
    kick();
    return;
  }
  edges_.fetch_add(1, std::memory_order_relaxed);
  if (message.size() == 0) return;
  if (!current_ && waiting_.empty()) {
    current_ = std::move(message);
    taken_ = 0;
  } else {
    waiting_.push_back(std::move(message));
  }
}

// Takes in what comes next. False: nothing now, or no more.
bool StreamEnd::next() {
  if (receive_over_) return false;
  try {
    auto message = core_->glance();
    if (!message) return false;
    keep(std::move(*message));
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kPeerDied) throw;
    receive_over_ = true;
    peer_gone(error.system_errno());
    return false;
  }
}

// Whether current_ has bytes.
bool StreamEnd::pull() {
  if (current_) return true;
  if (!waiting_.empty()) {
    current_ = std::move(waiting_.front());
    taken_ = 0;
    waiting_.pop_front();
    return true;
  }
  while (!current_ && next()) {
  }
  return static_cast<bool>(current_);
}

std::size_t StreamEnd::take(Buffers& to, bool peek, bool discard) {
  const std::lock_guard lock(receive_mutex_);
  std::size_t total = 0;
  if (peek) {
    // Beyond the message that is being read.
    std::size_t here = current_ ? current_.size() - taken_ : 0;
    for (const Message& message : waiting_) here += message.size();
    while (here < to.left() && next()) {
      here = current_ ? current_.size() - taken_ : 0;
      for (const Message& message : waiting_) here += message.size();
    }
    const auto copy = [&](std::span<const std::byte> bytes) {
      while (!bytes.empty() && to.left() != 0) {
        const std::size_t part = std::min(bytes.size(), to.front().size());
        if (!discard) std::memcpy(to.front().data(), bytes.data(), part);
        to.advance(part);
        bytes = bytes.subspan(part);
        total += part;
      }
    };
    if (current_) copy(current_.bytes().subspan(taken_));
    for (const Message& message : waiting_) copy(message.bytes());
    return total;
  }
  while (to.left() != 0 && pull()) {
    const auto bytes = current_.bytes().subspan(taken_);
    const std::size_t part = std::min(bytes.size(), to.front().size());
    if (!discard) std::memcpy(to.front().data(), bytes.data(), part);
    to.advance(part);
    taken_ += part;
    total += part;
    if (taken_ == current_.size()) current_.release();
  }
  return total;
}

std::size_t StreamEnd::readable_bytes() {
  const std::lock_guard lock(receive_mutex_);
  while (next()) {
  }
  std::size_t total = current_ ? current_.size() - taken_ : 0;
  for (const Message& message : waiting_) total += message.size();
  return total;
}

void StreamEnd::drain() {
  const std::lock_guard lock(receive_mutex_);
  while (next()) {
  }
  prepare();
}

void StreamEnd::kick() {
  if (!std::exchange(kicked_, true)) core_->kick();
}

// fd() becomes readable by what comes next; it stays so while there is something.
void StreamEnd::prepare() {
  if (flag(kEnded | kPeerGone | kReadShut)) return kick();
  if (prepared_ && !natively_readable(core_->fd())) return;
  prepared_ = false;
  try {
    auto message = core_->try_receive(0);
    if (message) {
      keep(std::move(*message));
      return kick();
    }
    kicked_ = false;  // that took it back
    prepared_ = true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kPeerDied) throw;
    receive_over_ = true;
    peer_gone(error.system_errno());
  }
  if (current_ || !waiting_.empty() || flag(kPeerGone)) kick();
}

int StreamEnd::receive_state() {
  if (flag(kEnded) && !flag(kPeerGone)) look_at_lifeline();
  const std::lock_guard lock(receive_mutex_);
  if (pull()) return 0;
  if (flag(kEnded)) return 1;
  if (flag(kPeerGone | kReset)) {
    const int error = take_error();
    return error != 0 ? -error : 1;
  }
  return flag(kReadShut) ? 1 : 0;
}

// --- the peer's end

void StreamEnd::look_at_lifeline() {
  if (!flag(kPeerGone) && core_->lifeline_ended()) peer_gone();
}

// Its end was seen, on the lifeline or by the transport.
void StreamEnd::peer_gone(int known_error) {
  if (flag(kPeerGone)) return;
  const int socket = core_->connection().stream->fd();
  if (known_error != 0) wait_for_end(socket);
  int error = 0;
  socklen_t bytes = sizeof error;
  tcp_info info{};
  socklen_t info_bytes = sizeof info;
  const bool known = getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 &&
                     getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &info_bytes) == 0;
  const bool reset = !known || error != 0 || info.tcpi_state == TCP_CLOSE ||
                     (known_error != 0 && !core_->lifeline_ended());
  if (!reset && flag(kEnded)) {
    // No news for who waits: the end came before.
    flags_.fetch_or(kPeerGone, std::memory_order_acq_rel);
    return;
  }
  if (!reset) return raise(kPeerGone);
  if (error == 0) error = known_error != 0 ? known_error : ECONNRESET;
  // TCP that had the end before calls a reset so.
  if (flag(kEnded) && error == ECONNRESET) error = EPIPE;
  if (!flag(kReset)) error_.store(error, std::memory_order_release);
  raise(kPeerGone | kReset);
}

// --- sending

int StreamEnd::send_state() {
  // Whether the peer has ended shows where it is received.
  if (!flag(kPeerGone)) {
    if (!flag(kEnded)) {
      const std::unique_lock lock(receive_mutex_, std::try_to_lock);
      if (lock) next();
    }
    if (flag(kEnded)) look_at_lifeline();
  }
  if (const int error = take_error(); error != 0) return -error;
  if (flag(kWriteShut | kReset)) return -EPIPE;
  if (!flag(kPeerGone)) return 0;
  // TCP takes this, is told by a reset that nobody is there, and refuses what follows.
  error_.store(EPIPE, std::memory_order_release);
  raise(kReset);
  return 1;
}

std::size_t StreamEnd::put(Buffers& from) {
  std::size_t total = 0;
  {
    const std::lock_guard lock(send_mutex_);
    const bool was_full = full_;
    total = put_some(from);
    if (!full_ || was_full) return total;
  }
  // Edge-triggered waiters look again, and again after a while, from now on.
  const std::lock_guard lock(receive_mutex_);
  kicked_ = true;
  core_->kick();
  return total;
}

std::size_t StreamEnd::put_some(Buffers& from) {
  std::size_t total = 0;
  try {
    while (from.left() != 0 && !flag(kWriteShut)) {
      std::size_t part = std::min(part_bytes_, from.front().size());
      if (whole_parts_ && refused_bytes_ != 0) part = std::min(part, refused_bytes_);
      while (!core_->offer(from.front().first(part))) {
        // A part of it may fit.
        if (whole_parts_ || part == 1) {
          full_ = true;
          full_since_ = Clock::now();
          if (whole_parts_) refused_bytes_ = part;
          return total;
        }
        part = std::max<std::size_t>(part / 2, 1);
      }
      refused_bytes_ = 0;
      from.advance(part);
      total += part;
    }
    if (keeps_output_ && !core_->try_flush()) full_ = true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kPeerDied) throw;
    peer_gone(error.system_errno());
  }
  return total;
}

bool StreamEnd::flushed() {
  if (!keeps_output_) return true;
  const std::lock_guard lock(send_mutex_);
  try {
    return flag(kWriteShut | kPeerGone) || core_->try_flush();
  } catch (const Error&) {
    return true;  // the next call says it
  }
}

bool StreamEnd::room() {
  const std::lock_guard lock(send_mutex_);
  const bool was_full = full_;
  try {
    if (probes_room_) {
      full_ = !core_->has_room(room_bytes_);
    } else if (full_ && Clock::now() - full_since_ >= kRetryInterval) {
      full_ = keeps_output_ && !core_->try_flush();
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kPeerDied) throw;
    peer_gone(error.system_errno());
    return true;
  }
  if (was_full && !full_) edges_.fetch_add(1, std::memory_order_relaxed);
  return !full_;
}

void StreamEnd::shutdown(int how) {
  if (how != SHUT_RD && !flag(kWriteShut)) {
    raise(kWriteShut);
    const std::lock_guard lock(send_mutex_);
    end_wanted_ = true;
    try_to_end();
  }
  if (how != SHUT_WR && !flag(kReadShut)) raise(kReadShut);
  const std::lock_guard lock(receive_mutex_);
  // Wakes who sleeps here.
  kicked_ = true;
  core_->kick();
}

void StreamEnd::dissolve() {
  const std::scoped_lock lock(receive_mutex_, send_mutex_);
  if (flag(kPeerGone)) return;
  core_->reset();
  receive_over_ = true;
  error_.store(ECONNRESET, std::memory_order_release);
  raise(kPeerGone | kReset);
}

// With the lock. The end has its place after what was sent: it may have to wait for room.
void StreamEnd::try_to_end() {
  try {
    if (end_wanted_) end_wanted_ = !core_->try_shutdown();
  } catch (const Error&) {
    end_wanted_ = false;  // nobody is there to be told
  }
}

void StreamEnd::linger(std::chrono::milliseconds limit) {
  const std::lock_guard lock(send_mutex_);
  try {
    core_->set_send_timeout(limit);
    core_->flush();
  } catch (const Error& error) {
    log(LogLevel::kDebug, std::string("lingering over a handle: ") + error.what());
  }
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
    } else if (readable && waiting_.empty()) {
      next();  // the end shows though bytes before it are unread
    }
    while (closely && readable && next()) {
    }
  }
  if (closely || flag(kEnded)) look_at_lifeline();
  if (flag(kWriteShut)) {
    const std::lock_guard lock(send_mutex_);
    try_to_end();
  }
  const unsigned flags = flags_.load(std::memory_order_acquire);
  const bool end = (flags & (kEnded | kReadShut | kPeerGone | kReset)) != 0;
  unsigned mask = 0;
  if (end) mask |= POLLIN | POLLRDNORM | POLLRDHUP;
  if (readable) mask |= POLLIN | POLLRDNORM;
  if ((end && (flags & kWriteShut) != 0) || (flags & kReset) != 0) mask |= POLLHUP;
  if (error_.load(std::memory_order_acquire) != 0) mask |= POLLERR;
  if ((flags & (kWriteShut | kReset | kPeerGone)) != 0 || room()) mask |= POLLOUT | POLLWRNORM;
  return mask;
}

bool StreamEnd::waits_silently(unsigned events) {
  if ((events & (POLLOUT | POLLWRNORM)) != 0) return true;
  if (flag(kEnded) && !flag(kPeerGone)) return true;
  const std::scoped_lock lock(receive_mutex_, send_mutex_);
  return end_wanted_ || core_->receives_silently();
}

}  // namespace leat::detail::c

// The sending side of a stream end, and how it ends.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <mutex>

#include "base/log.h"
#include "capi/stream_end.h"
#include "posix/times.h"

namespace leat::detail::c {

using namespace posix;

namespace {

// Where room cannot be asked for, a sender that found none tries again after this time.
constexpr auto kRetryInterval = std::chrono::milliseconds(1);

}  // namespace

int StreamEnd::send_state(bool begun) {
  // Whether the peer has ended shows where it is received.
  if (!flag(kPeerGone)) {
    if (!flag(kEnded) || statement_due_.load(std::memory_order_relaxed)) {
      const std::unique_lock lock(receive_mutex_, std::try_to_lock);
      if (lock) next();
    }
    // Nothing else tells of a peer that was killed; the coarse clock costs next to nothing.
    const std::int64_t tick = now_ns(CLOCK_MONOTONIC_COARSE);
    // Relaxed: two threads that look at once do no harm.
    const bool due = asked_.load(std::memory_order_relaxed) != tick;
    if (due) asked_.store(tick, std::memory_order_relaxed);
    if (due || flag(kEnded | kFailed)) look_at_lifeline();
  }
  return tcp_.send_state(begun);
}

void StreamEnd::sent_to_nobody() {
  if (!tcp_.sent_to_nobody()) return;
  changes_.fetch_add(1, std::memory_order_relaxed);
  wake_at_edges();
}

// For changes of which the kernel makes no event: edge-triggered waiters look again.
void StreamEnd::wake_at_edges() {
  const std::lock_guard lock(receive_mutex_);
  core_->kick();
}

std::size_t StreamEnd::put(Buffers& from) {
  std::size_t total = 0;
  {
    const std::lock_guard lock(send_mutex_);
    const bool was_full = full_;
    total = put_some(from);
    if (!full_ || was_full) return total;
  }
  wake_at_edges();  // and they look again after a while from now on
  return total;
}

std::size_t StreamEnd::put_some(Buffers& from) {
  std::size_t total = 0;
  try {
    while (from.sound() != 0 && !flag(kWriteShut | kFailed)) {
      std::size_t part = std::min(part_bytes_, from.front().size());
      if (whole_parts_ && refused_bytes_ != 0) part = std::min(part, refused_bytes_);
      while (!core_->try_send_unwatched(from.front().first(part))) {
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
      sent_bytes_.add(part);
    }
    if (keeps_output_ && !core_->try_flush()) full_ = true;
  } catch (const Error& error) {
    transport_failed(error);
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

// Whether the part that was offered last can go on now, or very soon.
bool StreamEnd::goes_on_soon() const {
  return whole_parts_ && core_->connection().transport->outlook(Side::kSend, Look::kBrief).soon;
}

bool StreamEnd::room() {
  const std::lock_guard lock(send_mutex_);
  if (flag(kFailed)) return flag(kPeerGone);
  const bool was_full = full_;
  try {
    if (probes_room_) {
      full_ = !core_->has_room(room_bytes_);
    } else if (full_ && (goes_on_soon() || Clock::now() - full_since_ >= kRetryInterval)) {
      full_ = keeps_output_ && !core_->try_flush();
    }
  } catch (const Error& error) {
    transport_failed(error);
    return flag(kPeerGone);
  }
  if (was_full && !full_) refills_.fetch_add(1, std::memory_order_relaxed);
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
  wake_at_edges();
}

void StreamEnd::dissolve() {
  const std::scoped_lock lock(receive_mutex_, send_mutex_, end_mutex_);
  if (flag(kPeerGone)) return;
  core_->reset();
  receive_over_ = true;
  tcp_.dissolve(false);
  changes_.fetch_add(1, std::memory_order_relaxed);
  core_->kick();
}

// The caller holds the lock. The end has its place after what was sent: it may have to wait for
// room.
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
  } catch (const std::exception& error) {
    log(LogLevel::kDebug, {"lingering over a handle: ", error.what()});
  }
}

}  // namespace leat::detail::c

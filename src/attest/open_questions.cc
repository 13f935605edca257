#include "attest/open_questions.h"

#include <sys/timerfd.h>

#include <utility>

#include "base/epoll.h"
#include "base/system_error.h"

namespace leat::trusted::detail {

using leat::detail::check;
using leat::detail::Clock;
using leat::detail::Deadline;
using leat::detail::epoll_add;
using leat::detail::kNoDeadline;

OpenQuestions::OpenQuestions(IsolatedKernel& kernel, int also_wakes)
    : kernel_(kernel),
      connection_(*kernel.connection_),
      timer_(check(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK), "timerfd_create")),
      set_(leat::detail::new_epoll_set()) {
  if (also_wakes >= 0) epoll_add(set_, also_wakes);
  epoll_add(set_, connection_.wake_fd());
  epoll_add(set_, timer_.get());
}

OpenQuestions::~OpenQuestions() { connection_.drop(ticket_); }

std::size_t OpenQuestions::begin(std::span<Question> questions) noexcept {
  const std::size_t count = connection_.begin(kernel_.kernel_, questions, ticket_);
  lacks_slot_ = count == 0;
  begun_ = questions.first(count);
  if (ticket_.under_way() && std::exchange(arms_next_, false)) arm_request();
  return count;
}

bool OpenQuestions::try_finish() noexcept {
  if (!ticket_.under_way()) return true;
  if (!connection_.try_finish(ticket_, begun_)) return false;
  kernel_.check(begun_);
  // Relaxed: a wake that comes in vain does no harm.
  armed_.store(false, std::memory_order_relaxed);
  return true;
}

bool OpenQuestions::answered() const noexcept {
  return ticket_.under_way() && connection_.answered(ticket_);
}

void OpenQuestions::arm(OpenQuestions& other) noexcept {
  // The daemon wakes both sides by one descriptor, so what this side takes from there may have been
  // for the other. Acquire: a wake for the other comes after it has armed itself. If it arms itself
  // again meanwhile, its timer is set last there, and it then finds the answer when it looks.
  if (connection_.take_wakes() && other.armed_.load(std::memory_order_acquire))
    other.wake_at(Clock::now());
  // Its end stays readable, and would end every sleep; from now on questions are answered at once.
  if (connection_.dead()) epoll_ctl(set_.get(), EPOLL_CTL_DEL, connection_.wake_fd(), nullptr);
  arms_next_ = !ticket_.under_way();
  if (arms_next_)
    wake_at(kNoDeadline);
  else
    arm_request();
}

void OpenQuestions::arm_request() noexcept {
  wake_at(KernelConnection::patience_ends(ticket_));
  // Release: see arm().
  armed_.store(true, std::memory_order_release);
  connection_.arm(ticket_);
}

void OpenQuestions::wake_at(Deadline when) noexcept {
  itimerspec at{};
  if (when != kNoDeadline) {
    const std::chrono::nanoseconds time = when.time_since_epoch();
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
    at.it_value = {seconds.count(), (time - seconds).count()};
  }
  timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &at, nullptr);
}

}  // namespace leat::trusted::detail

#include "transport/chunked/resumption.h"

#include <array>
#include <exception>
#include <span>

#include "base/epoll.h"
#include "base/log.h"
#include "base/signals_held.h"
#include "base/system_error.h"

namespace leat::detail {
namespace {

// Fruitless looks between two questions whether the peer wishes to resume, each a system call.
constexpr unsigned kLooksPerQuestion = 1024;
// Between two looks at whether more may go again.
constexpr std::chrono::microseconds kCatchUpPause{200};
// What has come may show late: so often in a row nothing must have been found.
constexpr unsigned kPollsToLeave = 64;

}  // namespace

Resumption::Resumption(Device& device, std::unique_ptr<QueuePair> queue_pair,
                       std::unique_ptr<Resumer> resumer, std::uint64_t receives,
                       std::chrono::milliseconds timeout, Transfers& transfers)
    : device_(device),
      transfers_(transfers),
      resumer_(std::move(resumer)),
      receives_(receives),
      timeout_(timeout),
      queue_pair_(std::move(queue_pair)) {
  if (resumer_ == nullptr) return;
  for (const std::size_t i : {0, 1}) {
    waits_[i] = new_epoll_set();
    wake_[i] = new_event();
    epoll_add(waits_[i], wake_[i].get());
  }
  watch_queue_pair();
}

void Resumption::stop() noexcept {
  if (resuming_.load(std::memory_order_acquire)) resumer_->cancel();
  if (thread_.joinable()) thread_.join();
}

// --- turns

std::unique_lock<std::mutex> Resumption::turn(Side side) const {
  // Without the mutex first: a spinning caller would keep it from the thread that resumes. Acquire,
  // as at resuming_.
  if (resuming_.load(std::memory_order_acquire)) return {};
  auto lock = wait_for_turn(side);
  // Relaxed: the thread changes nothing without this mutex, and only after it was set.
  if (resuming_.load(std::memory_order_relaxed)) return {};
  return lock;
}

std::unique_lock<std::mutex> Resumption::wait_for_turn(Side side) const {
  return std::unique_lock(turns_[index(side)]);
}

// --- waiting: through descriptors that stay while queue pairs come and go

int Resumption::event_fd(Side side) const {
  return resumer_ == nullptr ? queue_pair_->event_fd(side) : waits_[index(side)].get();
}

void Resumption::watch_queue_pair() {
  for (const Side side : {Side::kSend, Side::kReceive})
    epoll_add(waits_[index(side)], queue_pair_->event_fd(side));
}

void Resumption::arm(Side side) {
  if (resumer_ != nullptr) {
    eventfd_t events = 0;
    eventfd_read(wake_[index(side)].get(), &events);
  }
  const auto mine = turn(side);
  if (!mine || queue_pair_ == nullptr) return;
  queue_pair_->arm(side);
  ask_whether_wanted();
}

// --- the end of a queue pair

void Resumption::heed_peer(Side side) {
  if (++fruitless_[index(side)] % kLooksPerQuestion == 0) ask_whether_wanted();
}

void Resumption::ask_whether_wanted() {
  if (resumer_ != nullptr && resumer_->wanted()) break_off("the peer asks to resume");
}

bool Resumption::break_off(const std::string& why) {
  if (resumer_ == nullptr) return false;
  const std::lock_guard lock(thread_mutex_);
  if (resuming_.load(std::memory_order_acquire)) return true;
  if (gave_up_) return false;
  if (thread_.joinable()) thread_.join();  // it has come to its end before
  log(LogLevel::kInfo, "transport chunked: " + why + "; re-establishing the queue pair");
  why_broken_ = why;
  resuming_.store(true, std::memory_order_release);
  try {
    const SignalsHeld not_for_the_thread;
    thread_ = std::thread([this] { run(); });
  } catch (const std::exception& error) {  // of the system, or no memory
    resuming_.store(false, std::memory_order_release);
    log(LogLevel::kError, {"transport chunked: no thread to resume: ", error.what()});
    return false;
  }
  return true;
}

// --- the thread

void Resumption::run() noexcept {
  try {
    std::size_t waiting = SIZE_MAX;  // to go again, at the last attempt
    Deadline deadline = kNoDeadline;
    do {
      take_leave();
      const std::size_t waits = transfers_.unfinished();
      // The time begins again only after a queue pair through which something came.
      if (waits < waiting) deadline = deadline_after(timeout_);
      waiting = waits;
      adopt(resumer_->run(device_, transfers_.arrivals(), receives_, deadline));
    } while (!catch_up(deadline));
  } catch (const std::exception& failure) {
    const auto* error = dynamic_cast<const Error*>(&failure);
    const std::scoped_lock both(turns_[0], turns_[1]);
    gave_up_ = true;
    transfers_.lost(error == nullptr ? ErrorCode::kSystem : error->code(),
                    {why_broken_, ", and the connection could not be resumed: ", failure.what()});
  }
  resuming_.store(false, std::memory_order_release);
  // Only now: a waiter that wakes and finds that it goes on would sleep again, without another
  // event.
  for (const Fd& wake : wake_) eventfd_write(wake.get(), 1);
}

// Takes from the queue pair what it has brought, and ends it: after that nothing the peer posted
// to it can reach our memory.
void Resumption::take_leave() {
  const std::scoped_lock both(turns_[0], turns_[1]);
  if (queue_pair_ == nullptr) return;
  std::array<Completion, 16> completions;
  const auto drain = [&](auto&& poll, auto&& take) {
    for (unsigned fruitless = 0; fruitless < kPollsToLeave;) {
      const std::size_t count = poll();
      fruitless = count == 0 ? fruitless + 1 : 0;
      for (const Completion& completion : std::span(completions).first(count)) {
        if (completion.status != CompletionStatus::kSuccess) return;
        take(completion);
      }
    }
  };
  drain([&] { return queue_pair_->poll_receives(completions); },
        [&](const Completion& completion) { transfers_.take_arrival(completion); });
  drain([&] { return queue_pair_->poll_sends(completions); },
        [&](const Completion&) { transfers_.take_completion(); });
  const std::lock_guard lock(queue_pair_mutex_);
  queue_pair_.reset();
}

void Resumption::adopt(Resumer::Outcome outcome) {
  const std::scoped_lock both(turns_[0], turns_[1]);
  {
    const std::lock_guard lock(queue_pair_mutex_);
    queue_pair_ = std::move(outcome.queue_pair);
  }
  watch_queue_pair();
  transfers_.resumed(outcome.peer_arrivals);
  resumes_.add(1);
}

// Posts again what is to go again. False: the new queue pair has failed as well.
bool Resumption::catch_up(Deadline deadline) {
  for (;;) {
    {
      const std::lock_guard lock(turns_[index(Side::kSend)]);
      std::array<Completion, 16> completions;
      const std::size_t count = queue_pair_->poll_sends(completions);
      for (const Completion& completion : std::span(completions).first(count)) {
        if (completion.status != CompletionStatus::kSuccess) {
          why_broken_ = std::string("sending failed: ") + to_string(completion.status);
          return false;
        }
        transfers_.take_completion();
      }
      if (transfers_.send_again()) return true;
    }
    if (passed(deadline))
      throw Error(ErrorCode::kTimeout, "the deadline has passed while sending again");
    std::this_thread::sleep_for(kCatchUpPause);
  }
}

// --- both

std::string Resumption::describe() const {
  const std::lock_guard lock(queue_pair_mutex_);
  return queue_pair_ ? queue_pair_->describe() : "a queue pair that is re-established";
}

void Resumption::add_stats(Stats& stats) const {
  stats.resumes += resumes_.get();
  const std::lock_guard lock(queue_pair_mutex_);
  if (queue_pair_) stats.rnr_retries += queue_pair_->rnr_retries();
}

}  // namespace leat::detail

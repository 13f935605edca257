// What a chunked transport does when its queue pair has failed: it takes what has come, makes a new
// one together with the peer, and goes on from the last confirmed chunk. A thread does that, which
// lives as long as it takes; until then the transport's calls say that they would block.

#include <cstring>
#include <system_error>

#include "base/epoll.h"
#include "base/log.h"
#include "base/signals_held.h"
#include "base/system_error.h"
#include "transport/chunked/chunked.h"

namespace leat::detail {
namespace {

// Between two looks at whether more may go again.
constexpr std::chrono::microseconds kCatchUpPause{200};

// What has come may show late: so often in a row nothing must have been found.
constexpr unsigned kPollsToLeave = 64;

constexpr std::size_t index(Side side) { return side == Side::kSend ? 0 : 1; }

}  // namespace

ChunkedTransport::~ChunkedTransport() {
  if (resuming_.load(std::memory_order_acquire)) resumer_->cancel();
  if (resumer_thread_.joinable()) resumer_thread_.join();
}

// --- waiting: through descriptors that stay while queue pairs come and go

void ChunkedTransport::make_waits() {
  if (resumer_ == nullptr) return;
  for (const Side side : {Side::kSend, Side::kReceive}) {
    const std::size_t i = index(side);
    waits_[i] = new_epoll_set();
    wake_[i] = new_event();
    epoll_add(waits_[i], wake_[i].get());
  }
}

void ChunkedTransport::watch_queue_pair() {
  if (resumer_ == nullptr) return;
  for (const Side side : {Side::kSend, Side::kReceive})
    epoll_add(waits_[index(side)], queue_pair_->event_fd(side));
}

void ChunkedTransport::arm(Side side) {
  if (resumer_ != nullptr) {
    eventfd_t events = 0;
    eventfd_read(wake_[index(side)].get(), &events);
  }
  const auto mine = turn(side == Side::kSend ? send_mutex_ : receive_mutex_);
  if (!mine || queue_pair_ == nullptr) return;
  queue_pair_->arm(side);
  ask_whether_wanted();
}

std::unique_lock<std::mutex> ChunkedTransport::turn(std::mutex& mutex) const {
  // Without the mutex first: a spinning caller would keep it from the thread that resumes.
  if (resuming_.load(std::memory_order_acquire)) return {};
  std::unique_lock lock(mutex);
  if (resuming_.load(std::memory_order_relaxed)) return {};
  return lock;
}

// --- the end of a queue pair

void ChunkedTransport::ask_whether_wanted() {
  if (resumer_ != nullptr && resumer_->wanted()) break_off("the peer asks to resume");
}

bool ChunkedTransport::break_off(const std::string& why) {
  if (resumer_ == nullptr) return false;
  const std::lock_guard lock(resume_mutex_);
  if (resuming_.load(std::memory_order_acquire)) return true;
  if (gave_up_) return false;
  if (resumer_thread_.joinable()) resumer_thread_.join();  // it has come to its end before
  log(LogLevel::kInfo, "transport chunked: " + why + "; re-establishing the queue pair");
  why_broken_ = why;
  resuming_.store(true, std::memory_order_release);
  try {
    const SignalsHeld not_for_the_thread;
    resumer_thread_ = std::thread([this] { resume(); });
  } catch (const std::system_error& error) {
    log(LogLevel::kError, std::string("transport chunked: no thread to resume: ") + error.what());
    resuming_.store(false, std::memory_order_release);
    return false;
  }
  return true;
}

void ChunkedTransport::resume() noexcept {
  try {
    std::size_t waiting = SIZE_MAX;  // to go again, at the last attempt
    Deadline deadline = kNoDeadline;
    for (bool done = false; !done;) {
      take_leave();
      const std::size_t waits = works_.waiting();
      // The time begins again only after a queue pair through which something came.
      if (waits < waiting) deadline = deadline_after(options_.resume_timeout);
      waiting = waits;
      adopt(resumer_->run(*device_, returns_.used(), returns_.receives(), deadline));
      resumes_.add(1);
      done = catch_up(deadline);
    }
  } catch (const std::exception& failure) {
    const auto* error = dynamic_cast<const Error*>(&failure);
    const std::scoped_lock lock(send_mutex_, receive_mutex_);
    gave_up_ = true;
    const ErrorCode code = error == nullptr ? ErrorCode::kSystem : error->code();
    const std::string what = why_broken_ +
                             ", and the connection could not be resumed: " + failure.what() + " (" +
                             progress() + ")";
    send_error_.set(code, what);
    if (!ended_) receive_error_.set(code, what);  // after its end the peer may go
  }
  resuming_.store(false, std::memory_order_release);
  // Only now: a waiter that wakes and finds that it goes on would sleep again, without another
  // event.
  for (const Fd& wake : wake_) eventfd_write(wake.get(), 1);
}

// Takes from the queue pair what it has brought, and ends it: after that nothing the peer posted
// to it can reach our memory.
void ChunkedTransport::take_leave() {
  const std::scoped_lock lock(send_mutex_, receive_mutex_, queue_pair_mutex_);
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
        [&](const Completion& completion) { take_arrival(completion); });
  drain([&] { return queue_pair_->poll_sends(completions); },
        [&](const Completion&) { take_completion(); });
  queue_pair_.reset();
}

void ChunkedTransport::adopt(Resumer::Outcome outcome) {
  const std::scoped_lock lock(send_mutex_, receive_mutex_, queue_pair_mutex_);
  queue_pair_ = std::move(outcome.queue_pair);
  watch_queue_pair();

  // The peer has as many receives as ever, beyond those that it has taken.
  if (!credits_.take(outcome.peer_arrivals) || !works_.resume(outcome.peer_arrivals))
    throw Error(ErrorCode::kProtocol, "the peer says that it took more than was sent");
  if (works_.dropped_kept() != 0) static_cast<void>(stage_.take_back(works_.dropped_kept()));
  window_.lost();
  std::size_t headers = works_.place_headers([](ChunkWork&, std::size_t) {});
  if (headers != 0) {
    headers_again_ = device_->allocate(headers * sizeof(ChunkHeader), kLocalOnly);
    works_.place_headers([&](ChunkWork& work, std::size_t i) {
      work.local = headers_again_->memory().data() + i * sizeof(ChunkHeader);
      work.local_key = headers_again_->local_key();
      std::memcpy(work.local, &work.header, sizeof work.header);
    });
  }

  // Our own receives too; and what we said of them and of room may have been lost.
  returns_.begin_again();
  retry_credits();
}

// Posts again what is to go again. False: the new queue pair has failed as well.
bool ChunkedTransport::catch_up(Deadline deadline) {
  for (;;) {
    {
      const std::lock_guard lock(send_mutex_);
      std::array<Completion, 16> completions;
      const std::size_t count = queue_pair_->poll_sends(completions);
      for (const Completion& completion : std::span(completions).first(count)) {
        if (completion.status != CompletionStatus::kSuccess) {
          why_broken_ = std::string("sending failed: ") + to_string(completion.status);
          return false;
        }
        take_completion();
      }
      while (!works_.caught_up()) {
        ChunkWork& work = works_.again();
        if (window_.allowance(work.bytes, false, Clock::now()) < work.bytes || !post_request(work))
          break;
        works_.posted_again();
      }
      if (works_.caught_up()) return true;
    }
    if (passed(deadline)) throw Error(ErrorCode::kTimeout, "time is over while sending again");
    std::this_thread::sleep_for(kCatchUpPause);
  }
}

std::string ChunkedTransport::progress() const {
  std::uint64_t whole = 0;
  std::string text;
  for (Context context = 0; context < kContextCount; ++context) {
    whole += transfers_[context];
    const Outgoing& out = outgoing_[context];
    const std::size_t unconfirmed = works_.unconfirmed(context);
    if (!out.active && unconfirmed == 0) continue;
    text += "; context " + std::to_string(context) + ": ";
    if (out.active) {
      text += std::to_string(out.posted - std::min(out.posted, unconfirmed)) + " of " +
              std::to_string(out.total) + " bytes of message " +
              std::to_string(transfers_[context]) + " are confirmed";
    } else {
      text += std::to_string(unconfirmed) + " bytes of the last messages are not confirmed";
    }
  }
  return std::to_string(whole) + " messages were sent whole" + text;
}

}  // namespace leat::detail

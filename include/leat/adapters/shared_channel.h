// One channel for several threads, each of which sends and receives in protocol contexts of its
// own.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "leat/adapters/turns_at_sending.h"
#include "leat/channel.h"
#include "leat/error.h"
#include "leat/wait.h"

namespace leat::adapters {

// A channel admits one receiving thread at a time. Of the threads that wait here, one leads: it
// waits for the channel as any receiver does, and takes off what comes for the others, who sleep.
// When it has its own message, the next of them leads. A thread that is alone always leads, at the
// price of an uncontended lock.
//
// Owner: the caller that constructed it. Threads: any, each context in one at a time.
// Errors: those of Channel. A failed connection fails in each context.
class SharedChannel {
 public:
  explicit SharedChannel(Channel channel)
      : channel_(std::move(channel)), news_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (news_fd_ < 0) throw Error(ErrorCode::kResource, "no descriptor is left for an eventfd");
  }
  SharedChannel(const SharedChannel&) = delete;
  SharedChannel& operator=(const SharedChannel&) = delete;
  ~SharedChannel() { ::close(news_fd_); }

  // Gives back `spent`, a message of this context or none, and returns the next one; false at the
  // peer's end. Blocks.
  Message receive(unsigned context, Message spent) {
    std::unique_lock lock(mutex_);
    Seat& seat = seats_[context];
    std::optional<Message> next = take(seat, context, std::move(spent));
    return next ? std::move(*next) : wait(lock, seat, context);
  }
  // The same without blocking: no value if none has been taken off yet.
  std::optional<Message> try_receive(unsigned context, Message spent) {
    const std::lock_guard lock(mutex_);
    return take(seats_[context], context, std::move(spent));
  }

  void give_back(unsigned context, Message spent) {
    const std::lock_guard lock(mutex_);
    if (!led_) return spent.release();
    seats_[context].spent.push_back(std::move(spent));
    ask_leader(context, false);
  }

  // Sends one message of at most max_in_place_bytes(). Without room for it, calls `meanwhile`,
  // which takes in what arrives and returns whether something did.
  template <typename Meanwhile>
  void send(std::span<const std::byte> message, unsigned context, Meanwhile&& meanwhile) {
    sending_.persist("send", channel_.timeout(), meanwhile,
                     [&] { return channel_.try_send(message, context); });
  }
  // Blocks until everything sent has left.
  template <typename Meanwhile>
  void flush(Meanwhile&& meanwhile) {
    sending_.persist("flush", channel_.timeout(), meanwhile, [&] { return channel_.try_flush(); });
  }

  Channel& channel() { return channel_; }  // for what needs neither side: stats, limits

 private:
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;
  // What the mutex guards for one context.
  struct Seat {
    std::vector<Message> spent;      // to be given back on the receive side
    std::optional<Message> arrived;  // what the leader took off
    bool waits = false;              // its thread sleeps here
    std::condition_variable news;
  };
  // What the leader waits for.
  struct Lead {
    SharedChannel& shared;
    const unsigned context;
    std::optional<Message> own = std::nullopt;
    bool look() {
      own = shared.channel_.try_receive(context);
      // Relaxed: whoever wants something writes the descriptor afterwards, which ends a sleep.
      if (!own && shared.wanted_.load(std::memory_order_relaxed) != 0) shared.serve();
      return own.has_value();
    }
  };

  static constexpr std::uint32_t bit(unsigned context) { return std::uint32_t{1} << context; }

  std::optional<Message> take(Seat& seat, unsigned context, Message spent) {
    std::optional<Message> next = std::exchange(seat.arrived, std::nullopt);
    if (!led_) {
      spent.release();
      return next ? std::move(next) : channel_.try_receive(context);
    }
    if (spent) seat.spent.push_back(std::move(spent));
    if (!next || !seat.spent.empty()) ask_leader(context, !next);
    return next;
  }

  // Has the leader give back what is spent and, if `wants`, look for a message of that context.
  void ask_leader(unsigned context, bool wants) {
    const std::uint32_t asked = wanted_.load(std::memory_order_relaxed);
    looked_for_ |= wants ? bit(context) : 0;
    wanted_.store(asked | bit(context), std::memory_order_relaxed);
    if ((asked & bit(context)) != 0 && seats_[context].spent.empty()) return;
    if (!std::exchange(announced_, true)) eventfd_write(news_fd_, 1);
  }

  // In the leading thread.
  void serve() {
    const std::lock_guard lock(mutex_);
    hear();
    std::uint32_t unserved = 0;
    for (unsigned context = 0; context < kContexts; ++context) {
      seats_[context].spent.clear();
      if ((looked_for_ & bit(context)) == 0) continue;
      if (std::optional<Message> message = channel_.try_receive(context)) {
        seats_[context].arrived = std::move(message);
        seats_[context].news.notify_one();
      } else {
        unserved |= bit(context);
      }
    }
    looked_for_ = unserved;
    wanted_.store(unserved, std::memory_order_relaxed);
  }
  void hear() {
    if (eventfd_t count = 0; std::exchange(announced_, false)) eventfd_read(news_fd_, &count);
  }

  Message wait(Lock& lock, Seat& seat, unsigned context) {
    std::optional<Clock::time_point> end;
    for (;;) {
      if (std::optional<Message> message = std::exchange(seat.arrived, std::nullopt)) {
        call_next();  // the call to lead may have been for this thread
        return std::move(*message);
      }
      if (!led_) return lead(lock, context);
      ask_leader(context, true);
      if (!end) end = Clock::now() + channel_.timeout();
      if (!sleep(lock, seat, *end))
        throw Error(ErrorCode::kTimeout, "receive timed out after " +
                                             std::to_string(channel_.timeout().count()) + " ms");
    }
  }
  bool sleep(Lock& lock, Seat& seat, Clock::time_point end) {
    const auto called = [&] { return seat.arrived || !led_; };
    seat.waits = true;
    if (channel_.timeout().count() < 0) seat.news.wait(lock, called);
    const bool in_time = seat.news.wait_until(lock, end, called);
    seat.waits = false;
    return in_time;
  }

  Message lead(Lock& lock, unsigned context) {
    led_ = true;
    looked_for_ &= ~bit(context);
    const Leading leading(*this, lock);
    Lead wish{*this, context};
    Channel* const all[] = {&channel_};
    // Once the peer has gone, the next look throws, unless the connection is being re-established.
    while (wait_any(
               all, WaitFor::kMessages, "receive", [&wish] { return wish.look(); }, news_fd_) !=
           nullptr) {
    }
    return std::move(*wish.own);
  }
  // Exists while its thread leads; unlocks for that time.
  struct Leading {
    Leading(SharedChannel& of, Lock& held) : shared(of), lock(held) { lock.unlock(); }
    ~Leading() {
      lock.lock();
      shared.leave();
    }
    SharedChannel& shared;
    Lock& lock;
  };
  void leave() {
    led_ = false;
    if (wanted_.load(std::memory_order_relaxed) == 0) return;
    for (Seat& seat : seats_) seat.spent.clear();
    hear();
    call_next();
  }
  void call_next() {
    if (led_) return;
    const auto next = std::ranges::find_if(seats_, [](const Seat& seat) { return seat.waits; });
    if (next != seats_.end()) next->news.notify_one();
  }

  Channel channel_;
  const int news_fd_;  // ends the leader's sleep
  TurnsAtSending sending_;

  std::mutex mutex_;                   // of all below, and of the receive side while nobody leads
  std::array<Seat, kContexts> seats_;  // their messages go before channel_
  bool led_ = false;                   // a thread waits for the channel
  bool announced_ = false;             // news_fd_ is readable
  std::uint32_t looked_for_ = 0;       // contexts for which the leader looks
  std::atomic<std::uint32_t> wanted_{0};  // of which something is wanted at all
};

}  // namespace leat::adapters

// One channel for several threads, each of which sends and receives in protocol contexts of its own.
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
#include <thread>
#include <utility>
#include <vector>

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

  // Sends one message of at most max_in_place_bytes(). While there is no room, calls `meanwhile`,
  // which takes in what arrives and returns whether something did.
  template <typename Meanwhile>
  void send(std::span<const std::byte> message, unsigned context, Meanwhile&& meanwhile) {
    persist("send", meanwhile, [&] { return channel_.try_send(message, context); });
  }
  // Blocks until everything sent has left.
  template <typename Meanwhile>
  void flush(Meanwhile&& meanwhile) {
    persist("flush", meanwhile, [&] { return channel_.try_flush(); });
  }

  // For what needs neither side: stats, description, limits.
  Channel& channel() { return channel_; }

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

  static constexpr std::chrono::microseconds kYields{50}, kFirstNap{20}, kLongestNap{1000};

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
    if (std::exchange(announced_, true)) return;
    eventfd_write(news_fd_, 1);
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
    eventfd_t ignored = 0;
    if (std::exchange(announced_, false)) eventfd_read(news_fd_, &ignored);
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
    bool in_time = true;
    seat.waits = true;
    if (channel_.timeout().count() < 0) {
      seat.news.wait(lock, called);
    } else {
      in_time = seat.news.wait_until(lock, end, called);
    }
    seat.waits = false;
    return in_time;
  }

  Message lead(Lock& lock, unsigned context) {
    led_ = true;
    looked_for_ &= ~bit(context);
    const Leading leading(*this, lock);
    Lead wish{*this, context};
    Lead* const asked = &wish;
    Channel* const channel = &channel_;
    // Once the peer has gone, the next look throws, unless the connection is being re-established.
    while (wait_any({&channel, 1}, WaitFor::kMessages, "receive", [asked] { return asked->look(); },
                    news_fd_) != nullptr) {
    }
    return std::move(*wish.own);
  }
  // Exists while its thread leads; unlocks for that time.
  class Leading {
   public:
    Leading(SharedChannel& shared, Lock& lock) : shared_(shared), lock_(lock) { lock_.unlock(); }
    ~Leading() {
      lock_.lock();
      shared_.led_ = false;
      if (shared_.wanted_.load(std::memory_order_relaxed) != 0) shared_.leave();
    }
    Leading(const Leading&) = delete;
    Leading& operator=(const Leading&) = delete;

   private:
    SharedChannel& shared_;
    Lock& lock_;
  };
  void leave() {
    for (Seat& seat : seats_) seat.spent.clear();
    hear();
    call_next();
  }
  void call_next() {
    if (led_) return;
    const auto next = std::ranges::find_if(seats_, [](const Seat& seat) { return seat.waits; });
    if (next != seats_.end()) next->news.notify_one();
  }

  // Tries under the lock of the send side, and yields, then naps, between tries: room often comes
  // without an event, and a sender that waited inside the channel would keep the others out.
  template <typename Meanwhile, typename Try>
  void persist(const char* what, Meanwhile&& meanwhile, Try&& try_once) {
    const auto done = [&] {
      const std::lock_guard lock(send_mutex_);
      return try_once();
    };
    if (done()) [[likely]]
      return;
    const Clock::time_point start = Clock::now();
    std::chrono::microseconds nap = kFirstNap;
    while (!done()) {
      if (meanwhile()) continue;
      const auto took = Clock::now() - start;
      if (const auto limit = channel_.timeout(); limit.count() >= 0 && took > limit)
        throw Error(ErrorCode::kTimeout, std::string(what) + " timed out after " +
                                             std::to_string(limit.count()) + " ms");
      if (took < kYields) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(nap);
        nap = std::min(2 * nap, kLongestNap);
      }
    }
  }

  Channel channel_;
  const int news_fd_;  // ends the leader's sleep
  std::mutex send_mutex_;

  std::mutex mutex_;                       // of all below, and of the receive side while nobody leads
  std::array<Seat, kContexts> seats_;      // their messages go before channel_
  bool led_ = false;                       // a thread waits for the channel
  bool announced_ = false;                 // news_fd_ is readable
  std::uint32_t looked_for_ = 0;           // contexts for which the leader looks
  std::atomic<std::uint32_t> wanted_{0};   // of which something is wanted at all
};

}  // namespace leat::adapters

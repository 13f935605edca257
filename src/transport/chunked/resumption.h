// The queue pair of a chunked transport, and how it is replaced when it fails: by a thread, which
// lives as long as that takes, together with the peer's (resumer.h). Until it has come to its end
// the transport's calls say that they would block.
//
// Threads and locks. A caller takes its side's turn() for the length of a call; no thread contends
// for it as long as things go well. The resuming thread holds both turns while it takes what the
// old queue pair has brought and while it hands over the new one, and the send side's while it
// sends again; in between it holds none, but callers get none until it has come to its end. Order:
// first a turn (only the thread takes both, at once), then thread_mutex_ or queue_pair_mutex_, and
// nothing within these. The thread never locks thread_mutex_, under which a caller joins it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "base/counter.h"
#include "base/fd.h"
#include "leat/error.h"
#include "leat/stats.h"
#include "transport/chunked/resumer.h"
#include "verbs/device.h"

namespace leat::detail {

class Resumption {
 public:
  // What the thread asks of the transport. It holds both turns in take_arrival, resumed and lost,
  // the send side's at least in take_completion and send_again, and neither in unfinished and
  // arrivals, while callers get none. What these throw ends the connection.
  class Transfers {
   public:
    virtual void take_arrival(const Completion& completion) = 0;  // of a receive, a success
    virtual void take_completion() = 0;                           // of the oldest request
    // Requests and announcements that are not known to have arrived.
    virtual std::size_t unfinished() const = 0;
    virtual std::uint64_t arrivals() const = 0;  // taken ever; the peer is told
    // A new queue pair stands, with all receives posted, and the peer has taken so many of our
    // announcements ever. Prepares what must go again, and writes the credits again. Throws
    // kProtocol if the peer cannot have taken so many.
    virtual void resumed(std::uint64_t peer_arrivals) = 0;
    // Posts what goes again, as much as may go now. True: all of it was.
    virtual bool send_again() = 0;
    // The connection is lost: both sides say so from now on. `why` in parts, as the thread, which
    // must not throw, cannot build a string.
    virtual void lost(ErrorCode code, std::initializer_list<std::string_view> why) noexcept = 0;

   protected:
    ~Transfers() = default;
  };

  // `device` and `transfers` must outlive it. `resumer`: null if a queue pair that failed ends the
  // connection. `receives`: how many a new queue pair has posted. `timeout`: for which the thread
  // goes on trying, beginning again once something came through a new queue pair.
  Resumption(Device& device, std::unique_ptr<QueuePair> queue_pair,
             std::unique_ptr<Resumer> resumer, std::uint64_t receives,
             std::chrono::milliseconds timeout, Transfers& transfers);
  // Ends the thread; if it is at work, the connection with it. To be called before `transfers`
  // begins to be destroyed.
  void stop() noexcept;

  // --- any thread
  // A side's turn; none while the queue pair is re-established.
  std::unique_lock<std::mutex> turn(Side side) const;
  // The same, but waits for the turn: for what needs no queue pair.
  std::unique_lock<std::mutex> wait_for_turn(Side side) const;
  // As Facts::resuming; null: it never re-establishes.
  const std::atomic<bool>* resuming() const { return resumer_ == nullptr ? nullptr : &resuming_; }
  // Constant, while queue pairs come and go.
  int event_fd(Side side) const;
  std::string describe() const;
  void add_stats(Stats& stats) const;

  // --- within a turn of either side
  // Null while it is re-established, and once the connection was lost.
  QueuePair* queue_pair() const { return queue_pair_.get(); }
  // Begins to re-establish the queue pair: the turn is over. False: this connection cannot.
  bool break_off(const std::string& why);
  // After a look that found nothing: asks now and then, by a system call, whether the peer has
  // broken off, and if so does the same.
  void heed_peer(Side side);

  // --- that side's thread, without its turn. As QueuePair::arm.
  void arm(Side side);

 private:
  static constexpr std::size_t index(Side side) { return side == Side::kSend ? 0 : 1; }
  void ask_whether_wanted();
  void watch_queue_pair();
  void run() noexcept;
  void take_leave();
  void adopt(Resumer::Outcome outcome);
  bool catch_up(Deadline deadline);

  Device& device_;
  Transfers& transfers_;
  const std::unique_ptr<Resumer> resumer_;
  const std::uint64_t receives_;
  const std::chrono::milliseconds timeout_;
  Fd waits_[2];  // by Side, with a resumer: epoll of the queue pair's event and wake_
  Fd wake_[2];   // by Side: the thread has come to its end

  mutable std::mutex turns_[2];          // by Side
  mutable std::mutex queue_pair_mutex_;  // for threads that only describe it
  std::mutex thread_mutex_;              // thread_
  std::thread thread_;
  // Set before the thread starts, cleared at its end: release, so that a caller that sees it
  // cleared sees the new queue pair; the mutexes order all else.
  std::atomic<bool> resuming_{false};
  std::string why_broken_;      // the thread's, set before it starts
  bool gave_up_ = false;        // the thread's
  unsigned fruitless_[2] = {};  // by Side: looks that found nothing
  Counter resumes_;
  std::unique_ptr<QueuePair> queue_pair_;
};

}  // namespace leat::detail

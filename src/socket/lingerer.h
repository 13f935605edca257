// Finishes closed connections in the background: what was sent but had not reached the peer goes
// on, for the option `linger`.
#pragma once

#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>

#include "base/clock.h"

namespace leat::detail {

class ChannelCore;

class Lingerer {
 public:
  // Ends the stream of a closed core once the peer has all; at once, or from here on the send side
  // is the lingerer's. Any thread.
  static void finish(ChannelCore& core) noexcept;
  // Frees a closed core that nobody uses any more; once it is finished. Any thread.
  static void free(ChannelCore* core) noexcept;

  Lingerer(const Lingerer&) = delete;
  Lingerer& operator=(const Lingerer&) = delete;

 private:
  struct Guest {
    ChannelCore* core;
    Deadline deadline;
    bool free = false;  // when finished
  };

  explicit Lingerer(Lingerer* parents) : parents_(parents) {}
  static Lingerer& instance();
  static bool drained(ChannelCore& core) noexcept;
  static void end(ChannelCore& core) noexcept;
  void add(ChannelCore& core);
  bool free_when_finished(ChannelCore* core);
  void run();
  void wait_for_all();  // at exit, within their limits

  // Of the process that this one was forked from: left alone, and not lost.
  [[maybe_unused]] Lingerer* const parents_;

  std::mutex mutex_;  // all below
  std::condition_variable changed_;
  std::list<Guest> guests_;
  bool running_ = false;
  std::thread thread_;  // lives while there are guests
};

}  // namespace leat::detail

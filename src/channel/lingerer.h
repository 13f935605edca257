// Finishes closed connections in the background: goes on sending what had not reached the peer, for
// the option `linger`.
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
  // Ends the stream of a closed core once the peer has everything: at once if it has, or else
  // later, with the send side owned by the lingerer from now on. Any thread.
  static void finish(ChannelCore& core) noexcept;
  // Frees a closed core that has no other user, once it is finished. Any thread.
  static void free(ChannelCore* core) noexcept;

  Lingerer(const Lingerer&) = delete;
  Lingerer& operator=(const Lingerer&) = delete;

 private:
  struct Guest {
    ChannelCore* core;
    Deadline deadline;
    bool free = false;  // free it when finished
  };

  explicit Lingerer(Lingerer* parents) : parents_(parents) {}
  static Lingerer& instance();
  static bool drained(ChannelCore& core) noexcept;
  static void end(ChannelCore& core) noexcept;
  void add(ChannelCore& core);
  bool free_when_finished(ChannelCore* core);
  void run();
  void wait_for_all();  // at exit, within the connections' limits

  // The lingerer of the process that this one was forked from: not used, but kept reachable.
  [[maybe_unused]] Lingerer* const parents_;

  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::list<Guest> guests_;
  // The thread's, without the mutex; here, so that in a child that is forked meanwhile nothing is
  // lost to a checker of leaks.
  std::list<Guest> finished_;
  bool running_ = false;
  std::thread thread_;  // runs while there are guests
};

}  // namespace leat::detail

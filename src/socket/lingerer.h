// Finishes closed connections in the background: what was sent but had not reached the peer goes
// on, for the option `linger`, then the connection is freed.
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
  // Takes over a closed core that nobody uses any more, and frees it: at once if there is nothing
  // to wait for. Any thread.
  static void take(ChannelCore* core) noexcept;

  Lingerer(const Lingerer&) = delete;
  Lingerer& operator=(const Lingerer&) = delete;

 private:
  struct Guest {
    ChannelCore* core;
    Deadline deadline;
  };

  Lingerer() = default;
  static Lingerer& instance();
  static bool drained(ChannelCore& core) noexcept;
  void add(ChannelCore* core);
  void run();
  void finish();  // at exit: waits for what still lingers, within its limits

  std::mutex mutex_;  // all below
  std::condition_variable changed_;
  std::list<Guest> guests_;
  std::thread thread_;  // lives while there are guests
  bool running_ = false;
};

}  // namespace leat::detail

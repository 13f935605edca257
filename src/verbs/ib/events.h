// What a verbs device reports of its own accord: that a port went down, that it failed or was
// removed.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <memory>
#include <string>

#include "base/fd.h"
#include "base/spin_lock.h"

namespace leat::detail {

// A queue pair for the events that concern it alone: the context of its verbs object and of those
// of its completion queues. It outlives them, because destroying them waits for an event that
// another thread is taking.
class IbEventTarget {
 public:
  // The queue pair, or a completion queue of it, has failed and may report nothing more. Any
  // thread.
  virtual void lost() noexcept = 0;

 protected:
  ~IbEventTarget() = default;
};

// The events of one opened device, which all connections of the process share. Any thread.
class IbEvents {
 public:
  // Returns the object of that device; its connections keep it alive. Throws kResource.
  static std::shared_ptr<IbEvents> of(ibv_context* context);

  explicit IbEvents(ibv_context* context);

  // Adds to that epoll set what becomes readable when look() has something to do, and for good once
  // the device has failed. Not as a set in the set: Linux allows only a few levels of them.
  void watch_in(const Fd& epoll) const;
  // Readable for good; for epoll sets of what was lost.
  int always_readable() const noexcept { return always_.get(); }
  // Takes the device's events, passes on those of a queue pair and logs those that concern people.
  // A system call.
  void look() noexcept;
  // The device may no longer report the requests that it has.
  bool device_failed() const { return failed_.load(std::memory_order_acquire); }

 private:
  void take(const ibv_async_event& event) noexcept;

  ibv_context* const context_;
  const std::string name_;
  SpinLock lock_;
  std::atomic<bool> failed_{false};
  Fd failure_;  // readable once the device has failed
  Fd always_;
};

}  // namespace leat::detail

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

// The events of one opened device, which all connections of the process share. Any thread.
class IbEvents {
 public:
  // Returns the object of that device; its connections keep it alive. Throws kResource.
  static std::shared_ptr<IbEvents> of(ibv_context* context);

  explicit IbEvents(ibv_context* context);

  // Adds to that epoll set what becomes readable when look() has something to do, and for good once
  // the device has failed. Not as a set in the set: Linux allows only a few levels of them.
  void watch_in(const Fd& epoll) const;
  // Takes the device's events and logs those that concern people. A system call.
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
};

}  // namespace leat::detail

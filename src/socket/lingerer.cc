#include "socket/lingerer.h"

#include <pthread.h>

#include <cstdlib>
#include <exception>
#include <thread>

#include "base/log.h"
#include "socket/channel_core.h"

namespace leat::detail {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(2);

}  // namespace

// Never destroyed. A forked child has neither its parent's thread nor its connections: it starts
// anew, and leaves alone what it inherited.
Lingerer& Lingerer::instance() {
  static std::once_flag once;
  static Lingerer* current = nullptr;
  std::call_once(once, [] {
    current = new Lingerer;
    pthread_atfork(nullptr, nullptr, [] { current = new Lingerer; });
    std::atexit([] { current->finish(); });
  });
  return *current;
}

void Lingerer::take(ChannelCore* core) noexcept {
  if (!drained(*core)) {
    try {
      instance().add(core);
      return;
    } catch (const std::exception& error) {
      log(LogLevel::kWarn, std::string("cannot linger over a closed connection: ") + error.what());
    }
  }
  delete core;
}

// True also if there is nobody left to send to.
bool Lingerer::drained(ChannelCore& core) noexcept {
  try {
    if (core.reset_ || (core.watches_lifeline_ && core.lifeline_ended())) return true;
    if (!core.end_said_) core.end_said_ = core.transport_.try_end();
    return core.end_said_ && core.transport_.try_drain();
  } catch (const std::exception&) {
    return true;
  }
}

void Lingerer::add(ChannelCore* core) {
  const std::lock_guard lock(mutex_);
  guests_.push_back({core, deadline_after(core->settings().linger)});
  if (running_) return;
  std::thread([this] { run(); }).detach();
  running_ = true;
}

void Lingerer::run() {
  std::unique_lock lock(mutex_);
  while (!guests_.empty()) {
    for (auto guest = guests_.begin(); guest != guests_.end();) {
      if (drained(*guest->core) || passed(guest->deadline)) {
        delete guest->core;
        guest = guests_.erase(guest);
      } else {
        ++guest;
      }
    }
    if (!guests_.empty()) changed_.wait_for(lock, kInterval);  // lets others add
  }
  running_ = false;
  changed_.notify_all();
}

void Lingerer::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !running_; });
}

}  // namespace leat::detail

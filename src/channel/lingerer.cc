#include "channel/lingerer.h"

#include <pthread.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <new>

#include "base/log.h"
#include "base/signals_held.h"
#include "channel/channel_core.h"

namespace leat::detail {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(2);

}  // namespace

// Never destroyed. A forked child has neither its parent's thread nor its connections: it starts
// with a new one, and does not touch what it inherited.
Lingerer& Lingerer::instance() {
  static std::once_flag once;
  static Lingerer* current = nullptr;
  alignas(Lingerer) static std::byte place[sizeof(Lingerer)];  // callers may have no memory
  std::call_once(once, [] {
    current = new (place) Lingerer(nullptr);
    pthread_atfork(nullptr, nullptr, [] { current = new Lingerer(current); });
    std::atexit([] { current->wait_for_all(); });
  });
  return *current;
}

void Lingerer::finish(ChannelCore& core) noexcept {
  if (!drained(core)) {
    try {
      return instance().add(core);
    } catch (const std::exception& error) {
      log(LogLevel::kWarn, {"cannot linger over a closed connection: ", error.what()});
    }
  }
  end(core);
}

void Lingerer::free(ChannelCore* core) noexcept {
  if (!instance().free_when_finished(core)) delete core;
}

// True also if the peer is gone.
bool Lingerer::drained(ChannelCore& core) noexcept {
  try {
    // Nobody receives any more, so a message that is being verified holds up nothing.
    if (core.watches_lifeline_ && core.lifeline_ended(Side::kSend)) return true;
    if (!core.end_said_) core.end_said_ = core.transport_.try_end();
    if (!core.end_said_ || !core.transport_.try_flush()) return false;
    const bool in_stream = core.transport_.facts().stream == StreamUse::kMessages;
    return !in_stream || socket_drained(core.connection_.stream->fd());
  } catch (const std::exception& error) {
    log(LogLevel::kDebug, error.what());
    return true;
  }
}

// Ends the stream, which the peer sees.
void Lingerer::end(ChannelCore& core) noexcept { core.connection_.stream->abort(); }

void Lingerer::add(ChannelCore& core) {
  const std::lock_guard lock(mutex_);
  guests_.push_back({&core, deadline_after(core.settings().linger)});
  if (running_) return;
  try {
    if (thread_.joinable()) thread_.join();  // it no longer needs the mutex
    const SignalsHeld not_for_the_thread;
    thread_ = std::thread([this] { run(); });
  } catch (...) {
    guests_.pop_back();
    throw;
  }
  running_ = true;
}

// Returns false if it is finished.
bool Lingerer::free_when_finished(ChannelCore* core) {
  const std::lock_guard lock(mutex_);
  const auto guest = std::ranges::find(guests_, core, &Guest::core);
  if (guest == guests_.end()) return false;
  guest->free = true;
  return true;
}

void Lingerer::run() {
  std::unique_lock lock(mutex_);
  while (!guests_.empty()) {
    for (auto guest = guests_.begin(); guest != guests_.end();) {
      const auto one = guest++;
      if (!drained(*one->core) && !passed(one->deadline)) continue;
      end(*one->core);
      finished_.splice(finished_.end(), guests_, one);
    }
    // Without the lock, because destroying a core may take time, or close other channels.
    lock.unlock();
    for (const Guest& guest : finished_)
      if (guest.free) delete guest.core;
    finished_.clear();
    lock.lock();
    if (!guests_.empty()) changed_.wait_for(lock, kInterval);  // lets others add
  }
  running_ = false;
  changed_.notify_all();
}

// Waits until the thread itself is gone: then what libraries keep for it (OpenSSL its errors) is
// freed, and not after the libraries' own memory.
void Lingerer::wait_for_all() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !running_; });
  if (thread_.joinable()) thread_.join();
}

}  // namespace leat::detail

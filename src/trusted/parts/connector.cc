#include "trusted/parts/connector.h"

#include <algorithm>

#include "base/log.h"
#include "leat/error.h"

namespace leat::trusted::detail {
namespace {

constexpr std::chrono::milliseconds kFirstPause{10}, kLongestPause{1000};

}  // namespace

Connector::Connector(const leat::Options& options) : options_(options) {
  options_.connect_retry = false;  // it would wait where stopping does not reach it
}

Connector::~Connector() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  for (auto& [node, thread] : threads_) thread.join();
}

void Connector::want(PartyId node, const std::string& address, std::chrono::milliseconds pause) {
  threads_.emplace_back(node,
                        std::thread([this, node, address, pause] { reach(node, address, pause); }));
}

std::optional<Connector::Made> Connector::take() {
  std::list<Made> one;
  {
    const std::lock_guard lock(mutex_);
    if (made_.empty()) return std::nullopt;
    one.splice(one.begin(), made_, made_.begin());
  }
  // Its thread has nothing more to do.
  const auto done =
      std::ranges::find(threads_, one.front().node, &std::pair<PartyId, std::thread>::first);
  done->second.join();
  threads_.erase(done);
  return std::move(one.front());
}

void Connector::reach(PartyId node, const std::string& address, std::chrono::milliseconds pause) {
  auto next = kFirstPause;
  for (bool told = false;; pause = next, next = std::min(2 * next, kLongestPause)) {
    {
      std::unique_lock lock(mutex_);
      if (stopped_.wait_for(lock, pause, [this] { return stop_; })) return;
    }
    try {
      Channel channel = Channel::connect("leat://" + address, options_);
      const std::lock_guard lock(mutex_);
      made_.push_back({node, std::move(channel)});
      return;
    } catch (const Error& error) {
      if (next < kLongestPause || std::exchange(told, true)) continue;
      leat::detail::log(
          leat::detail::LogLevel::kWarn,
          "node " + std::to_string(node) + " is not there, and is tried again: " + error.what());
    }
  }
}

}  // namespace leat::trusted::detail

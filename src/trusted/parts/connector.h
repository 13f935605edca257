// Connects to the nodes of a system, and tries again, without delaying the loop that serves them.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "leat/attest/identity.h"
#include "leat/channel.h"
#include "leat/options.h"

namespace leat::trusted::detail {

// Each wanted node has a thread until it is reached: refusals cost little, and a node that does not
// answer delays no other. Owner: a server. Threads: one at a time.
class Connector {
 public:
  struct Made {
    PartyId node = 0;
    Channel channel;
  };

  // `options` are those of each connection; its limits for connecting apply to each attempt.
  explicit Connector(const leat::Options& options);
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;
  ~Connector();  // waits for attempts under way

  // Before a party is tried again whose connection was lost.
  static constexpr std::chrono::milliseconds kReconnectAfter{250};

  // Begins after `pause`, and tries until the node is reached. Once for each node until take()
  // returns it.
  void want(PartyId node, const std::string& address, std::chrono::milliseconds pause = {});
  // Returns a connection made since the last call, if there is one; does not block.
  std::optional<Made> take();
  bool wants(PartyId node) const {
    return std::ranges::find(threads_, node, &std::pair<PartyId, std::thread>::first) !=
           threads_.end();
  }

 private:
  void reach(PartyId node, const std::string& address, std::chrono::milliseconds pause);

  leat::Options options_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  std::list<Made> made_;
  std::list<std::pair<PartyId, std::thread>> threads_;
};

}  // namespace leat::trusted::detail

// Connects to the nodes of a system beside the loop that serves them, and tries again.
#pragma once

#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "leat/channel.h"
#include "leat/options.h"
#include "leat/trusted/identity.h"

namespace leat::trusted::detail {

// Each node that is wanted has a thread until it is reached: refusals cost little, and one that
// does not answer holds up nobody. Owner: a server. Threads: one at a time.
class Connector {
 public:
  struct Made {
    PartyId node = 0;
    Channel channel;
  };

  // `options`: of each connection; how long an attempt may take is what they say of connecting.
  explicit Connector(const leat::Options& options);
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;
  ~Connector();  // waits for attempts that are under way

  // Begins after `pause`, and tries until it is reached.
  void want(PartyId node, const std::string& address, std::chrono::milliseconds pause = {});
  // A connection that has been made since; does not block.
  std::optional<Made> take();

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

// A master and its workers, each a process of its own, with channels between the master and each
// worker, and what they do together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "confirm/traffic.h"
#include "forked_peer.h"
#include "leat/leat.h"
#include "tick_clock.h"

namespace leat::bench {

// Channels that are alike, one between the master and each worker.
struct Lane {
  std::string name;
  Options options;
};

// For a lane: that transport on that device ("": the best for this host) and no other, and time to
// connect and to wait also on a slow machine, so that only what hangs fails.
Options lane_options(const std::string& device, const std::string& transport);

// One stream of messages between the master and every worker.
struct Flow {
  Usage master;
  std::vector<Usage> workers;
  std::uint64_t messages = 0;  // counted ones, of all workers
  double seconds = 0;          // from the first of them to the last
  double worker_cpu_seconds() const;
};

// How long the streams are: messages of each worker that are not counted, and after them those that
// are.
struct FlowLength {
  std::uint64_t warmup = 0;
  std::uint64_t count = 0;
};

// The master's view; this process is the master. Forks, so make it before any thread exists.
// Errors: leat::Error and std::runtime_error, also if a worker fails or a message is not the one
// that was due. For one thread.
class Star {
 public:
  // `cpus`: of the master and each worker; empty: not pinned. `blocks`: the sizes of messages in
  // which bytes = 0 stands for them, in turn.
  Star(std::vector<Lane> lanes, unsigned workers, const std::vector<int>& cpus,
       std::vector<std::size_t> blocks = {});
  Star(const Star&) = delete;
  Star& operator=(const Star&) = delete;

  Channel& channel(unsigned lane, unsigned worker = 0) { return *lanes_[lane][worker]; }

  // The master sends to all workers. The time is from when the first worker has received its
  // warm-up (without one: has begun) to when the last has received all.
  Flow broadcast_flow(unsigned lane, std::size_t bytes, const FlowLength& length);
  // All workers send to the master.
  Flow gather_flow(unsigned lane, std::size_t bytes, const FlowLength& length);
  // All workers send to the master; once the master has all, it sends as much to each of them. From
  // the first worker's start until the last worker has all.
  Flow exchange_flow(unsigned lane, std::size_t bytes, std::uint64_t count);
  // A message to every worker, an answer of every worker: microseconds of each such round.
  std::vector<double> round_trips(unsigned lane, std::size_t bytes, std::size_t answer_bytes,
                                  const FlowLength& length, const TickClock& clock);

  // What both sides need while each waits for the other for so long.
  Flow idle(unsigned lane, double seconds);
  // Microseconds until a message that follows others after a pause of `pause_seconds` has arrived.
  double first_after_pause(unsigned lane, double pause_seconds);

 private:
  class Worker;
  enum class Task : std::uint8_t { kReceive, kSend, kExchange, kAnswer };
  struct Order {
    Task task = Task::kReceive;
    unsigned lane = 0;
    std::size_t bytes = 0;
    std::size_t answer_bytes = 0;
    FlowLength length;
  };

  Traffic traffic(std::size_t bytes) const;
  void order(const Order& order);
  std::vector<Usage> reports();
  void send_all(unsigned lane, Traffic& traffic, const FlowLength& length, Meter* meter);
  void receive_all(unsigned lane, const Traffic& traffic, const FlowLength& length, Meter& meter);

  // --- the two patterns
  // Sends one message to every worker; returns when all have accepted it.
  void broadcast(unsigned lane, std::span<const std::byte> message);
  // The next message of any worker, in the order in which they arrive, no worker left waiting.
  Message receive_any(unsigned lane, unsigned& worker);

  std::vector<std::size_t> blocks_;
  std::vector<std::unique_ptr<ForkedPeer>> processes_;
  std::vector<Channel> channels_;             // all, worker by worker
  std::vector<Channel*> controls_;            // of each worker
  std::vector<std::vector<Channel*>> lanes_;  // of each lane, those of each worker
  std::vector<Channel*> unsent_;              // of broadcast
  unsigned next_ = 0;                         // the worker that receive_any looks at first
};

}  // namespace leat::bench

// Makes a new queue pair between two connected sides whose old one has failed, over the TCP
// connection that is their lifeline. docs/wire_format.md has the bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "net/stream.h"
#include "verbs/device.h"

namespace leat::detail {

// One for each connection. While it is not running no byte crosses the stream, so one that waits
// there is the peer's wish to resume.
class Resumer {
 public:
  // `stream` must outlive it. `active`: this side connected, the other listened.
  Resumer(Stream& stream, bool active, const QueueDepths& depths)
      : stream_(stream), active_(active), depths_(depths) {}

  // Whether the peer wishes to resume. One system call; does not block.
  bool wanted() const noexcept;

  struct Outcome {
    std::unique_ptr<QueuePair> queue_pair;
    std::uint64_t peer_arrivals = 0;
  };
  // Blocks. Both sides call it, each after the death of its own end of the old queue pair, and
  // after having taken everything from it; `arrivals`: how many announcements those were. The new
  // queue pair has so many `receives` before the peer can send. Throws kTimeout at the deadline,
  // kPeerDied at the end of the stream, kProtocol.
  Outcome run(Device& device, std::uint64_t arrivals, std::size_t receives, Deadline deadline);
  // Ends a run() in another thread, and the connection with it.
  void cancel() noexcept { stream_.abort(); }

 private:
  struct Frame;

  std::unique_ptr<QueuePair> meet(Device& device, Deadline deadline, std::string& why_not);
  std::unique_ptr<QueuePair> offer(Device& device, Deadline deadline, std::string& why_not);
  std::unique_ptr<QueuePair> connect(Device& device, Deadline deadline, std::string& why_not);
  void send(const Frame& frame, Deadline deadline);
  Frame receive(std::uint32_t kind, Deadline deadline);

  Stream& stream_;
  const bool active_;
  const QueueDepths depths_;
  std::uint32_t attempt_ = 0;
};

}  // namespace leat::detail

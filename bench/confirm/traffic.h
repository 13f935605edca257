// Messages that cannot be lost, doubled or left out unnoticed, and what it took to move them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "leat/channel.h"

namespace leat::bench {

// The smallest message: its stamp.
inline constexpr std::size_t kLeastBytes = sizeof(std::uint64_t);

// A sequence of messages: message i has the i-th of the sizes, which begin again after the last.
// Its first and its last 8 bytes say who sent it and its number. For one thread.
class Traffic {
 public:
  explicit Traffic(std::vector<std::size_t> sizes);

  std::size_t bytes(std::uint64_t index) const { return sizes_[place(index)]; }
  // Message `index` of `sender`, in this object's memory, in which every size has a place of its
  // own. Valid until the next message of that place.
  std::span<const std::byte> message(std::uint64_t sender, std::uint64_t index);
  // Throws std::runtime_error if it is not that message.
  void check(const Message& message, std::uint64_t sender, std::uint64_t index) const;

 private:
  std::size_t place(std::uint64_t index) const {
    return sizes_.size() == 1 ? 0 : static_cast<std::size_t>(index % sizes_.size());
  }

  std::vector<std::size_t> sizes_;
  std::vector<std::size_t> offsets_;
  std::vector<std::byte> memory_;  // made by the first message(): a receiver needs none
};

// What a process needed, between two moments. Plain memory: processes send it to each other.
struct Usage {
  // Steady clock, which all processes of a host share.
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  double cpu_seconds = 0;  // user and system, all threads
  // Counted by the transport, all channels that were watched.
  std::uint64_t requests = 0;  // posted sends, writes and reads
  std::uint64_t receives = 0;  // posted receives
  std::uint64_t completions = 0;
  std::uint64_t sleeps = 0;    // in calls of the channels, naps too
  std::uint64_t switches = 0;  // to another thread of the system, for whatever reason

  double seconds() const { return static_cast<double>(end_ns - start_ns) * 1e-9; }
};

std::int64_t now_ns();

// Takes the Usage of this process.
class Meter {
 public:
  explicit Meter(std::span<Channel* const> channels) : channels_(channels) {}
  void start();
  Usage stop() const;  // since start()

 private:
  Usage counters() const;  // without the times

  std::span<Channel* const> channels_;
  Usage before_;
  std::int64_t start_ns_ = 0;
};

}  // namespace leat::bench

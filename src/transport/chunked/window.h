// How many bytes of chunks may be on a path at once, and how long a chunk may be: a fixed number of
// chunks, or as many bytes as the path holds, learned from when chunks are confirmed. Pure: time
// comes as an argument. docs/transports/chunked.md has the control law.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "base/settings.h"

namespace leat::detail {

// A chunk of this size goes first, alone, to open a path and to measure its round trip: a packet.
inline constexpr std::size_t kLinkBytes = 4096;
// What is left of a transfer goes in one piece if it is not longer than this.
inline constexpr std::size_t kLeastChunkBytes = std::size_t{32} << 10;

// What may be in flight at first, and always: as little as TCP begins with, as it goes at once and
// the path may have a short queue.
inline constexpr std::size_t kStartBytes = std::size_t{16} << 10;

struct WindowOptions {
  std::size_t chunk_bytes = std::size_t{4} << 20;  // the longest chunk
  std::size_t chunks = 0;                          // in flight; 0: adaptive
  LinkEnable link_enable = LinkEnable::kAuto;
  std::size_t most_bytes = std::size_t{64} << 20;  // in flight, whatever the path could hold
};

class ChunkWindow {
 public:
  // What must be remembered of a chunk until it is confirmed. Plain value.
  struct Flight {
    std::size_t bytes = 0;
    Clock::time_point posted{};
    std::uint64_t delivered = 0;          // bytes confirmed ever, when it was posted
    Clock::time_point delivered_since{};  // and when the last of them were
    bool limited = false;                 // the sender had less to send than the window held
    bool alone = false;
  };

  explicit ChunkWindow(const WindowOptions& options) : options_(options) {}

  // A transfer of that many bytes is about to be sent.
  void begin(std::size_t bytes, Clock::time_point now);
  // How many of the next `wanted` bytes may go now as one chunk; 0: none. Bytes that cannot be
  // divided go whole or not at all.
  std::size_t allowance(std::size_t wanted, bool divisible, Clock::time_point now) const;
  Flight posted(std::size_t bytes, Clock::time_point now);
  // A sender with more to send looks what was confirmed and whether more may go.
  void looked(Clock::time_point now);
  // The oldest chunk in flight has arrived.
  void confirmed(const Flight& flight, Clock::time_point now);
  // The queue pair died with all that was in flight. What was known of the path is forgotten.
  void lost();
  // The sender has nothing more to send now.
  void idle() {
    if (in_flight_ + chunk() <= window()) limited_until_ = delivered_ + in_flight_;
    looked_at_ = {};
  }

  // Whether the next chunk opens the path: short, and alone.
  bool opens_path() const { return link_due_; }
  std::size_t in_flight() const { return in_flight_; }
  // For people and tests: bytes that may be in flight, and what is known of the path (0: nothing).
  std::size_t window() const;
  Clock::time_point paced_until() const { return paced_until_; }  // allowance is 0 until then
  double bytes_per_second() const { return rate(); }
  std::chrono::nanoseconds round_trip() const { return round_trip_; }

 private:
  using Nanoseconds = std::chrono::nanoseconds;
  static constexpr std::size_t kRateRounds = 10;
  static constexpr unsigned kCycleRounds = 8;
  static constexpr unsigned kMostCalmRounds = 64;
  static constexpr double kMostBearable = 0.75;

  bool adaptive() const { return options_.chunks == 0; }
  std::size_t chunk() const;
  double rate() const { return *std::max_element(rates_.begin(), rates_.end()); }
  double path_bytes() const;  // what the path holds without a queue
  double headroom() const;    // what may stand in its queue beyond that, as a share of it
  void pace(std::size_t bytes, Clock::time_point now);
  void measure(const Flight& flight, Clock::time_point now);
  void end_round(Clock::time_point now);
  void trouble();

  WindowOptions options_;
  std::size_t in_flight_ = 0;
  std::size_t chunks_in_flight_ = 0;
  std::uint64_t delivered_ = 0;
  Clock::time_point delivered_at_{};
  std::uint64_t limited_until_ = 0;  // chunks posted while less than this was delivered are limited
  bool link_due_ = false;            // the next chunk goes alone, and is short
  bool linking_ = false;             // it is on its way

  // --- adaptive
  bool starting_ = true;
  std::size_t start_window_ = kStartBytes;
  Clock::time_point paced_until_{};
  Clock::time_point looked_at_{};    // by a sender that waits; else nothing
  Nanoseconds away_{0};              // how long such a sender has lately been away at most
  double bearable_ = kMostBearable;  // queue that the path is believed to bear, as a share of it
  double gain_ = 1;
  std::array<double, kRateRounds> rates_{};  // bytes a second, the best of each round
  std::size_t rate_index_ = 0;
  bool round_counts_ = false;  // a chunk of this round has told the rate
  Nanoseconds round_trip_{0};  // the shortest; 0: not known
  Clock::time_point measured_at_{};
  std::uint64_t round_end_ = 0;  // the round is over when a chunk posted after this is confirmed
  Nanoseconds round_shortest_ = Nanoseconds::max();
  double best_start_rate_ = 0;
  unsigned flat_rounds_ = 0;             // of the start, in which the rate did not grow
  unsigned cycle_ = 0;                   // rounds since more was tried
  unsigned calm_rounds_ = kCycleRounds;  // that must pass until more is tried
  unsigned more_rounds_ = 0;             // since more is tried
  double rate_before_ = 0;               // before more was tried
  bool troubled_ = false;                // in this round
  unsigned drained_rounds_ = 0;          // in a row, and a queue still stands
};

}  // namespace leat::detail

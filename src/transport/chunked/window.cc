#include "transport/chunked/window.h"

#include <cmath>

namespace leat::detail {
namespace {

using namespace std::chrono_literals;

// A path that was silent for so long is opened again.
constexpr auto kSilence = 1s;
// The round trip is measured again after so long.
constexpr auto kMeasureAfter = 10s;
// While starting, every confirmed byte lets half a byte more be in flight: one and a half times as
// much each round. Twice as much would stand twice as long in the queue until it is noticed.
constexpr std::size_t kStartDivisor = 2;
constexpr double kStartGain = 1.5;
constexpr unsigned kFlatRounds = 3;
// A queue that stands after so many rounds of less is not ours, or the path has become longer.
constexpr unsigned kDrainRounds = 3;
constexpr double kGrowth = 1.2;
constexpr double kMoreGain = 1.15;
constexpr unsigned kMoreRounds = 2;
constexpr double kMoreGrowth = 1.05;
constexpr double kLessGain = 0.75;
constexpr double kRepairGain = 0.5;
// What may stand in the path's queue, as a share of what the path holds, while confirmations are
// seen in time; and the least that the queue is believed to bear.
constexpr double kHeadroom = 0.25;
constexpr double kLeastBearable = 0.2;
// That belief grows by so much each round.
constexpr double kBearableGrowth = 1.02;
// An absence that is longer tells nothing of the next.
constexpr int kMostTripsAway = 4;
// After each round it counts by this part less.
constexpr int kAwayDecay = 16;
// Chunks go faster than the path takes them by this multiple of it; closer than kPaceGrain they are
// not kept apart.
constexpr double kPaceExcess = 0.75;
constexpr auto kPaceGrain = 100us;
constexpr int kPaceBurstShare = 8;  // of the round trip
// The window is divided into so many chunks.
constexpr std::size_t kChunksPerWindow = 16;
// Or, where the path holds little, into fewer, of so many bytes.
constexpr std::size_t kShortestChunk = std::size_t{8} << 10;

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

void ChunkWindow::begin(std::size_t bytes, Clock::time_point now) {
  if (options_.link_enable == LinkEnable::kOff || bytes <= kLinkBytes) return;
  const bool silent = delivered_ == 0 || now - delivered_at_ > kSilence;
  const bool worth_it = in_flight_ == 0 && silent && bytes > chunk();
  if (options_.link_enable == LinkEnable::kOn || worth_it) link_due_ = true;
}

std::size_t ChunkWindow::allowance(std::size_t wanted, bool divisible,
                                   Clock::time_point now) const {
  if (linking_) return 0;
  if (link_due_) {
    if (in_flight_ != 0) return 0;
    return divisible ? std::min(wanted, kLinkBytes) : wanted;
  }
  if (!adaptive()) {
    if (chunks_in_flight_ >= options_.chunks) return 0;
    return divisible ? std::min(wanted, options_.chunk_bytes) : wanted;
  }
  if (in_flight_ != 0 && paced_until_ > now + kPaceGrain) return 0;
  const bool divided = divisible && wanted > kLeastChunkBytes;
  const std::size_t bytes = divided ? std::min(wanted, chunk()) : wanted;
  return in_flight_ == 0 || in_flight_ + bytes <= window() ? bytes : 0;
}

ChunkWindow::Flight ChunkWindow::posted(std::size_t bytes, Clock::time_point now) {
  if (in_flight_ == 0) delivered_at_ = now;
  linking_ = link_due_;
  link_due_ = false;
  in_flight_ += bytes;
  ++chunks_in_flight_;
  if (adaptive()) pace(bytes, now);
  const bool limited = limited_until_ != 0 && delivered_ <= limited_until_;
  return {bytes, now, delivered_, delivered_at_, limited, linking_};
}

void ChunkWindow::looked(Clock::time_point now) {
  if (in_flight_ != 0 && looked_at_ != Clock::time_point{})
    away_ = std::max(away_, std::min<Nanoseconds>(now - looked_at_, kMostTripsAway * round_trip_));
  looked_at_ = now;
}

// Spreads what a window holds over a round trip, so that what an absence or a loss has left empty
// is filled again no faster than a short queue bears.
void ChunkWindow::pace(std::size_t bytes, Clock::time_point now) {
  const double queued = starting_ ? kHeadroom : headroom();
  const double pace = static_cast<double>(window()) / (1 + queued) * (1 + kPaceExcess * bearable_);
  const double share = static_cast<double>(bytes) / pace;
  const auto time = Nanoseconds(
      static_cast<std::int64_t>(std::min(share, 1.0) * static_cast<double>(round_trip_.count())));
  // A sender that slept, and so comes late, may catch up on this much of its delay.
  const Clock::time_point since = std::max(paced_until_, now - round_trip_ / kPaceBurstShare);
  paced_until_ = since + time;
}

void ChunkWindow::confirmed(const Flight& flight, Clock::time_point now) {
  in_flight_ -= flight.bytes;
  --chunks_in_flight_;
  delivered_ += flight.bytes;
  delivered_at_ = now;
  linking_ = false;
  if (adaptive()) measure(flight, now);
}

void ChunkWindow::lost() {
  in_flight_ = chunks_in_flight_ = 0;
  linking_ = false;
  link_due_ = options_.link_enable != LinkEnable::kOff;
  starting_ = true;
  start_window_ = kStartBytes;
  paced_until_ = {};
  looked_at_ = {};
  away_ = 0ns;
  bearable_ = kMostBearable;
  rates_.fill(0);
  round_trip_ = 0ns;
  round_shortest_ = Nanoseconds::max();
  best_start_rate_ = 0;
  flat_rounds_ = 0;
  round_end_ = delivered_;
  limited_until_ = 0;
  troubled_ = false;
}

double ChunkWindow::path_bytes() const { return rate() * seconds(round_trip_); }

double ChunkWindow::headroom() const {
  const double wanted = round_trip_ == 0ns ? 0 : seconds(away_) / seconds(round_trip_);
  return std::min(std::max(kHeadroom, wanted), bearable_);
}

std::size_t ChunkWindow::window() const {
  if (!adaptive()) return options_.chunks * options_.chunk_bytes;
  std::size_t bytes = start_window_;
  const double path = path_bytes();
  if (starting_ && path > 0) {
    // So that it is at most half a path too much when the path turns out to be full.
    bytes = std::min(bytes, static_cast<std::size_t>(path * kStartGain) + kStartBytes);
  } else if (!starting_) {
    // More than the path holds: the chunk that its narrow place works on, and what it could send
    // while we are away and see no confirmations. Without that, late ones would pass for a narrow
    // path.
    double more = std::max(path * headroom(), 1.0 * kShortestChunk);
    // To try more takes a chunk more at least.
    if (gain_ > 1) more = std::max({more, path * (kHeadroom + gain_ - 1), 2.0 * kShortestChunk});
    bytes = static_cast<std::size_t>(path * std::min(gain_, 1.0) + more);
  }
  return std::clamp(bytes, kStartBytes, std::max(options_.most_bytes, kLeastChunkBytes));
}

std::size_t ChunkWindow::chunk() const {
  if (!adaptive()) return options_.chunk_bytes;
  const std::size_t part = window() / kChunksPerWindow / kLinkBytes * kLinkBytes;
  return std::min(std::max(part, kShortestChunk), options_.chunk_bytes);
}

void ChunkWindow::measure(const Flight& flight, Clock::time_point now) {
  const Nanoseconds trip = now - flight.posted;
  // Alone and short: this is the path itself, whatever was measured before.
  if (flight.alone || round_trip_ == 0ns || trip <= round_trip_) {
    round_trip_ = std::max(trip, Nanoseconds(1));
    measured_at_ = now;
  }
  if (flight.alone) {
    // This packet was alone in its round: it measures the round trip, and no rate.
    round_end_ = delivered_;
    return;
  }
  round_shortest_ = std::min(round_shortest_, trip);

  const double took = seconds(std::max(now - flight.delivered_since, Nanoseconds(1)));
  const double sample = static_cast<double>(delivered_ - flight.delivered) / took;
  if (!flight.limited || sample > rate()) {
    rates_[rate_index_] = std::max(rates_[rate_index_], sample);
    round_counts_ = true;
  }

  if (starting_ && !flight.limited) start_window_ += flight.bytes / kStartDivisor;
  // Longer than a queue as long as the path could make it, and an absence: something was lost and
  // sent again.
  const double chunk_time = static_cast<double>(flight.bytes) / std::max(rate(), 1.0);
  if (seconds(trip) > 2.5 * seconds(round_trip_) + seconds(away_) + 2 * chunk_time) trouble();
  if (flight.delivered >= round_end_) end_round(now);
}

void ChunkWindow::trouble() {
  if (troubled_) return;
  troubled_ = true;
  // While more was tried it was that. Else it may have been a queue that bears less than we
  // thought, or was not lost by us.
  if (gain_ > 1) calm_rounds_ = std::min(2 * calm_rounds_, kMostCalmRounds);
  bearable_ = std::max(kLeastBearable, bearable_ / 2);
  starting_ = false;
  gain_ = kLessGain;
}

void ChunkWindow::end_round(Clock::time_point now) {
  const double chunk_time = static_cast<double>(chunk()) / std::max(rate(), 1.0);
  const double away = seconds(std::min(away_, round_trip_));
  const bool queue_stands =
      seconds(round_shortest_) > (1 + kHeadroom) * seconds(round_trip_) + away + 2 * chunk_time;
  const bool more_was_tried = gain_ > 1;
  if (starting_) {
    flat_rounds_ = rate() > best_start_rate_ * kGrowth ? 0 : flat_rounds_ + 1;
    best_start_rate_ = std::max(best_start_rate_, rate());
    starting_ = !queue_stands && flat_rounds_ < kFlatRounds;
    // What the start has put into the queue runs off first.
    if (!starting_) gain_ = kLessGain;
  } else if (queue_stands) {
    // What was lost goes again all at once: so little that a short queue takes it.
    gain_ = troubled_ ? kRepairGain : kLessGain;
  } else if (more_was_tried) {
    // The second round shows what the first has brought. If the rate grew, still more is tried;
    // if it did not, the window shrinks.
    if (++more_rounds_ == kMoreRounds) {
      more_rounds_ = 0;
      gain_ = rate() > rate_before_ * kMoreGrowth ? kMoreGain : kLessGain;
      rate_before_ = rate();
    }
  } else if (++cycle_ >= calm_rounds_) {
    cycle_ = 0;
    gain_ = kMoreGain;
    more_rounds_ = 0;
    rate_before_ = rate();
    calm_rounds_ = std::max(calm_rounds_ / 2, kCycleRounds);
  } else {
    gain_ = 1;
  }
  drained_rounds_ = queue_stands ? drained_rounds_ + 1 : 0;
  if (drained_rounds_ >= kDrainRounds) {
    // The path has become narrower, so what was measured before this round no longer holds. A lost
    // packet, or a receiver that was kept from its work, looks the same but passes sooner.
    const double now_rate = rates_[rate_index_];
    if (now_rate > 0 && !starting_) rates_.fill(now_rate);
  }
  if (round_counts_) {
    rate_index_ = (rate_index_ + 1) % kRateRounds;
    if (!starting_) rates_[rate_index_] = 0;
  }
  round_counts_ = false;
  away_ -= away_ / kAwayDecay;
  bearable_ = std::min(bearable_ * kBearableGrowth, kMostBearable);
  round_end_ = delivered_;
  round_shortest_ = Nanoseconds::max();
  troubled_ = false;
  if (now - measured_at_ > kMeasureAfter || drained_rounds_ > kDrainRounds) {
    link_due_ = true;
    drained_rounds_ = 0;
  }
}

}  // namespace leat::detail

// The window against models of paths: rate, round trip, a queue with a limit, random loss, and the
// go-back-N of a reliable connection behind it.
#include "transport/chunked/window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <random>

#include "support/pattern.h"

namespace leat::detail {
namespace {

using namespace std::chrono_literals;
using Nanoseconds = std::chrono::nanoseconds;

constexpr std::size_t kPacket = 4096;

struct Path {
  double bytes_per_second = 125e6;  // 1 Gbit/s
  Nanoseconds round_trip = 20ms;
  std::size_t queue_bytes = 64 * kMiB;
  double loss = 0;  // of packets
  double card_bytes_per_second = 2.5e9;
  Nanoseconds late{0};  // confirmations are seen up to so much later, as processes sleep
  Nanoseconds away{0};  // a third of the time the sender does nothing, for about so long each time

  double holds() const {
    return bytes_per_second * std::chrono::duration<double>(round_trip).count();
  }
};

struct Outcome {
  double seconds = 0;
  std::uint64_t dropped = 0;     // by the queue
  std::uint64_t lost = 0;        // at random
  std::uint64_t drops_late = 0;  // by the queue, in the second half of the transfer
  std::size_t most_in_flight = 0;
  double rate = 0;  // bytes a second
};

// A sender, its card, a narrow place with a queue, and a receiver that takes packets in order only:
// what comes after a lost one is thrown away, and sent again a round trip later.
class Model {
 public:
  Model(const Path& path, const WindowOptions& options) : path_(path), window_(options) {}

  Outcome transfer(std::size_t bytes) {
    const Clock::time_point begin = now_;
    std::size_t left = bytes;
    Outcome outcome;
    window_.begin(bytes, now_);
    for (;;) {
      if (left != 0) window_.looked(now_);
      take_confirmed(outcome, left < bytes / 2);
      post_all(left);
      if (left == 0) window_.idle();
      outcome.most_in_flight = std::max(outcome.most_in_flight, window_.in_flight());
      if (chunks_.empty()) {
        EXPECT_EQ(left, 0u) << "nothing may be sent, nothing is on its way";
        break;
      }
      now_ = std::max(now_, confirmation(outcome, left < bytes / 2));
      if (left != 0 && window_.paced_until() > looked_)
        now_ = std::min(now_, window_.paced_until());
      be_away();
      looked_ = now_;
    }
    outcome.seconds = std::chrono::duration<double>(now_ - begin).count();
    outcome.rate = static_cast<double>(bytes) / outcome.seconds;
    return outcome;
  }
  void wait(Nanoseconds time) { now_ += time; }
  Path& path() { return path_; }
  ChunkWindow& window() { return window_; }

 private:
  struct Chunk {
    std::size_t left;  // bytes that have not arrived
    ChunkWindow::Flight flight;
    std::optional<Clock::time_point> confirmed;
  };

  // All that has been by now.
  void take_confirmed(Outcome& outcome, bool late) {
    while (!chunks_.empty() && confirmation(outcome, late) <= now_) {
      const ChunkWindow::Flight flight = chunks_.front().flight;
      chunks_.pop_front();
      window_.confirmed(flight, now_);
    }
  }
  // Of the oldest chunk.
  Clock::time_point confirmation(Outcome& outcome, bool late) {
    Chunk& chunk = chunks_.front();
    if (!chunk.confirmed) chunk.confirmed = pass_oldest(outcome, late);
    return *chunk.confirmed;
  }

  // As many as may go now.
  void post_all(std::size_t& left) {
    while (left != 0) {
      const std::size_t chunk = window_.allowance(left, true, now_);
      if (chunk == 0) break;
      EXPECT_LE(chunk, left);
      left -= chunk;
      post(chunk);
    }
  }
  void post(std::size_t bytes) { chunks_.push_back({bytes, window_.posted(bytes, now_), {}}); }

  void be_away() {
    if (path_.away == 0ns || now_ < next_away_) return;
    const auto some = [&](Nanoseconds mean) {
      return Nanoseconds(static_cast<std::int64_t>(
          std::exponential_distribution<double>(1)(random_) * static_cast<double>(mean.count())));
    };
    now_ += some(path_.away);
    next_away_ = now_ + some(2 * path_.away);
  }

  static Nanoseconds time_of(double bytes, double rate) {
    return Nanoseconds(static_cast<std::int64_t>(bytes / rate * 1e9));
  }

  // Sends the packets of the oldest chunk through the path; the card goes on with later ones only
  // when it has none of this one, so that chunks pass in order. Returns when it is confirmed.
  Clock::time_point pass_oldest(Outcome& outcome, bool late) {
    Chunk& chunk = chunks_.front();
    Clock::time_point arrived{};
    while (chunk.left != 0) {
      const std::size_t bytes = std::min(kPacket, chunk.left);
      card_free_ = std::max(card_free_, chunk.flight.posted) +
                   time_of(static_cast<double>(bytes), path_.card_bytes_per_second);
      // What stands in the queue when the packet comes to it.
      const double queued = narrow_free_ > card_free_
                                ? std::chrono::duration<double>(narrow_free_ - card_free_).count() *
                                      path_.bytes_per_second
                                : 0;
      const bool full =
          queued + static_cast<double>(bytes) > static_cast<double>(path_.queue_bytes);
      const bool lost = std::bernoulli_distribution(path_.loss)(random_);
      if (full || lost) {
        full ? ++outcome.dropped : ++outcome.lost;
        if (full && late) ++outcome.drops_late;
        // The next packet to arrive tells the receiver, its answer the sender.
        card_free_ = std::max(card_free_, narrow_free_) + path_.round_trip;
        continue;
      }
      narrow_free_ = std::max(narrow_free_, card_free_) +
                     time_of(static_cast<double>(bytes), path_.bytes_per_second);
      arrived = narrow_free_;
      chunk.left -= bytes;
    }
    const auto range = static_cast<std::uint64_t>(path_.late.count()) + 1;
    return arrived + path_.round_trip + Nanoseconds(random_() % range);
  }

  Path path_;
  ChunkWindow window_;
  Clock::time_point now_{1s};
  Clock::time_point looked_{};
  Clock::time_point next_away_{};
  Clock::time_point card_free_{};
  Clock::time_point narrow_free_{};
  std::deque<Chunk> chunks_;
  std::mt19937_64 random_{7};
};

WindowOptions fixed(std::size_t chunks) { return {.chunks = chunks}; }

TEST(FixedWindow, OneChunkAtATimeCannotFillAPathOf20Milliseconds) {
  Model model({}, fixed(1));
  const Outcome outcome = model.transfer(256 * kMiB);
  EXPECT_LE(outcome.most_in_flight, 4 * kMiB);
  // A chunk and its round trip, each after the other.
  EXPECT_LT(outcome.rate, 0.7 * model.path().bytes_per_second);
}

TEST(FixedWindow, HoldsSoManyChunksAndNoMore) {
  for (const std::size_t chunks : {1, 2, 5}) {
    ChunkWindow window({.chunk_bytes = 1000, .chunks = chunks, .link_enable = LinkEnable::kOff});
    const Clock::time_point now{1s};
    std::deque<ChunkWindow::Flight> flights;
    for (std::size_t i = 0; i < chunks; ++i) {
      ASSERT_EQ(window.allowance(5000, true, now), 1000u);
      flights.push_back(window.posted(1000, now));
    }
    EXPECT_EQ(window.allowance(5000, true, now), 0u);
    window.confirmed(flights.front(), now + 1ms);
    EXPECT_EQ(window.allowance(5000, true, now), 1000u);
    EXPECT_EQ(window.allowance(300, true, now), 300u);
  }
}

TEST(LinkEnableChunk, GoesFirstAloneAndShort) {
  for (const std::size_t chunks : {0, 1, 4}) {
    for (const LinkEnable link : {LinkEnable::kOn, LinkEnable::kAuto}) {
      ChunkWindow window({.chunks = chunks, .link_enable = link});
      const Clock::time_point now{1s};
      window.begin(100 * kMiB, now);
      ASSERT_EQ(window.allowance(100 * kMiB, true, now), kLinkBytes);
      const auto flight = window.posted(kLinkBytes, now);
      EXPECT_EQ(window.allowance(100 * kMiB, true, now), 0u);
      window.confirmed(flight, now + 20ms);
      EXPECT_GT(window.allowance(100 * kMiB, true, now), kLinkBytes);
    }
  }
}

TEST(LinkEnableChunk, IsLeftOutWhereItIsOffOrThePathIsInUse) {
  const Clock::time_point now{1s};
  ChunkWindow off({.chunks = 1, .link_enable = LinkEnable::kOff});
  off.begin(100 * kMiB, now);
  EXPECT_EQ(off.allowance(100 * kMiB, true, now), 4 * kMiB);

  ChunkWindow automatic({.chunks = 2});
  automatic.begin(1 * kMiB, now);
  EXPECT_EQ(automatic.allowance(1 * kMiB, true, now), 1 * kMiB)
      << "a single chunk opens the path itself";
  automatic.confirmed(automatic.posted(1 * kMiB, now), now + 20ms);
  automatic.begin(100 * kMiB, now + 30ms);
  EXPECT_EQ(automatic.allowance(100 * kMiB, true, now), 4 * kMiB) << "it was used a moment ago";
  automatic.begin(100 * kMiB, now + 10s);
  EXPECT_EQ(automatic.allowance(100 * kMiB, true, now), kLinkBytes) << "it was silent for long";
}

TEST(AdaptiveWindow, FillsPathsThatOneChunkCannot) {
  for (const double rate : {12.5e6, 125e6, 625e6, 1.25e9}) {
    for (const Nanoseconds trip : {Nanoseconds(2ms), Nanoseconds(20ms), Nanoseconds(80ms)}) {
      const Path path{.bytes_per_second = rate, .round_trip = trip, .queue_bytes = 1024 * kMiB};
      if (path.holds() > 60e6) continue;                      // more than most_bytes
      const auto bytes = static_cast<std::size_t>(rate * 3);  // three seconds
      Model model(path, {});
      model.transfer(bytes);  // finds out
      const Outcome outcome = model.transfer(bytes);
      EXPECT_GT(outcome.rate, 0.85 * rate) << rate << " B/s, " << trip.count() / 1000000
                                           << " ms, window " << model.window().window();
      // After the start no queue is kept.
      EXPECT_LT(static_cast<double>(model.window().window()),
                1.6 * path.holds() + 3.0 * kLeastChunkBytes)
          << rate << " B/s, " << trip.count() / 1000000 << " ms";
    }
  }
}

TEST(AdaptiveWindow, IsAtLeastHalfAsFastAgainAsOneChunkWhereThePathHasRoom) {
  const Path path{.bytes_per_second = 625e6, .queue_bytes = 2 * kMiB};
  const Outcome one = Model(path, fixed(1)).transfer(512 * kMiB);
  const Outcome adaptive = Model(path, {}).transfer(512 * kMiB);
  EXPECT_GT(adaptive.rate, 1.5 * one.rate);
}

TEST(AdaptiveWindow, KeepsNoQueueThatDrops) {
  for (const double rate : {12.5e6, 125e6, 625e6}) {
    for (const double share : {0.5, 1.0, 2.0}) {  // of what the path holds
      Path path{.bytes_per_second = rate};
      path.queue_bytes =
          std::max(static_cast<std::size_t>(path.holds() * share), 3 * kLeastChunkBytes);
      Model model(path, {});
      const Outcome outcome = model.transfer(static_cast<std::size_t>(rate * 8));
      const double packets = rate * 8 / kPacket;
      EXPECT_LT(static_cast<double>(outcome.drops_late), packets / 2000)
          << rate << " B/s, queue " << share << ", window " << model.window().window();
      EXPECT_GT(outcome.rate, 0.7 * rate) << rate << " B/s, queue " << share << " dropped "
                                          << outcome.dropped << " late " << outcome.drops_late;
    }
  }
}

TEST(AdaptiveWindow, FillsSlowPathsToo) {
  const Path path{.bytes_per_second = 5e6, .queue_bytes = 100'000};
  Model model(path, {});
  const Outcome outcome = model.transfer(16 * kMiB);
  EXPECT_GT(outcome.rate, 0.85 * path.bytes_per_second);
}

TEST(AdaptiveWindow, StartsWithoutADropWhereTheQueueHoldsAsMuchAsThePath) {
  for (const double rate : {5e6, 12.5e6, 125e6, 625e6}) {
    Path path{.bytes_per_second = rate};
    path.queue_bytes = static_cast<std::size_t>(path.holds());
    EXPECT_EQ(Model(path, {}).transfer(static_cast<std::size_t>(rate)).dropped, 0u) << rate;
  }
}

TEST(AdaptiveWindow, TakesLateConfirmationsForNoNarrowPath) {
  for (const double rate : {5e6, 125e6}) {
    const Path path{.bytes_per_second = rate, .queue_bytes = 64 * kMiB, .late = 4ms};
    const Outcome outcome = Model(path, {}).transfer(static_cast<std::size_t>(rate * 5));
    EXPECT_GT(outcome.rate, 0.85 * rate) << rate;
  }
}

TEST(AdaptiveWindow, KeepsThePathFullWhileItsProcessIsAway) {
  for (const double rate : {5e6, 12.5e6, 125e6}) {
    Path path{.bytes_per_second = rate, .away = 8ms};
    path.queue_bytes = static_cast<std::size_t>(path.holds());
    const Outcome outcome = Model(path, {}).transfer(static_cast<std::size_t>(rate * 8));
    EXPECT_GT(outcome.rate, 0.85 * rate) << rate;
    EXPECT_EQ(outcome.drops_late, 0u) << rate;
  }
}

// A window of two chunks, of which each is seen late, must not stay one for good.
TEST(AdaptiveWindow, TriesAChunkMoreAtLeast) {
  ChunkWindow window({});
  Clock::time_point now{1s};
  window.begin(100 * kMiB, now);
  const auto link = window.posted(window.allowance(100 * kMiB, true, now), now);
  now += 20ms;
  window.confirmed(link, now);
  std::size_t most = 0;
  for (int round = 0; round < 100; ++round) {
    std::vector<ChunkWindow::Flight> flights;
    for (int look = 0; look < 20; ++look, now += 1ms) {
      const std::size_t bytes = window.allowance(100 * kMiB, true, now);
      // A path on which two of them are what it holds, until more is tried.
      if (bytes != 0 && (round > 20 || flights.size() < 2))
        flights.push_back(window.posted(bytes, now));
    }
    if (round > 20) most = std::max(most, flights.size());
    now += 5ms;
    for (const auto& flight : flights) window.confirmed(flight, now);
  }
  EXPECT_GT(most, 2u);
}

TEST(AdaptiveWindow, SpreadsAWindowOverTheRoundTrip) {
  ChunkWindow window({.link_enable = LinkEnable::kOff});
  Clock::time_point now{1s};
  const auto post_all = [&] {
    std::vector<ChunkWindow::Flight> flights;
    while (const std::size_t bytes = window.allowance(100 * kMiB, true, now))
      flights.push_back(window.posted(bytes, now));
    return flights;
  };
  // Of what comes back at once, as after a loss, not all goes again at once.
  std::size_t most = 0;
  for (int round = 0; round < 12; ++round) {
    const auto flights = post_all();
    const std::size_t at_once = window.in_flight();
    const std::size_t before = window.window();
    if (round > 1) {
      EXPECT_LE(at_once, before / 4 + kStartBytes);
    }
    most = std::max(most, at_once);
    now += 20ms;
    for (const auto& flight : flights) window.confirmed(flight, now);
  }
  EXPECT_GT(most, 0u);
}

TEST(AdaptiveWindow, StaysSmallOnAPathThatHoldsLittle) {
  const Path path{.bytes_per_second = 12.5e6, .round_trip = 1ms, .queue_bytes = 256 << 10};
  Model model(path, {});
  const Outcome outcome = model.transfer(64 * kMiB);
  EXPECT_GT(outcome.rate, 0.85 * path.bytes_per_second);
  EXPECT_LE(model.window().window(), 4 * kLeastChunkBytes);
}

TEST(AdaptiveWindow, EndsTransfersWithRandomLossAndDoesNotCollapse) {
  // Go-back-N loses at least a round trip for each lost packet; with that no window can do better
  // than this.
  for (const double loss : {0.0001, 0.001}) {
    Path path{.loss = loss};
    Model model(path, {});
    const Outcome outcome = model.transfer(64 * kMiB);
    const double recovery = static_cast<double>(outcome.lost) * 0.02;
    EXPECT_LT(outcome.seconds, 3 * (64.0 * kMiB / path.bytes_per_second + recovery) + 1) << loss;
  }
}

TEST(AdaptiveWindow, FollowsAPathThatBecomesNarrowerAndWiderAgain) {
  Model model({}, {});
  model.transfer(256 * kMiB);
  model.path().bytes_per_second = 25e6;
  const Outcome narrow = model.transfer(128 * kMiB);
  EXPECT_GT(narrow.rate, 0.8 * 25e6);
  EXPECT_LT(model.window().window(), 2 * kMiB);
  model.path().bytes_per_second = 125e6;
  model.transfer(512 * kMiB);
  const Outcome wide = model.transfer(512 * kMiB);
  EXPECT_GT(wide.rate, 0.8 * 125e6);
}

TEST(AdaptiveWindow, FindsOutThatThePathHasBecomeLonger) {
  Model model({}, {});
  model.transfer(256 * kMiB);
  model.path().round_trip = 60ms;
  model.transfer(2048 * kMiB);
  const Outcome outcome = model.transfer(1024 * kMiB);
  EXPECT_GT(outcome.rate, 0.8 * model.path().bytes_per_second);
}

TEST(AdaptiveWindow, SmallMessagesDoNotMakeItForgetWhatThePathCanDo) {
  Model model({}, {});
  model.transfer(256 * kMiB);
  const std::size_t before = model.window().window();
  for (int i = 0; i < 500; ++i) {
    model.transfer(10'000);
    model.wait(1ms);
  }
  EXPECT_GT(model.window().window(), before / 2);
}

TEST(AdaptiveWindow, NeverHoldsMoreThanItsLimit) {
  Model model({.bytes_per_second = 1.25e9, .round_trip = 80ms, .queue_bytes = 1024 * kMiB},
              {.most_bytes = 8 * kMiB});
  EXPECT_LE(model.transfer(512 * kMiB).most_in_flight, 8 * kMiB);
}

TEST(AdaptiveWindow, BeginsAnewAfterAQueuePairDied) {
  ChunkWindow window({});
  const Clock::time_point now{1s};
  window.begin(100 * kMiB, now);
  const auto flight = window.posted(window.allowance(100 * kMiB, true, now), now);
  window.confirmed(flight, now + 20ms);
  (void)window.posted(window.allowance(100 * kMiB, true, now), now);
  window.lost();
  EXPECT_EQ(window.in_flight(), 0u);
  EXPECT_EQ(window.allowance(100 * kMiB, true, now), kLinkBytes);
  EXPECT_EQ(window.bytes_per_second(), 0);
}

// Whatever the times are, the window neither stops for good nor loses count.
TEST(AdaptiveWindow, SurvivesAnyTimes) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    ChunkWindow window({.chunk_bytes = std::size_t{1} << (12 + random() % 12),
                        .chunks = random() % 3,
                        .link_enable = static_cast<LinkEnable>(random() % 3)});
    Clock::time_point now{1s};
    std::deque<ChunkWindow::Flight> flights;
    std::size_t in_flight = 0;
    for (int step = 0; step < 3000; ++step) {
      now += Nanoseconds(random() % (std::uint64_t{1} << (random() % 36)));
      if (random() % 2 == 0) window.looked(now);
      switch (random() % 8) {
        case 0:
          window.begin(random() % (64 * kMiB), now);
          break;
        case 1:
          window.idle();
          break;
        case 2:
          if (random() % 50 == 0) {
            window.lost();
            flights.clear();
            in_flight = 0;
          }
          break;
        case 3:
        case 4:
        case 5: {
          const std::size_t wanted = 1 + random() % (8 * kMiB);
          const std::size_t bytes = window.allowance(wanted, random() % 4 != 0, now);
          ASSERT_LE(bytes, wanted);
          if (bytes == 0) {
            ASSERT_FALSE(flights.empty()) << "stuck, seed " << seed << " step " << step;
            break;
          }
          flights.push_back(window.posted(bytes, now));
          in_flight += bytes;
          break;
        }
        default:
          if (flights.empty()) break;
          in_flight -= flights.front().bytes;
          window.confirmed(flights.front(), now);
          flights.pop_front();
      }
      ASSERT_EQ(window.in_flight(), in_flight);
    }
  }
}

}  // namespace
}  // namespace leat::detail

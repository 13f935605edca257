// Transport batched, all of it, over a network that is as late as RDMA may be: both sides send and
// receive, hold and release messages, sleep, and are notified, in random order, one thing at a
// time. Every message comes once and in order; every sleeper is woken; a network that breaks down
// leaves an intact first part, with everything that was flushed, and then errors.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "leat/error.h"
#include "support/late_network.h"
#include "support/pattern.h"
#include "support/scale.h"
#include "support/transport_side.h"
#include "transport/batched/batched.h"

namespace leat::detail {
namespace {

constexpr std::array<Context, 3> kContextsUsed = {0, 15, 4};
constexpr std::uint64_t kMostSteps = 3'000'000;
constexpr std::uint64_t kStepsToNotice = 20'000;

struct Schedule {
  std::uint64_t messages = 60;    // each way
  std::size_t slot_bytes = 1024;  // so that other contexts too have bundles
  std::size_t send_depth = 64;
  unsigned longest = 300;                   // mostly
  std::uint64_t break_after = 0;            // steps; 0: never
  std::array<bool, 2> bundles{true, true};  // of each party
};

class Party {
 public:
  Party(LateNetwork& network, unsigned end, const Schedule& schedule, std::uint64_t seed)
      : network_(network), end_(end), schedule_(schedule), random_(seed) {
    SlotOptions slots;
    slots.slot_bytes = schedule.slot_bytes;
    slots.slot_count = kMinSlots;
    slots.bundles = schedule.bundles[end];
    slots.max_message_bytes = std::size_t{1} << 20;
    transport_ = make_batched(network.device(), network.queue_pair(end), slots);
  }
  void meet(Party& peer) {
    peer_ = &peer;
    transport_->start(peer.transport_->setup());
  }

  // One thing that a program may do.
  void act() {
    switch (random_() % 8) {
      case 0:
      case 1:
      case 2:
        return send();
      case 3:
        if (!asleep_) release();
        return;
      case 4:
        return sleep();
      default:
        return receive();
    }
  }

  bool has_all() const { return received_ == schedule_.messages; }
  bool ended() const { return ended_ && end_said_; }
  bool asleep() const { return asleep_; }
  std::uint64_t received() const { return received_; }
  std::uint64_t sent() const { return sent_; }
  // After an error of sending what has come is there still.
  void receive_the_rest() {
    try {
      while (!ended_ && look()) {
      }
    } catch (const Error& error) {
      EXPECT_EQ(to_string(error.code()), to_string(ErrorCode::kPeerDied)) << error.what();
    }
  }
  // Nothing more is to be sent but the end, which waits until the other one has all.
  bool is_silent() const {
    return paused() || (sent_ == schedule_.messages && !(peer_->has_all() && has_all()));
  }
  Stats stats() const {
    Stats stats;
    transport_->add_stats(stats);
    return stats;
  }

 private:
  // The n-th message of a party, which the other knows.
  static Context context_of(std::uint64_t n, unsigned end) {
    return kContextsUsed[(n / 7 + end) % kContextsUsed.size()];
  }
  std::size_t bytes_of_message(std::uint64_t n) const {
    std::mt19937_64 random(n * 31 + 5);
    if (n % 23 == 22) return random() % (20 * schedule_.slot_bytes);  // in pieces
    return random() % (n % 9 == 8 ? 4 * schedule_.longest : schedule_.longest);
  }

  // Now and then a program waits until the other one has heard it, without a call of ours.
  bool paused() const { return sent_ % 20 == 19 && peer_->received_ < sent_; }

  void send() {
    if (is_silent()) return;
    if (sent_ == schedule_.messages) {
      if (!end_said_) end_said_ = transport_->try_end();
      if (end_said_) flush();
      return;
    }
    const std::size_t bytes = bytes_of_message(sent_);
    const Context context = context_of(sent_, end_);
    if (bytes % 5 == 0 && bytes <= transport_->max_in_place_bytes(context) && !in_pieces_) {
      const std::span<std::byte> memory = transport_->try_reserve(bytes, context);
      if (memory.data() == nullptr) return;
      fill_pattern(memory, sent_);
      if (detail::sent(transport_->try_commit(bytes))) {
        ++sent_;
      } else {
        transport_->abandon(context);
      }
      return;
    }
    std::vector<std::byte> message(bytes);
    fill_pattern(message, sent_);
    in_pieces_ = !detail::sent(transport_->try_send(message, context));
    if (!in_pieces_) ++sent_;
    if (random_() % 16 == 0 && !in_pieces_) flush();
  }

  void flush() {
    if (transport_->try_flush()) flushed_ = sent_;
  }

  void receive() {
    if (asleep_ && !network_.wakes(end_)) return;
    asleep_ = false;
    look();
  }

  // True: there was something.
  bool look() {
    const Context context = context_of(received_, 1 - end_);
    Delivery delivery;
    switch (try_receive(context, delivery)) {
      case ReceiveResult::kNothing:
        return false;
      case ReceiveResult::kEnd:
        EXPECT_EQ(received_, schedule_.messages) << "the end is too early";
        ended_ = true;
        return true;
      case ReceiveResult::kMessage:
        break;
    }
    EXPECT_FALSE(failed_) << "message " << received_ << " comes after an error";
    EXPECT_LT(received_, peer_->sent_ + (peer_->in_pieces_ ? 1U : 0U)) << "it was not sent yet";
    EXPECT_EQ(delivery.bytes, peer_->bytes_of_message(received_)) << "message " << received_;
    EXPECT_EQ(pattern_mismatch(bytes_of(delivery), received_), delivery.bytes)
        << "message " << received_;
    held_.push_back({received_, std::move(delivery)});
    ++received_;
    if (random_() % 2 == 0) release();
    return true;
  }

  ReceiveResult try_receive(Context context, Delivery& delivery) {
    try {
      return transport_->try_receive(context, delivery);
    } catch (const Error&) {
      EXPECT_GE(received_, peer_->flushed_) << "an error before what was flushed";
      failed_ = true;
      throw;
    }
  }

  void release() {
    if (held_.empty()) return;
    const std::size_t which = random_() % held_.size();
    auto [number, delivery] = std::move(held_[which]);
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(which));
    EXPECT_EQ(pattern_mismatch(bytes_of(delivery), number), delivery.bytes)
        << "message " << number << " changed while it was held";
    if (delivery.must_release) transport_->release(delivery);
  }

  void sleep() {
    if (asleep_ || ended_) return;
    while (!held_.empty()) release();
    transport_->arm(Side::kReceive);
    if (look() ||
        transport_->outlook(Side::kReceive, Look::kBrief).comes == Outlook::Comes::kSilently)
      return;
    asleep_ = true;
  }

  LateNetwork& network_;
  const unsigned end_;
  const Schedule schedule_;
  std::mt19937_64 random_;
  std::unique_ptr<Transport> transport_;
  Party* peer_ = nullptr;
  std::uint64_t sent_ = 0;
  std::uint64_t flushed_ = 0;
  std::uint64_t received_ = 0;
  bool in_pieces_ = false;
  bool end_said_ = false;
  bool ended_ = false;
  bool failed_ = false;  // receiving
  bool asleep_ = false;
  std::deque<std::pair<std::uint64_t, Delivery>> held_;
};

// What all schedules together have done, so that none of it goes untested unseen.
struct Seen {
  std::uint64_t doorbells = 0;
  std::uint64_t reads = 0;
  std::uint64_t units = 0;
  std::uint64_t waits = 0;
  std::uint64_t reassembled = 0;
};

class BatchedSchedules : public testing::Test {
 protected:
  void run(const Schedule& schedule, std::uint64_t seed) {
    LateNetwork network(seed, schedule.send_depth);
    std::mt19937_64 random(seed + 1);
    std::array<std::unique_ptr<Party>, 2> parties;
    for (const unsigned end : {0U, 1U})
      parties[end] = std::make_unique<Party>(network, end, schedule, seed * 2 + end);
    parties[0]->meet(*parties[1]);
    parties[1]->meet(*parties[0]);
    // One side may be much faster than the other, and both than the network.
    const std::uint64_t share = 1 + random() % 7;
    const std::uint64_t network_share = 1 + random() % 3;
    std::array<bool, 2> broken{};
    std::uint64_t steps = 0;
    const auto over = [&](unsigned end) { return broken[end] || parties[end]->ended(); };
    while (!(over(0) && over(1))) {
      ++steps;
      // After a break, a party that has everything waits in vain until the other one has, too.
      if (schedule.break_after != 0 && steps > schedule.break_after + kStepsToNotice) break;
      ASSERT_LT(steps, kMostSteps) << describe(parties);
      if (steps == schedule.break_after) network.break_down();
      for (std::uint64_t i = random() % (4 * network_share); i != 0; --i) network.step();
      const unsigned who = random() % 8 < share ? 0 : 1;
      try {
        if (!broken[who]) parties[who]->act();
      } catch (const Error& error) {
        ASSERT_NE(schedule.break_after, 0U) << error.what();
        ASSERT_EQ(to_string(error.code()), to_string(ErrorCode::kPeerDied)) << error.what();
        ASSERT_GE(steps, schedule.break_after) << error.what();
        broken[who] = true;
        parties[who]->receive_the_rest();
      }
      if (HasFailure()) return;
      if (schedule.break_after == 0 && network.quiet()) {
        for (const unsigned end : {0U, 1U})
          ASSERT_FALSE(sleeps_for_ever(network, parties, end)) << end << ": " << describe(parties);
      }
    }
    for (const auto& party : parties) {
      const Stats stats = party->stats();
      seen_.doorbells += stats.doorbells;
      seen_.reads += stats.confirm_reads;
      seen_.units += stats.slots_confirmed;
      seen_.waits += stats.credit_waits;
      seen_.reassembled += stats.reassembled_messages;
    }
  }

  void run_many(const Schedule& schedule, std::size_t count) {
    for (std::uint64_t seed = 0; seed < count; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      ASSERT_NO_FATAL_FAILURE(run(schedule, seed));
      if (HasFailure()) return;
    }
  }

  Seen seen_;

 private:
  using Parties = std::array<std::unique_ptr<Party>, 2>;

  // Though something was accepted that it has not got, and nothing more is done for that.
  static bool sleeps_for_ever(LateNetwork& network, const Parties& parties, unsigned end) {
    const Party& sleeper = *parties[end];
    const Party& sender = *parties[1 - end];
    return sleeper.asleep() && !network.wakes(end) && sleeper.received() < sender.sent() &&
           sender.is_silent();
  }
  static std::string describe(const Parties& parties) {
    std::string text;
    for (const auto& party : parties)
      text += "sent " + std::to_string(party->sent()) + ", received " +
              std::to_string(party->received()) + (party->asleep() ? ", asleep; " : "; ");
    return text;
  }
};

TEST_F(BatchedSchedules, EveryMessageOnceAndInOrder) {
  run_many({}, scaled(1000));
  EXPECT_GT(seen_.doorbells, 0U);
  EXPECT_GT(seen_.reads, 0U);
  EXPECT_GT(seen_.units, 0U);
  EXPECT_GT(seen_.waits, 0U);
  EXPECT_GT(seen_.reassembled, 0U);
}

TEST_F(BatchedSchedules, SmallMessagesOfOneSize) {
  run_many({.messages = 200, .longest = 20}, scaled(100));
}

TEST_F(BatchedSchedules, SlotsTooSmallForBundles) {
  run_many({.slot_bytes = 64, .longest = 100}, scaled(1000));
}

TEST_F(BatchedSchedules, OnePartyOrNoneBundles) {
  for (const bool second : {false, true})
    ASSERT_NO_FATAL_FAILURE(
        run_many({.messages = 200, .longest = 20, .bundles = {false, second}}, scaled(300)));
}

TEST_F(BatchedSchedules, SendQueueThatIsOftenFull) { run_many({.send_depth = 3}, scaled(500)); }

// Reads show the echo of a later message, in another word, for as long as the doorbell is not heard
// that alone announces an earlier one.
TEST(BatchedDoorbells, AreHeardLongAfterWhatCameBehind) {
  constexpr std::size_t kSlotBytes = 1024;
  constexpr std::size_t kLong = 22 * kSlotBytes;  // in pieces, which no doorbell comes with
  std::uint64_t reads = 0;
  // In a tenth of the orders the doorbell comes after the allowance and before the read.
  for (std::uint64_t seed = 0; reads < scaled(2000); ++seed) {
    ASSERT_LT(seed, 1000U) << "orders in which nothing is read";
    SCOPED_TRACE("seed " + std::to_string(seed));
    LateNetwork network(seed, 64);
    const SlotOptions slots{
        .slot_bytes = kSlotBytes, .slot_count = kWordSlots + 16, .max_message_bytes = kLong};
    const auto sender = make_batched(network.device(), network.queue_pair(0), slots);
    const auto receiver = make_batched(network.device(), network.queue_pair(1), slots);
    sender->start(receiver->setup());
    receiver->start(sender->setup());

    std::uint64_t sent_count = 0;
    std::uint64_t received = 0;
    const auto bytes_of_message = [seed](std::uint64_t n) {
      return (n + seed) % 4 == 3 ? kLong : 3 * kSlotBytes - 200;
    };
    const auto send = [&] {
      std::vector<std::byte> message(bytes_of_message(sent_count));
      fill_pattern(message, sent_count);
      if (sent(sender->try_send(message, 0))) ++sent_count;
    };
    const auto look = [&](unsigned steps) {
      for (; steps != 0; --steps) network.step();
      Delivery delivery;
      if (receiver->try_receive(0, delivery) != ReceiveResult::kMessage) return;
      ASSERT_EQ(delivery.bytes, bytes_of_message(received));
      ASSERT_EQ(pattern_mismatch(bytes_of(delivery), received), delivery.bytes);
      if (delivery.must_release) receiver->release(delivery);
      ++received;
    };
    const auto stats_of = [](const Transport& transport) {
      Stats stats;
      transport.add_stats(stats);
      return stats;
    };

    // The first doorbell comes between the allowance and the read that follows it.
    network.hold_arrivals(true);
    for (unsigned i = 0; stats_of(*sender).doorbells == 0; ++i) {
      ASSERT_LT(i, 1'000'000U);
      if (i % 30 == 0) send();
      ASSERT_NO_FATAL_FAILURE(look(10));
    }
    const std::uint64_t reads_before = stats_of(*receiver).confirm_reads;
    const std::uint64_t enough = sent_count + 2 * kWordSlots;
    for (unsigned i = 0; i < 4000; ++i) {
      if (i % 100 == 0 && sent_count != enough) send();
      ASSERT_NO_FATAL_FAILURE(look(50));
    }
    reads += stats_of(*receiver).confirm_reads - reads_before;

    network.hold_arrivals(false);
    for (unsigned i = 0; sent_count != enough || received != enough; ++i) {
      ASSERT_LT(i, 1'000'000U) << sent_count << " sent, " << received << " received";
      if (sent_count != enough) send();
      ASSERT_NO_FATAL_FAILURE(look(10));
    }
  }
}

TEST_F(BatchedSchedules, NetworkThatBreaksDown) {
  for (std::uint64_t seed = 0; seed < scaled(1000); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ASSERT_NO_FATAL_FAILURE(
        run({.messages = 200, .longest = 60, .break_after = 1 + seed * 7919 % 3000}, seed));
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace leat::detail

// Regions, headers, and what a sender keeps: against plain models, over random schedules in which
// queue pairs die.
#include "transport/chunked/pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "transport/chunked/sender.h"

namespace leat::detail {
namespace {

ChunkHeader header_of(std::uint32_t transfer, std::uint32_t sequence, std::uint64_t total,
                      std::uint64_t part_bytes) {
  ChunkHeader header;
  header.transfer = transfer;
  header.sequence = sequence;
  header.count = static_cast<std::uint32_t>(parts_of(total, part_bytes));
  header.total = total;
  header.length = std::min(part_bytes, total - sequence * part_bytes);
  header.check = check_of(header);
  return header;
}

// --- headers

TEST(TransferOrder, TakesTransfersOfOneAndOfManyParts) {
  TransferOrder order;
  std::uint32_t transfer = 0;
  for (const std::uint64_t total : {0, 1, 99, 100, 101, 200, 1234}) {
    for (std::uint32_t i = 0; i < parts_of(total, 100); ++i) {
      EXPECT_EQ(order.arrive(header_of(transfer, i, total, 100), 100), nullptr) << total;
    }
    EXPECT_FALSE(order.within_transfer());
    ++transfer;
  }
}

TEST(TransferOrder, EveryFlippedBitOfANumberIsNoticed) {
  for (std::size_t bit = 0; bit < offsetof(ChunkHeader, digest) * 8; ++bit) {
    ChunkHeader header = header_of(0, 0, 1000, 100);
    reinterpret_cast<unsigned char*>(&header)[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
    EXPECT_NE(TransferOrder().arrive(header, 100), nullptr) << "bit " << bit;
  }
}

// A header as a hostile sender makes it, with a right check.
const char* arrive_sealed(TransferOrder& order, ChunkHeader header) {
  header.check = check_of(header);
  return order.arrive(header, 100);
}

TEST(TransferOrder, RefusesWhatCannotBe) {
  const auto refused = [](const std::function<void(ChunkHeader&)>& change) {
    TransferOrder order;
    ChunkHeader header = header_of(0, 0, 250, 100);
    change(header);
    EXPECT_NE(arrive_sealed(order, header), nullptr);
    EXPECT_EQ(arrive_sealed(order, header_of(0, 0, 250, 100)), nullptr) << "nothing was taken";
  };
  refused([](ChunkHeader& header) { header.transfer = 1; });
  refused([](ChunkHeader& header) { header.sequence = 1; });
  refused([](ChunkHeader& header) { header.count = 0; });
  refused([](ChunkHeader& header) { header.count = 1; });
  refused([](ChunkHeader& header) { header.count = 2; });
  refused([](ChunkHeader& header) { header.count = UINT32_MAX - 1; });
  refused([](ChunkHeader& header) { header.length = 0; });
  refused([](ChunkHeader& header) { header.length = 101; });
  refused([](ChunkHeader& header) { header.length = UINT64_MAX; });
  refused([](ChunkHeader& header) { header.total = 0; });
  refused([](ChunkHeader& header) { header.total = UINT64_MAX; });
  refused([](ChunkHeader& header) { header.total = 301; });
}

TEST(TransferOrder, TakenBackAtAnyPartTheNextTransferIsDue) {
  for (std::uint32_t parts = 0; parts < 3; ++parts) {
    TransferOrder order;
    for (std::uint32_t i = 0; i < parts; ++i)
      ASSERT_EQ(order.arrive(header_of(0, i, 250, 100), 100), nullptr);
    ChunkHeader header = header_of(0, parts, 250, 100);
    header.count = ChunkHeader::kTakenBack;
    ASSERT_EQ(arrive_sealed(order, header), nullptr);
    EXPECT_NE(arrive_sealed(order, header), nullptr) << "twice";
    EXPECT_NE(order.arrive(header_of(0, parts, 250, 100), 100), nullptr);
    EXPECT_EQ(order.arrive(header_of(1, 0, 50, 50), 100), nullptr);
  }
}

TEST(TransferOrder, RefusesPartsThatContradictTheFirst) {
  const auto refused = [](const std::function<void(ChunkHeader&)>& change) {
    TransferOrder order;
    ASSERT_EQ(order.arrive(header_of(0, 0, 250, 100), 100), nullptr);
    ASSERT_EQ(order.arrive(header_of(0, 1, 250, 100), 100), nullptr);
    ChunkHeader header = header_of(0, 2, 250, 100);
    change(header);
    EXPECT_NE(arrive_sealed(order, header), nullptr);
    EXPECT_EQ(order.arrive(header_of(0, 2, 250, 100), 100), nullptr);
  };
  refused([](ChunkHeader& header) { header.sequence = 1; });  // twice
  refused([](ChunkHeader& header) { header.transfer = 1; });
  refused([](ChunkHeader& header) { header.count = 4; });
  refused([](ChunkHeader& header) { header.total = 251; });
  refused([](ChunkHeader& header) { header.length = 49; });
  refused([](ChunkHeader& header) { header.length = 100; });
}

// --- regions

TEST(Regions, PartsFillOneBehindTheOtherAndNeverCrossABoundary) {
  PoolSender sender({.region_units = 10, .count = 3});
  const std::size_t six_units = 5 * kPlaceUnitBytes;
  auto place = sender.place(six_units);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->unit, 0u);
  sender.take(*place);
  place = sender.place(3 * kPlaceUnitBytes);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->unit, 6u);
  place = sender.place(six_units);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->unit, 10u) << "the next region";
  EXPECT_EQ(sender.shape().part_bytes(), 9 * kPlaceUnitBytes);
}

TEST(Regions, SenderBelievesNoPositionThatItNeverUsed) {
  PoolSender sender({.region_units = 10, .count = 2});
  sender.take(*sender.place(0));
  EXPECT_FALSE(sender.take_back(2));
  EXPECT_TRUE(sender.take_back(1));
  EXPECT_FALSE(sender.take_back(0));
  EXPECT_FALSE(sender.take_back(UINT64_MAX));
}

TEST(Regions, ReceiverRefusesOtherPlaces) {
  const RegionShape shape{.region_units = 10, .count = 2};
  for (std::uint64_t unit = 1; unit < 30; ++unit) {
    PoolReceiver receiver(shape);
    EXPECT_NE(receiver.arrive(unit, header_of(0, 0, 100, 100)), nullptr) << unit;
  }
  PoolReceiver receiver(shape);
  EXPECT_NE(receiver.arrive(0, header_of(0, 0, 10 * 64, 10 * 64)), nullptr) << "above a region";
  EXPECT_EQ(receiver.arrive(0, header_of(0, 0, 9 * 64, 9 * 64)), nullptr);
  EXPECT_EQ(receiver.arrive(10, header_of(1, 0, 9 * 64, 9 * 64)), nullptr);
  EXPECT_NE(receiver.arrive(0, header_of(2, 0, 64, 64)), nullptr) << "it is still in use";
}

// Sender and receiver of one context: random sizes, releases in random order, credits that come
// late and in leaps. No two parts overlap, and a side that has released everything is never stuck.
TEST(Regions, NothingOverlapsAndNothingSticksOverRandomSchedules) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    const RegionShape shape{.region_units = 2 + random() % 40, .count = 2 + random() % 5};
    PoolSender sender(shape);
    PoolReceiver receiver(shape);
    struct Held {
      std::uint64_t ticket, unit, units;
    };
    std::vector<Held> held;
    std::uint64_t told = 0;
    std::uint32_t transfer = 0;
    const auto release = [&](std::size_t i) {
      receiver.release(held[i].ticket);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(i));
    };
    const auto tell = [&] {
      const std::uint64_t untold = receiver.free_before() - told;
      if (untold == 0 || untold < receiver.untold_units()) return;
      told = receiver.free_before();
      ASSERT_TRUE(sender.take_back(told));
    };
    for (int step = 0; step < 2000; ++step) {
      if (random() % 3 != 0) {
        const std::size_t bytes = random() % (shape.part_bytes() + 1);
        const auto place = sender.place(bytes);
        if (!place) {
          if (random() % 2 == 0) continue;
          while (!held.empty()) release(random() % held.size());
          tell();
          ASSERT_TRUE(sender.place(bytes)) << "stuck, seed " << seed;
          continue;
        }
        const std::uint64_t units = RegionShape::units_of(bytes);
        for (const Held& other : held)
          ASSERT_TRUE(place->unit + units <= other.unit || other.unit + other.units <= place->unit);
        ASSERT_EQ(place->unit / shape.region_units, (place->unit + units - 1) / shape.region_units);
        sender.take(*place);
        ASSERT_EQ(receiver.arrive(place->unit,
                                  header_of(transfer++, 0, bytes, std::max<std::size_t>(bytes, 1))),
                  nullptr);
        std::uint64_t ticket = 0;
        ASSERT_EQ(receiver.hand_out(ticket).unit, place->unit);
        held.push_back({ticket, place->unit, units});
      } else if (!held.empty()) {
        release(random() % held.size());
        tell();
      }
    }
  }
}

// --- what a sender keeps

// Memory of a peer to which works are carried out in order, late, on queue pairs that die; what the
// peer takes are announcements.
class Peer {
 public:
  void post(const ChunkWork& work) { wire_.push_back(work); }
  // The oldest is carried out. Whether its confirmation will come is another matter.
  bool carry_out() {
    if (wire_.empty()) return false;
    const ChunkWork work = wire_.front();
    wire_.pop_front();
    EXPECT_GE(work.part, next_[work.context]) << "written although the receiver has it";
    for (std::size_t i = 0; i < work.bytes; ++i)
      memory_[work.offset + i] = {work.context, work.part};
    ++done_;
    if (work.announces) announced_.push_back(work);
    return true;
  }
  std::size_t done() const { return done_; }  // on this queue pair
  // The receiver looks: every announcement must be the next of its context, with all its bytes.
  void take(std::size_t parts_bytes) {
    while (!announced_.empty()) {
      const ChunkWork work = announced_.front();
      announced_.pop_front();
      ASSERT_EQ(work.part, next_[work.context]) << "lost, twice or out of order";
      ++next_[work.context];
      for (std::size_t i = 0; i < parts_bytes; ++i) {
        const auto found = memory_.find(work.offset + i);
        ASSERT_TRUE(found != memory_.end() && found->second.first == work.context &&
                    found->second.second == work.part)
            << "a part without its bytes";
      }
      ++taken_;
    }
  }
  // Dies with what is on the wire; announcements that the receiver has not seen may go with it.
  void die(bool loses_announcements) {
    wire_.clear();
    if (loses_announcements) announced_.clear();
    done_ = 0;
  }
  std::uint64_t taken() const { return taken_; }
  bool has_announcements() const { return !announced_.empty(); }

 private:
  std::deque<ChunkWork> wire_;
  std::deque<ChunkWork> announced_;
  std::map<std::uint64_t, std::pair<Context, std::uint64_t>> memory_;
  std::array<std::uint64_t, kContextCount> next_{};
  std::size_t done_ = 0;
  std::uint64_t taken_ = 0;
};

TEST(ChunkSender, EveryPartArrivesOnceWhateverDies) {
  constexpr std::size_t kChunks = 4;
  constexpr std::size_t kPart = sizeof(ChunkHeader) + kChunks * 8;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    ChunkSender sender;
    Peer peer;
    std::size_t confirmed = 0;  // of this queue pair
    std::uint64_t kept = 0;
    std::uint64_t last_kept = 0;
    struct Open {
      std::size_t left = 0;
      std::uint64_t part = 0;
      std::uint64_t offset = 0;
    };
    std::array<Open, 3> open;
    std::uint64_t next_offset = 0;
    const auto post_next = [&] {
      if (!sender.caught_up()) {
        peer.post(sender.again());
        sender.posted_again();
        return;
      }
      const auto context = static_cast<Context>(random() % open.size());
      Open& at = open[context];
      if (at.left == 0) {
        at.left = kChunks;
        at.offset = next_offset;
        next_offset += kPart;  // never used again: a model of places is elsewhere
      }
      ChunkWork work;
      --at.left;
      work.context = context;
      work.part = at.part;
      work.announces = at.left == 0;
      work.offset = at.offset + (work.announces ? 0 : sizeof(ChunkHeader) + at.left * 8);
      work.bytes = work.announces ? sizeof(ChunkHeader) + 8 : 8;
      work.kept = ++kept;
      peer.post(work);
      sender.posted(work);
      if (work.announces) ++at.part;
    };
    const auto confirm = [&] {
      if (confirmed == peer.done()) return;
      ChunkWork work;
      ASSERT_TRUE(sender.confirmed(work));
      ++confirmed;
      if (work.kept != 0) {
        ASSERT_GT(work.kept, last_kept) << "memory in use was given back";
        last_kept = work.kept;
      }
    };
    for (int step = 0; step < 1500; ++step) {
      switch (random() % 16) {
        case 0:
        case 1:
        case 2:
        case 3:
        case 4:
          post_next();
          break;
        case 5:
        case 6:
        case 7:
        case 8:
        case 9:
          peer.carry_out();
          break;
        case 10:
        case 11:
        case 12:
          ASSERT_NO_FATAL_FAILURE(confirm());
          break;
        case 13:
          ASSERT_NO_FATAL_FAILURE(peer.take(kPart));
          break;
        case 14:
          if (random() % 2 == 0) {
            ASSERT_TRUE(sender.taken(peer.taken()));
          }
          break;
        default:
          if (random() % 8 != 0) break;
          peer.die(random() % 2 == 0);
          ASSERT_NO_FATAL_FAILURE(peer.take(kPart));
          confirmed = 0;
          ASSERT_TRUE(sender.resume(peer.taken()));
          last_kept = std::max(last_kept, sender.dropped_kept());
      }
    }
    // To the end: everything that was announced arrives.
    for (int i = 0; i < 10'000 && !(sender.caught_up() && sender.idle()); ++i) {
      if (!sender.caught_up()) post_next();
      peer.carry_out();
      ASSERT_NO_FATAL_FAILURE(confirm());
    }
    ASSERT_NO_FATAL_FAILURE(peer.take(kPart));
    EXPECT_EQ(peer.taken(), sender.announced());
    ASSERT_TRUE(sender.taken(peer.taken()));
    EXPECT_EQ(sender.untaken(), 0u);
  }
}

TEST(ChunkSender, BelievesNoImpossibleNumberOfAnnouncements) {
  ChunkSender sender;
  ChunkWork work;
  work.announces = true;
  work.bytes = 100;
  sender.posted(work);
  EXPECT_FALSE(sender.taken(2));
  EXPECT_FALSE(sender.resume(2));
  EXPECT_FALSE(sender.resume(UINT64_MAX));
  EXPECT_TRUE(sender.taken(1));
  EXPECT_FALSE(sender.taken(0)) << "going back";
  EXPECT_FALSE(sender.resume(0));
}

}  // namespace
}  // namespace leat::detail

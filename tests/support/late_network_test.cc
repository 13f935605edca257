// The late network is as free as the contract of src/verbs/device.h, and no freer: over many seeds
// each thing that may happen does, and none that may not.
#include "support/late_network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>

namespace leat::detail {
namespace {

constexpr std::uint64_t kSeeds = 500;
constexpr std::size_t kWords = 160;
constexpr std::uint64_t kNew = ~std::uint64_t{0};

// One end with memory of its own, whose requests go to memory of the other.
class Ends {
 public:
  explicit Ends(std::uint64_t seed) : network(seed, kWords) {
    for (auto* region : {&here_, &there_})
      *region = device_->allocate(kWords * sizeof kNew, kRemoteRead | kRemoteWrite);
    std::memset(here_->memory().data(), 0xff, here_->memory().size());
  }

  SendRequest request(Opcode opcode, std::size_t first, std::size_t words) const {
    SendRequest request;
    request.id = first;
    request.opcode = opcode;
    request.local = here_->memory().data() + first * sizeof kNew;
    request.bytes = words * sizeof kNew;
    request.remote_address = there_->remote().address + first * sizeof kNew;
    return request;
  }
  void post(const SendRequest& request) { ASSERT_EQ(sender->post_send({&request, 1}), 1U); }
  std::uint64_t here(std::size_t word) const { return word_of(*here_, word); }
  std::uint64_t there(std::size_t word) const { return word_of(*there_, word); }
  std::size_t arrived(std::size_t words) const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < words; ++i) count += there(i) == kNew ? 1U : 0U;
    return count;
  }
  // Until nothing more happens.
  void watch(const std::function<void()>& look) {
    while (!network.quiet()) {
      network.step();
      look();
    }
  }
  void set_here(std::size_t word, std::uint64_t value) {
    std::memcpy(here_->memory().data() + word * sizeof value, &value, sizeof value);
  }

 private:
  static std::uint64_t word_of(const MemoryRegion& region, std::size_t word) {
    std::uint64_t value = 0;
    std::memcpy(&value, region.memory().data() + word * sizeof value, sizeof value);
    return value;
  }

 public:
  LateNetwork network;

 private:
  std::unique_ptr<Device> device_ = network.device();
  std::unique_ptr<MemoryRegion> here_;
  std::unique_ptr<MemoryRegion> there_;

 public:
  std::unique_ptr<QueuePair> sender = network.queue_pair(0);
  std::unique_ptr<QueuePair> receiver = network.queue_pair(1);
};

// In how many of the seeds it was seen.
std::uint64_t seeds_with(const std::function<bool(Ends&)>& seen) {
  std::uint64_t count = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Ends ends(seed);
    count += seen(ends) ? 1U : 0U;
  }
  return count;
}

TEST(LateNetwork, LaterWriteMayBeSeenFirst) {
  EXPECT_GT(seeds_with([](Ends& ends) {
              ends.post(ends.request(Opcode::kWrite, 0, 8));
              ends.post(ends.request(Opcode::kWrite, 8, 1));
              bool seen = false;
              ends.watch([&] { seen |= ends.there(8) == kNew && ends.arrived(8) < 8; });
              EXPECT_EQ(ends.arrived(9), 9U);
              return seen;
            }),
            kSeeds / 20);
}

// Whether the sender hears that such a request is over before all of its bytes are there.
bool completes_before_its_bytes(Ends& ends, Opcode opcode) {
  EXPECT_EQ(ends.receiver->post_receives(1), 1U);  // a write needs none
  ends.post(ends.request(opcode, 0, 8));
  bool seen = false;
  Completion completion;
  ends.watch([&] {
    if (ends.sender->poll_sends({&completion, 1}) == 1) seen |= ends.arrived(8) < 8;
  });
  EXPECT_EQ(ends.arrived(8), 8U);
  return seen;
}

TEST(LateNetwork, CompletionOfAWriteMayComeBeforeItsBytes) {
  EXPECT_GT(seeds_with([](Ends& ends) { return completes_before_its_bytes(ends, Opcode::kWrite); }),
            kSeeds / 20);
}

TEST(LateNetwork, CompletionOfAnImmediateMayComeBeforeItsBytes) {
  EXPECT_GT(seeds_with([](Ends& ends) {
              return completes_before_its_bytes(ends, Opcode::kWriteWithImmediate);
            }),
            kSeeds / 20);
}

TEST(LateNetwork, WithoutAReceiveAnImmediateDoesNotComplete) {
  EXPECT_EQ(seeds_with([](Ends& ends) {
              EXPECT_EQ(ends.receiver->post_receives(1), 1U);
              ends.post(ends.request(Opcode::kWriteWithImmediate, 0, 8));
              ends.post(ends.request(Opcode::kWriteWithImmediate, 8, 1));
              bool completed = false;
              Completion completion;
              for (int i = 0; i < 1000; ++i) {
                ends.network.step();
                completed |= ends.sender->poll_sends({&completion, 1}) == 1 && completion.id == 8;
              }
              return completed;
            }),
            0U);
}

// Whatever of the write itself is late: all of it is there, as a read that came behind it says.
TEST(LateNetwork, ReceiverMayHearOfAnImmediateLongAfterItsBytes) {
  EXPECT_GT(seeds_with([](Ends& ends) {
              EXPECT_EQ(ends.receiver->post_receives(1), 1U);
              ends.post(ends.request(Opcode::kWriteWithImmediate, 0, 1));
              ends.post(ends.request(Opcode::kRead, 15, 1));
              bool over = false;
              bool heard = false;
              bool seen = false;
              Completion completion;
              ends.watch([&] {
                heard |= ends.receiver->poll_receives({&completion, 1}) == 1;
                over |= ends.here(15) != kNew;
                seen |= over && !heard && !ends.network.quiet();
              });
              return seen;
            }),
            kSeeds / 20);
}

TEST(LateNetwork, WordsOfAReadComeInAnyOrder) {
  for (const std::size_t first : {0U, 3U})
    EXPECT_GT(
        seeds_with([&](Ends& ends) {
          ends.post(ends.request(Opcode::kRead, 0, 4));
          bool seen = false;
          ends.watch([&] { seen |= ends.here(first) != kNew && ends.here(3 - first) == kNew; });
          return seen;
        }),
        kSeeds / 20)
        << "word " << first << " first";
}

// How far a write ever overtook: few in some networks, many in others.
TEST(LateNetwork, MoreOrFewerRequestsAreUnderWayAtATime) {
  std::size_t least = kWords;
  std::size_t most = 0;
  seeds_with([&](Ends& ends) {
    for (std::size_t i = 0; i < kWords; ++i) ends.post(ends.request(Opcode::kWrite, i, 1));
    std::size_t far = 0;
    ends.watch([&] {
      std::size_t missing = 0;
      while (missing < kWords && ends.there(missing) == kNew) ++missing;
      std::size_t last = kWords;
      while (last > missing && ends.there(last - 1) != kNew) --last;
      far = std::max(far, last - missing);
    });
    least = std::min(least, far);
    most = std::max(most, far);
    return false;
  });
  EXPECT_LE(least, 4U);
  EXPECT_GT(most, 64U);
}

TEST(LateNetwork, WakesWithoutCauseWhileSomethingIsUnderWayAndOnlyThen) {
  EXPECT_GT(seeds_with([](Ends& ends) {
              EXPECT_FALSE(ends.network.wakes(1));
              ends.post(ends.request(Opcode::kWrite, 0, 8));
              bool seen = false;
              ends.watch([&] { seen |= ends.network.wakes(1); });
              for (int i = 0; i < 100; ++i) EXPECT_FALSE(ends.network.wakes(1));
              return seen;
            }),
            kSeeds / 20);
}

TEST(LateNetwork, WhatHasCompletedIsThereAfterABreakOrTheEndOfItsQueuePair) {
  for (const bool destroyed : {false, true})
    EXPECT_GT(seeds_with([&](Ends& ends) {
                EXPECT_EQ(ends.receiver->post_receives(2), 2U);
                ends.post(ends.request(Opcode::kWrite, 0, 8));
                ends.post(ends.request(Opcode::kWriteWithImmediate, 8, 8));
                Completion completion;
                for (std::size_t completed = 0; completed < 2;) {
                  ends.network.step();
                  completed += ends.sender->poll_sends({&completion, 1});
                }
                const bool early = ends.arrived(16) < 16;
                if (destroyed) {
                  ends.sender.reset();
                } else {
                  ends.network.break_down();
                }
                EXPECT_EQ(ends.arrived(16), 16U);
                for (const auto status : {CompletionStatus::kSuccess, CompletionStatus::kFlushed}) {
                  while (ends.receiver->poll_receives({&completion, 1}) == 0) {
                  }
                  EXPECT_EQ(completion.status, status);
                }
                return early;
              }),
              kSeeds / 20)
        << destroyed;
}

TEST(LateNetwork, WhatGoesToMemoryThatHasGoneIsLost) {
  Ends ends(1);
  auto region = ends.network.device()->allocate(64, kRemoteWrite);
  SendRequest request = ends.request(Opcode::kWrite, 0, 8);
  request.remote_address = region->remote().address;
  ends.post(request);
  region.reset();
  Completion completion;
  while (ends.sender->poll_sends({&completion, 1}) == 0) ends.network.step();
  ends.watch([] {});
  EXPECT_EQ(ends.arrived(8), 0U);
}

TEST(LateNetwork, LaterWriteMayOvertakeARead) {
  EXPECT_GT(seeds_with([](Ends& ends) {
              SendRequest read = ends.request(Opcode::kRead, 0, 1);
              SendRequest write = ends.request(Opcode::kWrite, 1, 1);
              write.remote_address = read.remote_address;
              ends.set_here(0, 0);
              ends.post(read);
              ends.post(write);
              ends.watch([] {});
              return ends.here(0) == kNew;
            }),
            kSeeds / 20);
}

TEST(LateNetwork, WriteIsWholeWhereALaterReadIsOver) {
  EXPECT_EQ(seeds_with([](Ends& ends) {
              ends.post(ends.request(Opcode::kWrite, 0, 8));
              SendRequest read = ends.request(Opcode::kRead, 15, 1);
              ends.post(read);
              bool torn = false;
              Completion completion;
              ends.watch([&] {
                if (ends.here(15) != kNew) torn |= ends.arrived(8) < 8;
                if (ends.sender->poll_sends({&completion, 1}) == 1 && completion.id == 15)
                  torn |= ends.arrived(8) < 8;
              });
              return torn;
            }),
            0U);
}

TEST(LateNetwork, FencedWriteIsSeenBehindTheWritesBeforeAnEarlierRead) {
  EXPECT_EQ(seeds_with([](Ends& ends) {
              ends.post(ends.request(Opcode::kWrite, 0, 8));
              ends.post(ends.request(Opcode::kRead, 15, 1));
              SendRequest fenced = ends.request(Opcode::kWrite, 8, 1);
              fenced.fenced = true;
              ends.post(fenced);
              bool early = false;
              ends.watch([&] { early |= ends.there(8) == kNew && ends.arrived(8) < 8; });
              EXPECT_EQ(ends.arrived(9), 9U);
              return early;
            }),
            0U);
}

TEST(LateNetwork, ImmediateTellsOfAllWritesBeforeIt) {
  EXPECT_EQ(seeds_with([](Ends& ends) {
              EXPECT_EQ(ends.receiver->post_receives(1), 1U);
              ends.post(ends.request(Opcode::kWrite, 0, 8));
              ends.post(ends.request(Opcode::kWriteWithImmediate, 8, 1));
              bool early = false;
              Completion completion;
              ends.watch([&] {
                if (ends.receiver->poll_receives({&completion, 1}) == 1)
                  early |= ends.arrived(9) < 9;
              });
              return early;
            }),
            0U);
}

TEST(LateNetwork, WritesOfOneWordStayInOrder) {
  EXPECT_EQ(seeds_with([](Ends& ends) {
              for (std::uint64_t value = 1; value <= 8; ++value) {
                SendRequest write = ends.request(Opcode::kWrite, 0, 1);
                write.local = &value;
                write.inlined = true;
                ends.post(write);
              }
              std::uint64_t last = 0;
              bool backwards = false;
              ends.watch([&] {
                backwards |= ends.there(0) < last;
                last = ends.there(0);
              });
              EXPECT_EQ(last, 8U);
              return backwards;
            }),
            0U);
}

}  // namespace
}  // namespace leat::detail

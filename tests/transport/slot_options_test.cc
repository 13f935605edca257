// Batched and confirm-each have the slots that their options ask for, and stats() reports what
// happened to them.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "support/channel_side.h"
#include "transport/slots/header.h"
#include "transport/slots/slots.h"

namespace leat::detail {
namespace {

std::vector<ChannelKind> slot_kinds(bool batched_only) {
  std::vector<ChannelKind> kinds;
  for (const ChannelKind& kind : channel_kinds())
    if (kind.transport == "batched" || (kind.transport == "confirm-each" && !batched_only))
      kinds.push_back(kind);
  return kinds;
}

std::function<void(Options&)> slots(std::size_t bytes, std::size_t count) {
  return [=](Options& options) {
    options.slot_bytes = bytes;
    options.slot_count = count;
  };
}

class SlotOptionsTest : public ChannelTest {
 protected:
  // What a side with these options takes for slots.
  std::size_t memory_of(std::size_t slot_bytes, unsigned count) const {
    const std::size_t header = kind().transport == "batched" ? sizeof(SlotFront) : 0;
    return SlotLayout(slot_bytes, count, header).bytes() * (kind().device == "shm" ? 1 : 2);
  }
};

INSTANTIATE_TEST_SUITE_P(Channels, SlotOptionsTest,
                         testing::Combine(testing::ValuesIn(slot_kinds(false)),
                                          testing::Values(PeerMode::kThreads,
                                                          PeerMode::kProcesses)),
                         channel_test_name);

TEST_P(SlotOptionsTest, SlotsAreAsManyAndAsLargeAsTheySay) {
  run_both(
      [&](ChannelSide& side) {
        EXPECT_EQ(side.channel.stats().slot_memory_bytes, memory_of(1024, 32));
        const std::size_t of_first = fill_up(side.channel, 1024, 0);
        const std::size_t of_other = fill_up(side.channel, 256, 5);
        EXPECT_EQ(of_first, 32U);
        EXPECT_EQ(of_other, kWordSlots);
        side.peer.barrier();  // so far nobody has read
        for (std::size_t i = 0; i < of_first; ++i) expect_message(side.channel.receive(0), 1024, i);
        for (std::size_t i = 0; i < of_other; ++i) expect_message(side.channel.receive(5), 256, i);
        EXPECT_EQ(side.channel.stats().slot_memory_bytes, memory_of(1024, 32)) << "it is fixed";
        side.peer.barrier();
      },
      slots(1024, 32));
}

TEST_P(SlotOptionsTest, SmallerOnesOfEitherSideAreUsed) {
  const auto body = [&](ChannelSide& side, std::size_t memory) {
    EXPECT_EQ(side.channel.stats().slot_memory_bytes, memory);
    EXPECT_EQ(fill_up(side.channel, 512, 0), 32U);
    side.peer.barrier();
    for (std::size_t i = 0; i < 32; ++i) expect_message(side.channel.receive(0), 512, i);
    side.peer.barrier();
  };
  run([&](ChannelSide& side) { body(side, memory_of(1024, 32)); },
      [&](ChannelSide& side) { body(side, memory_of(512, 100)); },
      {.first_options = slots(1024, 32), .second_options = slots(512, 100)});
}

class BatchedOptionsTest : public ChannelTest {};

INSTANTIATE_TEST_SUITE_P(Channels, BatchedOptionsTest,
                         testing::Combine(testing::ValuesIn(slot_kinds(true)),
                                          testing::Values(PeerMode::kThreads,
                                                          PeerMode::kProcesses)),
                         channel_test_name);

TEST_P(BatchedOptionsTest, SenderReadsOnlyBelowTheThreshold) {
  struct Case {
    std::size_t threshold;
    std::size_t sent;  // of 64 slots
    bool reads;
  };
  for (const Case& one :
       {Case{40, 30, false}, Case{40, 50, true}, Case{100, 30, true}, Case{1, 60, false}}) {
    SCOPED_TRACE(std::to_string(one.threshold) + " percent, " + std::to_string(one.sent));
    run(
        [&](ChannelSide& side) {
          for (std::size_t i = 0; i < one.sent; ++i) send_pattern(side.channel, 1024, i);
          EXPECT_EQ(side.channel.stats().confirm_reads != 0, one.reads);
          side.peer.barrier();
        },
        [](ChannelSide& side) { side.peer.barrier(); },
        {.first_options =
             [&](Options& options) {
               slots(1024, 64)(options);
               options.batched_confirm_threshold = one.threshold;
             },
         .second_options = slots(1024, 64)});
  }
}

// Each side decides for what it sends: with bundles many small messages go into a slot, without
// one.
TEST_P(BatchedOptionsTest, SmallMessagesShareSlotsUnlessTheSenderSaysNo) {
  constexpr std::size_t kSlots = 32;
  const auto with = [](bool bundles) {
    return [bundles](Options& options) {
      slots(1024, kSlots)(options);
      options.batched_bundles = bundles;
    };
  };
  const auto body = [](ChannelSide& side, bool bundles) {
    for (const unsigned context : {0U, 5U}) {
      const std::size_t all = context == 0 ? kSlots : kWordSlots;
      const std::size_t sent = fill_up(side.channel, 16, context);
      if (bundles) {
        EXPECT_GE(sent, 4 * all) << "context " << context;
      } else {
        EXPECT_EQ(sent, all) << "context " << context;
      }
      side.peer.tell_value(sent);
      const auto due = side.peer.hear_value<std::size_t>();  // so far nobody has read
      for (std::size_t i = 0; i < due; ++i) expect_message(side.channel.receive(context), 16, i);
      side.peer.barrier();
    }
  };
  run([&](ChannelSide& side) { body(side, false); }, [&](ChannelSide& side) { body(side, true); },
      {.first_options = with(false), .second_options = with(true)});
}

TEST_P(BatchedOptionsTest, StatsTellOfReadsOfWhatTheyFoundAndOfRings) {
  constexpr std::size_t kMessages = 32;
  run(
      [&](ChannelSide& side) {
        for (std::size_t i = 0; i < kMessages; ++i) send_pattern(side.channel, 4096, i);
        EXPECT_EQ(side.channel.stats().doorbells, 0U) << "nobody has asked to be rung";
        side.peer.tell("sent");
        side.peer.hear("received");
        // The receiver sleeps before long, and then it must be rung.
        const Deadline deadline = hang_deadline();
        while (side.channel.stats().doorbells == 0 && !passed(deadline)) {
          side.channel.send("more");
          side.peer.hear("slept");
        }
        EXPECT_GT(side.channel.stats().doorbells, 0U);
        side.channel.shutdown();
      },
      [&](ChannelSide& side) {
        side.peer.hear("sent");
        for (std::size_t i = 0; i < kMessages; ++i) expect_message(side.channel.receive(), 4096, i);
        const Stats stats = side.channel.stats();
        EXPECT_EQ(stats.slots_confirmed, kMessages);
        EXPECT_GT(stats.confirm_reads, 0U);
        side.peer.tell("received");
        while (side.channel.receive()) side.peer.tell("slept");
      },
      {.second_options = [](Options& options) { options.spin = std::chrono::microseconds(0); }});
}

}  // namespace
}  // namespace leat::detail

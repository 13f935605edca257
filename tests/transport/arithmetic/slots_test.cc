#include "transport/slots/slots.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

#include "support/scale.h"

namespace leat::detail {
namespace {

TEST(SlotLayout, SetsFollowEachOtherAndSlotsHoldWhatTheySay) {
  for (const unsigned slots : {16u, 64u, 100u, 256u, 1024u}) {
    for (const std::size_t slot_bytes : {64u, 100u, 4096u, 65536u}) {
      const SlotLayout layout(slot_bytes, slots, 32);
      EXPECT_LE(layout.all_words(), kMaxSlotWords);
      unsigned next = 0;
      unsigned next_word = 0;
      std::size_t offset = 0;
      for (Context context = 0; context < kContextCount; ++context) {
        EXPECT_EQ(layout.first_slot(context), next);
        EXPECT_EQ(layout.first_word(context), next_word);
        EXPECT_EQ(layout.offset(context, 0), offset);
        offset = layout.offset(context, layout.slots(context));
        const std::size_t stride = layout.offset(context, 1) - layout.offset(context, 0);
        EXPECT_EQ(stride % 128, 64u) << "an odd number of lines";
        EXPECT_EQ(layout.slots_of(context, 0), 1u);
        for (unsigned count = 1; count < 70; ++count) {
          EXPECT_EQ(layout.slots_of(context, layout.run_bytes(context, count)), count);
          EXPECT_EQ(layout.slots_of(context, layout.run_bytes(context, count) + 1), count + 1);
          EXPECT_EQ(layout.run_bytes(context, count) + layout.header_bytes(), count * stride);
        }
        EXPECT_EQ(layout.context_of(next), context);
        EXPECT_EQ(layout.context_of(next + layout.slots(context) - 1), context);
        next += layout.slots(context);
        next_word += layout.words(context);
        EXPECT_GE(layout.longest_run(context), 1u);
        EXPECT_LE(layout.longest_run(context), kWordSlots);
      }
      EXPECT_EQ(layout.all_slots(), next);
      EXPECT_EQ(layout.all_words(), next_word);
      EXPECT_EQ(layout.bytes(), offset);
      EXPECT_EQ(layout.slots_of(0, slot_bytes), 1u);
      EXPECT_GT(layout.slots_of(0, SIZE_MAX / 2), kMaxSlots);
      EXPECT_GT(layout.slots_of(0, UINT32_MAX), 200u);
    }
  }
}

// Against a set of numbers.
TEST(SlotPool, GivesTheNextFreeRunsAndTakesNothingBackTwice) {
  for (const unsigned slots : {16u, 64u, 100u, 256u}) {
    std::mt19937 random(slots);
    SlotPool pool(slots);
    std::set<unsigned> free;
    for (unsigned i = 0; i < slots; ++i) free.insert(i);
    std::vector<SlotRun> taken;
    unsigned next = 0;
    const auto expected = [&](unsigned count) -> std::optional<unsigned> {
      for (unsigned i = 0; i < 2 * slots; ++i) {
        const unsigned first = (next + i) % slots;
        if (first + count > slots) continue;
        if (first / kWordSlots != (first + count - 1) / kWordSlots) continue;
        bool all = true;
        for (unsigned slot = first; slot < first + count; ++slot) all &= free.contains(slot);
        if (all) return first;
      }
      return std::nullopt;
    };
    for (std::size_t step = 0; step < scaled(20'000); ++step) {
      const auto count = static_cast<unsigned>(1 + random() % (random() % 4 == 0 ? 64 : 5));
      const auto run = pool.find(count);
      const auto first = expected(count);
      ASSERT_EQ(run.has_value(), first.has_value()) << count;
      if (run && random() % 3 != 0) {
        ASSERT_EQ(run->first, *first);
        pool.take(*run);
        next = (run->first + count) % slots;
        for (unsigned i = 0; i < count; ++i) free.erase(run->first + i);
        taken.push_back(*run);
      } else if (!taken.empty()) {
        const std::size_t which = random() % taken.size();
        const SlotRun back = taken[which];
        taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(which));
        ASSERT_TRUE(pool.give(back.word(), back.bits()));
        for (unsigned i = 0; i < back.count; ++i) free.insert(back.first + i);
        ASSERT_FALSE(pool.give(back.word(), back.bits()));
      }
      ASSERT_EQ(pool.free(), free.size());
    }
  }
}

}  // namespace
}  // namespace leat::detail

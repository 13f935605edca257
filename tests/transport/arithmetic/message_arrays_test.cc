#include "transport/planned/message_arrays.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "leat/error.h"

namespace leat::detail {
namespace {

constexpr std::uint64_t kRegionBytes = 1 << 20;

// What open() says about an array that cannot be; empty: it opened.
std::string refusal(MessageArrays& arrays, unsigned context, const MessageArray& array) {
  try {
    arrays.open(context, array);
    return {};
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
}

// The number of the first message of the array that was opened there last.
std::uint32_t first_number(const MessageArrays& arrays, unsigned context) {
  return static_cast<std::uint32_t>((arrays.word(context) >> 16 & 0x1fff) * MessageNumbers::kChunk);
}

const char* arrive(MessageArrays& arrays, unsigned context, std::uint32_t index,
                   std::size_t bytes) {
  std::uint64_t messages = 0;
  return arrays.arrive(first_number(arrays, context) + index, bytes, messages);
}

using enum MessageArrays::Heard;

// The word of a peer whose array, its `epoch`th there, has the numbers from 0 on.
std::uint64_t word_of(std::uint64_t epoch) { return MessageArrays::word_of(epoch, 0); }

TEST(MessageArrays, PlacesMessagesByEquationOne) {
  MessageArrays arrays(kRegionBytes);
  arrays.open(3, {.base_bytes = 640, .message_bytes = 12, .count = 100});
  EXPECT_EQ(arrays.place(3, 0, 100), 640U);
  EXPECT_EQ(arrays.place(3, 7, 1), 640U + 7 * 12);
  EXPECT_EQ(arrays.count_of(3, 12), 1U);
  EXPECT_EQ(arrays.count_of(3, 36), 3U);
}

TEST(MessageArrays, RefusesWhatIsOutside) {
  MessageArrays arrays(kRegionBytes);
  arrays.open(0, {.base_bytes = 0, .message_bytes = 8, .count = 10});
  EXPECT_THROW(arrays.place(0, 10, 1), Error);
  EXPECT_THROW(arrays.place(0, 9, 2), Error);
  EXPECT_THROW(arrays.place(0, 0, 0), Error);
  EXPECT_THROW(arrays.place(0, 1, UINT64_MAX), Error);
  EXPECT_THROW(arrays.place(0, UINT64_MAX, 2), Error);
  EXPECT_THROW(arrays.place(1, 0, 1), Error);
  EXPECT_THROW(arrays.place(kArrayContexts, 0, 1), Error);
  EXPECT_THROW(arrays.count_of(0, 0), Error);
  EXPECT_THROW(arrays.count_of(0, 9), Error);
  EXPECT_THROW(arrays.count_of(1, 8), Error);
  EXPECT_FALSE(arrays.is_open(kArrayContexts));
}

TEST(MessageArrays, RefusesArraysThatCannotBe) {
  MessageArrays arrays(kRegionBytes);
  const MessageArray good{.base_bytes = 0, .message_bytes = 64, .count = 4};
  const auto with = [&good](auto change) {
    MessageArray array = good;
    change(array);
    return array;
  };
  EXPECT_NE(refusal(arrays, kArrayContexts, good), "");
  EXPECT_NE(refusal(arrays, 0, with([](auto& a) { a.message_bytes = 0; })), "");
  EXPECT_NE(refusal(arrays, 0, with([](auto& a) { a.count = 0; })), "");
  EXPECT_NE(refusal(arrays, 0, with([](auto& a) { a.count = MessageArray::kMaxCount + 1; })), "");
  EXPECT_NE(refusal(arrays, 0, with([](auto& a) { a.base_bytes = 32; })), "");
  EXPECT_NE(refusal(arrays, 0, with([](auto& a) { a.incoming = 5; })), "");
  EXPECT_NE(refusal(arrays, 0, with([](auto& a) { a.base_bytes = kRegionBytes - 192; })), "");
  EXPECT_NE(refusal(arrays, 0, with([](auto& a) { a.base_bytes = UINT64_MAX - 63; })), "");
  EXPECT_NE(refusal(arrays, 0, with([](auto& a) {
                      a.message_bytes = UINT32_MAX;
                      a.count = MessageArray::kMaxCount;
                    })),
            "");
  EXPECT_FALSE(arrays.is_open(0));
  EXPECT_EQ(refusal(arrays, 0, with([](auto& a) { a.base_bytes = kRegionBytes - 256; })), "");
  EXPECT_NE(refusal(arrays, 0, good), "");  // still open
}

TEST(MessageArrays, NamesBothArraysThatOverlap) {
  MessageArrays arrays(kRegionBytes);
  arrays.open(1, {.base_bytes = 64, .message_bytes = 10, .count = 7});  // to byte 134
  const std::string why = refusal(arrays, 2, {.base_bytes = 128, .message_bytes = 1, .count = 1});
  EXPECT_NE(why.find("context 1"), std::string::npos) << why;
  EXPECT_NE(why.find("context 2"), std::string::npos) << why;
  EXPECT_NE(refusal(arrays, 2, {.base_bytes = 0, .message_bytes = 1000, .count = 1}), "");
  EXPECT_EQ(refusal(arrays, 2, {.base_bytes = 0, .message_bytes = 64, .count = 1}), "");
  EXPECT_EQ(refusal(arrays, 3, {.base_bytes = 192, .message_bytes = 64, .count = 1}), "");
  arrays.close(1);
  EXPECT_EQ(refusal(arrays, 4, {.base_bytes = 128, .message_bytes = 1, .count = 1}), "");
}

TEST(MessageArrays, SaysWhyAWriteCannotBe) {
  MessageArrays arrays(kRegionBytes);
  EXPECT_NE(arrive(arrays, 0, 0, 8), nullptr);  // not open
  arrays.open(0, {.base_bytes = 0, .message_bytes = 8, .count = 10, .incoming = 6});
  EXPECT_NE(arrive(arrays, 0, 0, 0), nullptr);
  EXPECT_NE(arrive(arrays, 0, 0, 9), nullptr);
  EXPECT_NE(arrive(arrays, 0, 10, 8), nullptr);
  EXPECT_NE(arrive(arrays, 0, 9, 16), nullptr);
  EXPECT_NE(arrive(arrays, 0, 0x7fff'ffff, SIZE_MAX / 8 * 8), nullptr);
  EXPECT_EQ(arrive(arrays, 0, 2, 24), nullptr);
  EXPECT_NE(arrive(arrays, 0, 4, 8), nullptr);                       // twice
  EXPECT_NE(arrive(arrays, 0, MessageNumbers::kChunk, 8), nullptr);  // numbers of nobody
  EXPECT_EQ(arrive(arrays, 0, 7, 24), nullptr);
  EXPECT_EQ(arrays.missing(0), 0U);
  EXPECT_NE(arrive(arrays, 0, 0, 8), nullptr);  // more than was to come
  arrays.close(0);
  EXPECT_NE(arrive(arrays, 0, 0, 8), nullptr);
}

TEST(MessageArrays, StartsEachEpochWithNothingArrived) {
  MessageArrays arrays(kRegionBytes);
  const MessageArray array{.base_bytes = 0, .message_bytes = 4, .count = 70};
  arrays.open(5, array);
  EXPECT_EQ(arrays.epoch(5), 1U);
  EXPECT_FALSE(arrays.peer_is_open(5));
  for (const std::uint64_t word : {std::uint64_t{0}, word_of(0)}) {  // not yet
    EXPECT_EQ(arrays.hear_peer(5, word), kNothing);
    EXPECT_FALSE(arrays.peer_is_open(5));
  }
  EXPECT_EQ(arrays.hear_peer(5, word_of(1)), kOpen);
  EXPECT_TRUE(arrays.peer_is_open(5));
  EXPECT_EQ(arrays.hear_peer(5, word_of(2)), kTooFar);
  EXPECT_FALSE(arrays.peer_is_open(5));
  EXPECT_EQ(arrive(arrays, 5, 0, 280), nullptr);
  arrays.close(5);
  arrays.open(5, array);
  EXPECT_EQ(arrays.epoch(5), 2U);
  EXPECT_FALSE(arrays.peer_is_open(5));
  EXPECT_EQ(arrays.first_missing(5, 0, 70), 0U);
  EXPECT_EQ(arrays.missing(5), 70U);
}

TEST(MessageArrays, AnOpenThatIsTakenBackHasNoEpoch) {
  MessageArrays arrays(kRegionBytes);
  const MessageArray array{.base_bytes = 0, .message_bytes = 8, .count = 4};
  arrays.open(1, array);
  EXPECT_EQ(arrays.epoch(1), 1U);
  arrays.close(1);
  arrays.open(1, array);
  EXPECT_EQ(arrays.epoch(1), 2U);
  arrays.cancel(1);
  EXPECT_FALSE(arrays.is_open(1));
  arrays.open(1, array);
  EXPECT_EQ(arrays.epoch(1), 2U);
  EXPECT_EQ(arrays.hear_peer(1, word_of(2)), kOpen);
  EXPECT_TRUE(arrays.peer_is_open(1));
}

// Against a set per context: random opens, closes, honest and wild writes.
TEST(MessageArrays, AgreesWithAModel) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    MessageArrays arrays(kRegionBytes);
    struct Live {
      MessageArray array;
      std::uint64_t incoming = 0;
      std::set<std::uint64_t> arrived;
    };
    std::array<std::optional<Live>, 16> model;
    for (int step = 0; step < 20'000; ++step) {
      const unsigned context = random() % model.size() * 17;
      std::optional<Live>& live = model[context / 17];
      if (!live) {
        MessageArray array;
        array.base_bytes = random() % (kRegionBytes / 64) * 64;
        array.message_bytes = static_cast<std::uint32_t>(1 + random() % 100);
        array.count = 1 + random() % 300;
        if (random() % 2 == 0) array.incoming = random() % (array.count + 1);
        const auto end = [](const MessageArray& a) {
          return a.base_bytes + a.message_bytes * a.count;
        };
        bool fits = end(array) <= kRegionBytes;
        for (const auto& other : model) {
          fits = fits && (!other || end(array) <= other->array.base_bytes ||
                          end(other->array) <= array.base_bytes);
        }
        ASSERT_EQ(refusal(arrays, context, array).empty(), fits);
        if (fits) {
          live = Live{array, std::min(array.incoming, array.count), {}};
        }
      }
      const std::uint32_t each = live ? live->array.message_bytes : 8;
      const auto index = static_cast<std::uint32_t>(random() % 310);
      const std::uint64_t count = random() % 8 == 0 ? random() % 200 : random() % 3;
      const bool cut = each > 1 && random() % 20 == 0;
      const std::size_t bytes = count * each + (cut ? 1 : 0);
      bool due = live && !cut && count != 0 && index + count <= live->array.count &&
                 live->arrived.size() + count <= live->incoming;
      for (std::uint64_t i = index; due && i < index + count; ++i)
        due = live->arrived.count(i) == 0;
      // A write that is not due ends a connection, so nothing is promised after it: do not try.
      if (due) {
        ASSERT_EQ(arrive(arrays, context, index, bytes), nullptr);
        for (std::uint64_t i = index; i < index + count; ++i) live->arrived.insert(i);
      } else {
        // Of a context that is not open: numbers of its last array, which may be another's now.
        if (!live) continue;
        MessageArrays copy = arrays;
        ASSERT_NE(arrive(copy, context, index, bytes), nullptr);
      }
      const std::uint64_t from = random() % live->array.count;
      const std::uint64_t end = from + 1 + random() % (live->array.count - from);
      std::uint64_t missing = from;
      while (missing < end && live->arrived.count(missing) != 0) ++missing;
      ASSERT_EQ(arrays.first_missing(context, from, end), missing);
      ASSERT_EQ(arrays.missing(context), live->incoming - live->arrived.size());
      if (random() % 200 == 0) {
        arrays.close(context);
        live.reset();
      }
    }
  }
}

TEST(MessageArrays, TheLargestArraysShareTheNumbers) {
  MessageArrays arrays(std::uint64_t{1} << 40);
  const auto array = [](unsigned n) {
    return MessageArray{.base_bytes = n * MessageArray::kMaxCount,
                        .message_bytes = 1,
                        .count = MessageArray::kMaxCount,
                        .incoming = 0};
  };
  constexpr unsigned kFit = MessageArray::kMaxOpenCount / MessageArray::kMaxCount;
  for (unsigned n = 0; n < kFit; ++n) EXPECT_EQ(refusal(arrays, n, array(n)), "");
  const MessageArray small{
      .base_bytes = kFit * MessageArray::kMaxCount, .message_bytes = 1, .count = 1};
  EXPECT_NE(refusal(arrays, kFit, small).find("2^31"), std::string::npos);
  EXPECT_FALSE(arrays.is_open(kFit));
  arrays.close(3);
  EXPECT_EQ(refusal(arrays, kFit, small), "");
  EXPECT_EQ(arrays.epoch(kFit), 1U);
  EXPECT_NE(refusal(arrays, 3, array(3)), "");  // one chunk of it is taken
}

TEST(MessageArrays, EveryContextHasNumbers) {
  MessageArrays arrays(kRegionBytes);
  const auto array = [](unsigned n) {
    return MessageArray{.base_bytes = std::uint64_t{n} * 64, .message_bytes = 8, .count = 8};
  };
  for (unsigned n = 0; n < kArrayContexts; ++n) arrays.open(n, array(n));
  for (unsigned n = 0; n < kArrayContexts; ++n) {
    EXPECT_EQ(arrive(arrays, n, 1, 56), nullptr);
    EXPECT_EQ(arrays.missing(n), 1U);
  }
  for (unsigned n = 0; n < kArrayContexts; ++n) EXPECT_NE(arrive(arrays, n, 8, 8), nullptr);
}

TEST(MessageArrays, APeersNumbersMustHoldItsArray) {
  MessageArrays arrays(std::uint64_t{1} << 30);
  arrays.open(7, {.base_bytes = 0, .message_bytes = 1, .count = MessageNumbers::kChunk + 1});
  for (const std::uint64_t chunk : {MessageNumbers::kChunks - 1, 0x1fffU}) {
    EXPECT_EQ(arrays.hear_peer(7, MessageArrays::word_of(1, chunk)), kBadNumbers);
    EXPECT_FALSE(arrays.peer_is_open(7));
  }
  EXPECT_EQ(arrays.hear_peer(7, MessageArrays::word_of(1, MessageNumbers::kChunks - 2)), kOpen);
  EXPECT_TRUE(arrays.peer_is_open(7));
  EXPECT_EQ(arrays.number(7, MessageNumbers::kChunk), 0x7fff'ffffU - MessageNumbers::kChunk + 1);
}

// Whatever bit is flipped: it means neither an older epoch, which would be waited with for ever,
// nor the numbers of another array.
TEST(MessageArrays, ADamagedWordIsNeitherSilenceNorAnotherArray) {
  MessageArrays arrays(kRegionBytes);
  const MessageArray array{.base_bytes = 0, .message_bytes = 8, .count = 4};
  for (std::uint64_t epoch = 1; epoch < 100; ++epoch) {
    arrays.open(1, array);
    for (unsigned bit = 0; bit < 64; ++bit) {
      const std::uint64_t word = MessageArrays::word_of(epoch, epoch * 31);
      EXPECT_EQ(arrays.hear_peer(1, word ^ 1ULL << bit), kDamaged) << epoch << ' ' << bit;
    }
    EXPECT_FALSE(arrays.peer_is_open(1));
    arrays.close(1);
  }
}

// Any bytes as immediates of a peer: nothing outside the arrays is touched, and no message counts
// twice.
TEST(MessageArrays, HoldsAgainstAnyWrites) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 2000; ++round) {
    MessageArrays arrays(kRegionBytes);
    arrays.open(2, {.base_bytes = 0, .message_bytes = 3, .count = 130});
    arrays.open(9, {.base_bytes = 4096, .message_bytes = 4096, .count = 200});
    for (int i = 0; i < 50; ++i) {
      const unsigned context = random() % 2 == 0 ? 2 : 9;
      const auto number =
          random() % 4 == 0
              ? decode_immediate(static_cast<std::uint32_t>(random())).number()
              : first_number(arrays, context) + static_cast<std::uint32_t>(random() % 220);
      const std::size_t bytes =
          random() % 4 == 0 ? random() >> random() % 64 : random() % 4 * (context == 2 ? 3 : 4096);
      std::uint64_t messages = 0;
      const std::uint64_t before = arrays.missing(2) + arrays.missing(9);
      if (arrays.arrive(number, bytes, messages) != nullptr) break;
      ASSERT_EQ(arrays.missing(2) + arrays.missing(9) + messages, before);
      ASSERT_GE(messages, 1U);
      const bool in_first = number < first_number(arrays, 9);
      const unsigned owner = in_first ? 2 : 9;
      const std::uint64_t index = number - first_number(arrays, owner);
      ASSERT_EQ(arrays.first_missing(owner, index, index + messages), index + messages);
    }
  }
}

}  // namespace
}  // namespace leat::detail

// PlannedChannel: messages of any arrays in any order, and senders that wait for their arrays.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "support/channel_side.h"
#include "support/link_pair.h"
#include "support/planned_side.h"
#include "transport/planned/planned.h"

namespace leat::detail {
namespace {

class PlannedMessages : public PlannedTest {};
LEAT_INSTANTIATE_PLANNED_SUITE(PlannedMessages);

// [0, count) in pieces of random length, in random order.
struct Piece {
  std::uint64_t index, count;
};
std::vector<Piece> random_cuts(std::uint64_t count, std::uint64_t most, std::mt19937& random) {
  std::vector<Piece> pieces;
  for (std::uint64_t at = 0; at < count;) {
    const std::uint64_t n = std::min<std::uint64_t>(1 + random() % most, count - at);
    pieces.push_back({at, n});
    at += n;
  }
  std::shuffle(pieces.begin(), pieces.end(), random);
  return pieces;
}

TEST_P(PlannedMessages, EachMessageLiesWhereTheEquationSays) {
  const MessageArray array{.base_bytes = 4096, .message_bytes = 24, .count = 10};
  const auto body = [&](bool first) {
    return [&, first](PlannedSide& side) {
      EXPECT_EQ(side.channel.region_bytes(), kPlannedRegionBytes);
      side.channel.open(3, array);
      for (std::uint64_t i = 0; i < array.count; ++i)
        side.channel.send(3, i, messages(array, 3, 0, first, i, 1));
      const auto start = side.channel.receive(3, 0);
      for (std::uint64_t i = 0; i < array.count; ++i) {
        const auto bytes = side.channel.receive(3, i);
        EXPECT_EQ(bytes.data() - start.data(), static_cast<std::ptrdiff_t>(24 * i));
        expect_messages(bytes, array, 3, 0, !first, i, 1);
      }
      side.channel.close(3);
      EXPECT_FALSE(side.channel.is_open(3));
    };
  };
  run(body(true), body(false));
}

TEST_P(PlannedMessages, AnyOrderAnyCutsManyRoundsBothWays) {
  const std::size_t rounds = scaled(40);
  const auto body = [&](bool first) {
    return [&, first](PlannedSide& side) {
      std::mt19937 shapes(1);  // the same on both sides
      std::mt19937 cuts(first ? 2 : 3);
      for (std::uint64_t round = 0; round < rounds; ++round) {
        const unsigned context = shapes() % kContexts;
        MessageArray array;
        array.message_bytes = static_cast<std::uint32_t>(1 + shapes() % 300);
        array.count = 1 + shapes() % 400;
        array.base_bytes = shapes() % ((kPlannedRegionBytes - 400 * 300) / 64) * 64;
        side.channel.open(context, array);
        for (const Piece& piece : random_cuts(array.count, 1 + cuts() % 50, cuts)) {
          const auto bytes = messages(array, context, round, first, piece.index, piece.count);
          if (cuts() % 3 == 0) {
            const auto room = side.channel.reserve(context, piece.index, piece.count);
            ASSERT_EQ(room.size(), bytes.size());
            std::copy(bytes.begin(), bytes.end(), room.begin());
            side.channel.commit();
          } else {
            side.channel.send(context, piece.index, bytes);
          }
        }
        for (const Piece& piece : random_cuts(array.count, 1 + cuts() % 100, cuts)) {
          expect_messages(side.channel.receive(context, piece.index, piece.count), array, context,
                          round, !first, piece.index, piece.count);
        }
        side.channel.close(context);
      }
    };
  };
  run(body(true), body(false));
}

TEST_P(PlannedMessages, NeighboursAreMergedIntoOneWrite) {
  const MessageArray array{.base_bytes = 0, .message_bytes = 8, .count = 1000};
  run(
      [&](PlannedSide& side) {
        side.channel.open(0, array);
        const auto send = [&](std::uint64_t from, std::uint64_t end) {
          for (std::uint64_t i = from; i < end; ++i)
            side.channel.send(0, i, messages(array, 0, 0, true, i, 1));
        };
        const auto writes = [&] { return side.channel.channel().stats().planned_writes; };
        send(0, 100);
        EXPECT_EQ(writes(), 0U);  // nothing has sent them yet
        side.channel.flush();
        EXPECT_EQ(writes(), 1U);
        send(200, 300);
        send(100, 200);  // does not continue
        EXPECT_EQ(writes(), 2U);
        EXPECT_EQ(side.channel.try_receive(0, 0).data(), nullptr);
        EXPECT_EQ(writes(), 3U);
        send(300, 400);
        side.channel.channel().send("an ordinary message");
        EXPECT_EQ(writes(), 4U);
        send(400, 999);
        side.channel.channel().flush();
        EXPECT_EQ(writes(), 5U);
        send(999, 1000);
        side.peer.barrier();
        side.channel.close(0);
        EXPECT_EQ(writes(), 6U);
        EXPECT_EQ(side.channel.channel().stats().sent_messages, 1001U);
        EXPECT_EQ(side.channel.channel().stats().sent_bytes, 8019U);
      },
      [&](PlannedSide& side) {
        side.channel.open(0, array);
        expect_messages(side.channel.receive(0, 0, 999), array, 0, 0, true, 0, 999);
        EXPECT_EQ(side.channel.channel().receive().text(), "an ordinary message");
        EXPECT_EQ(side.channel.try_receive(0, 999).data(), nullptr);
        EXPECT_EQ(side.channel.try_receive(0, 0, 1000).data(), nullptr);
        side.channel.send(0, 0, messages(array, 0, 0, false, 0, 1000));
        side.channel.flush();
        EXPECT_EQ(side.channel.channel().stats().planned_writes, 1U);
        side.peer.barrier();
        expect_messages(side.channel.receive(0, 0, 1000), array, 0, 0, true, 0, 1000);
        EXPECT_EQ(side.channel.channel().stats().received_messages, 1001U);
        side.channel.close(0);
      });
}

// A large send goes in several writes, a message that is larger than those in one.
TEST_P(PlannedMessages, LargeSendsAreCutAtMessages) {
  const MessageArray many{.base_bytes = 0, .message_bytes = 1000, .count = 130};
  const MessageArray large{.base_bytes = 130'048, .message_bytes = 100'000, .count = 1};
  const auto body = [&](bool first) {
    return [&, first](PlannedSide& side) {
      side.channel.open(0, many);
      side.channel.open(1, large);
      side.channel.send(0, 0, messages(many, 0, 0, first, 0, many.count));
      side.channel.send(1, 0, messages(large, 1, 0, first, 0, 1));
      expect_messages(side.channel.receive(0, 0, many.count), many, 0, 0, !first, 0, many.count);
      expect_messages(side.channel.receive(1, 0), large, 1, 0, !first, 0, 1);
      EXPECT_EQ(side.channel.channel().stats().planned_writes, 2U + 1U);
      side.channel.close(0);
      side.channel.close(1);
    };
  };
  run(body(true), body(false));
}

// Arrays that span huge pages and begin inside of one, sent in pieces so large, and so often, that
// both ways of copying are used; the small one lies in a page that the large one takes as well.
TEST_P(PlannedMessages, LargeArraysBesideSmallOnesInOnePage) {
  const MessageArray small{.base_bytes = 0, .message_bytes = 16, .count = 1000};
  const MessageArray large{.base_bytes = 1'000'000 / 64 * 64, .message_bytes = 999, .count = 5000};
  const auto choose_large = [](Options& options) { options.planned_bytes = 6 << 20; };
  const auto body = [&](bool first) {
    return [&, first](PlannedSide& side) {
      std::mt19937 random(first ? 1 : 2);
      side.channel.open(2, small);
      side.channel.send(2, 0, messages(small, 2, 0, first, 0, small.count));
      for (std::uint64_t round = 0; round < scaled(4); ++round) {
        side.channel.open(1, large);
        for (const Piece& piece : random_cuts(large.count, 100, random))
          side.channel.send(1, piece.index,
                            messages(large, 1, round, first, piece.index, piece.count));
        expect_messages(side.channel.receive(1, 0, large.count), large, 1, round, !first, 0,
                        large.count);
        side.channel.close(1);
      }
      expect_messages(side.channel.receive(2, 0, small.count), small, 2, 0, !first, 0, small.count);
      side.channel.close(2);
    };
  };
  run(body(true), body(false), {.first_options = choose_large, .second_options = choose_large});
}

TEST_P(PlannedMessages, AnArrayInEveryContextBesideOrdinaryMessages) {
  constexpr std::uint64_t kEach = 50;
  const auto array_of = [](unsigned context) {
    return MessageArray{
        .base_bytes = context * 1024, .message_bytes = 1 + context % 20, .count = kEach};
  };
  const auto body = [&](bool first) {
    return [&, first](PlannedSide& side) {
      for (unsigned context = 0; context < kArrayContexts; ++context)
        side.channel.open(context, array_of(context));
      expect_error(ErrorCode::kInvalidArgument,
                   [&] { side.channel.open(kArrayContexts, array_of(kArrayContexts)); });
      for (std::uint64_t i = 0; i < kEach; ++i) {
        for (unsigned context = 0; context < kArrayContexts; ++context)
          side.channel.send(context, i, messages(array_of(context), context, 0, first, i, 1));
        if (i % 10 != 0) continue;
        for (unsigned context = 0; context < kContexts; ++context)
          send_pattern(side.channel.channel(), 10 * i, context, context);
      }
      for (unsigned context = kArrayContexts; context-- > 0;) {
        expect_messages(side.channel.receive(context, 0, kEach), array_of(context), context, 0,
                        !first, 0, kEach);
        side.channel.close(context);
      }
      for (unsigned context = kContexts; context-- > 0;) {
        for (std::uint64_t i = 0; i < kEach; i += 10)
          expect_message(side.channel.channel().receive(context), 10 * i, context);
      }
    };
  };
  run(body(true), body(false));
}

// Sides that only send, far more than there are receives, and read afterwards.
TEST_P(PlannedMessages, SendingWithoutReceivingDoesNotDeadlock) {
  const MessageArray array{.base_bytes = 0, .message_bytes = 4, .count = 20'000};
  const auto body = [&](bool first) {
    return [&, first](PlannedSide& side) {
      side.channel.open(2, array);
      // Backwards, so that nothing is merged.
      for (std::uint64_t i = array.count; i-- > 0;)
        side.channel.send(2, i, messages(array, 2, 0, first, i, 1));
      expect_messages(side.channel.receive(2, 0, array.count), array, 2, 0, !first, 0, array.count);
      side.channel.close(2);
      EXPECT_EQ(side.channel.channel().stats().planned_writes, array.count);
    };
  };
  run(body(true), body(false));
}

// The race that planned memory has without epochs: the receiver still reads the old array when the
// sender is already sending the next one, which reuses the memory in another context.
TEST_P(PlannedMessages, SenderWaitsUntilASlowReaderHasClosed) {
  const std::size_t rounds = scaled(30);
  const MessageArray array{.base_bytes = 128, .message_bytes = 64, .count = 500};
  run(
      [&](PlannedSide& side) {
        MessageArray outgoing = array;
        outgoing.incoming = 0;
        for (std::uint64_t round = 0; round < rounds; ++round) {
          const auto context = static_cast<unsigned>(round % 3);
          const auto bytes = messages(array, context, round, true, 0, array.count);
          side.channel.open(context, outgoing);
          // The other side holds the last array until it hears that this one tried to send.
          if (round > 0) {
            EXPECT_EQ(side.channel.try_send(context, 0, bytes), 0u);
            side.peer.tell("tried");
          }
          side.channel.send(context, 0, bytes);
          side.channel.close(context);
        }
      },
      [&](PlannedSide& side) {
        for (std::uint64_t round = 0; round < rounds; ++round) {
          const auto context = static_cast<unsigned>(round % 3);
          side.channel.open(context, array);
          const auto bytes = side.channel.receive(context, 0, array.count);
          if (round + 1 < rounds) side.peer.hear("tried");
          expect_messages(bytes, array, context, round, true, 0, array.count);
          side.channel.close(context);
        }
      });
}

// Where processes share memory; elsewhere a sender that sleeps looks now and then.
TEST(PlannedOpen, WakesASenderThatSleeps) {
  LinkPair both(link_settings("shm", "planned"), link_settings("shm", "planned"));
  Transport& sender = *both.active.get().transport;
  PlannedTransport& to = *sender.facts().arrays;
  PlannedTransport& from = *both.passive.get().transport->facts().arrays;
  const auto is_woken = [&] {
    pollfd event{sender.event_fd(Side::kSend), POLLIN, 0};
    return poll(&event, 1, 0) == 1;
  };
  for (const Context context : {0U, 3U, 15U}) {
    const MessageArray array{.base_bytes = 64 * context, .message_bytes = 8, .count = 1};
    to.open(context, array);
    sender.arm(Side::kSend);
    EXPECT_FALSE(to.peer_is_open(context));
    EXPECT_FALSE(is_woken());
    from.open(context, array);
    EXPECT_FALSE(is_woken());
    EXPECT_TRUE(from.try_tell(context));
    EXPECT_TRUE(is_woken());
    EXPECT_TRUE(to.peer_is_open(context));
  }
}

TEST_P(PlannedMessages, SendWaitsForTheEpochOfTheSameContext) {
  const MessageArray array{.base_bytes = 0, .message_bytes = 8, .count = 4};
  run(
      [&](PlannedSide& side) {
        for (std::uint64_t round = 0; round < 2; ++round) {
          side.channel.open(0, {.base_bytes = 0, .message_bytes = 8, .count = 4, .incoming = 0});
          if (round == 1) {
            EXPECT_EQ(side.channel.try_send(0, 0, messages(array, 0, round, true, 0, 4)), 0u);
            side.peer.tell("tried");
          }
          side.channel.send(0, 0, messages(array, 0, round, true, 0, 4));
          side.channel.close(0);
        }
        side.channel.flush();
        side.peer.tell("sent");
      },
      [&](PlannedSide& side) {
        side.channel.open(0, array);
        expect_messages(side.channel.receive(0, 0, 4), array, 0, 0, true, 0, 4);
        side.peer.hear("tried");
        expect_messages(side.channel.receive(0, 0, 4), array, 0, 0, true, 0, 4);
        side.channel.close(0);
        side.channel.open(0, array);
        expect_messages(side.channel.receive(0, 0, 4), array, 0, 1, true, 0, 4);
        side.channel.close(0);
        side.peer.hear("sent");
      });
}

}  // namespace
}  // namespace leat::detail

// PlannedChannel: message arrays over the planned transport, on each device, between threads and
// between processes.
#include "leat/planned.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/channel_side.h"

namespace leat::detail {
namespace {

constexpr std::size_t kRegionBytes = 256 * 1024;

std::vector<ChannelKind> planned_kinds() {
  std::vector<ChannelKind> kinds = channel_kinds();
  std::erase_if(kinds, [](const ChannelKind& kind) { return kind.transport != "planned"; });
  return kinds;
}

struct PlannedSide {
  Peer& peer;
  PlannedChannel channel;
};
using PlannedBody = std::function<void(PlannedSide&)>;

class Planned : public ChannelTest {
 protected:
  static void choose(Options& options) { options.planned_bytes = kRegionBytes; }

  void run(const PlannedBody& first, const PlannedBody& second,
           ChannelSetup setup = {.first_options = choose, .second_options = choose}) const {
    const auto over = [](const PlannedBody& body) {
      return [&body](ChannelSide& side) {
        PlannedSide planned{side.peer, PlannedChannel(std::move(side.channel))};
        body(planned);
        side.channel = std::move(planned.channel.channel());  // closed when both have returned
      };
    };
    ChannelTest::run(over(first), over(second), setup);
  }
};

// The bytes of messages [index, index + count) in round `round` of a context, sent by that side.
std::vector<std::byte> messages(const MessageArray& array, unsigned context, std::uint64_t round,
                                bool first_side, std::uint64_t index, std::uint64_t count) {
  std::vector<std::byte> bytes(array.message_bytes * count);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t seed = ((round * kContexts + context) * 2 + (first_side ? 1 : 0)) << 32;
    fill_pattern(std::span(bytes).subspan(i * array.message_bytes, array.message_bytes),
                 seed + index + i);
  }
  return bytes;
}

void expect_messages(std::span<const std::byte> bytes, const MessageArray& array, unsigned context,
                     std::uint64_t round, bool first_side, std::uint64_t index,
                     std::uint64_t count) {
  ASSERT_EQ(bytes.size(), array.message_bytes * count);
  const auto expected = messages(array, context, round, first_side, index, count);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), expected.begin()))
      << count << " messages from " << index << " of context " << context << ", round " << round;
}

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

TEST_P(Planned, EachMessageLiesWhereTheEquationSays) {
  const MessageArray array{.base_bytes = 4096, .message_bytes = 24, .count = 10};
  const auto body = [&](bool first) {
    return [&, first](PlannedSide& side) {
      EXPECT_EQ(side.channel.region_bytes(), kRegionBytes);
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

TEST_P(Planned, AnyOrderAnyCutsManyRoundsBothWays) {
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
        array.base_bytes = shapes() % ((kRegionBytes - 400 * 300) / 64) * 64;
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

TEST_P(Planned, NeighboursAreMergedIntoOneWrite) {
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
TEST_P(Planned, LargeSendsAreCutAtMessages) {
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
TEST_P(Planned, LargeArraysBesideSmallOnesInOnePage) {
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

TEST_P(Planned, SixteenArraysLiveAtOnceBesideOrdinaryMessages) {
  const auto array_of = [](unsigned context) {
    return MessageArray{.base_bytes = context * 4096, .message_bytes = 1 + context, .count = 200};
  };
  const auto body = [&](bool first) {
    return [&, first](PlannedSide& side) {
      for (unsigned context = 0; context < kContexts; ++context)
        side.channel.open(context, array_of(context));
      expect_error(ErrorCode::kInvalidArgument,
                   [&] { side.channel.open(kContexts, array_of(kContexts)); });
      for (std::uint64_t i = 0; i < 200; ++i) {
        for (unsigned context = 0; context < kContexts; ++context) {
          side.channel.send(context, i, messages(array_of(context), context, 0, first, i, 1));
          if (i % 50 == 0) send_pattern(side.channel.channel(), 10 * i, context, context);
        }
      }
      for (unsigned context = kContexts; context-- > 0;) {
        expect_messages(side.channel.receive(context, 0, 200), array_of(context), context, 0,
                        !first, 0, 200);
        for (std::uint64_t i = 0; i < 200; i += 50)
          expect_message(side.channel.channel().receive(context), 10 * i, context);
        side.channel.close(context);
      }
    };
  };
  run(body(true), body(false));
}

// Sides that only send, far more than there are receives, and read afterwards.
TEST_P(Planned, SendingWithoutReceivingDoesNotDeadlock) {
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
TEST_P(Planned, SenderWaitsUntilASlowReaderHasClosed) {
  const std::size_t rounds = scaled(30);
  const MessageArray array{.base_bytes = 128, .message_bytes = 64, .count = 500};
  run(
      [&](PlannedSide& side) {
        MessageArray outgoing = array;
        outgoing.incoming = 0;
        for (std::uint64_t round = 0; round < rounds; ++round) {
          const auto context = static_cast<unsigned>(round % 3);
          side.channel.open(context, outgoing);
          side.channel.send(context, 0, messages(array, context, round, true, 0, array.count));
          side.channel.close(context);
        }
      },
      [&](PlannedSide& side) {
        for (std::uint64_t round = 0; round < rounds; ++round) {
          const auto context = static_cast<unsigned>(round % 3);
          side.channel.open(context, array);
          const auto bytes = side.channel.receive(context, 0, array.count);
          if (round % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
          for (int look = 0; look < 3; ++look)
            expect_messages(bytes, array, context, round, true, 0, array.count);
          side.channel.close(context);
        }
      });
}

TEST_P(Planned, SendWaitsForTheEpochOfTheSameContext) {
  const MessageArray array{.base_bytes = 0, .message_bytes = 8, .count = 4};
  run(
      [&](PlannedSide& side) {
        for (std::uint64_t round = 0; round < 2; ++round) {
          side.channel.open(0, {.base_bytes = 0, .message_bytes = 8, .count = 4, .incoming = 0});
          side.channel.send(0, 0, messages(array, 0, round, true, 0, 4));
          side.channel.close(0);
        }
        side.channel.flush();
        side.peer.tell("sent");
      },
      [&](PlannedSide& side) {
        side.channel.open(0, array);
        expect_messages(side.channel.receive(0, 0, 4), array, 0, 0, true, 0, 4);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        EXPECT_FALSE(side.peer.has_word());
        expect_messages(side.channel.receive(0, 0, 4), array, 0, 0, true, 0, 4);
        side.channel.close(0);
        side.channel.open(0, array);
        expect_messages(side.channel.receive(0, 0, 4), array, 0, 1, true, 0, 4);
        side.channel.close(0);
        side.peer.hear("sent");
      });
}

TEST_P(Planned, TimesOutWhileThePeerDoesNotOpenOrSend) {
  const MessageArray array{.base_bytes = 0, .message_bytes = 8, .count = 4};
  const auto hurry = [](Options& options) {
    choose(options);
    options.timeout = std::chrono::milliseconds(30);
  };
  run(
      [&](PlannedSide& side) {
        side.peer.barrier();
        side.channel.open(0, array);
        side.channel.send(0, 0, messages(array, 0, 0, true, 0, 4));
        side.channel.flush();
      },
      [&](PlannedSide& side) {
        side.channel.open(0, array);
        const std::vector<std::byte> bytes(8);
        expect_error(ErrorCode::kTimeout, [&] { side.channel.send(0, 0, bytes); });
        expect_error(ErrorCode::kTimeout, [&] { (void)side.channel.reserve(0, 0); });
        expect_error(ErrorCode::kTimeout, [&] { (void)side.channel.receive(0, 0); });
        expect_error(ErrorCode::kTimeout, [&] { side.channel.close(0); });
        EXPECT_TRUE(side.channel.is_open(0));
        side.peer.barrier();
        expect_messages(side.channel.receive(0, 0, 4), array, 0, 0, true, 0, 4);
        side.channel.close(0);
      },
      {.first_options = choose, .second_options = hurry});
}

TEST_P(Planned, WrongCallsAreRefusedAndTheConnectionGoesOn) {
  const MessageArray array{.base_bytes = 0, .message_bytes = 8, .count = 4};
  const auto body = [&](bool first) {
    return [&, first](PlannedSide& side) {
      const auto refused = [](const std::function<void()>& call) {
        expect_error(ErrorCode::kInvalidArgument, call);
      };
      const std::vector<std::byte> bytes(16);
      PlannedChannel& channel = side.channel;
      refused([&] { channel.send(0, 0, bytes); });
      refused([&] { (void)channel.receive(0, 0); });
      refused([&] { (void)channel.try_receive(99, 0); });
      refused([&] { channel.close(0); });
      refused([&] { channel.open(0, {}); });
      refused([&] { channel.open(0, {.base_bytes = 8, .message_bytes = 8, .count = 4}); });
      refused(
          [&] { channel.open(0, {.base_bytes = kRegionBytes, .message_bytes = 8, .count = 1}); });
      channel.open(0, array);
      refused([&] { channel.open(0, array); });
      refused([&] { channel.open(1, array); });  // the same memory
      refused([&] { channel.send(0, 4, std::span(bytes).first(8)); });
      refused([&] { channel.send(0, 3, bytes); });
      refused([&] { channel.send(0, 0, std::span(bytes).first(9)); });
      refused([&] { channel.send(0, 0, {}); });
      refused([&] { (void)channel.reserve(0, 0, 5); });
      refused([&] { (void)channel.reserve(0, 0, 0); });
      refused([&] { channel.commit(); });
      refused([&] { (void)channel.receive(0, 0, 5); });
      refused([&] { (void)channel.receive(0, 4); });
      (void)channel.reserve(0, 0, 4);  // dropped by its close
      channel.send(0, 0, messages(array, 0, 0, first, 0, 4));
      expect_messages(channel.receive(0, 0, 4), array, 0, 0, !first, 0, 4);
      channel.close(0);
      refused([&] { channel.commit(); });
      refused([&] { (void)channel.receive(0, 0); });
      channel.channel().close();
      expect_error(ErrorCode::kClosed, [&] { channel.open(0, array); });
    };
  };
  run(body(true), body(false));
}

// What the peer does wrong is said on this side; nothing hangs, and the connection is dead.
TEST_P(Planned, AMessageThatComesTwiceEndsTheConnection) {
  const MessageArray array{.base_bytes = 0, .message_bytes = 8, .count = 4};
  run(
      [&](PlannedSide& side) {
        side.channel.open(0, array);
        expect_error(ErrorCode::kProtocol, [&] { (void)side.channel.receive(0, 0, 4); });
        expect_error(ErrorCode::kPeerDied, [&] { (void)side.channel.receive(0, 3); });
        expect_error(ErrorCode::kPeerDied, [&] { side.channel.close(0); });
        side.peer.tell("seen");
      },
      [&](PlannedSide& side) {
        side.channel.open(0, array);
        side.channel.send(0, 0, messages(array, 0, 0, false, 0, 2));
        side.channel.send(0, 1, messages(array, 0, 0, false, 1, 1));
        side.channel.flush();
        side.peer.hear("seen");
      });
}

TEST_P(Planned, MoreMessagesThanWereToComeEndTheConnection) {
  const MessageArray array{.base_bytes = 0, .message_bytes = 8, .count = 4};
  run(
      [&](PlannedSide& side) {
        side.channel.open(0, {.base_bytes = 0, .message_bytes = 8, .count = 4, .incoming = 2});
        expect_error(ErrorCode::kProtocol, [&] { (void)side.channel.receive(0, 2, 2); });
        side.peer.tell("seen");
      },
      [&](PlannedSide& side) {
        side.channel.open(0, array);
        side.channel.send(0, 0, messages(array, 0, 0, false, 0, 3));
        side.channel.flush();
        side.peer.hear("seen");
      });
}

TEST_P(Planned, SendingAfterThePeerHasClosedTheArrayIsAnError) {
  const MessageArray array{.base_bytes = 0, .message_bytes = 8, .count = 4};
  run(
      [&](PlannedSide& side) {
        side.channel.open(0, array);
        side.peer.barrier();
        expect_error(ErrorCode::kProtocol,
                     [&] { side.channel.send(0, 0, std::vector<std::byte>(8)); });
      },
      [&](PlannedSide& side) {
        for (int i = 0; i < 2; ++i) {
          side.channel.open(0, {.base_bytes = 0, .message_bytes = 8, .count = 4, .incoming = 0});
          side.channel.close(0);
        }
        side.channel.channel().flush();
        side.peer.barrier();
      });
}

TEST_P(Planned, AnOrderlyEndWakesWhoeverWaitsForMore) {
  const MessageArray array{.base_bytes = 0, .message_bytes = 8, .count = 4};
  run(
      [&](PlannedSide& side) {
        side.channel.open(0, array);
        expect_error(ErrorCode::kPeerDied, [&] { (void)side.channel.receive(0, 0, 4); });
        expect_messages(side.channel.receive(0, 0, 3), array, 0, 0, false, 0, 3);
        expect_error(ErrorCode::kPeerDied, [&] { (void)side.channel.try_receive(0, 3); });
        expect_error(ErrorCode::kPeerDied, [&] { side.channel.close(0); });
      },
      [&](PlannedSide& side) {
        side.channel.open(0, array);
        side.channel.send(0, 0, messages(array, 0, 0, false, 0, 3));
        side.channel.channel().shutdown();  // takes along what is pending
        expect_error(ErrorCode::kClosed,
                     [&] { side.channel.send(0, 3, std::vector<std::byte>(8)); });
      });
}

TEST_P(Planned, DroppedChannelStillDeliversWhatIsPending) {
  const MessageArray array{.base_bytes = 0, .message_bytes = 8, .count = 4};
  run(
      [&](PlannedSide& side) {
        side.channel.open(0, array);
        side.peer.tell("open");
        expect_messages(side.channel.receive(0, 0, 4), array, 0, 0, false, 0, 4);
      },
      [&](PlannedSide& side) {
        side.peer.hear("open");
        side.channel.open(0, array);
        side.channel.send(0, 0, messages(array, 0, 0, false, 0, 4));
        const PlannedChannel dropped = std::move(side.channel);
      });
}

// --- Peers that are killed. Waits are with sleeping and with spinning.

class PlannedDeath : public Planned {
 protected:
  void survive(const std::function<void(PlannedChannel&)>& survivor,
               const std::function<void(PlannedChannel&)>& victim) const {
    for (const int spin_us : {0, 50, -1}) {
      const auto options = [&](Options& o) {
        choose(o);
        o.spin = std::chrono::microseconds(spin_us);
      };
      run(
          [&](PlannedSide& side) {
            side.peer.hear("now");
            side.peer.kill_other();
            expect_error(ErrorCode::kPeerDied, [&] { survivor(side.channel); });
          },
          [&](PlannedSide& side) {
            victim(side.channel);
            side.peer.tell("now");
            for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
          },
          {.first_options = options,
           .second_options = options,
           .second_ends = SecondEnds::kBySignal});
    }
  }

  const MessageArray array_{.base_bytes = 0, .message_bytes = 8, .count = 4};
};

TEST_P(PlannedDeath, WakesReceive) {
  survive(
      [&](PlannedChannel& channel) {
        channel.open(0, array_);
        (void)channel.receive(0, 1);
      },
      [&](PlannedChannel& channel) { channel.open(0, array_); });
}

TEST_P(PlannedDeath, WakesClose) {
  survive(
      [&](PlannedChannel& channel) {
        channel.open(0, array_);
        channel.close(0);
      },
      [](PlannedChannel&) {});
}

TEST_P(PlannedDeath, WakesASenderThatWaitsForTheArray) {
  survive(
      [&](PlannedChannel& channel) {
        channel.open(0, array_);
        channel.send(0, 0, std::vector<std::byte>(8));
      },
      [](PlannedChannel&) {});
}

TEST_P(PlannedDeath, WakesASenderThatWaitsForRoom) {
  const MessageArray array{.base_bytes = 0, .message_bytes = 1, .count = 100'000};
  survive(
      [&](PlannedChannel& channel) {
        channel.open(0, array);
        for (std::uint64_t i = array.count; i-- > 0;) channel.send(0, i, std::vector<std::byte>(1));
        channel.channel().flush();
      },
      [&](PlannedChannel& channel) { channel.open(0, array); });
}

// --- Connecting

class PlannedConnect : public testing::TestWithParam<ChannelKind> {
 protected:
  // What connecting says if the two sides have such options. EXPECTs that it throws, and that the
  // listener still serves a peer with equal ones.
  static std::string refusal(const std::function<void(Options&)>& client,
                             const std::function<void(Options&)>& server) {
    Options server_options = channel_options(GetParam());
    server(server_options);
    Listener listener(listening_address(GetParam()), server_options);
    std::string said;
    std::thread connecting([&] {
      Options options = channel_options(GetParam());
      client(options);
      try {
        Channel::connect(listener.address(), options);
        ADD_FAILURE() << "connected";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
        said = error.what();
      }
      Channel::connect(listener.address(), server_options).send("hello");
    });
    Channel accepted = listener.accept();
    EXPECT_EQ(accepted.receive().text(), "hello");
    connecting.join();
    return said;
  }
};

TEST_P(PlannedConnect, DifferentPlansAreRefusedWithBothDigests) {
  const auto said = refusal([](Options& options) { options.plan_digest = "00FFee"; },
                            [](Options& options) { options.plan_digest = "00ffef"; });
  EXPECT_NE(said.find("00ffee"), std::string::npos) << said;
  EXPECT_NE(said.find("00ffef"), std::string::npos) << said;
}

TEST_P(PlannedConnect, APlanAndNoneAreDifferent) {
  const auto said = refusal([](Options&) {},
                            [](Options& options) { options.plan_digest = std::string(64, 'a'); });
  EXPECT_NE(said.find(std::string(64, 'a')), std::string::npos) << said;
  EXPECT_NE(said.find("none"), std::string::npos) << said;
}

TEST_P(PlannedConnect, DifferentRegionsAreRefusedWithBothSizes) {
  const auto said = refusal([](Options& options) { options.planned_bytes = 4096; },
                            [](Options& options) { options.planned_bytes = 8192; });
  EXPECT_NE(said.find("4096"), std::string::npos) << said;
  EXPECT_NE(said.find("8192"), std::string::npos) << said;
}

TEST_P(PlannedConnect, ArraysNeedThePlannedTransport) {
  ChannelKind ring = GetParam();
  ring.transport = "ring";
  Listener listener(listening_address(ring), channel_options(ring));
  std::thread connecting([&] {
    Channel channel = Channel::connect(listener.address(), channel_options(ring));
    expect_error(ErrorCode::kInvalidArgument, [&] { PlannedChannel{std::move(channel)}; });
  });
  const Channel accepted = listener.accept();
  connecting.join();
}

INSTANTIATE_TEST_SUITE_P(Channels, Planned,
                         testing::Combine(testing::ValuesIn(planned_kinds()),
                                          testing::Values(PeerMode::kThreads,
                                                          PeerMode::kProcesses)),
                         channel_test_name);
INSTANTIATE_TEST_SUITE_P(Channels, PlannedDeath,
                         testing::Combine(testing::ValuesIn(planned_kinds()),
                                          testing::Values(PeerMode::kProcesses)),
                         channel_test_name);
INSTANTIATE_TEST_SUITE_P(Channels, PlannedConnect, testing::ValuesIn(planned_kinds()),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace leat::detail

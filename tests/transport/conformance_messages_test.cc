// What channels promise about messages, on every transport.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/channel_side.h"
#include "transport/table.h"

namespace leat::detail {
namespace {

class ChannelMessages : public ChannelTest {
 protected:
  // Each size there and back.
  void expect_sizes(const std::function<std::vector<std::size_t>(const Channel&)>& sizes_of,
                    unsigned context) {
    run(
        [&](ChannelSide& side) {
          std::uint64_t seed = 0;
          for (const std::size_t bytes : sizes_of(side.channel)) {
            SCOPED_TRACE(std::to_string(bytes) + " bytes");
            send_pattern(side.channel, bytes, ++seed, context);
            expect_message(side.channel.receive(context), bytes, seed + 1000);
          }
        },
        [&](ChannelSide& side) {
          std::uint64_t seed = 0;
          for (const std::size_t bytes : sizes_of(side.channel)) {
            SCOPED_TRACE(std::to_string(bytes) + " bytes");
            expect_message(side.channel.receive(context), bytes, ++seed);
            send_pattern(side.channel, bytes, seed + 1000, context);
          }
        });
  }
};

TEST_P(ChannelMessages, EverySmallSizeArrivesIntact) {
  expect_sizes(
      [](const Channel&) {
        std::vector<std::size_t> sizes(300);
        for (std::size_t i = 0; i < sizes.size(); ++i) sizes[i] = i;
        return sizes;
      },
      0);
}

TEST_P(ChannelMessages, SizesAroundPagesAndLimitsArriveIntact) {
  const auto sizes_of = [](const Channel& channel) {
    std::vector<std::size_t> sizes{4095, 4096, 4097, 65'535, 65'536, 65'537, kMiB - 1, kMiB};
    const std::size_t in_place = channel.max_in_place_bytes(7);
    for (const std::size_t bytes :
         {in_place - 64, in_place - 1, in_place, in_place + 1, in_place + 64, 2 * in_place,
          2 * in_place + 1, 5 * in_place + 77}) {
      sizes.push_back(bytes);
    }
    return sizes;
  };
  expect_sizes(sizes_of, 7);
  expect_sizes(sizes_of, 0);
}

TEST_P(ChannelMessages, ManyMebibytesArriveIntact) {
  // At least twice a ring.
  const std::size_t bytes = std::max<std::size_t>(scaled(16), 8) * kMiB;
  expect_sizes([&](const Channel&) { return std::vector{bytes, bytes + 1}; }, 3);
}

TEST_P(ChannelMessages, TextIsTheBytes) {
  run(
      [](ChannelSide& side) {
        side.channel.send("hello");
        side.channel.send("");
        side.channel.send(std::string_view("a\0b", 3), 15);
      },
      [](ChannelSide& side) {
        EXPECT_EQ(side.channel.receive().text(), "hello");
        const Message empty = side.channel.receive();
        EXPECT_TRUE(empty);
        EXPECT_EQ(empty.text(), "");
        const Message zero = side.channel.receive(15);
        EXPECT_EQ(zero.text(), std::string_view("a\0b", 3));
        EXPECT_EQ(zero.context(), 15u);
      });
}

// The reader takes the contexts in another order than the sender: order holds within each.
TEST_P(ChannelMessages, ContextsKeepTheirOrderWhateverTheReaderTakesFirst) {
  static constexpr int kRounds = 4;
  static constexpr std::size_t kPerContext = 60;
  const auto bytes_of = [](unsigned context, std::size_t i) {
    return (i * 37 + context * 11) % 400;
  };
  const auto shuffled = [](std::uint64_t seed) {
    std::vector<unsigned> contexts;
    for (unsigned i = 0; i < kContexts * kPerContext; ++i) contexts.push_back(i % kContexts);
    std::mt19937_64 random(seed);
    std::ranges::shuffle(contexts, random);
    return contexts;
  };
  const auto for_each = [&](std::uint64_t seed, const auto& action) {
    std::array<std::size_t, kContexts> next{};
    for (const unsigned context : shuffled(seed)) {
      const std::size_t i = next[context]++;
      action(context, bytes_of(context, i), context * 1000 + i);
    }
  };
  run(
      [&](ChannelSide& side) {
        for (int round = 0; round < kRounds; ++round) {
          for_each(round, [&](unsigned context, std::size_t bytes, std::uint64_t seed) {
            send_pattern(side.channel, bytes, seed, context);
          });
          side.peer.barrier();
        }
      },
      [&](ChannelSide& side) {
        for (int round = 0; round < kRounds; ++round) {
          for_each(round + 100, [&](unsigned context, std::size_t bytes, std::uint64_t seed) {
            const Message message = side.channel.receive(context);
            EXPECT_EQ(message.context(), context);
            expect_message(message, bytes, seed);
          });
          side.peer.barrier();
        }
      });
}

TEST_P(ChannelMessages, LargeMessagesOfSeveralContextsInterleave) {
  const std::size_t bytes = 3 * kMiB + 5;
  run(
      [&](ChannelSide& side) {
        std::array<std::vector<std::byte>, 3> messages;
        for (std::size_t i = 0; i < messages.size(); ++i) {
          messages[i].resize(bytes + i);
          fill_pattern(messages[i], i);
        }
        std::array<bool, 3> sent{};
        const Deadline deadline = hang_deadline();
        while (!(sent[0] && sent[1] && sent[2]) && !passed(deadline)) {
          for (unsigned i = 0; i < 3; ++i) {
            if (!sent[i]) sent[i] = side.channel.try_send(messages[i], i + 5);
          }
        }
        send_pattern(side.channel, 10, 99, 6);
      },
      [&](ChannelSide& side) {
        std::array<bool, 3> received{};
        const Deadline deadline = hang_deadline();
        while (!(received[0] && received[1] && received[2]) && !passed(deadline)) {
          for (unsigned i = 0; i < 3; ++i) {
            if (received[i]) continue;
            if (const auto message = side.channel.try_receive(i + 5)) {
              expect_message(*message, bytes + i, i);
              received[i] = true;
            }
          }
        }
        expect_message(side.channel.receive(6), 10, 99);
      });
}

TEST_P(ChannelMessages, MovedMessagesKeepTheirBytes) {
  const std::vector<std::size_t> sizes{2 * kMiB, 0, 1, 8, 40, 47, 48, 49, 64, 65, 100, 5000};
  run(
      [&](ChannelSide& side) {
        for (const std::size_t bytes : sizes) send_pattern(side.channel, bytes, bytes);
      },
      [&](ChannelSide& side) {
        std::deque<Message> kept;
        for (const std::size_t bytes : sizes) {
          Message received = side.channel.receive();
          Message constructed(std::move(received));
          EXPECT_FALSE(received);
          EXPECT_EQ(received.size(), 0u);
          expect_message(constructed, bytes, bytes);
          Message assigned;
          assigned = std::move(constructed);
          EXPECT_FALSE(constructed);
          expect_message(assigned, bytes, bytes);
          Message& itself = assigned;
          assigned = std::move(itself);
          expect_message(assigned, bytes, bytes);
          kept.push_back(std::move(assigned));
        }
        for (std::size_t i = 0; i < sizes.size(); ++i) expect_message(kept[i], sizes[i], sizes[i]);
      });
}

TEST_P(ChannelMessages, ReleasedMessageIsEmpty) {
  run(
      [](ChannelSide& side) {
        side.channel.send(
            "some text that is longer than a cache line is, "
            "so that it stays in the ring");
      },
      [](ChannelSide& side) {
        Message message = side.channel.receive();
        message.release();
        EXPECT_FALSE(message);
        EXPECT_EQ(message.size(), 0u);
        message.release();
      });
}

// Held messages stay intact while others come and go, and may be given back in any order. Enough
// passes to go round the rings several times; none is held longer than a few rounds, because space
// comes back in order.
TEST_P(ChannelMessages, HeldMessagesStayIntactAndAreReleasedInAnyOrder) {
  const std::size_t rounds = scaled(300);
  static constexpr std::size_t kPerRound = 20;
  const auto bytes_of = [](std::size_t i) { return (i * 977) % 1000; };
  run(
      [&](ChannelSide& side) {
        for (std::size_t i = 0; i < rounds * kPerRound; ++i) {
          send_pattern(side.channel, bytes_of(i), i, 4);
        }
      },
      [&](ChannelSide& side) {
        std::mt19937_64 random(3);
        std::vector<std::pair<std::size_t, Message>> held;
        std::size_t next = 0;
        for (std::size_t round = 0; round < rounds; ++round) {
          for (std::size_t i = 0; i < kPerRound / 2; ++i, ++next) {
            held.emplace_back(next, side.channel.receive(4));
          }
          for (std::size_t i = 0; i < kPerRound / 2; ++i, ++next) {
            expect_message(side.channel.receive(4), bytes_of(next), next);
          }
          std::ranges::shuffle(held, random);
          for (const auto& [number, message] : held) {
            expect_message(message, bytes_of(number), number);
          }
          // Some stay for the next round.
          held.erase(held.begin() + static_cast<std::ptrdiff_t>(held.size() / 3), held.end());
          std::erase_if(held, [&](const auto& one) { return one.first + 2 * kPerRound < next; });
        }
      });
}

TEST_P(ChannelMessages, MessagesMayOutliveTheirChannel) {
  const std::vector<std::size_t> sizes{2 * kMiB, 0, 10, 48, 49, 1000, 20'000};
  run(
      [&](ChannelSide& side) {
        for (const std::size_t bytes : sizes) send_pattern(side.channel, bytes, bytes);
        side.peer.hear("received");
      },
      [&](ChannelSide& side) {
        std::vector<Message> kept;
        for (std::size_t i = 0; i < sizes.size(); ++i) kept.push_back(side.channel.receive());
        side.peer.tell("received");
        { const Channel moved = std::move(side.channel); }
        for (std::size_t i = 0; i < sizes.size(); ++i) expect_message(kept[i], sizes[i], sizes[i]);
        std::swap(kept.front(), kept.back());
      });
}

TEST_P(ChannelMessages, ReservedMemoryIsSentByCommitAsFarAsItWasFilled) {
  const std::size_t count = scaled(5000);
  const auto plan = [](std::size_t i) {
    std::mt19937_64 random(i);
    const std::size_t reserved = random() % (i % 10 == 0 ? 16'384 : 500);
    const std::size_t committed = i % 3 == 0 ? reserved : random() % (reserved + 1);
    return std::pair(reserved, committed);
  };
  run(
      [&](ChannelSide& side) {
        ASSERT_GE(side.channel.max_in_place_bytes(1), 16'384u);
        for (std::size_t i = 0; i < count; ++i) {
          const auto [reserved, committed] = plan(i);
          const auto memory = side.channel.reserve(reserved, 1);
          ASSERT_EQ(memory.size(), reserved);
          ASSERT_NE(memory.data(), nullptr);
          fill_pattern(memory.first(committed), i);
          side.channel.commit(committed);
        }
      },
      [&](ChannelSide& side) {
        for (std::size_t i = 0; i < count; ++i) {
          SCOPED_TRACE(i);
          expect_message(side.channel.receive(1), plan(i).second, i);
        }
      });
}

TEST_P(ChannelMessages, ReservationOfTheWholePlaceAndOfNothingWork) {
  run(
      [](ChannelSide& side) {
        for (unsigned context : {0u, 9u}) {
          for (int i = 0; i < 20; ++i) {
            const auto memory =
                side.channel.reserve(side.channel.max_in_place_bytes(context), context);
            fill_pattern(memory, i);
            side.channel.commit(memory.size());
            (void)side.channel.reserve(0, context);
            side.channel.commit(0);
          }
        }
      },
      [](ChannelSide& side) {
        for (unsigned context : {0u, 9u}) {
          for (int i = 0; i < 20; ++i) {
            expect_message(side.channel.receive(context), side.channel.max_in_place_bytes(context),
                           i);
            expect_message(side.channel.receive(context), 0, 0);
          }
        }
      });
}

TEST_P(ChannelMessages, AbandonedReservationSendsNothing) {
  run(
      [](ChannelSide& side) {
        for (int i = 0; i < 10; ++i) {
          const auto memory = side.channel.reserve(1000, 2);
          fill_pattern(memory, 777);
          side.channel.abandon();
          send_pattern(side.channel, 500, i, 2);
        }
        side.channel.abandon();
      },
      [](ChannelSide& side) {
        for (int i = 0; i < 10; ++i) expect_message(side.channel.receive(2), 500, i);
      });
}

TEST_P(ChannelMessages, OtherContextsMaySendDuringAReservation) {
  run(
      [](ChannelSide& side) {
        const auto memory = side.channel.reserve(1000, 2);
        send_pattern(side.channel, 300, 1, 3);
        fill_pattern(memory, 2);
        side.channel.commit(1000);
      },
      [](ChannelSide& side) {
        expect_message(side.channel.receive(3), 300, 1);
        expect_message(side.channel.receive(2), 1000, 2);
      });
}

TEST_P(ChannelMessages, MisusedReservationsAreErrors) {
  run(
      [](ChannelSide& side) {
        Channel& channel = side.channel;
        expect_error(ErrorCode::kInvalidArgument, [&] { channel.commit(0); });
        expect_error(ErrorCode::kTooLarge,
                     [&] { (void)channel.reserve(channel.max_in_place_bytes(1) + 1, 1); });
        (void)channel.reserve(100, 1);
        expect_error(ErrorCode::kInvalidArgument, [&] { channel.commit(101); });
        expect_error(ErrorCode::kInvalidArgument, [&] { (void)channel.reserve(10, 2); });
        channel.abandon();
        expect_error(ErrorCode::kInvalidArgument, [&] { channel.commit(10); });
        send_pattern(channel, 64, 5, 1);
      },
      [](ChannelSide& side) { expect_message(side.channel.receive(1), 64, 5); });
}

TEST_P(ChannelMessages, MessageAboveTheSmallerLimitIsTooLarge) {
  run(
      [](ChannelSide& side) {
        EXPECT_EQ(side.channel.max_message_bytes(), kMiB);
        std::vector<std::byte> message(kMiB + 1);
        expect_error(ErrorCode::kTooLarge, [&] { side.channel.send(message, 1); });
        expect_error(ErrorCode::kTooLarge, [&] { (void)side.channel.try_send(message, 1); });
        send_pattern(side.channel, kMiB, 1, 1);
      },
      [](ChannelSide& side) {
        EXPECT_EQ(side.channel.max_message_bytes(), kMiB);
        expect_message(side.channel.receive(1), kMiB, 1);
      },
      {.first_options = [](Options& options) { options.max_message_bytes = 8 * kMiB; },
       .second_options = [](Options& options) { options.max_message_bytes = kMiB; }});
}

TEST_P(ChannelMessages, ContextAboveFifteenIsAnInvalidArgument) {
  run(
      [](ChannelSide& side) {
        Channel& channel = side.channel;
        for (const unsigned context : {16u, 17u, 255u, ~0u}) {
          expect_error(ErrorCode::kInvalidArgument, [&] { channel.send("x", context); });
          expect_error(ErrorCode::kInvalidArgument,
                       [&] { (void)channel.try_send(std::span<const std::byte>(), context); });
          expect_error(ErrorCode::kInvalidArgument, [&] { (void)channel.reserve(1, context); });
          expect_error(ErrorCode::kInvalidArgument, [&] { (void)channel.receive(context); });
          expect_error(ErrorCode::kInvalidArgument, [&] { (void)channel.try_receive(context); });
        }
        channel.send("still works", 15);
      },
      [](ChannelSide& side) { EXPECT_EQ(side.channel.receive(15).text(), "still works"); });
}

TEST_P(ChannelMessages, UseAfterCloseIsClosed) {
  run([](ChannelSide& side) { EXPECT_FALSE(side.channel.receive()); },
      [](ChannelSide& side) {
        Channel& channel = side.channel;
        channel.close();
        channel.close();
        expect_error(ErrorCode::kClosed, [&] { channel.send("x"); });
        expect_error(ErrorCode::kClosed,
                     [&] { (void)channel.try_send(std::span<const std::byte>()); });
        expect_error(ErrorCode::kClosed, [&] { (void)channel.reserve(1); });
        expect_error(ErrorCode::kClosed, [&] { (void)channel.receive(); });
        expect_error(ErrorCode::kClosed, [&] { (void)channel.try_receive(); });
        expect_error(ErrorCode::kClosed, [&] { channel.flush(); });
        expect_error(ErrorCode::kClosed, [&] { channel.shutdown(); });
      });
}

TEST_P(ChannelMessages, StatsCountPayloadMessagesAndRounds) {
  static constexpr std::uint64_t kCount = 40;
  const auto expect_stats = [](const Channel& channel) {
    const Stats stats = channel.stats();
    EXPECT_EQ(stats.sent_messages, kCount);
    EXPECT_EQ(stats.received_messages, kCount);
    EXPECT_EQ(stats.sent_bytes, kCount * 100);
    EXPECT_EQ(stats.received_bytes, kCount * 100);
    EXPECT_EQ(stats.flushes, 1u);
    EXPECT_EQ(stats.rnr_retries, 0u);
    EXPECT_EQ(stats.reassembled_messages, 0u);
    EXPECT_EQ(stats.fallbacks, 0u);
  };
  run(
      [&](ChannelSide& side) {
        for (std::uint64_t i = 0; i < kCount; ++i) {
          send_pattern(side.channel, 100, i);
          expect_message(side.channel.receive(), 100, i);
        }
        side.channel.flush();
        expect_stats(side.channel);
        EXPECT_EQ(side.channel.stats().rounds, kCount - 1);
      },
      [&](ChannelSide& side) {
        for (std::uint64_t i = 0; i < kCount; ++i) {
          expect_message(side.channel.receive(), 100, i);
          send_pattern(side.channel, 100, i);
        }
        side.channel.flush();
        expect_stats(side.channel);
        EXPECT_EQ(side.channel.stats().rounds, kCount);
      });
}

TEST_P(ChannelMessages, StatsCountReassembledMessages) {
  const auto bytes_of = [](const Channel& channel) { return channel.max_in_place_bytes() * 3; };
  run(
      [&](ChannelSide& side) {
        send_pattern(side.channel, bytes_of(side.channel), 1);
        side.channel.flush();
        EXPECT_EQ(side.channel.stats().sent_messages, 1u);
        EXPECT_EQ(side.channel.stats().sent_bytes, bytes_of(side.channel));
      },
      [&](ChannelSide& side) {
        expect_message(side.channel.receive(), bytes_of(side.channel), 1);
        EXPECT_EQ(side.channel.stats().received_messages, 1u);
        EXPECT_EQ(side.channel.stats().reassembled_messages, 1u);
      });
}

TEST_P(ChannelMessages, BothSidesNameTheSameConnection) {
  const auto body = [](ChannelSide& side) {
    side.peer.tell(side.channel.local_address());
    EXPECT_EQ(side.peer.hear(), side.channel.peer_address());
    EXPECT_NE(side.channel.description().find(side.channel.peer_address()), std::string::npos)
        << side.channel.description();
    EXPECT_NE(side.channel.description().find(side.channel.transport()), std::string::npos)
        << side.channel.description();
  };
  run_both(body);
}

LEAT_INSTANTIATE_CHANNEL_SUITE(ChannelMessages);
LEAT_INSTANTIATE_UNBUNDLED_SUITE(ChannelMessages);

// Each decorator over every transport; channel_kinds() has it over ring alone. A sanitizer sees
// them only where they are over each other, which runs the code of all of them.
std::vector<ChannelKind> decorated_over_all() {
  std::vector<Decoration> all = decorations();
  if (kSanitizer)
    all = {std::ranges::max(all, {}, [](const Decoration& one) { return one.prefix.size(); })};
  std::vector<ChannelKind> kinds;
  for (const Decoration& decoration : all)
    for (const TransportRow& row : transport_rows())
      kinds.push_back({decoration.prefix + row.name, row.rdma ? "shm" : "tcp"});
  return kinds;
}

LEAT_INSTANTIATE_SUITE(Decorated, ChannelMessages, decorated_over_all());

}  // namespace
}  // namespace leat::detail

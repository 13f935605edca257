// A poller over every device and transport: what it reports, and that it goes on reporting it.
#include "leat/poller.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "base/epoll.h"
#include "channel/channel_core.h"
#include "support/channel_side.h"
#include "support/pattern.h"
#include "support/scale.h"

namespace leat::detail {
namespace {

using std::chrono::nanoseconds;

constexpr std::uint64_t kToken = 0x1234'5678'9abc'def0;
constexpr nanoseconds kAtOnce{0};

// The events of a wait() that blocks until there are some, or it hangs.
std::vector<Event> wait_for_some(Poller& poller, std::size_t most = 16) {
  std::vector<Event> events(most);
  events.resize(poller.wait(events, hang_limit()));
  EXPECT_FALSE(events.empty()) << "the poller hangs";
  return events;
}

// EXPECTs one event.
Event next(Poller& poller, Events expected = Events::kReadable) {
  const auto events = wait_for_some(poller);
  if (events.empty()) return {};
  EXPECT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].events, expected);
  return events[0];
}

// EXPECTs that try_receive() has something in the event's context, as it says.
Message take(Channel& channel, const Event& event) {
  auto message = channel.try_receive(event.context);
  EXPECT_TRUE(message.has_value()) << "readable, and try_receive() says nothing";
  return message ? std::move(*message) : Message();
}

bool says_nothing(Poller& poller) {
  std::array<Event, 4> events;
  return poller.wait(events, kAtOnce) == 0;
}

class PollerTest : public ChannelTest {};

TEST_P(PollerTest, WhatWaitsIsReportedUntilItIsTakenAndTheEndForGood) {
  run(
      [](ChannelSide& side) {
        Poller poller;
        poller.add(side.channel, Events::kReadable, kToken);
        EXPECT_TRUE(says_nothing(poller));
        side.peer.tell("go");
        for (int i = 0; i < 3; ++i) EXPECT_EQ(next(poller).token, kToken);
        expect_message(take(side.channel, next(poller)), 100, 1);
        EXPECT_TRUE(says_nothing(poller));
        side.peer.tell("go");
        expect_message(take(side.channel, next(poller)), 100'000, 2);
        expect_message(take(side.channel, next(poller)), 0, 3);
        for (int i = 0; i < 3; ++i) EXPECT_FALSE(take(side.channel, next(poller)));
        poller.remove(side.channel);
        EXPECT_TRUE(says_nothing(poller));
      },
      [](ChannelSide& side) {
        side.peer.hear("go");
        send_pattern(side.channel, 100, 1);
        side.peer.hear("go");
        send_pattern(side.channel, 100'000, 2);
        send_pattern(side.channel, 0, 3);
        side.channel.shutdown();
      });
}

// Both sides sleep and spin as it comes.
TEST_P(PollerTest, BothSidesOfAPingPongMayWaitByIt) {
  const auto rounds = scaled(300);
  const auto body = [&](ChannelSide& side, bool begins) {
    Poller poller;
    poller.add(side.channel, Events::kReadable, kToken);
    for (std::size_t i = 0; i < rounds; ++i) {
      const std::size_t bytes = i % 7 == 0 ? 40'000 : i % 100;
      if (begins) send_pattern(side.channel, bytes, i);
      expect_message(take(side.channel, next(poller)), bytes, i);
      if (!begins) send_pattern(side.channel, bytes, i);
      if (!side.channel.leaves_by_itself()) side.channel.flush();
    }
    if (begins)
      side.channel.shutdown();
    else
      EXPECT_FALSE(take(side.channel, next(poller)));
  };
  run([&](ChannelSide& side) { body(side, true); }, [&](ChannelSide& side) { body(side, false); });
}

TEST_P(PollerTest, EveryContextHasItsTurn) {
  run(
      [](ChannelSide& side) {
        Poller poller;
        poller.add(side.channel, Events::kReadable, kToken);
        std::set<unsigned> seen;
        // Nobody drains context 0: each of its messages brings another one.
        while (seen.size() < 3) {
          const Event event = next(poller);
          const Message message = take(side.channel, event);
          EXPECT_EQ(message.context(), event.context);
          if (seen.insert(event.context).second && event.context != 0)
            side.peer.tell_value(event.context);
        }
        EXPECT_EQ(seen, (std::set<unsigned>{0, 5, 15}));
        side.peer.tell("enough");
        try {
          while (take(side.channel, next(poller))) {
          }
        } catch (const Error& error) {
          ADD_FAILURE() << error.what();
        }
      },
      [](ChannelSide& side) {
        send_pattern(side.channel, 10, 0, 15);
        send_pattern(side.channel, 10, 0, 5);
        side.channel.send("flood");
        for (int heard = 0; heard < 2;) {
          static_cast<void>(side.channel.try_send("flood"));
          if (!side.channel.leaves_by_itself()) static_cast<void>(side.channel.try_flush());
          std::this_thread::yield();
          if (!side.peer.has_word()) continue;
          side.peer.hear_value<unsigned>();
          ++heard;
        }
        while (!side.channel.try_send("flood")) std::this_thread::yield();  // what has begun
        side.peer.hear("enough");
        side.channel.shutdown();
      });
}

TEST_P(PollerTest, RoomIsReportedOnceThePeerHasTakenWhatFillsIt) {
  for (const std::size_t bytes : {std::size_t{1000}, std::size_t{60'000}, std::size_t{3} << 20}) {
    SCOPED_TRACE(bytes);
    const std::size_t count = std::max<std::size_t>(3, scaled((std::size_t{24} << 20) / bytes));
    run(
        [&](ChannelSide& side) {
          Poller poller;
          poller.add(side.channel, Events::kReadable | Events::kRoom, kToken);
          std::vector<std::byte> message(bytes);
          std::size_t refusals = 0;
          for (std::size_t i = 0; i < count; ++i) {
            fill_pattern(message, i);
            EXPECT_EQ(next(poller, Events::kRoom).token, kToken);
            while (!side.channel.try_send(message)) {
              if (refusals++ == 0) side.peer.tell("full");
              EXPECT_EQ(next(poller, Events::kRoom).token, kToken);
            }
          }
          if (refusals == 0) side.peer.tell("full");
          side.channel.shutdown();
          poller.modify(side.channel, Events::kReadable);
          EXPECT_FALSE(take(side.channel, next(poller)));
        },
        [&](ChannelSide& side) {
          side.peer.hear("full");
          for (std::size_t i = 0; i < count; ++i) expect_message(side.channel.receive(), bytes, i);
          EXPECT_FALSE(side.channel.receive());
          side.channel.shutdown();
        });
  }
}

TEST_P(PollerTest, ItSleepsForRoomWhileThePeerTakesNothing) {
  run(
      [](ChannelSide& side) {
        Poller poller;
        fill_up(side.channel, 1000);
        poller.add(side.channel, Events::kRoom, kToken);
        // A refusal whose cause is known to last is not reported, and costs at most naps.
        const std::uint64_t before = poller.stats().waits;
        const Deadline end = deadline_after(std::chrono::milliseconds(50));
        std::array<Event, 1> events;
        while (!passed(end))
          if (poller.wait(events, std::chrono::milliseconds(50)) != 0)
            static_cast<void>(side.channel.try_send(std::string(1000, 'x')));
        EXPECT_LT(poller.stats().waits - before, 1000u);
        EXPECT_GT(poller.stats().sleeps, 0u);
        side.peer.tell("go");
        const std::string message(1000, 'x');
        while (next(poller, Events::kRoom).token == kToken && !side.channel.try_send(message)) {
        }
        side.channel.shutdown();
      },
      [](ChannelSide& side) {
        side.peer.hear("go");
        while (side.channel.receive()) {
        }
      });
}

TEST_P(PollerTest, AOneShotIsSilentUntilItIsModified) {
  run(
      [](ChannelSide& side) {
        Poller poller;
        poller.add(side.channel, Events::kReadable | Events::kOneShot, kToken);
        side.peer.tell("go");
        expect_message(take(side.channel, next(poller)), 1, 1);
        side.peer.tell("go");
        side.peer.hear("sent");
        std::array<Event, 4> events;
        EXPECT_EQ(poller.wait(events, std::chrono::milliseconds(20)), 0u);
        poller.modify(side.channel, Events::kReadable | Events::kOneShot);
        const Event event = next(poller);
        EXPECT_EQ(event.token, kToken);
        EXPECT_TRUE(says_nothing(poller));
        expect_message(take(side.channel, event), 2, 2);
        poller.modify(side.channel, Events::kReadable);
        EXPECT_TRUE(says_nothing(poller));
        side.peer.tell("go");
        expect_message(take(side.channel, next(poller)), 3, 3);
        poller.modify(side.channel, Events::kNone);
        EXPECT_FALSE(side.channel.receive());
        EXPECT_TRUE(says_nothing(poller));
      },
      [](ChannelSide& side) {
        side.peer.hear("go");
        send_pattern(side.channel, 1, 1);
        side.peer.hear("go");
        send_pattern(side.channel, 2, 2);
        side.channel.flush();
        side.peer.tell("sent");
        side.peer.hear("go");
        send_pattern(side.channel, 3, 3);
        side.channel.shutdown();
      });
}

// Also while a message waits that the first poller has seen; and the channel object may move.
TEST_P(PollerTest, AChannelMovesFromOnePollerToAnother) {
  run(
      [](ChannelSide& side) {
        std::array<Poller, 2> pollers;
        std::optional<Channel> channel = std::move(side.channel);
        for (std::size_t i = 0; i < 20; ++i) {
          Poller& poller = pollers[i % 2];
          poller.add(*channel, Events::kReadable, i);
          expect_error(ErrorCode::kInvalidArgument,
                       [&] { pollers[(i + 1) % 2].add(*channel, Events::kReadable, 1); });
          expect_error(ErrorCode::kInvalidArgument, [&] { pollers[(i + 1) % 2].remove(*channel); });
          Channel elsewhere = std::move(*channel);
          side.peer.tell("go");
          EXPECT_EQ(next(poller).token, i);
          if (i % 3 != 0) expect_message(take(elsewhere, next(poller)), i, i);
          poller.remove(elsewhere);
          EXPECT_TRUE(says_nothing(poller));
          if (i % 3 == 0) expect_message(elsewhere.receive(), i, i);
          channel = std::move(elsewhere);
        }
        pollers[0].add(*channel, Events::kReadable, 0);
        side.peer.barrier();  // a flush that is under way could not tell that all has come
        channel.reset();
        EXPECT_TRUE(says_nothing(pollers[0]));
      },
      [](ChannelSide& side) {
        for (std::size_t i = 0; i < 20; ++i) {
          side.peer.hear("go");
          send_pattern(side.channel, i, i);
          side.channel.flush();
        }
        side.peer.barrier();
      });
}

// A message that was seen and not taken does not keep the connection from ending.
TEST_P(PollerTest, APollerOrAChannelMayGoWhileAMessageWaits) {
  run(
      [](ChannelSide& side) {
        {
          Poller poller;
          poller.add(side.channel, Events::kReadable, kToken);
          EXPECT_EQ(next(poller).token, kToken);
        }
        expect_message(side.channel.receive(), 60'000, 1);
        Poller poller;
        poller.add(side.channel, Events::kReadable, kToken);
        EXPECT_EQ(next(poller).token, kToken);
        Channel dropped = std::move(side.channel);
        dropped.close();
        expect_error(ErrorCode::kClosed, [&] { take(dropped, next(poller)); });
      },
      [](ChannelSide& side) {
        send_pattern(side.channel, 60'000, 1);
        try {
          send_pattern(side.channel, 60'000, 2);
          side.channel.flush();
          static_cast<void>(side.channel.receive());
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kPeerDied);
        }
      });
}

// Its caller blocks, or receives elsewhere: what comes at the same time still gives an event.
TEST_P(PollerTest, OtherCallsOnAChannelTakeNoEventAway) {
  constexpr std::size_t kRounds = 60;
  run(
      [](ChannelSide& side) {
        Poller poller;
        poller.add(side.channel, Events::kReadable, kToken);
        for (std::size_t i = 0; i < kRounds; ++i) {
          std::array<Event, 1> events;
          if (i % 2 == 0) static_cast<void>(poller.wait(events, std::chrono::microseconds(300)));
          side.peer.tell("go");
          expect_message(side.channel.receive(), 10, 1);            // blocks
          expect_message(take(side.channel, next(poller)), 20, 2);  // came beside it
        }
      },
      [](ChannelSide& side) {
        for (std::size_t i = 0; i < kRounds; ++i) {
          side.peer.hear("go");
          send_pattern(side.channel, 10, 1);
          send_pattern(side.channel, 20, 2);
          side.channel.flush();
        }
      });
}

// As libuv, Boost.Asio and GLib do it.
TEST_P(PollerTest, AForeignLoopSleepsOnItsDescriptor) {
  const auto rounds = scaled(100);
  run(
      [&](ChannelSide& side) {
        Poller poller;
        const Fd loop = new_epoll_set();
        epoll_add(loop, poller.fd());
        poller.add(side.channel, Events::kReadable | Events::kRoom, kToken);
        poller.modify(side.channel, Events::kReadable);
        std::size_t received = 0;
        std::size_t vain = 0;
        side.peer.tell("go");
        while (received < rounds) {
          epoll_event event{};
          ASSERT_EQ(epoll_wait(loop.get(), &event, 1, poll_timeout_ms(hang_deadline())), 1);
          std::array<Event, 4> events;
          if (poller.wait(events, kAtOnce) == 0) {
            ++vain;
            continue;
          }
          expect_message(take(side.channel, events[0]), received, received);
          side.peer.tell("go");
          // A pause in which the next message comes, without the loop's waiting for it.
          if (++received % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        // One after each message, which leaves everything armed, and some for the lifeline.
        EXPECT_LE(vain, 20 * rounds + 100);
        while (!says_nothing(poller)) {
        }
        epoll_event event{};
        EXPECT_EQ(epoll_wait(loop.get(), &event, 1, 0), 0) << "readable without anything there";
        side.peer.tell("enough");
      },
      [&](ChannelSide& side) {
        for (std::size_t i = 0; i < rounds; ++i) {
          side.peer.hear("go");
          send_pattern(side.channel, i, i);
          side.channel.flush();
        }
        side.peer.hear("go");
        side.peer.hear("enough");
      });
}

// A thread cannot be killed.
class PollerDeath : public PollerTest {};

TEST_P(PollerDeath, AKilledPeerIsTold) {
  run(
      [](ChannelSide& side) {
        Poller poller;
        poller.add(side.channel, Events::kReadable, kToken);
        expect_message(take(side.channel, next(poller)), 100, 1);
        side.peer.kill_other();
        for (int i = 0; i < 3; ++i)
          expect_error(ErrorCode::kPeerDied, [&] { take(side.channel, next(poller)); });
      },
      [](ChannelSide& side) {
        send_pattern(side.channel, 100, 1);
        side.channel.flush();
        side.peer.hear("nothing comes");
      },
      {.second_ends = SecondEnds::kBySignal});
}

LEAT_INSTANTIATE_CHANNEL_SUITE(PollerTest);
INSTANTIATE_TEST_SUITE_P(Channels, PollerDeath,
                         testing::Combine(testing::ValuesIn(channel_kinds()),
                                          testing::Values(PeerMode::kProcesses)),
                         channel_test_name);

}  // namespace
}  // namespace leat::detail

// What channels promise about flow: floods, back-pressure, waiting and polling, on every transport.
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "support/channel_side.h"

namespace leat::detail {
namespace {

constexpr auto kFlowTimeout = std::chrono::seconds(1);

std::size_t random_size(std::uint64_t number) {
  std::mt19937_64 random(number);
  return random() % (number % 20 == 0 ? 20'000 : 300);
}

unsigned flow_context_of(std::uint64_t number) { return static_cast<unsigned>(number % 3); }

class ChannelFlow : public ChannelTest {
 protected:
  // A thread that sends and one that receives, on both sides.
  void flood_both_ways(const std::function<void(Options&)>& options) const {
    const std::size_t count = scaled(20'000);
    run_both(
        [&](ChannelSide& side) {
          std::thread receiver([&] {
            for (std::size_t i = 0; i < count; ++i) {
              const Message message = side.channel.receive(flow_context_of(i));
              ASSERT_NO_FATAL_FAILURE(expect_message(message, random_size(i), i));
            }
          });
          for (std::size_t i = 0; i < count; ++i) {
            send_pattern(side.channel, random_size(i), i, flow_context_of(i));
          }
          receiver.join();
          EXPECT_EQ(side.channel.stats().rnr_retries, 0u);
          side.channel.flush();
        },
        options);
  }

  void ping_pong(std::size_t count, const ChannelSetup& setup) const {
    run(
        [&](ChannelSide& side) {
          for (std::size_t i = 0; i < count; ++i) {
            send_pattern(side.channel, i % 100, i);
            ASSERT_NO_FATAL_FAILURE(expect_message(side.channel.receive(), i % 100, i));
          }
        },
        [&](ChannelSide& side) {
          for (std::size_t i = 0; i < count; ++i) {
            ASSERT_NO_FATAL_FAILURE(expect_message(side.channel.receive(), i % 100, i));
            send_pattern(side.channel, i % 100, i);
          }
        },
        setup);
  }
};

void sleep_at_once(Options& options) { options.spin = std::chrono::microseconds(0); }
void never_sleep(Options& options) { options.spin = std::chrono::microseconds(-1); }

TEST_P(ChannelFlow, FloodsInBothDirectionsArriveIntact) { flood_both_ways({}); }

TEST_P(ChannelFlow, FloodsBetweenSleepersArriveIntact) { flood_both_ways(sleep_at_once); }

TEST_P(ChannelFlow, PingPongOfSleepers) {
  ping_pong(scaled(2000), {.first_options = sleep_at_once, .second_options = sleep_at_once});
}

TEST_P(ChannelFlow, PingPongOfSpinners) {
  ping_pong(scaled(500), {.first_options = never_sleep, .second_options = never_sleep});
}

TEST_P(ChannelFlow, PingPongOfASleeperAndASpinner) {
  ping_pong(scaled(2000), {.first_options = sleep_at_once, .second_options = never_sleep});
}

TEST_P(ChannelFlow, SleepersSleep) {
  run(
      [](ChannelSide& side) {
        std::thread watcher([&] {
          const Deadline deadline = hang_deadline();
          while (side.channel.stats().sleeps == 0 && !passed(deadline)) std::this_thread::yield();
          side.peer.tell("asleep");
        });
        EXPECT_EQ(side.channel.receive().text(), "wake up");
        watcher.join();
        EXPECT_GE(side.channel.stats().sleeps, 1u);
      },
      [](ChannelSide& side) {
        side.peer.hear("asleep");
        side.channel.send("wake up");
      },
      {.first_options = sleep_at_once});
}

// Neither side reads: the senders are told that there is no room, or time out, and nothing is lost.
TEST_P(ChannelFlow, BothSidesOnlySendingAreHeldBackAndLoseNothing) {
  run_both(
      [](ChannelSide& side) {
        const std::size_t count = fill_up(side.channel, 1000);
        EXPECT_GT(count, 0u);
        std::vector<std::byte> one_more(1000);
        fill_pattern(one_more, count);
        expect_error(ErrorCode::kTimeout, [&] { side.channel.send(one_more); });
        side.peer.tell_value(count);
        const auto peer_count = side.peer.hear_value<std::size_t>();
        for (std::size_t i = 0; i < peer_count; ++i) {
          ASSERT_NO_FATAL_FAILURE(expect_message(receive_patiently(side.channel), 1000, i));
        }
        side.peer.barrier();
        EXPECT_FALSE(side.channel.try_receive()) << "a message whose send timed out";
        side.peer.barrier();
        patiently([&] { send_pattern(side.channel, 1000, 5); });
        expect_message(receive_patiently(side.channel), 1000, 5);
        EXPECT_GE(side.channel.stats().credit_waits, 1u);
      },
      [](Options& options) { options.timeout = kFlowTimeout; });
}

// Two sides that flush before they receive do not wait for each other.
TEST_P(ChannelFlow, BothSidesMayFlushAllThatWasAccepted) {
  run_both([](ChannelSide& side) {
    constexpr std::size_t kBytes = 4096;
    std::array<std::size_t, kContexts> counts{};
    for (unsigned context = 0; context < kContexts; ++context)
      counts[context] = fill_up(side.channel, kBytes, context);
    side.peer.tell_value(counts);
    side.channel.flush();
    counts = side.peer.hear_value<decltype(counts)>();
    for (unsigned context = 0; context < kContexts; ++context) {
      for (std::uint64_t i = 0; i < counts[context]; ++i)
        ASSERT_NO_FATAL_FAILURE(expect_message(side.channel.receive(context), kBytes, i));
    }
  });
}

TEST_P(ChannelFlow, WhatLeavesByItselfOrIsFlushedArrivesWithoutAnotherCall) {
  constexpr std::size_t kMessages = 100;
  run(
      [&](ChannelSide& side) {
        if (kind().transport.ends_with("ring")) {
          EXPECT_TRUE(side.channel.leaves_by_itself());
        }
        for (std::size_t i = 0; i < kMessages; ++i)
          send_pattern(side.channel, random_size(i), i, flow_context_of(i));
        if (!side.channel.leaves_by_itself()) side.channel.flush();
        side.peer.hear("all have come");
      },
      [](ChannelSide& side) {
        for (std::size_t i = 0; i < kMessages; ++i) {
          const Message message = side.channel.receive(flow_context_of(i));
          ASSERT_NO_FATAL_FAILURE(expect_message(message, random_size(i), i));
        }
        side.peer.tell("all have come");
      });
}

TEST_P(ChannelFlow, ReserveTimesOutWhereThereIsNoRoom) {
  run(
      [](ChannelSide& side) {
        fill_up(side.channel, 1000, 3);
        expect_error(ErrorCode::kTimeout, [&] {
          (void)side.channel.reserve(1000, 3);
          side.channel.commit(1000);  // some transports need the room only now
        });
      },
      [](ChannelSide&) {},
      {.first_options = [](Options& options) { options.timeout = kFlowTimeout; }});
}

TEST_P(ChannelFlow, ReceiveTimesOutAndGoesOnAfterwards) {
  run(
      [](ChannelSide& side) {
        for (int i = 0; i < 3; ++i) {
          expect_error(ErrorCode::kTimeout, [&] { (void)side.channel.receive(6); });
        }
        side.peer.tell("timed out");
        EXPECT_EQ(receive_patiently(side.channel, 6).text(), "late");
      },
      [](ChannelSide& side) {
        side.peer.hear("timed out");
        side.channel.send("late", 6);
      },
      {.first_options = [](Options& options) { options.timeout = kFlowTimeout; }});
}

TEST_P(ChannelFlow, LargeMessageThatTimedOutArrivesOnceWhenItIsSentAgain) {
  static constexpr std::size_t kBytes = std::size_t{32} << 20;
  run(
      [](ChannelSide& side) {
        std::vector<std::byte> message(kBytes);
        fill_pattern(message, 1);
        expect_error(ErrorCode::kTimeout, [&] { side.channel.send(message, 2); });
        side.peer.tell("timed out");
        const Deadline deadline = hang_deadline();
        while (!side.channel.try_send(message, 2)) ASSERT_FALSE(passed(deadline));
        patiently([&] { side.channel.shutdown(); });
      },
      [](ChannelSide& side) {
        side.peer.hear("timed out");
        expect_message(side.channel.receive(2), kBytes, 1);
        EXPECT_FALSE(side.channel.receive(2)) << "it came twice";
      },
      {.first_options = [](Options& options) { options.timeout = kFlowTimeout; }});
}

TEST_P(ChannelFlow, SlowReaderOfOneContextDoesNotHoldUpAnother) {
  const std::size_t count = scaled(10'000);
  run(
      [&](ChannelSide& side) {
        const std::size_t stuck = fill_up(side.channel, 500, 3);
        side.peer.tell_value(stuck);
        for (std::size_t i = 0; i < count; ++i) send_pattern(side.channel, i % 700, i, 5);
        send_pattern(side.channel, std::size_t{8} << 20, 1, 6);
      },
      [&](ChannelSide& side) {
        const auto stuck = side.peer.hear_value<std::size_t>();
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_NO_FATAL_FAILURE(expect_message(side.channel.receive(5), i % 700, i));
        }
        expect_message(side.channel.receive(6), std::size_t{8} << 20, 1);
        for (std::size_t i = 0; i < stuck; ++i) {
          ASSERT_NO_FATAL_FAILURE(expect_message(side.channel.receive(3), 500, i));
        }
      });
}

// A sender that waits for room is woken, or looks by itself, when a reader that was slow reads.
TEST_P(ChannelFlow, SenderWithoutRoomGoesOnWhenTheReaderReads) {
  for (const auto& options : {sleep_at_once, never_sleep}) {
    const std::size_t count = scaled(3000);
    run_both(
        [&](ChannelSide& side) {
          std::thread sender([&] {
            for (std::size_t i = 0; i < count; ++i) send_pattern(side.channel, 20'000, i);
          });
          for (std::size_t i = 0; i < count; ++i) {
            if (i % 500 == 0) side.peer.barrier();
            ASSERT_NO_FATAL_FAILURE(expect_message(side.channel.receive(), 20'000, i));
          }
          sender.join();
        },
        options);
  }
}

// --- poll(2) on fd()

// Waits for fd() to become readable, as an event loop would.
void wait_readable(Channel& channel) {
  pollfd wait{channel.fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&wait, 1, poll_timeout_ms(hang_deadline())), 1) << "fd() never became readable";
}

TEST_P(ChannelFlow, EventLoopGetsEveryMessageOfEveryContext) {
  const std::size_t count = scaled(10'000);
  run(
      [&](ChannelSide& side) {
        const int fd = side.channel.fd();
        std::array<std::size_t, kContexts> next{};
        std::size_t received = 0;
        while (received < count) {
          ASSERT_NO_FATAL_FAILURE(wait_readable(side.channel));
          for (unsigned context = 0; context < kContexts; ++context) {
            while (const auto message = side.channel.try_receive(context)) {
              const std::uint64_t seed = next[context]++ * kContexts + context;
              ASSERT_NO_FATAL_FAILURE(expect_message(*message, seed % 600, seed));
              ++received;
            }
          }
        }
        EXPECT_EQ(side.channel.fd(), fd);
      },
      [&](ChannelSide& side) {
        for (std::size_t i = 0; i < count; ++i) {
          send_pattern(side.channel, i % 600, i, i % kContexts);
        }
      });
}

// A wake that is lost hangs it.
TEST_P(ChannelFlow, EventLoopsPingPongWithoutALostWake) {
  const std::size_t count = scaled(5000);
  const auto next_message = [](Channel& channel) {
    for (;;) {
      if (auto message = channel.try_receive(2)) return std::move(*message);
      wait_readable(channel);
    }
  };
  run(
      [&](ChannelSide& side) {
        for (std::size_t i = 0; i < count; ++i) {
          send_pattern(side.channel, 64, i, 2);
          ASSERT_NO_FATAL_FAILURE(expect_message(next_message(side.channel), 64, i));
        }
      },
      [&](ChannelSide& side) {
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_NO_FATAL_FAILURE(expect_message(next_message(side.channel), 64, i));
          send_pattern(side.channel, 64, i, 2);
        }
      });
}

TEST_P(ChannelFlow, DescriptorTellsOfAMessageThatCameBeforeItWasAskedFor) {
  run(
      [](ChannelSide& side) {
        side.peer.hear("sent");
        EXPECT_EQ(receive_patiently(side.channel, 1).text(), "one");
        ASSERT_NO_FATAL_FAILURE(wait_readable(side.channel));
        EXPECT_EQ(receive_patiently(side.channel, 2).text(), "two");
      },
      [](ChannelSide& side) {
        side.channel.send("two", 2);
        side.channel.send("one", 1);
        side.channel.flush();
        side.peer.tell("sent");
      });
}

TEST_P(ChannelFlow, DescriptorTellsOfTheEnd) {
  run(
      [](ChannelSide& side) {
        EXPECT_FALSE(side.channel.try_receive());
        side.peer.tell("looked");
        for (;;) {
          ASSERT_NO_FATAL_FAILURE(wait_readable(side.channel));
          if (const auto message = side.channel.try_receive()) {
            EXPECT_FALSE(*message);
            break;
          }
        }
      },
      [](ChannelSide& side) {
        side.peer.hear("looked");
        side.channel.shutdown();
      });
}

TEST_P(ChannelFlow, DescriptorIsQuietWhileNothingComes) {
  run(
      [](ChannelSide& side) {
        // Spurious events are allowed, but they must stop.
        pollfd wait{side.channel.fd(), POLLIN, 0};
        int events = 0;
        while (::poll(&wait, 1, 20) == 1 && ++events < 1000) {
          EXPECT_FALSE(side.channel.try_receive());
        }
        EXPECT_LT(events, 1000) << "the event loop spins";
        side.peer.tell("quiet");
      },
      [](ChannelSide& side) { side.peer.hear("quiet"); });
}

LEAT_INSTANTIATE_CHANNEL_SUITE(ChannelFlow);
LEAT_INSTANTIATE_UNBUNDLED_SUITE(ChannelFlow);
LEAT_INSTANTIATE_NESTED_SUITE(ChannelFlow);

}  // namespace
}  // namespace leat::detail

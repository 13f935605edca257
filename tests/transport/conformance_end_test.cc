// What channels promise about their end, orderly or not, and about many of them.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>

#include <string_view>
#include <thread>
#include <vector>

#include "support/channel_side.h"
#include "support/leaks.h"
#include "transport/table.h"

namespace leat::detail {
namespace {

// More than any transport holds for a receiver that does not read.
constexpr std::size_t kLarge = std::size_t{16} << 20;
// So large that a receiver that reads it has not got all of it when its sender is killed.
constexpr std::size_t kPartlySent = std::size_t{64} << 20;

class ChannelEnd : public ChannelTest {};

TEST_P(ChannelEnd, ShutdownIsSeenInEveryContextAfterItsLastMessage) {
  run(
      [](ChannelSide& side) {
        for (unsigned context = 0; context < kContexts; ++context) {
          for (std::size_t i = 0; i < context; ++i) send_pattern(side.channel, 200, i, context);
        }
        side.channel.shutdown();
        side.channel.shutdown();
      },
      [](ChannelSide& side) {
        for (unsigned context = kContexts; context-- > 0;) {
          for (std::size_t i = 0; i < context; ++i) {
            expect_message(side.channel.receive(context), 200, i);
          }
          EXPECT_FALSE(side.channel.receive(context));
          EXPECT_FALSE(side.channel.receive(context));
          const auto message = side.channel.try_receive(context);
          ASSERT_TRUE(message);
          EXPECT_FALSE(*message);
        }
      });
}

TEST_P(ChannelEnd, AfterShutdownSendingIsAnErrorAndReceivingGoesOn) {
  run(
      [](ChannelSide& side) {
        side.channel.shutdown();
        expect_error(ErrorCode::kClosed, [&] { side.channel.send("x"); });
        expect_error(ErrorCode::kClosed, [&] { (void)side.channel.reserve(1); });
        side.channel.flush();
        for (std::size_t i = 0; i < 2000; ++i) {
          ASSERT_NO_FATAL_FAILURE(expect_message(side.channel.receive(4), 3000, i));
        }
        expect_message(side.channel.receive(4), kLarge / 2, 1);
        EXPECT_FALSE(side.channel.receive(4));
      },
      [](ChannelSide& side) {
        EXPECT_FALSE(side.channel.receive());
        for (std::size_t i = 0; i < 2000; ++i) send_pattern(side.channel, 3000, i, 4);
        send_pattern(side.channel, kLarge / 2, 1, 4);
        side.channel.shutdown();
      });
}

TEST_P(ChannelEnd, ShutdownWakesASleepingReceiver) {
  run(
      [](ChannelSide& side) {
        side.peer.tell("about to receive");
        EXPECT_FALSE(side.channel.receive(9));
      },
      [](ChannelSide& side) {
        side.peer.hear("about to receive");
        side.channel.shutdown();
      },
      {.first_options = [](Options& options) { options.spin = std::chrono::microseconds(0); }});
}

TEST_P(ChannelEnd, CloseSaysTheEndAfterWhatWasSent) {
  run(
      [](ChannelSide& side) {
        for (std::size_t i = 0; i < 50; ++i) expect_message(side.channel.receive(), 5000, i);
        EXPECT_FALSE(side.channel.receive());
      },
      [](ChannelSide& side) {
        for (std::size_t i = 0; i < 50; ++i) send_pattern(side.channel, 5000, i);
        side.channel.close();
      });
}

TEST_P(ChannelEnd, DestroyedChannelLingersUntilEverythingArrived) {
  run(
      [](ChannelSide& side) {
        const auto count = side.peer.hear_value<std::size_t>();
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_NO_FATAL_FAILURE(expect_message(side.channel.receive(), 3000, i));
        }
        EXPECT_FALSE(side.channel.receive());
      },
      [](ChannelSide& side) {
        const std::size_t count = fill_up(side.channel, 3000);
        { const Channel dropped = std::move(side.channel); }
        side.peer.tell_value(count);
      },
      {.second_options = [](Options& options) { options.linger = hang_limit(); }});
}

TEST_P(ChannelEnd, SendingToAClosedPeerFailsSoon) {
  run(
      [](ChannelSide& side) {
        EXPECT_FALSE(side.channel.receive());
        const Deadline deadline = notice_deadline();
        expect_error(ErrorCode::kPeerDied, [&] {
          while (!passed(deadline)) side.channel.send("anyone there?");
        });
        expect_error(ErrorCode::kPeerDied, [&] { side.channel.send("no"); });
      },
      [](ChannelSide& side) { const Channel dropped = std::move(side.channel); });
}

// This needs neither unread messages that fill the room, nor a flood.
TEST_P(ChannelEnd, SendingNowAndThenToAPeerThatHasClosedFails) {
  run(
      [](ChannelSide& side) {
        side.peer.hear("closed");
        expect_error(ErrorCode::kPeerDied, [&] {
          for (int i = 0; i < 100; ++i) {
            side.channel.send("anyone there?");
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
          }
        });
        expect_error(ErrorCode::kPeerDied, [&] { side.channel.send("no"); });
        expect_error(ErrorCode::kPeerDied,
                     [&] { (void)side.channel.try_send(std::string_view(), 3); });
        side.peer.tell("noticed");
      },
      [](ChannelSide& side) {
        side.channel.close();  // its memory stays
        side.peer.tell("closed");
        side.peer.hear("noticed");
      });
}

TEST_P(ChannelEnd, CloseOfThePeerEndsASendThatWaitsForRoom) {
  run(
      [](ChannelSide& side) {
        fill_up(side.channel, 3000);
        side.peer.tell("full");
        // It may take what was under way, but not all of this.
        const std::vector<std::byte> message(kLarge);
        expect_error(ErrorCode::kPeerDied, [&] { side.channel.send(message); });
      },
      [](ChannelSide& side) {
        side.peer.hear("full");
        // Over tcp this reads what was sent, so that closing is an end and no reset.
        for (int i = 0; i < 100; ++i) EXPECT_FALSE(side.channel.try_receive(1));
        const Channel dropped = std::move(side.channel);
      },
      {.first_options = [](Options& options) { options.timeout = hang_limit(); }});
}

TEST_P(ChannelEnd, CloseWakesAReceiverOfAnotherThread) {
  for (const int spin_us : {0, -1}) {
    run(
        [](ChannelSide& side) {
          std::thread receiver([&] {
            side.peer.tell("about to receive");
            expect_error(ErrorCode::kClosed, [&] { (void)side.channel.receive(2); });
          });
          side.peer.hear("go");
          side.channel.close();
          receiver.join();
        },
        [](ChannelSide& side) {
          side.peer.hear("about to receive");
          side.peer.tell("go");
        },
        {.first_options = [&](Options& options) {
          options.spin = std::chrono::microseconds(spin_us);
        }});
  }
}

TEST_P(ChannelEnd, CloseEndsASenderOfAnotherThreadBetweenTwoMessages) {
  for (const int spin_us : {0, -1}) {
    run(
        [](ChannelSide& side) {
          for (std::size_t i = 0; i < 20; ++i) expect_message(side.channel.receive(), 3000, i);
          side.peer.tell("received");
          const auto count = side.peer.hear_value<std::size_t>();
          for (std::size_t i = 20; i < count; ++i) {
            ASSERT_NO_FATAL_FAILURE(expect_message(side.channel.receive(), 3000, i));
          }
          Message last = side.channel.receive();
          // What is attested or sealed is not taken back: it may come although its send found no
          // room and was ended.
          if (last && is_decorated(side.channel.transport())) {
            expect_message(last, 3000, count);
            last = side.channel.receive();
          }
          EXPECT_FALSE(last);
        },
        [](ChannelSide& side) {
          std::size_t sent = 0;
          std::thread sender([&] {
            expect_error(ErrorCode::kClosed, [&] {
              for (;; ++sent) send_pattern(side.channel, 3000, sent);
            });
          });
          side.peer.hear("received");
          side.channel.close();
          sender.join();
          side.peer.tell_value(sent);
        },
        {.second_options = [&](Options& options) {
          options.spin = std::chrono::microseconds(spin_us);
          options.linger = hang_limit();
        }});
  }
}

// --- Peers that vanish. The victim is the second side; it listens no more, it just is gone.

class ChannelDeath : public ChannelTest {
 protected:
  // Runs `survivor` against a second side that is killed at the end of `victim`, with sleeping and
  // with spinning waits.
  void run_deaths(const ChannelBody& survivor, const ChannelBody& victim) const {
    for (const int spin_us : {0, 50, -1}) {
      SCOPED_TRACE("spin " + std::to_string(spin_us));
      run(survivor,
          [&](ChannelSide& side) {
            victim(side);
            ::raise(SIGKILL);
          },
          {.first_options =
               [&](Options& options) { options.spin = std::chrono::microseconds(spin_us); },
           .second_ends = SecondEnds::kBySignal});
    }
  }

  // The call throws kPeerDied, soon, and so do later ones.
  static void expect_death(const std::function<void()>& call) {
    const Deadline deadline = notice_deadline();
    expect_error(ErrorCode::kPeerDied, call);
    EXPECT_FALSE(passed(deadline)) << "the peer's death was noticed late";
    expect_error(ErrorCode::kPeerDied, call);
  }
};

TEST_P(ChannelDeath, EndsAReceiveAfterWhatArrived) {
  run_deaths(
      [](ChannelSide& side) {
        for (std::size_t i = 0; i < 10; ++i) expect_message(side.channel.receive(3), 777, i);
        expect_death([&] { (void)side.channel.receive(3); });
        expect_error(ErrorCode::kPeerDied, [&] { (void)side.channel.try_receive(3); });
        expect_error(ErrorCode::kPeerDied, [&] { (void)side.channel.receive(4); });
      },
      [](ChannelSide& side) {
        for (std::size_t i = 0; i < 10; ++i) send_pattern(side.channel, 777, i, 3);
        side.channel.flush();
      });
}

TEST_P(ChannelDeath, EndsAReceiveOfWhichPartArrivedWithoutHandingItOut) {
  run_deaths(
      [](ChannelSide& side) {
        send_pattern(side.channel, 10, 1);
        expect_death([&] { (void)side.channel.receive(3); });
      },
      [](ChannelSide& side) {
        expect_message(side.channel.receive(), 10, 1);
        std::vector<std::byte> message(kPartlySent);
        while (side.channel.try_send(message, 3)) {
        }
      });
}

TEST_P(ChannelDeath, EndsASendThatWaitsForRoom) {
  run_deaths(
      [](ChannelSide& side) {
        std::vector<std::byte> message(kLarge);
        side.peer.tell("sending");
        expect_death([&] { side.channel.send(message, 3); });
      },
      [](ChannelSide& side) { side.peer.hear("sending"); });
}

TEST_P(ChannelDeath, EndsASendInTheMiddleOfALargeMessage) {
  run_deaths(
      [](ChannelSide& side) {
        std::vector<std::byte> message(kPartlySent);
        expect_death([&] {
          for (int i = 0; i < 1000; ++i) side.channel.send(message, 3);
        });
      },
      [](ChannelSide& side) {
        for (int i = 0; i < 2000; ++i) (void)side.channel.try_receive(3);
      });
}

TEST_P(ChannelDeath, EndsAFloodOfSmallSends) {
  run_deaths(
      [](ChannelSide& side) {
        const Deadline deadline = notice_deadline();
        expect_death([&] {
          while (!passed(deadline)) side.channel.send("some small message");
        });
      },
      [](ChannelSide& side) {
        for (int i = 0; i < 1000; ++i) (void)side.channel.receive();
      });
}

TEST_P(ChannelDeath, EndsAReserve) {
  run_deaths(
      [](ChannelSide& side) {
        const Deadline deadline = notice_deadline();
        expect_death([&] {
          side.channel.abandon();
          while (!passed(deadline)) {
            (void)side.channel.reserve(1000);
            side.channel.commit(1000);
          }
        });
      },
      [](ChannelSide& side) { side.channel.send("x"); });
}

TEST_P(ChannelDeath, EndsAnEventLoop) {
  run_deaths(
      [](ChannelSide& side) {
        pollfd wait{side.channel.fd(), POLLIN, 0};
        expect_death([&] {
          const Deadline deadline = notice_deadline();
          while (!passed(deadline)) {
            ASSERT_EQ(::poll(&wait, 1, poll_timeout_ms(hang_deadline())), 1);
            EXPECT_FALSE(side.channel.try_receive(7));
          }
        });
      },
      [](ChannelSide&) {});
}

TEST_P(ChannelDeath, EndsALoopThatOnlyPolls) {
  run_deaths(
      [](ChannelSide& side) {
        expect_death([&] { (void)receive_patiently(side.channel, 7); });
        expect_death([&] { (void)side.channel.try_receive(7); });  // from then on, at once
      },
      [](ChannelSide&) {});
}

TEST_P(ChannelDeath, FlushAndShutdownAfterItDoNotHang) {
  run_deaths(
      [](ChannelSide& side) {
        side.peer.await_end();
        // Whether anything was on its way decides if there is an error.
        const auto may_fail = [](const std::function<void()>& call) {
          try {
            call();
          } catch (const Error& error) {
            EXPECT_EQ(to_string(error.code()), to_string(ErrorCode::kPeerDied)) << error.what();
          }
        };
        may_fail([&] { side.channel.send("x"); });
        may_fail([&] { side.channel.flush(); });
        may_fail([&] { side.channel.shutdown(); });
        side.channel.close();
      },
      [](ChannelSide&) {});
}

TEST_P(ChannelDeath, MessagesHeldOverItKeepTheirBytes) {
  run_deaths(
      [](ChannelSide& side) {
        std::vector<Message> kept;
        for (std::size_t i = 0; i < 20; ++i) kept.push_back(side.channel.receive());
        side.peer.tell("received");
        expect_death([&] { (void)side.channel.receive(); });
        for (std::size_t i = 0; i < 20; ++i) expect_message(kept[i], i * 100, i);
      },
      [](ChannelSide& side) {
        for (std::size_t i = 0; i < 20; ++i) send_pattern(side.channel, i * 100, i);
        side.channel.flush();
        side.peer.hear("received");
      });
}

// --- Many

class ManyChannels : public ChannelTest {
 protected:
  static void use(Channel& channel, std::uint64_t number) {
    send_pattern(channel, 100, number);
    expect_message(channel.receive(), 100, number);
  }
};

TEST_P(ManyChannels, ConnectsAndClosesLeaveNothingBehind) {
  const std::size_t count = scaled(kind().device.starts_with("ib") ? 100 : 1000);
  constexpr std::size_t kWarmUp = 20;  // allocators and the like
  constexpr std::size_t kAllowedGrowth = std::size_t{16} << 20;
  run_pair(
      mode(),
      [&](Peer& peer) {
        Listener listener(listening_address(kind()), channel_options(kind()));
        peer.tell(listener.address());
        Holdings before;
        for (std::size_t i = 0; i < count + kWarmUp; ++i) {
          if (i == kWarmUp) {
            peer.barrier();
            before = count_holdings();
            peer.barrier();
          }
          Channel channel = listener.accept();
          use(channel, i);
          EXPECT_FALSE(channel.receive());
        }
        peer.barrier();
        expect_no_more_than(before, kAllowedGrowth);
        peer.barrier();
      },
      [&](Peer& peer) {
        const std::string address = peer.hear();
        Holdings before;
        for (std::size_t i = 0; i < count + kWarmUp; ++i) {
          if (i == kWarmUp) {
            peer.barrier();
            before = count_holdings();
            peer.barrier();
          }
          Channel channel = Channel::connect(address, channel_options(kind()));
          use(channel, i);
        }
        peer.barrier();
        expect_no_more_than(before, kAllowedGrowth);
        peer.barrier();
      });
}

TEST_P(ManyChannels, SixtyFourAtOnceAreIndependent) {
  const std::size_t count = kind().device.starts_with("ib") ? 8 : 64;
  run_pair(
      mode(),
      [&](Peer& peer) {
        Listener listener(listening_address(kind()), channel_options(kind()));
        peer.tell(listener.address());
        std::vector<Channel> channels;
        for (std::size_t i = 0; i < count; ++i) channels.push_back(listener.accept());
        for (Channel& channel : channels) use(channel, 7);
        for (std::size_t i = count; i-- > 0;) use(channels[i], 8);
        peer.barrier();
      },
      [&](Peer& peer) {
        const std::string address = peer.hear();
        std::vector<Channel> channels;
        for (std::size_t i = 0; i < count; ++i) {
          channels.push_back(Channel::connect(address, channel_options(kind())));
        }
        std::vector<std::thread> threads;
        for (Channel& channel : channels) {
          threads.emplace_back([&] {
            for (const std::uint64_t number : {7, 8}) use(channel, number);
          });
        }
        for (std::thread& thread : threads) thread.join();
        peer.barrier();
      });
}

LEAT_INSTANTIATE_CHANNEL_SUITE(ChannelEnd);
LEAT_INSTANTIATE_UNBUNDLED_SUITE(ChannelEnd);
LEAT_INSTANTIATE_NESTED_SUITE(ChannelEnd);
// A thread cannot be killed.
INSTANTIATE_TEST_SUITE_P(Channels, ChannelDeath,
                         testing::Combine(testing::ValuesIn(channel_kinds()),
                                          testing::Values(PeerMode::kProcesses)),
                         channel_test_name);
LEAT_INSTANTIATE_CHANNEL_SUITE(ManyChannels);

}  // namespace
}  // namespace leat::detail

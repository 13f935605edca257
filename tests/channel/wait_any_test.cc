// wait_any() with several contexts of one channel.
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <span>
#include <thread>

#include "leat/wait.h"
#include "support/channel_side.h"

namespace leat::detail {
namespace {

class WaitAnyOfContexts : public ChannelTest {};
LEAT_INSTANTIATE_CHANNEL_SUITE(WaitAnyOfContexts);

// A message comes after each look at its context and before the look at another one, which takes it
// off the device. So also before a sleep, which no event will end.
TEST_P(WaitAnyOfContexts, WhatALookAtAnotherContextBringsIsFound) {
  constexpr unsigned kMessages = 8;
  const auto sleeps = [](Options& options) { options.spin = std::chrono::microseconds(0); };
  run(
      [](ChannelSide& side) {
        std::array<Channel*, 1> channels{&side.channel};
        unsigned received = 0;
        const auto look = [&] {
          if (side.channel.try_receive(1)) ++received;
          if (received == kMessages) return true;
          side.peer.tell("send");
          side.peer.hear("sent");
          (void)side.channel.try_receive(2);
          return false;
        };
        EXPECT_EQ(wait_any(channels, WaitFor::kMessages, "receive", look), nullptr);
        side.peer.tell("enough");
      },
      [](ChannelSide& side) {
        for (std::uint64_t i = 0; side.peer.hear() == "send"; ++i) {
          send_pattern(side.channel, 10, i, 1);
          side.channel.flush();
          side.peer.tell("sent");
        }
      },
      {.first_options = sleeps, .second_options = {}});
}

// Another thread has a sleeper look again, though the peer sends nothing.
TEST_P(WaitAnyOfContexts, ADescriptorEndsASleep) {
  const auto sleeps = [](Options& options) { options.spin = std::chrono::microseconds(0); };
  run(
      [](ChannelSide& side) {
        Channel* const channels[] = {&side.channel};
        const int news = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        ASSERT_GE(news, 0);
        std::atomic<bool> wanted{false};
        std::atomic<int> looks{0};
        std::thread other([&] {
          while (looks < 1) std::this_thread::yield();  // it sleeps already, or is about to
          wanted = true;
          eventfd_write(news, 1);
        });
        const auto look = [&] {
          ++looks;
          (void)side.channel.try_receive();
          return wanted.load();
        };
        EXPECT_EQ(wait_any(channels, WaitFor::kMessages, "receive", look, news), nullptr);
        other.join();
        close(news);
        side.peer.tell("enough");
      },
      [](ChannelSide& side) { side.peer.hear("enough"); },
      {.first_options = sleeps, .second_options = {}});
}

}  // namespace
}  // namespace leat::detail

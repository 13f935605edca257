// A poller of many channels, of any mix of devices and transports. poller_watch_test.cc has what
// else it watches, and what it refuses.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/system_error.h"
#include "channel/poller_pairs.h"
#include "leat/poller.h"
#include "support/channel_side.h"
#include "support/errors.h"
#include "support/scale.h"

namespace leat::detail {
namespace {

using std::chrono::nanoseconds;

// A listener whose port is known before the children fork, which do not inherit its thread.
class Server {
 public:
  explicit Server(const ChannelKind& kind) : options_(channel_options(kind)) {
    options_.backlog = 64;
  }

  // Forks `count` clients; each connects and runs `client` with its number.
  void start(unsigned count, const std::function<void(Channel&, unsigned)>& client) {
    for (unsigned i = 0; i < count; ++i) {
      std::array<int, 2> ends{};
      check(pipe2(ends.data(), O_CLOEXEC), "pipe2");
      const Fd read_end(ends[0]);
      addresses_.emplace_back(ends[1]);
      children_.emplace_back([&, fd = read_end.get()] {
        std::array<char, 100> address{};
        if (read(fd, address.data(), address.size() - 1) <= 0) _exit(0);
        Channel channel = Channel::connect(address.data(), options_);
        client(channel, i);
      });
    }
    listener_.emplace("127.0.0.1:0", options_);
    for (const Fd& fd : addresses_) {
      const std::string address = listener_->address();
      check(static_cast<int>(write(fd.get(), address.data(), address.size())), "write");
    }
    addresses_.clear();
  }

  Listener& listener() { return *listener_; }
  std::list<Child>& children() { return children_; }
  void join() {
    for (Child& child : children_) EXPECT_EQ(child.join(), 0);
  }

 private:
  Options options_;
  std::vector<Fd> addresses_;
  std::list<Child> children_;
  std::optional<Listener> listener_;
};

constexpr std::uint64_t kListener = 1'000'000;

// The clients' channels, which the first message of each numbers.
struct Accepted {
  std::map<std::uint64_t, Channel> channels;

  void accept_all(Poller& poller, Listener& listener) {
    while (auto channel = listener.try_accept()) {
      const std::uint64_t token = next_++;
      const auto [place, fresh] = channels.emplace(token, std::move(*channel));
      poller.add(place->second, Events::kReadable, token);
    }
  }

 private:
  std::uint64_t next_ = 0;
};

// --- a server

class PollerServerTest : public testing::TestWithParam<ChannelKind> {};

TEST_P(PollerServerTest, OneThreadAcceptsServesAndSeesOffManyClients) {
  constexpr unsigned kClients = 6;
  const auto rounds = scaled(200);
  Server server(GetParam());
  server.start(kClients, [&](Channel& channel, unsigned number) {
    for (std::size_t i = 0; i < rounds; ++i) {
      send_pattern(channel, i % 5000, number + i);
      const Message answer = channel.receive();
      if (!answer || answer.size() != i % 5000) throw std::runtime_error("a wrong answer");
      // A pause in which the server arms this channel; that it does so says no event.
      if (i % 50 == number) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    channel.shutdown();
  });
  Poller poller;
  poller.add(server.listener(), kListener);
  Accepted accepted;
  std::size_t served = 0;
  unsigned ended = 0;
  std::array<Event, 4> events;
  while (ended < kClients) {
    const std::size_t count = poller.wait(events, hang_limit());
    ASSERT_NE(count, 0u) << "after " << served << " messages";
    for (const Event& event : std::span(events).first(count)) {
      if (event.token == kListener) {
        accepted.accept_all(poller, server.listener());
        continue;
      }
      Channel& channel = accepted.channels.at(event.token);
      const auto message = channel.try_receive();
      ASSERT_TRUE(message);
      if (*message) {
        channel.send(message->bytes());
        ++served;
      } else {
        ++ended;
        accepted.channels.erase(event.token);
      }
    }
  }
  EXPECT_EQ(served, kClients * rounds);
  server.join();
}

INSTANTIATE_TEST_SUITE_P(Channels, PollerServerTest, testing::ValuesIn(channel_kinds()),
                         [](const auto& parameter) {
                           return testing::PrintToString(parameter.param);
                         });

TEST(PollerMany, KilledPeersAmongFiftyAreToldOnceEachAndTheOthersGoOn) {
  constexpr unsigned kClients = 50;
  constexpr unsigned kKilled = 10;
  Server server(kRing);
  server.start(kClients, [](Channel& channel, unsigned number) {
    channel.send(std::to_string(number));
    while (const Message message = channel.receive()) channel.send(message.bytes());
  });
  Poller poller;
  poller.add(server.listener(), kListener);
  Accepted accepted;
  std::map<std::uint64_t, unsigned> number_of;  // by token
  std::map<unsigned, unsigned> told;            // how often, by number
  std::map<unsigned, unsigned> answers;
  std::array<Event, 8> events;
  // False: it failed.
  const auto turn = [&]() -> bool {
    const std::size_t count = poller.wait(events, hang_limit());
    EXPECT_NE(count, 0u);
    for (const Event& event : std::span(events).first(count)) {
      if (event.token == kListener) {
        accepted.accept_all(poller, server.listener());
        continue;
      }
      Channel& channel = accepted.channels.at(event.token);
      try {
        const auto message = channel.try_receive();
        EXPECT_TRUE(message && *message);
        if (!message || !*message) return false;
        if (!number_of.contains(event.token))
          number_of[event.token] = static_cast<unsigned>(std::stoul(std::string(message->text())));
        else
          ++answers[number_of[event.token]];
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kPeerDied) << error.what();
        ++told[number_of[event.token]];
        poller.remove(channel);
      }
    }
    return count != 0;
  };
  while (number_of.size() < kClients)
    if (!turn()) return;
  auto child = server.children().begin();
  for (unsigned i = 0; i < kKilled; ++i, ++child) child->kill();
  while (told.size() < kKilled)
    if (!turn()) return;
  for (auto& [token, number] : number_of)
    if (number >= kKilled) accepted.channels.at(token).send("ping");
  while (answers.size() < kClients - kKilled)
    if (!turn()) return;
  EXPECT_EQ(poller.wait(events, kNoTime), 0u);
  for (unsigned i = 0; i < kKilled; ++i) EXPECT_EQ(told[i], 1u) << i;
  EXPECT_EQ(told.size(), kKilled);
  accepted.channels.clear();
  server.listener().close();
}

// --- in one process

TEST(PollerMany, IdleChannelsAreNotLookedAt) {
  constexpr std::size_t kChannels = 200;
  const auto rounds = scaled(2000);
  Pairs pairs;
  pairs.make(kRing, kChannels);
  Poller poller;
  pairs.add_to(poller);
  std::array<Event, 16> events;
  // A wait that sleeps arms them all.
  while (poller.stats().arms < kChannels)
    EXPECT_EQ(poller.wait(events, std::chrono::milliseconds(20)), 0u);
  const PollerStats before = poller.stats();
  for (std::size_t i = 0; i < rounds; ++i) {
    pairs.theirs[77]->send("hello");
    ASSERT_EQ(poller.wait(events, hang_limit()), 1u);
    ASSERT_EQ(events[0].token, 77u);
    ASSERT_TRUE(pairs.ours[77]->try_receive());
  }
  const PollerStats after = poller.stats();
  // As the message is there before the wait, one look finds it, or an event and one look.
  EXPECT_LE(after.looks - before.looks, 3 * rounds);
  EXPECT_LE(after.arms - before.arms, rounds);
  EXPECT_EQ(after.events - before.events, rounds);
}

TEST(PollerMany, HotChannelsThatFallSilentAreLeftAlone) {
  constexpr std::size_t kChannels = 50;
  Pairs pairs;
  pairs.make(kRing, kChannels);
  Poller poller;
  pairs.add_to(poller);
  std::array<Event, kChannels> events;
  for (const auto& channel : pairs.theirs) channel->send("hello");
  std::size_t taken = 0;
  while (taken < kChannels) {
    const std::size_t count = poller.wait(events, hang_limit());
    ASSERT_NE(count, 0u);
    for (std::size_t i = 0; i < count; ++i, ++taken)
      ASSERT_TRUE(pairs.ours[events[i].token]->try_receive());
  }
  // One goes on: the others are looked at for a while, and then no more.
  const auto looks_of = [&](std::size_t rounds) {
    const std::uint64_t before = poller.stats().looks;
    for (std::size_t i = 0; i < rounds; ++i) {
      pairs.theirs[0]->send("hello");
      EXPECT_EQ(poller.wait(events, hang_limit()), 1u);
      EXPECT_TRUE(pairs.ours[0]->try_receive());
    }
    return poller.stats().looks - before;
  };
  looks_of(200);
  EXPECT_LE(looks_of(100), 300u);
}

TEST(PollerMany, ACallerThatNeverBlocksLeavesIdleChannelsAloneToo) {
  Pairs pairs;
  pairs.make(kRing, 20);
  Poller poller;
  pairs.add_to(poller);
  std::array<Event, 4> events;
  const auto looks_of = [&](std::size_t calls) {
    const std::uint64_t before = poller.stats().looks;
    for (std::size_t i = 0; i < calls; ++i) EXPECT_EQ(poller.wait(events, kNoTime), 0u);
    return poller.stats().looks - before;
  };
  looks_of(3000);
  EXPECT_EQ(looks_of(100), 0u);
  pairs.theirs[7]->send("hello");
  ASSERT_EQ(poller.wait(events, kNoTime), 1u);
  EXPECT_EQ(events[0].token, 7u);
}

TEST(PollerMany, AFloodStarvesNobody) {
  Pairs pairs;
  pairs.make(kRing, 4);
  pairs.make({"tcp", "tcp"}, 2);
  Poller poller;
  pairs.add_to(poller);
  std::array<int, 2> pipe_ends{};
  check(pipe2(pipe_ends.data(), O_CLOEXEC), "pipe2");
  const Fd read_end(pipe_ends[0]), write_end(pipe_ends[1]);
  poller.add(read_end.get(), Events::kReadable, 100);
  // Two that always have something, one on each transport; the array has room for one event.
  std::atomic<bool> stop{false};
  std::thread flood([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      for (const std::size_t i : {0, 4}) static_cast<void>(pairs.theirs[i]->try_send("flood"));
      static_cast<void>(pairs.theirs[4]->try_flush());
    }
  });
  std::map<std::uint64_t, std::size_t> counts;
  std::array<Event, 1> event;
  const auto rounds = scaled(100);
  const std::vector<std::uint64_t> others{1, 2, 3, 5, 100};
  std::size_t round = 0;
  for (; round < rounds || counts[0] < rounds || counts[4] < rounds; ++round) {
    for (const std::uint64_t i : others) {
      if (i != 100) {
        pairs.theirs[i]->send("now and then");
        pairs.theirs[i]->flush();
      } else {
        ASSERT_EQ(write(write_end.get(), "x", 1), 1);
      }
    }
    std::size_t missing = others.size();
    while (missing > 0) {
      ASSERT_EQ(poller.wait(event, hang_limit()), 1u);
      const std::uint64_t token = event[0].token;
      ++counts[token];
      if (token == 100) {
        char byte = 0;
        ASSERT_EQ(read(read_end.get(), &byte, 1), 1);
        --missing;
      } else {
        ASSERT_TRUE(pairs.ours[token]->try_receive());
        if (token != 0 && token != 4) --missing;
      }
    }
  }
  stop.store(true, std::memory_order_relaxed);
  flood.join();
  for (const std::uint64_t i : others) EXPECT_EQ(counts[i], round) << i;
}

TEST(PollerMany, AMixOfDevicesAndTransports) {
  Pairs pairs;
  for (const ChannelKind& kind : channel_kinds()) pairs.make(kind);
  Poller poller;
  pairs.add_to(poller);
  std::array<Event, 64> events;
  for (std::size_t round = 0; round < scaled(50); ++round) {
    for (const auto& channel : pairs.theirs) send_pattern(*channel, 100 * round, round);
    for (std::size_t taken = 0; taken < pairs.ours.size();) {
      const std::size_t count = poller.wait(events, hang_limit());
      ASSERT_NE(count, 0u);
      for (std::size_t i = 0; i < count; ++i, ++taken)
        expect_message(*pairs.ours[events[i].token]->try_receive(), 100 * round, round);
    }
    EXPECT_EQ(poller.wait(events, round % 2 == 0 ? kNoTime : nanoseconds(100'000)), 0u);
  }
}

}  // namespace
}  // namespace leat::detail

// A poller of many: channels of any mix of devices and transports, listeners, other descriptors.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
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

#include "base/epoll.h"
#include "base/system_error.h"
#include "channel/channel_core.h"
#include "channel/poller_core.h"
#include "leat/poller.h"
#include "support/channel_side.h"
#include "support/errors.h"
#include "support/lone_core.h"
#include "support/scale.h"
#include "support/silent_transport.h"

namespace leat::detail {
namespace {

using std::chrono::nanoseconds;

constexpr nanoseconds kNoTime{0};

const ChannelKind kRing{"ring", "shm"};

// A process that runs `body`, and then ends without destroying anything.
class Child {
 public:
  explicit Child(const std::function<void()>& body) : process_(check(fork(), "fork")) {
    if (process_ != 0) return;
    try {
      body();
    } catch (const std::exception& error) {
      fprintf(stderr, "child: %s\n", error.what());
      _exit(1);
    }
    _exit(0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    kill();
    join();
  }

  void kill() {
    if (process_ > 0) ::kill(process_, SIGKILL);
  }
  int join() {
    int status = 0;
    if (process_ > 0) waitpid(std::exchange(process_, 0), &status, 0);
    return status;
  }

 private:
  pid_t process_;
};

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

// Pairs of channels whose two ends are both here.
class Pairs {
 public:
  void make(const ChannelKind& kind, std::size_t count = 1) {
    Options options = channel_options(kind);
    Listener listener(listening_address(kind), options);
    for (std::size_t i = 0; i < count; ++i) {
      theirs.push_back(nullptr);
      std::thread client([&] {
        theirs.back() = std::make_unique<Channel>(Channel::connect(listener.address(), options));
      });
      ours.push_back(std::make_unique<Channel>(listener.accept()));
      client.join();
    }
  }
  void add_to(Poller& poller, Events events = Events::kReadable) {
    for (std::size_t i = 0; i < ours.size(); ++i) poller.add(*ours[i], events, i);
  }

  std::vector<std::unique_ptr<Channel>> ours, theirs;
};

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

// --- listeners and other descriptors

TEST(PollerPlain, DescriptorsAreReportedAsEpollSaysIt) {
  Poller poller;
  std::array<int, 2> ends{};
  check(pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), "pipe2");
  Fd read_end(ends[0]), write_end(ends[1]);
  poller.add(read_end.get(), Events::kReadable, 1);
  poller.add(write_end.get(), Events::kRoom | Events::kOneShot, 2);
  std::array<Event, 4> events;
  ASSERT_EQ(poller.wait(events, hang_limit()), 1u);
  EXPECT_EQ(events[0].token, 2u);
  EXPECT_EQ(events[0].events, Events::kRoom);
  EXPECT_EQ(poller.wait(events, kNoTime), 0u);
  ASSERT_EQ(write(write_end.get(), "ab", 2), 2);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(poller.wait(events, hang_limit()), 1u);
    EXPECT_EQ(events[0].token, 1u);
    EXPECT_EQ(events[0].events, Events::kReadable);
  }
  poller.modify(read_end.get(), Events::kReadable | Events::kOneShot);
  ASSERT_EQ(poller.wait(events, hang_limit()), 1u);
  EXPECT_EQ(poller.wait(events, kNoTime), 0u);
  poller.modify(read_end.get(), Events::kNone);
  write_end.reset();  // a hangup, which nobody wants
  EXPECT_EQ(poller.wait(events, std::chrono::milliseconds(1)), 0u);
  poller.modify(read_end.get(), Events::kReadable);
  ASSERT_EQ(poller.wait(events, hang_limit()), 1u);
  poller.remove(read_end.get());
  EXPECT_EQ(poller.wait(events, kNoTime), 0u);
  expect_error(ErrorCode::kInvalidArgument, [&] { poller.remove(read_end.get()); });
}

TEST(PollerPlain, AnEventfdWakesItFromAnotherThread) {
  Poller poller;
  const Fd event = new_event();
  poller.add(event.get(), Events::kReadable, 7);
  std::thread other([&] { eventfd_write(event.get(), 1); });
  std::array<Event, 1> events;
  EXPECT_EQ(poller.wait(events, hang_limit()), 1u);
  other.join();
}

TEST(PollerPlain, AListenerLeavesWhenItIsDestroyedAndAnotherPollerMayHaveIt) {
  std::array<Poller, 2> pollers;
  std::optional<Listener> listener(std::in_place, "127.0.0.1:0", channel_options(kRing));
  pollers[0].add(*listener, 1);
  expect_error(ErrorCode::kInvalidArgument, [&] { pollers[1].add(*listener, 1); });
  pollers[0].remove(*listener);
  Listener moved = std::move(*listener);
  pollers[1].add(moved, 1);
  std::optional<Channel> client;
  std::thread connects([&] { client = Channel::connect(moved.address(), channel_options(kRing)); });
  std::array<Event, 1> events;
  std::optional<Channel> accepted;
  while (!accepted) {
    ASSERT_EQ(pollers[1].wait(events, hang_limit()), 1u);
    accepted = moved.try_accept();
  }
  connects.join();
  moved.close();
  ASSERT_EQ(pollers[1].wait(events, hang_limit()), 1u);
  expect_error(ErrorCode::kClosed, [&] { static_cast<void>(moved.try_accept()); });
  { const Listener gone = std::move(moved); }
  EXPECT_EQ(pollers[1].wait(events, kNoTime), 0u);
}

// --- misuse

TEST(PollerMisuse, WhatCannotBeAddedChangesNothing) {
  Pairs pairs;
  pairs.make(kRing, 2);
  Poller poller;
  poller.add(*pairs.ours[0], Events::kReadable, 0);
  expect_error(ErrorCode::kInvalidArgument,
               [&] { poller.add(*pairs.ours[0], Events::kReadable, 1); });
  expect_error(ErrorCode::kInvalidArgument, [&] { poller.remove(*pairs.ours[1]); });
  expect_error(ErrorCode::kInvalidArgument,
               [&] { poller.modify(*pairs.ours[1], Events::kReadable); });
  Channel taken = std::move(*pairs.ours[1]);
  expect_error(ErrorCode::kClosed, [&] { poller.add(*pairs.ours[1], Events::kReadable, 1); });
  taken.close();
  expect_error(ErrorCode::kClosed, [&] { poller.add(taken, Events::kReadable, 1); });
  expect_error(ErrorCode::kInvalidArgument, [&] { poller.add(-1, Events::kReadable, 1); });
  const Fd file(check(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), "open"));
  for (int i = 0; i < 2; ++i)
    expect_error(ErrorCode::kInvalidArgument,
                 [&] { poller.add(file.get(), Events::kReadable, 1); });
  expect_error(ErrorCode::kInvalidArgument, [&] { poller.wait({}, kNoTime); });
  Poller other = std::move(poller);
  expect_error(ErrorCode::kClosed, [&] { poller.remove(*pairs.ours[0]); });
  expect_error(ErrorCode::kClosed, [&] { poller.fd(); });
  pairs.theirs[0]->send("x");
  std::array<Event, 4> events;
  ASSERT_EQ(other.wait(events, hang_limit()), 1u);
  EXPECT_EQ(events[0].token, 0u);
}

TEST(PollerMisuse, AClosedChannelIsReadableAlsoIfAnotherThreadClosesIt) {
  Pairs pairs;
  pairs.make(kRing);
  Poller poller;
  pairs.add_to(poller);
  std::array<Event, 1> events;
  EXPECT_EQ(poller.wait(events, kNoTime), 0u);
  std::thread other([&] { pairs.ours[0]->close(); });
  ASSERT_EQ(poller.wait(events, hang_limit()), 1u);
  other.join();
  expect_error(ErrorCode::kClosed, [&] { static_cast<void>(pairs.ours[0]->try_receive()); });
  EXPECT_EQ(poller.wait(events, hang_limit()), 1u);
}

TEST(PollerMisuse, AChildOfForkMayUseNothingAndHarmsNothing) {
  Pairs pairs;
  pairs.make(kRing);
  auto poller = std::make_unique<Poller>();
  pairs.add_to(*poller);
  Child child([&] {
    const auto refuses = [](const std::function<void()>& call) {
      try {
        call();
      } catch (const Error& error) {
        if (error.code() == ErrorCode::kClosed) return;
      }
      throw std::runtime_error("the child may use the poller");
    };
    std::array<Event, 1> events;
    refuses([&] { poller->wait(events, kNoTime); });
    refuses([&] { poller->remove(*pairs.ours[0]); });
    refuses([&] { poller->modify(*pairs.ours[0], Events::kNone); });
    refuses([&] { poller->add(0, Events::kReadable, 1); });
    refuses([&] { poller->fd(); });
    pairs.ours.clear();
    poller.reset();
  });
  EXPECT_EQ(child.join(), 0);
  pairs.theirs[0]->send("x");
  std::array<Event, 1> events;
  ASSERT_EQ(poller->wait(events, hang_limit()), 1u);
  EXPECT_TRUE(pairs.ours[0]->try_receive());
}

// In a child, whose limit it is.
TEST(PollerMisuse, WithoutDescriptorsItSaysSoAndGoesOn) {
  if (kAddressSanitizer) GTEST_SKIP() << "the sanitizers' own checks need descriptors";
  Child child([] {
    Pairs pairs;
    pairs.make(kRing);
    Poller poller;
    rlimit limit{};
    check(getrlimit(RLIMIT_NOFILE, &limit), "getrlimit");
    limit.rlim_cur = 0;  // what is open stays open
    check(setrlimit(RLIMIT_NOFILE, &limit), "setrlimit");
    const auto fails = [](const std::function<void()>& call) {
      try {
        call();
      } catch (const Error& error) {
        if (error.code() == ErrorCode::kResource) return;
      }
      throw std::runtime_error("it does without descriptors");
    };
    fails([] { const Poller another; });
    fails([&] { poller.fd(); });
    pairs.add_to(poller);  // needs none
    pairs.theirs[0]->send("x");
    std::array<Event, 1> events;
    if (poller.wait(events, hang_limit()) != 1 || !pairs.ours[0]->try_receive())
      throw std::runtime_error("it does not go on");
  });
  EXPECT_EQ(child.join(), 0);
}

// --- doubles

// The second of its descriptors cannot be watched.
class WithoutEvents : public SilentTransport {
 public:
  WithoutEvents() { facts_.receive_event_fd = 1'000'000; }
};

TEST(PollerDoubles, AChannelThatCannotBeWatchedIsNotAddedInPart) {
  const LoneCore lone(std::make_unique<WithoutEvents>());
  PollerCore poller;
  for (int i = 0; i < 2; ++i) EXPECT_THROW(poller.add(*lone.core, Events::kReadable, 1), Error);
  expect_error(ErrorCode::kInvalidArgument, [&] { poller.remove(*lone.core); });
  std::array<Event, 1> events;
  EXPECT_EQ(poller.wait(events, kNoTime), 0u);
}

TEST(PollerDoubles, WhatCameBeforeTheLifelinesEndMayShowLate) {
  Settings settings;
  settings.spin = std::chrono::microseconds(0);
  LoneCore lone(std::make_unique<LateEnd>(), settings);
  PollerCore poller;
  poller.add(*lone.core, Events::kReadable, 1);
  lone.peer.reset();
  std::array<Event, 1> events;
  ASSERT_EQ(poller.wait(events, hang_limit()), 1u);
  const auto message = lone.core->try_receive(0);
  ASSERT_TRUE(message.has_value());
  EXPECT_FALSE(*message);
}

TEST(PollerDoubles, APeerThatSpeaksOnItsLifelineIsTold) {
  LoneCore lone(std::make_unique<SilentTransport>());
  PollerCore poller;
  poller.add(*lone.core, Events::kReadable, 1);
  std::array<Event, 1> events;
  EXPECT_EQ(poller.wait(events, kNoTime), 0u);
  ASSERT_EQ(::write(lone.peer.get(), "?", 1), 1);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(poller.wait(events, hang_limit()), 1u);
    expect_error(ErrorCode::kProtocol, [&] { static_cast<void>(lone.core->try_receive(0)); });
  }
}

// What it waits for comes without an event, after a while.
class ComesSilently : public SilentTransport {
 public:
  ReceiveResult try_receive(Context, Delivery&) override {
    return ++looks_ > 200 ? ReceiveResult::kEnd : ReceiveResult::kNothing;
  }
  Outlook outlook(Side, Look) const override { return {.comes = Outlook::Comes::kSilently}; }

  int looks() const { return looks_; }

 private:
  int looks_ = 0;
};

TEST(PollerDoubles, WhatComesSilentlyIsLookedForAfterNapsThatGrow) {
  Settings settings;
  settings.spin = std::chrono::microseconds(0);
  const LoneCore lone(std::make_unique<ComesSilently>(), settings);
  PollerCore poller;
  poller.add(*lone.core, Events::kReadable, 1);
  const Deadline begin = Clock::now();
  std::array<Event, 1> events;
  ASSERT_EQ(poller.wait(events, hang_limit()), 1u);
  EXPECT_GE(poller.stats().sleeps, 10u);
  // The naps that grow to a millisecond: 20 us, 40 us, ... are 1.3 ms together; the rest are full.
  EXPECT_GE(Clock::now() - begin,
            std::chrono::milliseconds(1) * (static_cast<int>(poller.stats().sleeps) - 7));
}

// The same through fd(), by a timer.
TEST(PollerDoubles, WhatComesSilentlyMakesTheDescriptorReadableNowAndThen) {
  const LoneCore lone(std::make_unique<ComesSilently>());
  PollerCore poller;
  const Fd loop = new_epoll_set();
  epoll_add(loop, poller.fd());
  poller.add(*lone.core, Events::kReadable, 1);
  std::array<Event, 1> events;
  epoll_event event{};
  std::size_t found = 0;
  for (int i = 0; found == 0 && i < 1000; ++i) {
    ASSERT_EQ(epoll_wait(loop.get(), &event, 1, poll_timeout_ms(hang_deadline())), 1);
    found = poller.wait(events, kNoTime);
  }
  EXPECT_EQ(found, 1u);
}

}  // namespace
}  // namespace leat::detail

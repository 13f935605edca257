// What a poller watches beside channels of peers: descriptors and listeners; what it refuses to
// watch; and channels that tell less than others.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/epoll.h"
#include "base/system_error.h"
#include "channel/channel_core.h"
#include "channel/poller_core.h"
#include "channel/poller_pairs.h"
#include "support/errors.h"
#include "support/lone_core.h"
#include "support/scale.h"
#include "support/silent_transport.h"

namespace leat::detail {
namespace {

using std::chrono::nanoseconds;

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

// The late device is as free as the contract of src/verbs/device.h, and no freer. Its threads run
// as they are scheduled: what may happen is waited for, and what must not is looked for a while.
#include "support/late_device.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <thread>

#include "support/scale.h"
#include "verbs/table.h"

namespace leat::detail {
namespace {

constexpr std::size_t kLateWords = 64;
constexpr std::size_t kLateRounds = 200;
constexpr std::uint64_t kLateNew = ~std::uint64_t{0};

// Two late devices of one process, connected, with memory that is new here and old there.
struct LateEnds {
  explicit LateEnds(const LateProfile& profile) {
    for (auto* device : {&device_here, &device_there})
      *device = make_late_device(open_device("shm", ""), profile);
    here = device_here->allocate(kLateWords * sizeof kLateNew, kLocalOnly);
    there = device_there->allocate(kLateWords * sizeof kLateNew, kRemoteRead | kRemoteWrite);
    std::memset(here->memory().data(), 0xff, here->memory().size());
    const auto offer = device_there->offer({}, "");
    std::thread accepting([&] { receiver = offer->accept(hang_deadline(), -1); });
    sender = device_here->connect(offer->blob(), {}, hang_deadline());
    accepting.join();
  }

  SendRequest request(Opcode opcode, std::size_t first, std::size_t words) const {
    SendRequest request;
    request.id = first;
    request.opcode = opcode;
    request.local = here->memory().data() + first * sizeof kLateNew;
    request.local_key = here->local_key();
    request.bytes = words * sizeof kLateNew;
    request.remote_address = there->remote().address + first * sizeof kLateNew;
    request.remote_key = there->remote().key;
    return request;
  }
  void post(const SendRequest& request) const { ASSERT_EQ(sender->post_send({&request, 1}), 1U); }
  bool completes() const {
    Completion completion;
    if (sender->poll_sends({&completion, 1}) == 0) return false;
    EXPECT_EQ(completion.status, CompletionStatus::kSuccess);
    return true;
  }
  bool arrives() const {
    Completion completion;
    if (receiver->poll_receives({&completion, 1}) == 0) return false;
    EXPECT_EQ(completion.status, CompletionStatus::kSuccess);
    return true;
  }
  bool has_arrived(std::size_t word) const {
    auto* memory = reinterpret_cast<std::uint64_t*>(there->memory().data());
    // Acquire: what is looked at afterwards is no older.
    return std::atomic_ref(memory[word]).load(std::memory_order_acquire) == kLateNew;
  }
  std::size_t arrived(std::size_t words) const {
    std::size_t count = 0;
    for (std::size_t word = 0; word < words; ++word) count += has_arrived(word) ? 1U : 0U;
    return count;
  }
  void forget() const { std::memset(there->memory().data(), 0, there->memory().size()); }
  static bool readable(int fd) {
    pollfd wait{fd, POLLIN, 0};
    return ::poll(&wait, 1, 0) == 1;
  }

  std::unique_ptr<Device> device_here;
  std::unique_ptr<Device> device_there;
  std::unique_ptr<MemoryRegion> here;
  std::unique_ptr<MemoryRegion> there;
  std::unique_ptr<QueuePair> sender;
  std::unique_ptr<QueuePair> receiver;
};

void wait_until(const std::function<bool()>& ready) {
  for (const Deadline deadline = hang_deadline(); !ready(); std::this_thread::yield())
    if (passed(deadline)) throw std::runtime_error("it never happens");
}

// Parameter: the seed.
class LateDeviceTest : public testing::TestWithParam<std::uint64_t> {
 protected:
  static LateProfile profile() {
    static std::uint64_t devices = 0;  // each does something else
    LateProfile profile;
    profile.seed = GetParam() * 1'000'000 + 1000 * ++devices;
    return profile;
  }
  // Again and again on one connection, until it was seen.
  static void expect_seen(const std::function<bool(LateEnds&)>& round) {
    LateEnds ends(profile());
    wait_until([&] { return round(ends); });
  }
};

TEST_P(LateDeviceTest, WriteMayCompleteBeforeItsBytesAreVisible) {
  expect_seen([](LateEnds& ends) {
    ends.forget();
    ends.post(ends.request(Opcode::kWrite, 0, kLateWords));
    wait_until([&] { return ends.completes(); });
    const bool early = ends.arrived(kLateWords) < kLateWords;
    wait_until([&] { return ends.arrived(kLateWords) == kLateWords; });
    return early;
  });
}

TEST_P(LateDeviceTest, OrderlyOneCompletesWritesOnceTheirBytesAreVisible) {
  LateProfile orderly = profile();
  orderly.completes_early = false;
  const LateEnds ends(orderly);
  for (std::size_t round = 0; round < kLateRounds; ++round) {
    ends.forget();
    ends.post(ends.request(Opcode::kWrite, 0, kLateWords));
    wait_until([&] { return ends.completes(); });
    ASSERT_EQ(ends.arrived(kLateWords), kLateWords);
  }
}

TEST_P(LateDeviceTest, LaterWriteMayBeSeenFirst) {
  expect_seen([](LateEnds& ends) {
    ends.forget();
    ends.post(ends.request(Opcode::kWrite, 0, kLateWords - 1));
    ends.post(ends.request(Opcode::kWrite, kLateWords - 1, 1));
    bool seen = false;
    wait_until([&] {
      const bool last = ends.has_arrived(kLateWords - 1);
      const std::size_t others = ends.arrived(kLateWords - 1);
      seen |= last && others < kLateWords - 1;
      return last && others == kLateWords - 1;
    });
    for (int completed = 0; completed < 2;) completed += ends.completes() ? 1 : 0;
    return seen;
  });
}

TEST_P(LateDeviceTest, ImmediateTellsOfAllWritesBeforeIt) {
  const LateEnds ends(profile());
  for (std::size_t round = 0; round < kLateRounds; ++round) {
    ends.forget();
    EXPECT_EQ(ends.receiver->post_receives(1), 1U);
    ends.post(ends.request(Opcode::kWrite, 0, kLateWords - 1));
    ends.post(ends.request(Opcode::kWriteWithImmediate, kLateWords - 1, 1));
    wait_until([&] { return ends.arrives(); });
    ASSERT_EQ(ends.arrived(kLateWords), kLateWords);
    for (int completed = 0; completed < 2;) completed += ends.completes() ? 1 : 0;
  }
}

TEST_P(LateDeviceTest, ReceiverMayHearOfAnImmediateAfterItsSender) {
  expect_seen([](LateEnds& ends) {
    EXPECT_EQ(ends.receiver->post_receives(1), 1U);
    ends.post(ends.request(Opcode::kWriteWithImmediate, 0, 0));
    wait_until([&] { return ends.completes(); });
    const bool late = !ends.arrives();
    if (late) wait_until([&] { return ends.arrives(); });
    return late;
  });
}

TEST_P(LateDeviceTest, SleepingReceiverHearsOfEveryImmediate) {
  const LateEnds ends(profile());
  for (std::size_t round = 0; round < kLateRounds; ++round) {
    EXPECT_EQ(ends.receiver->post_receives(1), 1U);
    ends.post(ends.request(Opcode::kWriteWithImmediate, 0, 0));
    for (bool heard = false; !heard;) {
      ends.receiver->arm(Side::kReceive);
      heard = ends.arrives();
      if (heard) break;
      pollfd wait{ends.receiver->event_fd(Side::kReceive), POLLIN, 0};
      ASSERT_EQ(::poll(&wait, 1, poll_timeout_ms(hang_deadline())), 1) << "nothing wakes it";
    }
    wait_until([&] { return ends.completes(); });
  }
}

// An immediate waits for its receive meanwhile.
TEST_P(LateDeviceTest, WakesWithoutCauseWhileSomethingIsUnderWayAndOnlyThen) {
  const LateEnds ends(profile());
  ends.post(ends.request(Opcode::kWriteWithImmediate, 0, 0));
  for (const Side side : {Side::kSend, Side::kReceive}) {
    ends.sender->arm(side);
    wait_until([&] { return LateEnds::readable(ends.sender->event_fd(side)); });
  }
  EXPECT_EQ(ends.receiver->post_receives(1), 1U);
  wait_until([&] { return ends.completes(); });
  wait_until([&] { return ends.arrives(); });
  const auto quiet = [](QueuePair& end) {
    for (const Side side : {Side::kSend, Side::kReceive}) {
      end.arm(side);
      for (int i = 0; i < 1000; ++i) {
        if (LateEnds::readable(end.event_fd(side))) return false;
        std::this_thread::yield();
      }
    }
    return true;
  };
  wait_until(
      [&] { return quiet(*ends.sender); });  // its thread may just have raised the last event
  EXPECT_TRUE(quiet(*ends.sender));
  EXPECT_TRUE(quiet(*ends.receiver));
}

TEST_P(LateDeviceTest, TakesNoMoreReceivesThanItsQueueHasRoomFor) {
  LateProfile small = profile();
  small.max_receive_requests = 16;
  const LateEnds ends(small);
  EXPECT_EQ(ends.receiver->post_receives(100), 16U);
  for (int i = 0; i < 8; ++i) ends.post(ends.request(Opcode::kWriteWithImmediate, 0, 0));
  for (int completed = 0; completed < 8;) completed += ends.completes() ? 1 : 0;
  for (std::size_t taken = 0; taken < 8;) {
    if (!ends.arrives()) continue;
    ++taken;
    ASSERT_EQ(ends.receiver->post_receives(100), 1U);  // what arrived and was not polled holds its
  }
}

TEST_P(LateDeviceTest, WhatHasCompletedLandsBeforeItsQueuePairIsDestroyed) {
  for (const bool peer_first : {false, true}) {
    wait_until([&] {
      LateEnds ends(profile());
      ends.post(ends.request(Opcode::kWrite, 0, kLateWords));
      wait_until([&] { return ends.completes(); });
      if (peer_first) ends.receiver.reset();
      const bool early = ends.arrived(kLateWords) < kLateWords;
      ends.sender.reset();
      EXPECT_EQ(ends.arrived(kLateWords), kLateWords);
      return early;
    });
  }
}

// The memory of the later one goes, which its queue pair may find out before the first has landed.
TEST_P(LateDeviceTest, WhatHasCompletedLandsAlthoughALaterRequestFails) {
  wait_until([] {
    const LateEnds ends(profile());
    auto region = ends.device_there->allocate(kLateWords * sizeof kLateNew, kRemoteWrite);
    SendRequest late = ends.request(Opcode::kWrite, 0, kLateWords);
    late.remote_address = region->remote().address;
    late.remote_key = region->remote().key;
    ends.post(ends.request(Opcode::kWrite, 0, kLateWords));
    ends.post(late);
    region.reset();
    std::array<Completion, 2> completions;
    for (Completion& completion : completions)
      wait_until([&] { return ends.sender->poll_sends({&completion, 1}) == 1; });
    const bool first_only = completions[0].status == CompletionStatus::kSuccess &&
                            completions[1].status != CompletionStatus::kSuccess;
    EXPECT_TRUE(!first_only || ends.arrived(kLateWords) == kLateWords);
    return first_only;
  });
}

TEST_P(LateDeviceTest, NothingRunsBehindAWriteThatIsRefused) {
  for (std::size_t round = 0; round < kLateRounds / 10; ++round) {
    const LateEnds ends(profile());
    SendRequest refused = ends.request(Opcode::kWrite, 0, 1);
    refused.remote_key ^= 0x10;
    ends.post(refused);
    ends.post(ends.request(Opcode::kWrite, 0, kLateWords));
    for (const auto status : {CompletionStatus::kRemoteAccess, CompletionStatus::kFlushed}) {
      Completion completion;
      wait_until([&] { return ends.sender->poll_sends({&completion, 1}) == 1; });
      EXPECT_EQ(completion.status, status);
    }
    ASSERT_EQ(ends.arrived(kLateWords), 0U);
  }
}

// As transports do that are destroyed in the middle of a transfer.
TEST_P(LateDeviceTest, MemoryMayGoBeforeTheRequestsThatNameItAreOver) {
  for (std::size_t round = 0; round < kLateRounds; ++round) {
    LateEnds ends(profile());
    for (const Opcode opcode : {Opcode::kWrite, Opcode::kRead, Opcode::kWrite, Opcode::kRead})
      ends.post(ends.request(opcode, 0, kLateWords));
    ends.here.reset();
    for (int i = 0; i < 10; ++i) std::this_thread::yield();
  }
}

TEST_P(LateDeviceTest, OneWithoutImmediatesSaysSoAndTakesNone) {
  LateProfile iwarp = profile();
  iwarp.immediates = false;
  const LateEnds ends(iwarp);
  EXPECT_FALSE(ends.device_here->limits().immediates);
  const SendRequest request = ends.request(Opcode::kWriteWithImmediate, 0, 1);
  EXPECT_THROW(ends.sender->post_send({&request, 1}), std::logic_error);
}

INSTANTIATE_TEST_SUITE_P(Seeds, LateDeviceTest, testing::Values(1, 2, 3));

}  // namespace
}  // namespace leat::detail

// What the ib device does behind the contract of queue pairs: its timers, the slots of its send
// queue, what a device refuses, and forks. Needs a device: LEAT_TEST_IB=NAME, and for the
// connecting end another one if LEAT_TEST_IB_PEER names it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/devices.h"
#include "support/pattern.h"
#include "support/scale.h"
#include "support/verbs_side.h"
#include "verbs/ib/address.h"
#include "verbs/ib/probe.h"
#include "verbs/ib_connection.h"
#include "verbs/table.h"

namespace leat::detail {
namespace {

using testing::HasSubstr;

TEST_F(IbConnection, HasARnrTimerAndATimeoutThatFitMessaging) {
  for (const auto& [end, here, there] :
       {std::tuple{&first_, name_, peer_name_}, std::tuple{&second_, peer_name_, name_}}) {
    const std::string text = end->queue_pair->describe();
    EXPECT_THAT(text, HasSubstr("reads 16 and 16, RNR timer 12, timeout 16, state RTS"));
    EXPECT_THAT(text, HasSubstr(here + ":1 Ethernet, MTU "));
    EXPECT_THAT(text, HasSubstr(" to " + device_address(there) + ":"));
    EXPECT_THAT(text, HasSubstr("GID ::ffff:" + device_address(here) +
                                " to ::ffff:" + device_address(there)));
  }
}

TEST_F(IbConnection, ConnectsAlthoughThePeerReachedALoopbackAddress) {
  for (const char* loopback : {"127.0.0.1", "::1"}) {
    connect(loopback);
    first_.post(write(1));
    first_.expect_send(1, CompletionStatus::kSuccess);
  }
}

TEST_F(IbConnection, ConnectsByEveryAddressOfTheDevice) {
  for (const IbAddress& address : ib_addresses(name_.substr(3))) {
    connect(address.text());
    first_.post(write(1));
    first_.expect_send(1, CompletionStatus::kSuccess);
    const std::string without_interface = address.text().substr(0, address.text().find('%'));
    EXPECT_THAT(second_.queue_pair->describe(), HasSubstr(without_interface));
  }
}

TEST_F(IbConnection, UnsignaledWritesFreeTheirSlotsWithoutCompletions) {
  const std::size_t count = scaled(100'000);
  for (const std::size_t depth : {1u, 3u, 16u, 256u}) {
    connect(device_address(name_), {.send_requests = depth, .receive_requests = 16});
    std::uint64_t counter = 0;
    const Deadline deadline = hang_deadline();
    while (counter < count) {
      ASSERT_FALSE(passed(deadline)) << counter << " with depth " << depth;
      std::array<SendRequest, 7> batch;
      std::array<std::uint64_t, 7> values;
      for (std::size_t i = 0; i < batch.size(); ++i) {
        values[i] = counter + i + 1;
        batch[i] = write(values[i]);
        batch[i].local = &values[i];
        batch[i].inlined = true;
        batch[i].signaled = false;
      }
      counter += first_.queue_pair->post_send(batch);
    }
    SendRequest last = write(counter + 1, 64);
    while (first_.queue_pair->post_send({&last, 1}) == 0) ASSERT_FALSE(passed(deadline));
    first_.expect_send(counter + 1, CompletionStatus::kSuccess);
    std::uint64_t arrived = 0;
    std::memcpy(&arrived, second_.region->memory().data(), sizeof(arrived));
    EXPECT_EQ(arrived, counter) << "with depth " << depth;
  }
}

TEST_F(IbConnection, TakesUnsignaledWritesOfASecondThreadWithoutLosingACompletion) {
  const std::size_t count = scaled(20'000);
  std::atomic<bool> stop{false};
  std::uint64_t credits = 0;
  std::thread receiver([&] {
    SendRequest credit = write(~std::uint64_t{0}, 128);
    credit.local = &credits;
    credit.inlined = true;
    credit.signaled = false;
    while (!stop) {
      ++credits;
      while (first_.queue_pair->post_send({&credit, 1}) == 0 && !stop) std::this_thread::yield();
    }
  });
  std::uint64_t posted = 0;
  std::uint64_t completed = 0;
  const Deadline deadline = hang_deadline();
  while (completed < count && !passed(deadline)) {
    const SendRequest request = write(posted);
    if (posted < count) posted += first_.queue_pair->post_send({&request, 1});
    Completion completion;
    while (first_.queue_pair->poll_sends({&completion, 1}) == 1) {
      EXPECT_EQ(completion.id, completed++);
      ASSERT_EQ(completion.status, CompletionStatus::kSuccess);
    }
  }
  stop = true;
  receiver.join();
  EXPECT_EQ(completed, count);
}

TEST_F(IbConnection, PeerInErrorThatSaysNothingIsGoneWithinTheTimeout) {
  // A receive with a key that is none ends the peer's queue pair, not its connection.
  SendRequest bad = write_request({*second_.region, 0, first_.region->remote(), 0, 8}, 1);
  bad.local_key = ~bad.local_key;
  second_.post(bad);
  second_.expect_send(1, CompletionStatus::kLocalAccess);
  first_.post(write(2));
  first_.expect_send(2, CompletionStatus::kPeerGone);
  EXPECT_THAT(first_.queue_pair->describe(), HasSubstr("state ERR"));
}

TEST_F(IbConnection, RequestAboveTheDevicesLimitIsALengthErrorInItsTurn) {
  const Limits limits = first_.device->limits();
  for (const bool inlined : {false, true}) {
    connect(device_address(name_));
    fill_pattern(first_.region->memory(), 1);
    SendRequest before = write(1, 0, 4096);
    before.signaled = false;
    SendRequest large = write(2);
    large.inlined = inlined;
    large.bytes = (inlined ? limits.max_inline_bytes : limits.max_request_bytes) + 1;
    const std::array requests{before, large, write(3, 8192)};
    ASSERT_EQ(first_.queue_pair->post_send(requests), requests.size());
    first_.expect_send(2, CompletionStatus::kLength);
    first_.expect_send(3, CompletionStatus::kFlushed);
    expect_pattern(second_.region->memory().first(4096), 1);
    expect_filled(second_.region->memory().subspan(4096), std::byte{0});
  }
}

TEST_F(IbConnection, ConnectionOfTheParentSurvivesAChildThatDestroysItsCopy) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    first_ = End();
    second_ = End();
    std::_Exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  first_.post(write(1));
  first_.expect_send(1, CompletionStatus::kSuccess);
  EXPECT_THAT(first_.queue_pair->describe(), HasSubstr("state RTS"));
}

TEST_F(IbConnection, SecondAcceptOfAnOfferIsAnError) {
  const auto offer = first_.device->offer({}, device_address(name_));
  auto accepted =
      std::async(std::launch::async, [&] { return offer->accept(notice_deadline(), -1); });
  const auto active = second_.device->connect(offer->blob(), {}, notice_deadline());
  const auto passive = accepted.get();
  EXPECT_THROW(offer->accept(notice_deadline(), -1), Error);
  EXPECT_THROW(second_.device->connect(offer->blob(), {}, notice_deadline()), Error);
}

TEST_F(IbConnection, TriesAsLongAsItIsTold) {
  using std::chrono::milliseconds;
  for (const auto& [timeout, text] : {std::pair{milliseconds(100), "timeout 12,"},
                                      {milliseconds(1800), "timeout 16,"},
                                      {milliseconds(20'000), "timeout 20,"},
                                      {milliseconds(-1), "timeout 31,"}}) {
    for (End* end : {&first_, &second_}) end->device->set_peer_timeout(timeout);
    const auto offer = first_.device->offer({}, device_address(name_));
    auto accepted =
        std::async(std::launch::async, [&] { return offer->accept(notice_deadline(), -1); });
    const auto active = second_.device->connect(offer->blob(), {}, notice_deadline());
    EXPECT_THAT(active->describe(), HasSubstr(text));
    EXPECT_THAT(accepted.get()->describe(), HasSubstr(text));
  }
}

}  // namespace
}  // namespace leat::detail

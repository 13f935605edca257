// What the ib device does behind the contract of queue pairs: its timers, the slots of its send
// queue, what a device refuses, and forks. Needs a device: LEAT_TEST_IB=NAME, and for the
// connecting end another one if LEAT_TEST_IB_PEER names it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

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
#include "verbs/device_table.h"
#include "verbs/ib_address.h"
#include "verbs/ib_handle.h"
#include "verbs/ib_probe.h"

namespace leat::detail {
namespace {

using testing::HasSubstr;

constexpr std::size_t kRegionBytes = 64 * 1024;

// One end of a connection inside this process, with memory that the other end may write and read.
struct End {
  std::unique_ptr<Device> device;
  std::unique_ptr<MemoryRegion> region;
  std::unique_ptr<QueuePair> queue_pair;

  Completion next(Side side) {
    Completion completion;
    const Deadline deadline = notice_deadline();
    const auto poll = [&] {
      return side == Side::kSend ? queue_pair->poll_sends({&completion, 1})
                                 : queue_pair->poll_receives({&completion, 1});
    };
    while (poll() == 0) {
      if (passed(deadline)) throw std::runtime_error("no completion: " + queue_pair->describe());
      std::this_thread::yield();
    }
    return completion;
  }
  void post(const SendRequest& request) { ASSERT_EQ(queue_pair->post_send({&request, 1}), 1u); }
  void expect_send(std::uint64_t id, CompletionStatus status) {
    const Completion completion = next(Side::kSend);
    EXPECT_EQ(completion.id, id);
    EXPECT_STREQ(to_string(completion.status), to_string(status)) << "of request " << id;
  }
  void expect_receive(std::uint64_t id, CompletionStatus status) {
    const Completion completion = next(Side::kReceive);
    EXPECT_EQ(completion.id, id);
    EXPECT_STREQ(to_string(completion.status), to_string(status)) << "of request " << id;
  }
};

class IbConnection : public testing::Test {
 protected:
  void SetUp() override {
    const char* name = std::getenv("LEAT_TEST_IB");
    if (name == nullptr || *name == '\0') GTEST_SKIP() << "LEAT_TEST_IB names no verbs device";
    name_ = peer_name_ = std::string("ib:") + name;
    if (const char* peer = std::getenv("LEAT_TEST_IB_PEER")) peer_name_ = std::string("ib:") + peer;
    connect(device_address(name_));
  }

  void connect(const std::string& address, const QueueDepths& depths = {}) {
    for (End* end : {&first_, &second_}) {
      end->queue_pair.reset();
      end->region.reset();
      end->device = open_device(end == &first_ ? name_ : peer_name_, "");
      end->region = end->device->allocate(kRegionBytes, kRemoteRead | kRemoteWrite);
    }
    const auto offer = first_.device->offer(depths, address);
    auto accepted =
        std::async(std::launch::async, [&] { return offer->accept(notice_deadline(), -1); });
    second_.queue_pair = second_.device->connect(offer->blob(), depths, notice_deadline());
    first_.queue_pair = accepted.get();
  }

  // Of `bytes` from the first end's region into the second's, at the same offset.
  SendRequest write(std::uint64_t id, std::size_t offset = 0, std::size_t bytes = 8) const {
    return write_request({*first_.region, offset, second_.region->remote(), offset, bytes}, id);
  }

  std::string name_;
  std::string peer_name_;
  End first_;
  End second_;
};

TEST_F(IbConnection, HasARnrTimerAndATimeoutThatFitMessaging) {
  for (const auto& [end, here, there] :
       {std::tuple{&first_, name_, peer_name_}, std::tuple{&second_, peer_name_, name_}}) {
    const std::string text = end->queue_pair->describe();
    EXPECT_THAT(text, HasSubstr("RNR timer 12, timeout 16, state RTS"));
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

// --- A device that refuses requests, which only hardware does. Its functions are replaced for the
// thread that asks for it.

thread_local bool refuses = false;
decltype(ibv_context_ops::post_send) device_post_send = nullptr;
decltype(ibv_context_ops::post_recv) device_post_receive = nullptr;

// Takes the first of a list and refuses the second.
template <class Work, class Post>
int post_first_only(ibv_qp* queue_pair, Work* works, Work** refused, Post post) {
  if (!refuses) return post(queue_pair, works, refused);
  Work* rest = works->next;
  works->next = nullptr;
  const int result = post(queue_pair, works, refused);
  if (result != 0 || rest == nullptr) return result;
  *refused = rest;
  return EINVAL;
}

class IbRefusal : public IbConnection {
 protected:
  void SetUp() override {
    IbConnection::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    int count = 0;
    const IbDeviceList list(ibv_get_device_list(&count));
    for (ibv_device* device : std::span(list.get(), static_cast<std::size_t>(count))) {
      if (ibv_get_device_name(device) == name_.substr(3)) context_ = open_ib_context(device);
    }
    ASSERT_NE(context_, nullptr);
    device_post_send = context_->ops.post_send;
    device_post_receive = context_->ops.post_recv;
    context_->ops.post_send = [](ibv_qp* queue_pair, ibv_send_wr* works, ibv_send_wr** refused) {
      return post_first_only(queue_pair, works, refused, device_post_send);
    };
    context_->ops.post_recv = [](ibv_qp* queue_pair, ibv_recv_wr* works, ibv_recv_wr** refused) {
      return post_first_only(queue_pair, works, refused, device_post_receive);
    };
    refuses = true;
  }
  void TearDown() override {
    refuses = false;
    if (context_ == nullptr) return;
    context_->ops.post_send = device_post_send;
    context_->ops.post_recv = device_post_receive;
  }

  IbContext context_;
};

TEST_F(IbRefusal, OfASendFailsItAndFlushesWhatFollows) {
  std::vector<SendRequest> requests;
  for (std::uint64_t id = 0; id < 4; ++id) requests.push_back(write(id));
  ASSERT_EQ(first_.queue_pair->post_send(requests), requests.size());
  const Completion taken = first_.next(Side::kSend);
  EXPECT_EQ(taken.id, 0u);
  bool told = taken.status != CompletionStatus::kSuccess;
  for (std::uint64_t id = 1; id < 4; ++id) {
    first_.expect_send(id, told ? CompletionStatus::kFlushed : CompletionStatus::kOther);
    told = true;
  }
  const SendRequest late = write(4);
  ASSERT_EQ(first_.queue_pair->post_send({&late, 1}), 1u);
  first_.expect_send(4, CompletionStatus::kFlushed);
}

TEST_F(IbRefusal, OfSendsKeepsTheQueueBounded) {
  const std::vector<SendRequest> requests(1000, write(0));
  const std::size_t accepted = first_.queue_pair->post_send(requests);
  EXPECT_EQ(accepted, QueueDepths().send_requests);
  EXPECT_EQ(first_.queue_pair->post_send(requests), 0u);
  for (std::size_t i = 0; i < accepted; ++i) first_.next(Side::kSend);
  EXPECT_EQ(first_.queue_pair->post_send(requests), accepted);
}

TEST_F(IbRefusal, OfAReceiveFlushesThemInOrder) {
  std::vector<ReceiveRequest> requests;
  for (std::uint64_t id = 0; id < 4; ++id) requests.push_back({.id = id});
  ASSERT_EQ(first_.queue_pair->post_receive(requests), requests.size());
  const ReceiveRequest late{.id = 4};
  ASSERT_EQ(first_.queue_pair->post_receive({&late, 1}), 1u);
  for (std::uint64_t id = 0; id <= 4; ++id) first_.expect_receive(id, CompletionStatus::kFlushed);
  const SendRequest request = write(5);
  ASSERT_EQ(first_.queue_pair->post_send({&request, 1}), 1u);
  first_.expect_send(5, CompletionStatus::kFlushed);
}

}  // namespace
}  // namespace leat::detail

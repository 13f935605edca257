// A connection of the ib device inside one process, for tests of what it does behind the contract.
// Needs a device: LEAT_TEST_IB=NAME, and for the connecting end another one if LEAT_TEST_IB_PEER
// names it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "support/devices.h"
#include "support/scale.h"
#include "support/verbs_side.h"
#include "verbs/table.h"

namespace leat::detail {

inline constexpr std::size_t kRegionBytes = 64 * 1024;

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
  void expect_receive(CompletionStatus status) {
    EXPECT_STREQ(to_string(next(Side::kReceive).status), to_string(status));
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

}  // namespace leat::detail

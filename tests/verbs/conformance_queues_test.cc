// What queue pairs promise about requests that succeed, one test per sentence of verbs/device.h:
// order, batches and full queues.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "support/devices.h"
#include "support/verbs_side.h"

namespace leat::detail {
namespace {

class VerbsQueues : public VerbsTest {};

TEST_P(VerbsQueues, SendsCompleteInPostOrder) {
  const std::size_t count = scaled(4000);
  static constexpr std::size_t kWindow = 64;
  static constexpr std::size_t kRoom = 4096;
  const auto opcode_of = [](std::size_t i) {
    std::mt19937_64 random(i);
    return static_cast<Opcode>(random() % 3);
  };
  run(
      [&](VerbsSide& side) {
        const MemoryRegion& memory = side.allocate(kRoom, kLocalOnly);
        const RemoteRegion target = side.exchange({});
        std::uint64_t completed = 0;
        const auto take = [&](const Completion& completion) {
          ASSERT_EQ(completion.status, CompletionStatus::kSuccess);
          ASSERT_EQ(completion.id, completed++);
        };
        for (std::size_t i = 0; i < count; ++i) {
          SendRequest request = write_request({memory, 0, target, 0, 1 + i % 200}, i);
          request.opcode = opcode_of(i);
          request.immediate = static_cast<std::uint32_t>(i);
          while (i - completed >= kWindow) take(side.send_completion());
          side.post(request);
        }
        while (completed < count) take(side.send_completion());
      },
      [&](VerbsSide& side) {
        const MemoryRegion& target = side.allocate(kRoom, kRemoteReadWrite);
        side.post_receives(kWindow);
        side.exchange(target.remote());
        for (std::size_t i = 0; i < count; ++i) {
          if (opcode_of(i) != Opcode::kWriteWithImmediate) continue;
          const Completion completion = side.receive_completion();
          ASSERT_EQ(completion.status, CompletionStatus::kSuccess);
          ASSERT_EQ(completion.bytes, 1 + i % 200);
          ASSERT_EQ(completion.kind, CompletionKind::kImmediate);
          ASSERT_EQ(completion.immediate, i);
          side.post_receives(1);
        }
      });
}

TEST_P(VerbsQueues, UnsignaledRequestsGiveNoCompletionOnSuccess) {
  run(
      [](VerbsSide& side) {
        const MemoryRegion& source = side.allocate(4096, kLocalOnly);
        const RemoteRegion target = side.exchange({});
        for (std::uint64_t i = 0; i < 50; ++i) {
          SendRequest request =
              i % 2 == 0 ? write_request({source, 0, target, 0, 64}, i) : immediate_request(0, i);
          request.signaled = i == 20 || i == 49;
          side.post(request);
        }
        EXPECT_EQ(side.send_completion().id, 20u);
        EXPECT_EQ(side.send_completion().id, 49u);
        side.expect_no_send_completion();
      },
      [](VerbsSide& side) {
        const MemoryRegion& target = side.allocate(4096, kRemoteWrite);
        side.post_receives(25);
        side.exchange(target.remote());
        for (int i = 0; i < 25; ++i) side.receive_completion();
      });
}

TEST_P(VerbsQueues, BatchRunsInOrder) {
  static constexpr std::size_t kCount = 64;
  run(
      [](VerbsSide& side) {
        const MemoryRegion& source = side.allocate(kCount * 64, kLocalOnly);
        fill_pattern(source.memory(), 5);
        const RemoteRegion target = side.exchange({});
        std::vector<SendRequest> requests;
        for (std::size_t i = 0; i < kCount; ++i) {
          requests.push_back(write_request({source, i * 64, target, i * 64, 64}, i));
          requests.back().opcode = Opcode::kWriteWithImmediate;
          requests.back().immediate = static_cast<std::uint32_t>(i);
          requests.back().signaled = i + 1 == kCount;
        }
        std::size_t posted = 0;
        while (posted < kCount) {
          posted += side.queue_pair->post_send(std::span(requests).subspan(posted));
        }
        EXPECT_EQ(side.send_completion().id, kCount - 1);
      },
      [](VerbsSide& side) {
        const MemoryRegion& target = side.allocate(kCount * 64, kRemoteWrite);
        ASSERT_EQ(side.queue_pair->post_receives(kCount), kCount);
        side.exchange(target.remote());
        std::vector<Completion> completions(kCount + 1);
        std::size_t received = 0;
        const Deadline deadline = hang_deadline();
        while (received < kCount && !passed(deadline)) {
          received += side.queue_pair->poll_receives(std::span(completions).subspan(received));
        }
        ASSERT_EQ(received, kCount);
        for (std::size_t i = 0; i < kCount; ++i) {
          EXPECT_EQ(completions[i].immediate, i);
        }
        expect_pattern(target.memory().first(kCount * 64), 5);
      });
}

TEST_P(VerbsQueues, FullSendQueueAcceptsFewerAndGoesOnAfterCompletions) {
  static constexpr std::size_t kBatch = 50;
  static constexpr std::size_t kEnough = 100'000;
  run(
      [](VerbsSide& side) {
        const MemoryRegion& source = side.allocate(4096, kLocalOnly);
        const RemoteRegion target = side.exchange({});
        std::vector<SendRequest> batch(kBatch, write_request({source, 0, target, 0, 64}));
        std::size_t posted = 0;
        std::size_t accepted = kBatch;
        while (accepted == kBatch && posted < kEnough) {
          for (std::size_t i = 0; i < kBatch; ++i) batch[i].id = posted + i;
          accepted = side.queue_pair->post_send(batch);
          posted += accepted;
        }
        ASSERT_LT(posted, kEnough) << "a queue of 16 requests takes any number";
        for (std::uint64_t id = 0; id < posted; ++id) ASSERT_EQ(side.send_completion().id, id);
        side.complete(write_request({source, 0, target, 0, 64}, posted));
        side.peer.barrier();
      },
      [](VerbsSide& side) {
        const MemoryRegion& target = side.allocate(4096, kRemoteWrite);
        side.exchange(target.remote());
        side.peer.barrier();
      },
      {.depths = {16, 16}});
}

TEST_P(VerbsQueues, FullReceiveQueueAcceptsFewerAndGoesOnAfterCompletions) {
  static constexpr std::size_t kEnough = 100'000;
  run(
      [](VerbsSide& side) {
        const auto posted = side.peer.hear_value<std::size_t>();
        for (std::uint32_t i = 0; i <= posted; ++i) side.complete(immediate_request(i, i));
      },
      [](VerbsSide& side) {
        std::size_t posted = 0;
        while (posted < kEnough && side.queue_pair->post_receives(1) == 1) ++posted;
        ASSERT_GE(posted, 16u);
        ASSERT_LT(posted, kEnough) << "a queue of 16 receives takes any number";
        side.peer.tell_value(posted);
        EXPECT_EQ(side.queue_pair->post_receives(1), 0U);
        EXPECT_EQ(side.receive_completion().immediate, 0u);
        EXPECT_EQ(side.queue_pair->post_receives(posted), 1U);
        for (std::size_t i = 1; i <= posted; ++i) EXPECT_EQ(side.receive_completion().immediate, i);
      },
      {.depths = {16, 16}});
}

TEST_P(VerbsQueues, BothDirectionsAreIndependent) {
  run_both([](VerbsSide& side) {
    const MemoryRegion& source = side.allocate(4096, kLocalOnly);
    const MemoryRegion& target = side.allocate(4096, kRemoteWrite);
    fill_pattern(source.memory(), 6);
    side.post_receives(1);
    const RemoteRegion remote = side.exchange(target.remote());
    SendRequest request = write_request({source, 0, remote, 0, 4096}, 60);
    request.opcode = Opcode::kWriteWithImmediate;
    request.immediate = 50;
    side.complete(request);
    EXPECT_EQ(side.receive_completion().immediate, 50u);
    expect_pattern(target.memory().first(4096), 6);
  });
}

LEAT_INSTANTIATE_ON_DEVICES(VerbsQueues);

}  // namespace
}  // namespace leat::detail

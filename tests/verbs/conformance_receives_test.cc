// What queue pairs promise about requests that succeed, one test per sentence of verbs/device.h:
// immediates and receives.
#include <gtest/gtest.h>

#include <vector>

#include "support/devices.h"
#include "support/verbs_side.h"

namespace leat::detail {
namespace {

class VerbsReceives : public VerbsTest {};

TEST_P(VerbsReceives, ImmediateConsumesOnePostedReceiveEach) {
  run(
      [](VerbsSide& side) {
        const MemoryRegion& source = side.allocate(4096, kLocalOnly);
        const RemoteRegion target = side.exchange({});
        for (std::uint32_t i = 0; i < 3; ++i) {
          SendRequest request = write_request({source, 0, target, 0, i * 100}, i);
          request.opcode = Opcode::kWriteWithImmediate;
          request.immediate = i;
          side.complete(request);
        }
      },
      [](VerbsSide& side) {
        const MemoryRegion& target = side.allocate(4096, kRemoteWrite);
        side.post_receives(5);
        side.exchange(target.remote());
        for (std::uint32_t i = 0; i < 3; ++i) {
          const Completion completion = side.receive_completion();
          EXPECT_EQ(completion.status, CompletionStatus::kSuccess);
          EXPECT_EQ(completion.kind, CompletionKind::kImmediate);
          EXPECT_EQ(completion.immediate, i);
          EXPECT_EQ(completion.bytes, i * 100);
        }
        side.expect_no_receive_completion();
      });
}

TEST_P(VerbsReceives, ImmediateArrivesAsItIs) {
  const std::vector<std::uint32_t> values{0, 1, 0x01020304, 0x7fffffff, 0x80000000, 0xffffffff};
  run(
      [&](VerbsSide& side) {
        for (const std::uint32_t value : values) side.complete(immediate_request(value));
      },
      [&](VerbsSide& side) {
        side.post_receives(values.size());
        for (const std::uint32_t value : values) {
          EXPECT_EQ(side.receive_completion().immediate, value);
        }
      });
}

// Whether the first of these requests is accepted is the device's choice; that it does not complete
// before there is a receive, and arrives then, is not.
TEST_P(VerbsReceives, WithoutAReceiveTheSenderWaitsAndNothingIsLost) {
  static constexpr std::uint32_t kCount = 20;
  run(
      [](VerbsSide& side) {
        const MemoryRegion& source = side.allocate(4096, kLocalOnly);
        const RemoteRegion target = side.exchange({});
        std::vector<SendRequest> requests;
        for (std::uint32_t i = 0; i < kCount; ++i) {
          requests.push_back(write_request({source, 0, target, 0, i % 2 == 0 ? 0 : i}, i));
          requests.back().opcode = Opcode::kWriteWithImmediate;
          requests.back().immediate = i;
        }
        std::size_t accepted = side.queue_pair->post_send(requests);
        side.expect_no_send_completion();
        side.peer.barrier();
        for (; accepted < kCount; ++accepted) side.post(requests[accepted]);
        for (std::uint32_t i = 0; i < kCount; ++i) {
          const Completion completion = side.send_completion();
          EXPECT_EQ(completion.status, CompletionStatus::kSuccess);
          EXPECT_EQ(completion.id, i);
        }
        EXPECT_GT(side.queue_pair->rnr_retries(), 0u);
      },
      [](VerbsSide& side) {
        side.exchange(side.allocate(4096, kRemoteWrite).remote());
        side.peer.barrier();
        for (std::uint32_t i = 0; i < kCount; ++i) {
          side.expect_no_receive_completion();
          side.post_receives(1);
          const Completion completion = side.receive_completion();
          EXPECT_EQ(completion.kind, CompletionKind::kImmediate);
          EXPECT_EQ(completion.immediate, i);
          EXPECT_EQ(completion.bytes, i % 2 == 0 ? 0 : i);
        }
      });
}

TEST_P(VerbsReceives, PayloadOfACompletionIsWhatIsInMemory) {
  static constexpr std::size_t kMax = 200;
  run(
      [](VerbsSide& side) {
        const MemoryRegion& source = side.allocate(4096, kLocalOnly);
        const RemoteRegion target = side.exchange({});
        for (std::size_t bytes = 0; bytes <= kMax; ++bytes) {
          fill_pattern(source.memory().first(bytes), bytes);
          SendRequest request = write_request({source, 0, target, 64, bytes}, bytes);
          request.opcode = Opcode::kWriteWithImmediate;
          request.inlined = bytes % 2 == 1 && bytes <= side.device->limits().max_inline_bytes;
          side.complete(request);
          side.peer.hear("checked");
        }
      },
      [](VerbsSide& side) {
        const MemoryRegion& target = side.allocate(4096, kRemoteWrite);
        side.post_receives(kMax + 1);
        side.exchange(target.remote());
        for (std::size_t bytes = 0; bytes <= kMax; ++bytes) {
          const Completion completion = side.receive_completion();
          ASSERT_EQ(completion.bytes, bytes);
          expect_pattern(target.memory().subspan(64, bytes), bytes);
          if (completion.payload != nullptr) expect_pattern({completion.payload, bytes}, bytes);
          side.peer.tell("checked");
        }
      });
}

LEAT_INSTANTIATE_ON_DEVICES(VerbsReceives);

}  // namespace
}  // namespace leat::detail

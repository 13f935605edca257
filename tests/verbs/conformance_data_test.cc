// What queue pairs promise about requests that succeed, one test per sentence of verbs/device.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <vector>

#include "support/devices.h"
#include "support/verbs_side.h"

namespace leat::detail {
namespace {

constexpr std::byte kFilling{0xa5};
constexpr unsigned kReadWrite = kRemoteRead | kRemoteWrite;

class VerbsData : public VerbsTest {};

TEST_P(VerbsData, AllocatedMemoryIsZeroedPageAlignedAndLargeEnough) {
  run_both([](VerbsSide& side) {
    for (const std::size_t bytes : {1u, 4095u, 4096u, 4097u, 1u << 20}) {
      const auto region = side.device->allocate(bytes, kReadWrite);
      EXPECT_GE(region->memory().size(), bytes);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(region->memory().data()) % 4096, 0u);
      expect_filled(region->memory(), std::byte{0});
      EXPECT_EQ(region->remote().address, reinterpret_cast<std::uint64_t>(region->memory().data()));
      EXPECT_GE(region->remote().bytes, bytes);
    }
  });
}

TEST_P(VerbsData, WriteLandsWhereItIsAimedAndNowhereElse) {
  static constexpr std::size_t kBytes = 3 * 4096;
  run(
      [](VerbsSide& side) {
        const MemoryRegion& source = side.allocate(kBytes, kLocalOnly);
        fill_pattern(source.memory(), 1);
        const RemoteRegion target = side.exchange({});
        side.complete(write_request({source, 100, target, 4000, 300}, 7));
        side.peer.tell("written");
        side.peer.hear("checked");
      },
      [](VerbsSide& side) {
        const MemoryRegion& target = side.allocate(kBytes, kRemoteWrite, kFilling);
        side.exchange(target.remote());
        side.peer.hear("written");
        std::vector<std::byte> expected(kBytes);
        fill_pattern(expected, 1);
        const auto memory = target.memory();
        EXPECT_TRUE(
            std::ranges::equal(memory.subspan(4000, 300), std::span(expected).subspan(100, 300)));
        expect_filled(memory.first(4000), kFilling);
        expect_filled(memory.subspan(4300), kFilling);
        side.peer.tell("checked");
      });
}

TEST_P(VerbsData, LargeWriteAndReadMoveEveryByte) {
  const auto size = [](const VerbsSide& side) {
    return std::min((std::size_t{16} << 20) + 13, side.device->limits().max_request_bytes);
  };
  run(
      [&](VerbsSide& side) {
        const std::size_t bytes = size(side);
        const MemoryRegion& source = side.allocate(bytes, kLocalOnly);
        fill_pattern(source.memory(), 1);
        const RemoteRegion target = side.exchange({});
        side.complete(write_request({source, 0, target, 0, bytes}));
        std::ranges::fill(source.memory(), std::byte{0});
        side.peer.barrier();
        side.complete(read_request({source, 0, target, 0, bytes}));
        expect_pattern(source.memory().first(bytes), 1);
        side.peer.barrier();
      },
      [&](VerbsSide& side) {
        const std::size_t bytes = size(side);
        const MemoryRegion& target = side.allocate(bytes, kReadWrite);
        side.exchange(target.remote());
        side.peer.barrier();
        expect_pattern(target.memory().first(bytes), 1);
        side.peer.barrier();
      });
}

TEST_P(VerbsData, SendsCompleteInPostOrder) {
  const std::size_t count = scaled(4000);
  static constexpr std::size_t kWindow = 64;
  static constexpr std::size_t kRoom = 4096;
  const auto opcode_of = [](std::size_t i) {
    std::mt19937_64 random(i);
    return static_cast<Opcode>(random() % 4);
  };
  const auto is_arrival = [](Opcode opcode) {
    return opcode == Opcode::kSend || opcode == Opcode::kWriteWithImmediate;
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
        const MemoryRegion& target = side.allocate(kRoom, kReadWrite);
        const MemoryRegion& buffers = side.allocate(kRoom, kRemoteWrite);
        const auto post = [&](std::size_t id) {
          side.post(ReceiveRequest{id, buffers.memory().data(), kRoom, buffers.local_key()});
        };
        for (std::size_t i = 0; i < kWindow; ++i) post(i);
        side.exchange(target.remote());
        std::uint64_t received = 0;
        for (std::size_t i = 0; i < count; ++i) {
          if (!is_arrival(opcode_of(i))) continue;
          const Completion completion = side.receive_completion();
          ASSERT_EQ(completion.status, CompletionStatus::kSuccess);
          ASSERT_EQ(completion.id, received);
          ASSERT_EQ(completion.bytes, 1 + i % 200);
          const bool is_send = opcode_of(i) == Opcode::kSend;
          ASSERT_EQ(completion.kind,
                    is_send ? CompletionKind::kReceived : CompletionKind::kImmediate);
          if (!is_send) {
            ASSERT_EQ(completion.immediate, i);
          }
          post(received++ + kWindow);
        }
      });
}

TEST_P(VerbsData, PlainWriteGivesThePeerNoCompletion) {
  run(
      [](VerbsSide& side) {
        const MemoryRegion& source = side.allocate(4096, kLocalOnly);
        const RemoteRegion target = side.exchange({});
        for (std::uint64_t i = 0; i < 10; ++i) {
          side.complete(write_request({source, 0, target, 0, std::size_t{8} << i}, i));
        }
        side.peer.barrier();
        side.peer.barrier();
        side.complete(immediate_request(1, 11));
      },
      [](VerbsSide& side) {
        const MemoryRegion& target = side.allocate(8192, kRemoteWrite);
        side.post_receives(1, 77);
        side.exchange(target.remote());
        side.peer.barrier();
        side.expect_no_receive_completion();
        side.peer.barrier();
        EXPECT_EQ(side.receive_completion().id, 77u);
      });
}

TEST_P(VerbsData, ImmediateConsumesOnePostedReceiveEach) {
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
        side.post_receives(5, 10);
        side.exchange(target.remote());
        for (std::uint32_t i = 0; i < 3; ++i) {
          const Completion completion = side.receive_completion();
          EXPECT_EQ(completion.status, CompletionStatus::kSuccess);
          EXPECT_EQ(completion.kind, CompletionKind::kImmediate);
          EXPECT_EQ(completion.id, 10 + i);
          EXPECT_EQ(completion.immediate, i);
          EXPECT_EQ(completion.bytes, i * 100);
        }
        side.expect_no_receive_completion();
      });
}

TEST_P(VerbsData, ImmediateArrivesAsItIs) {
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
TEST_P(VerbsData, WithoutAReceiveTheSenderWaitsAndNothingIsLost) {
  static constexpr std::uint32_t kCount = 20;
  run(
      [](VerbsSide& side) {
        const MemoryRegion& source = side.allocate(4096, kLocalOnly);
        std::vector<SendRequest> requests;
        for (std::uint32_t i = 0; i < kCount; ++i) {
          requests.push_back(i % 2 == 0 ? immediate_request(i, i) : send_request(source, 0, i, i));
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
        const MemoryRegion& buffer = side.allocate(4096, kRemoteWrite);
        side.peer.barrier();
        for (std::uint32_t i = 0; i < kCount; ++i) {
          side.expect_no_receive_completion();
          side.post(ReceiveRequest{i, buffer.memory().data(), 4096, buffer.local_key()});
          const Completion completion = side.receive_completion();
          EXPECT_EQ(completion.id, i);
          EXPECT_EQ(completion.kind,
                    i % 2 == 0 ? CompletionKind::kImmediate : CompletionKind::kReceived);
          EXPECT_EQ(completion.bytes, i % 2 == 0 ? 0 : i);
        }
      });
}

TEST_P(VerbsData, ReadReturnsBytesNoOlderThanItsPost) {
  const std::size_t count = scaled(5000);
  run(
      [&](VerbsSide& side) {
        const MemoryRegion& memory = side.allocate(4096, kLocalOnly);
        side.post_receives(64);
        const RemoteRegion counter = side.exchange({});
        std::uint64_t value = 0;
        for (std::uint64_t i = 1; i <= count; ++i) {
          ASSERT_EQ(side.receive_completion().immediate, i);
          side.post_receives(1);
          side.complete(read_request({memory, 0, counter, 0, sizeof(value)}));
          std::memcpy(&value, memory.memory().data(), sizeof(value));
          ASSERT_GE(value, i);
        }
      },
      [&](VerbsSide& side) {
        const MemoryRegion& memory = side.allocate(4096, kRemoteRead);
        auto& word = *reinterpret_cast<std::uint64_t*>(memory.memory().data());
        side.exchange(memory.remote());
        for (std::uint64_t i = 1; i <= count; ++i) {
          std::atomic_ref(word).store(i, std::memory_order_release);
          side.complete(immediate_request(static_cast<std::uint32_t>(i), i));
        }
      });
}

TEST_P(VerbsData, ReadSeesAnEarlierWriteOfTheSameQueuePair) {
  const std::size_t count = scaled(5000);
  run(
      [&](VerbsSide& side) {
        const MemoryRegion& memory = side.allocate(8192, kLocalOnly);
        const RemoteRegion target = side.exchange({});
        for (std::uint64_t i = 0; i < count; ++i) {
          const std::size_t bytes = 8 + i % 500;
          fill_pattern(memory.memory().first(bytes), i);
          SendRequest requests[] = {write_request({memory, 0, target, 0, bytes}),
                                    read_request({memory, 4096, target, 0, bytes}, i)};
          requests[0].signaled = false;
          for (const SendRequest& request : requests) side.post(request);
          ASSERT_EQ(side.send_completion().id, i);
          ASSERT_EQ(pattern_mismatch(memory.memory().subspan(4096, bytes), i), bytes);
        }
        side.peer.barrier();
      },
      [](VerbsSide& side) {
        const MemoryRegion& target = side.allocate(4096, kReadWrite);
        side.exchange(target.remote());
        side.peer.barrier();
      });
}

TEST_P(VerbsData, RequestsOfZeroBytesSucceed) {
  run(
      [](VerbsSide& side) {
        const MemoryRegion& memory = side.allocate(4096, kLocalOnly);
        const RemoteRegion target = side.exchange({});
        side.complete(write_request({memory, 0, target, 0, 0}, 1));
        side.complete(read_request({memory, 0, target, 0, 0}, 2));
        side.complete(send_request(memory, 0, 0, 3));
        side.complete(immediate_request(4, 4));
        SendRequest inlined = immediate_request(5, 5);
        inlined.inlined = true;
        side.complete(inlined);
      },
      [](VerbsSide& side) {
        const MemoryRegion& target = side.allocate(4096, kReadWrite, kFilling);
        side.post_receives(3);
        side.exchange(target.remote());
        const Completion sent = side.receive_completion();
        EXPECT_EQ(sent.kind, CompletionKind::kReceived);
        EXPECT_EQ(sent.bytes, 0u);
        for (const std::uint32_t immediate : {4u, 5u}) {
          const Completion completion = side.receive_completion();
          EXPECT_EQ(completion.kind, CompletionKind::kImmediate);
          EXPECT_EQ(completion.immediate, immediate);
          EXPECT_EQ(completion.bytes, 0u);
        }
        expect_filled(target.memory(), kFilling);
      });
}

TEST_P(VerbsData, InlinedBytesAreTheCallersAgainOnReturn) {
  const std::size_t count = scaled(1000);
  run(
      [&](VerbsSide& side) {
        const std::size_t bytes =
            std::min<std::size_t>(side.device->limits().max_inline_bytes, 512);
        ASSERT_GE(bytes, 8u) << "an inline counter must fit";
        side.peer.tell_value(bytes);
        const RemoteRegion target = side.exchange({});
        std::vector<std::byte> source(bytes);
        for (std::size_t i = 0; i < count; ++i) {
          fill_pattern(source, i);
          SendRequest request = immediate_request(static_cast<std::uint32_t>(i), i);
          request.inlined = true;
          request.local = source.data();
          request.bytes = bytes;
          request.remote_address = target.address + i % 4 * bytes;
          request.remote_key = target.key;
          side.post(request);
          std::ranges::fill(source, kFilling);
          ASSERT_EQ(side.send_completion().status, CompletionStatus::kSuccess);
        }
      },
      [&](VerbsSide& side) {
        const auto bytes = side.peer.hear_value<std::size_t>();
        const MemoryRegion& target = side.allocate(4 * bytes, kRemoteWrite);
        side.post_receives(2);
        side.exchange(target.remote());
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(side.receive_completion().immediate, i);
          ASSERT_EQ(pattern_mismatch(target.memory().subspan(i % 4 * bytes, bytes), i), bytes);
          side.post_receives(1);
        }
      });
}

TEST_P(VerbsData, UnsignaledRequestsGiveNoCompletionOnSuccess) {
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

TEST_P(VerbsData, BatchRunsInOrder) {
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
        std::vector<ReceiveRequest> receives(kCount);
        for (std::size_t i = 0; i < kCount; ++i) receives[i].id = i;
        ASSERT_EQ(side.queue_pair->post_receive(receives), kCount);
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
          EXPECT_EQ(completions[i].id, i);
        }
        expect_pattern(target.memory().first(kCount * 64), 5);
      });
}

TEST_P(VerbsData, FullSendQueueAcceptsFewerAndGoesOnAfterCompletions) {
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

TEST_P(VerbsData, FullReceiveQueueAcceptsFewerAndGoesOnAfterCompletions) {
  static constexpr std::size_t kEnough = 100'000;
  run(
      [](VerbsSide& side) {
        const auto posted = side.peer.hear_value<std::size_t>();
        for (std::size_t i = 0; i <= posted; ++i) side.complete(immediate_request(0, i));
      },
      [](VerbsSide& side) {
        std::size_t posted = 0;
        ReceiveRequest request;
        while (posted < kEnough && side.queue_pair->post_receive({&request, 1}) == 1) {
          request.id = ++posted;
        }
        ASSERT_GE(posted, 16u);
        ASSERT_LT(posted, kEnough) << "a queue of 16 receives takes any number";
        side.peer.tell_value(posted);
        EXPECT_EQ(side.receive_completion().id, 0u);
        side.post(request);
        for (std::size_t i = 1; i <= posted; ++i) EXPECT_EQ(side.receive_completion().id, i);
      },
      {.depths = {16, 16}});
}

TEST_P(VerbsData, SendLandsInTheMemoryOfTheNextReceive) {
  static constexpr std::size_t kSlot = 1024;
  static constexpr std::size_t kCount = 8;
  run(
      [](VerbsSide& side) {
        const MemoryRegion& source = side.allocate(kSlot, kLocalOnly);
        side.peer.barrier();
        for (std::size_t i = 0; i < kCount; ++i) {
          fill_pattern(source.memory(), i);
          side.complete(send_request(source, 0, i * 100, i));
        }
      },
      [](VerbsSide& side) {
        const MemoryRegion& memory = side.allocate(kCount * kSlot, kRemoteWrite, kFilling);
        for (std::size_t i = 0; i < kCount; ++i) {
          side.post(
              ReceiveRequest{i, memory.memory().data() + i * kSlot, kSlot, memory.local_key()});
        }
        side.peer.barrier();
        for (std::size_t i = 0; i < kCount; ++i) {
          const Completion completion = side.receive_completion();
          EXPECT_EQ(completion.status, CompletionStatus::kSuccess);
          EXPECT_EQ(completion.kind, CompletionKind::kReceived);
          EXPECT_EQ(completion.id, i);
          EXPECT_EQ(completion.bytes, i * 100);
          const auto slot = memory.memory().subspan(i * kSlot, kSlot);
          expect_pattern(slot.first(i * 100), i);
          expect_filled(slot.subspan(i * 100), kFilling);
        }
      });
}

TEST_P(VerbsData, SendFitsAReceiveOfExactlyItsLength) {
  run(
      [](VerbsSide& side) {
        const MemoryRegion& source = side.allocate(4096, kLocalOnly);
        fill_pattern(source.memory(), 3);
        side.peer.barrier();
        side.complete(send_request(source, 0, 333));
      },
      [](VerbsSide& side) {
        const MemoryRegion& memory = side.allocate(4096, kRemoteWrite, kFilling);
        side.post(ReceiveRequest{0, memory.memory().data(), 333, memory.local_key()});
        side.peer.barrier();
        EXPECT_EQ(side.receive_completion().bytes, 333u);
        expect_pattern(memory.memory().first(333), 3);
        expect_filled(memory.memory().subspan(333), kFilling);
      });
}

TEST_P(VerbsData, PayloadOfACompletionIsWhatIsInMemory) {
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

TEST_P(VerbsData, WriteOfPeerMemoryFilledInPlaceArrives) {
  static constexpr std::size_t kBytes = 8192;
  run(
      [](VerbsSide& side) {
        const MemoryRegion& source = side.allocate(kBytes, kLocalOnly);
        const RemoteRegion target = side.exchange({});
        std::byte* place = side.queue_pair->peer_memory({target.address + 100, 5000, target.key});
        SendRequest request = write_request({source, 0, target, 100, 5000}, 1);
        if (place != nullptr) {
          request.local = place;
          request.local_key = 0;
        }
        fill_pattern({static_cast<std::byte*>(request.local), 5000}, 9);
        request.opcode = Opcode::kWriteWithImmediate;
        side.complete(request);
      },
      [](VerbsSide& side) {
        const MemoryRegion& target = side.allocate(kBytes, kRemoteWrite, kFilling);
        side.post_receives(1);
        side.exchange(target.remote());
        EXPECT_EQ(side.receive_completion().bytes, 5000u);
        expect_filled(target.memory().first(100), kFilling);
        expect_pattern(target.memory().subspan(100, 5000), 9);
        expect_filled(target.memory().subspan(5100), kFilling);
      });
}

TEST_P(VerbsData, PeerMemoryIsNullWhereAccessIsNotAllowed) {
  run(
      [](VerbsSide& side) {
        const RemoteRegion writable = side.exchange({});
        const RemoteRegion readable = side.exchange({});
        QueuePair& queue_pair = *side.queue_pair;
        EXPECT_EQ(queue_pair.peer_memory(readable), nullptr);
        EXPECT_EQ(queue_pair.peer_memory({writable.address, writable.bytes + 1, writable.key}),
                  nullptr);
        EXPECT_EQ(queue_pair.peer_memory({writable.address - 1, 8, writable.key}), nullptr);
        EXPECT_EQ(queue_pair.peer_memory({writable.address, 8, writable.key ^ 0x55}), nullptr);
        EXPECT_EQ(queue_pair.peer_memory({~std::uint64_t{0} - 7, 64, writable.key}), nullptr);
        side.peer.barrier();
      },
      [](VerbsSide& side) {
        const MemoryRegion& writable = side.allocate(4096, kRemoteWrite);
        const MemoryRegion& readable = side.allocate(4096, kRemoteRead);
        side.exchange(writable.remote());
        side.exchange(readable.remote());
        side.peer.barrier();
      });
}

TEST_P(VerbsData, RegionsMadeAfterConnectingAreUsable) {
  static constexpr std::size_t kCount = 20;
  run(
      [](VerbsSide& side) {
        const MemoryRegion& source = side.allocate(4096, kLocalOnly);
        for (std::size_t i = 0; i < kCount; ++i) {
          fill_pattern(source.memory(), i);
          const RemoteRegion target = side.exchange({});
          side.complete(write_request({source, 0, target, 0, 4096}, i));
          side.peer.tell("written");
        }
      },
      [](VerbsSide& side) {
        for (std::size_t i = 0; i < kCount; ++i) {
          const MemoryRegion& target = side.allocate(4096, kRemoteWrite);
          side.exchange(target.remote());
          side.peer.hear("written");
          expect_pattern(target.memory().first(4096), i);
        }
      });
}

TEST_P(VerbsData, RegionsMayComeAndGoWhileThePeerIsIdle) {
  run(
      [](VerbsSide& side) {
        const MemoryRegion& source = side.allocate(4096, kLocalOnly);
        fill_pattern(source.memory(), 1);
        const RemoteRegion target = side.exchange({});
        side.complete(write_request({source, 0, target, 0, 4096}));
        side.peer.barrier();
      },
      [](VerbsSide& side) {
        for (int i = 0; i < 100; ++i) side.device->allocate(4096, kRemoteWrite);
        const MemoryRegion& target = side.allocate(4096, kRemoteWrite);
        side.exchange(target.remote());
        side.peer.barrier();
        expect_pattern(target.memory().first(4096), 1);
      });
}

TEST_P(VerbsData, CallersMemoryIsASourceOfWritesAndSends) {
  static constexpr std::size_t kBytes = 100'000;
  run(
      [](VerbsSide& side) {
        std::vector<std::byte> memory(kBytes);
        fill_pattern(memory, 4);
        const auto region = side.device->register_local(memory);
        EXPECT_EQ(region->memory().data(), memory.data());
        EXPECT_EQ(region->memory().size(), memory.size());
        const RemoteRegion target = side.exchange({});
        side.complete(write_request({*region, 0, target, 0, kBytes}, 1));
        side.complete(send_request(*region, 0, kBytes, 2));
      },
      [](VerbsSide& side) {
        const MemoryRegion& target = side.allocate(kBytes, kRemoteWrite);
        const MemoryRegion& receive = side.allocate(kBytes, kRemoteWrite);
        side.post(ReceiveRequest{0, receive.memory().data(), kBytes, receive.local_key()});
        side.exchange(target.remote());
        EXPECT_EQ(side.receive_completion().bytes, kBytes);
        expect_pattern(target.memory().first(kBytes), 4);
        expect_pattern(receive.memory().first(kBytes), 4);
      });
}

TEST_P(VerbsData, BothDirectionsAreIndependent) {
  run_both([](VerbsSide& side) {
    const MemoryRegion& source = side.allocate(4096, kLocalOnly);
    const MemoryRegion& target = side.allocate(4096, kRemoteWrite);
    fill_pattern(source.memory(), 6);
    side.post_receives(1, 50);
    const RemoteRegion remote = side.exchange(target.remote());
    SendRequest request = write_request({source, 0, remote, 0, 4096}, 60);
    request.opcode = Opcode::kWriteWithImmediate;
    side.complete(request);
    EXPECT_EQ(side.receive_completion().id, 50u);
    expect_pattern(target.memory().first(4096), 6);
  });
}

LEAT_INSTANTIATE_VERBS_SUITE(VerbsData);

}  // namespace
}  // namespace leat::detail

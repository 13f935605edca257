// What queue pairs promise about requests that fail and peers that vanish.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "support/devices.h"
#include "support/verbs_side.h"

namespace leat::detail {
namespace {

constexpr std::size_t kTargetBytes = 8192;

bool is_failure(const Completion& completion) {
  return completion.status != CompletionStatus::kSuccess;
}

class VerbsErrors : public VerbsTest {
 protected:
  // The request that must fail, aimed at the peer's region.
  using BadRequest =
      std::function<SendRequest(const MemoryRegion& ours, const RemoteRegion& peers)>;

  // Between requests that are right, `bad_request` fails with `expected`, what comes later is
  // flushed, and neither the peer's region (allocated with `access`) nor ours has changed.
  void expect_failure(unsigned access, CompletionStatus expected, const BadRequest& bad_request) {
    run(
        [&](VerbsSide& side) {
          const MemoryRegion& ours = side.allocate(kTargetBytes, kLocalOnly, std::byte{1});
          const MemoryRegion& receives = side.allocate(kTargetBytes, kRemoteWrite);
          side.post_receives(2);
          const RemoteRegion target = side.exchange(receives.remote());
          side.complete(immediate_request(1, 1));
          SendRequest bad = bad_request(ours, target);
          bad.id = 2;
          side.post(bad);
          // More may be accepted before the failure is known; none may run, but behind a read.
          for (std::uint64_t id = 3; id <= 5; ++id) side.post(immediate_request(99, id));
          expect_completion(side.send_completion(), 2, expected);
          for (std::uint64_t id = 3; id <= 5; ++id) {
            expect_completion(side.send_completion(), id, CompletionStatus::kFlushed);
          }
          side.post(immediate_request(99, 6));
          expect_completion(side.send_completion(), 6, CompletionStatus::kFlushed);
          for (int i = 0; i < 2; ++i) expect_flushed(side.receive_completion());
          side.expect_no_receive_completion();
          side.post_receives(1);
          expect_flushed(side.receive_completion());
          expect_filled(ours.memory(), std::byte{1});
          side.peer.tell("failed");
        },
        [&](VerbsSide& side) {
          const MemoryRegion& target = side.allocate(kTargetBytes, access, kFilling);
          side.post_receives(5);
          side.exchange(target.remote());
          side.peer.hear("failed");
          EXPECT_EQ(side.receive_completion().immediate, 1u);
          // Whether our side hears of the failure is the device's choice, but not as a success.
          const bool may_run = bad_request(target, target.remote()).opcode == Opcode::kRead;
          Completion completion;
          while (side.queue_pair->poll_receives({&completion, 1}) == 1) {
            EXPECT_TRUE(may_run || is_failure(completion)) << "received " << completion.immediate;
          }
          expect_filled(target.memory(), kFilling);
        });
  }

  static void expect_flushed(const Completion& completion) {
    EXPECT_STREQ(to_string(completion.status), to_string(CompletionStatus::kFlushed));
  }
  static void expect_completion(const Completion& completion, std::uint64_t id,
                                CompletionStatus status) {
    EXPECT_EQ(completion.id, id);
    EXPECT_STREQ(to_string(completion.status), to_string(status)) << "of request " << id;
  }
};

TEST_P(VerbsErrors, WriteBehindTheRegionIsARemoteAccessError) {
  expect_failure(kRemoteReadWrite, CompletionStatus::kRemoteAccess, [](auto& ours, auto& peers) {
    return write_request({ours, 0, peers, peers.bytes, 1});
  });
}

TEST_P(VerbsErrors, WriteAcrossTheEndOfTheRegionIsARemoteAccessError) {
  expect_failure(kRemoteReadWrite, CompletionStatus::kRemoteAccess, [](auto& ours, auto& peers) {
    return write_request({ours, 0, peers, peers.bytes - 63, 64});
  });
}

TEST_P(VerbsErrors, WriteBeforeTheRegionIsARemoteAccessError) {
  expect_failure(kRemoteReadWrite, CompletionStatus::kRemoteAccess,
                 [](auto& ours, RemoteRegion peers) {
                   peers.address -= 8;
                   return write_request({ours, 0, peers, 0, 16});
                 });
}

TEST_P(VerbsErrors, WriteAroundTheAddressSpaceIsARemoteAccessError) {
  expect_failure(kRemoteReadWrite, CompletionStatus::kRemoteAccess,
                 [](auto& ours, RemoteRegion peers) {
                   peers.address = ~std::uint64_t{0} - 7;
                   return write_request({ours, 0, peers, 0, 64});
                 });
}

TEST_P(VerbsErrors, WriteWithAWrongKeyIsARemoteAccessError) {
  expect_failure(kRemoteReadWrite, CompletionStatus::kRemoteAccess,
                 [](auto& ours, RemoteRegion peers) {
                   peers.key ^= 0x10;
                   return write_request({ours, 0, peers, 0, 64});
                 });
}

TEST_P(VerbsErrors, WriteWithoutPermissionIsARemoteAccessError) {
  expect_failure(kRemoteRead, CompletionStatus::kRemoteAccess, [](auto& ours, auto& peers) {
    return write_request({ours, 0, peers, 0, 64});
  });
}

TEST_P(VerbsErrors, WriteIntoLocalMemoryIsARemoteAccessError) {
  expect_failure(kLocalOnly, CompletionStatus::kRemoteAccess, [](auto& ours, auto& peers) {
    return write_request({ours, 0, peers, 0, 64});
  });
}

TEST_P(VerbsErrors, UnsignaledWriteThatFailsGivesACompletion) {
  expect_failure(kRemoteReadWrite, CompletionStatus::kRemoteAccess, [](auto& ours, auto& peers) {
    SendRequest request = write_request({ours, 0, peers, peers.bytes, 8});
    request.signaled = false;
    return request;
  });
}

TEST_P(VerbsErrors, InlinedWriteOutsideTheRegionIsARemoteAccessError) {
  expect_failure(kRemoteReadWrite, CompletionStatus::kRemoteAccess, [](auto& ours, auto& peers) {
    SendRequest request = write_request({ours, 0, peers, peers.bytes, 8});
    request.inlined = true;
    return request;
  });
}

TEST_P(VerbsErrors, ImmediateOutsideTheRegionIsARemoteAccessErrorAndDoesNotArrive) {
  expect_failure(kRemoteReadWrite, CompletionStatus::kRemoteAccess, [](auto& ours, auto& peers) {
    SendRequest request = write_request({ours, 0, peers, peers.bytes - 8, 16});
    request.opcode = Opcode::kWriteWithImmediate;
    request.immediate = 99;
    return request;
  });
}

TEST_P(VerbsErrors, ImmediateWithAWrongKeyIsARemoteAccessErrorAndDoesNotArrive) {
  expect_failure(kRemoteReadWrite, CompletionStatus::kRemoteAccess, [](auto& ours, auto& peers) {
    SendRequest request = write_request({ours, 0, peers, 0, 16});
    request.opcode = Opcode::kWriteWithImmediate;
    request.remote_key ^= 0x10;
    return request;
  });
}

TEST_P(VerbsErrors, ReadBehindTheRegionIsARemoteAccessError) {
  expect_failure(kRemoteReadWrite, CompletionStatus::kRemoteAccess, [](auto& ours, auto& peers) {
    return read_request({ours, 0, peers, peers.bytes - 4, 8});
  });
}

TEST_P(VerbsErrors, ReadWithAWrongKeyIsARemoteAccessError) {
  expect_failure(kRemoteReadWrite, CompletionStatus::kRemoteAccess,
                 [](auto& ours, RemoteRegion peers) {
                   peers.key += 1;
                   return read_request({ours, 0, peers, 0, 64});
                 });
}

TEST_P(VerbsErrors, ReadWithoutPermissionIsARemoteAccessError) {
  expect_failure(kRemoteWrite, CompletionStatus::kRemoteAccess, [](auto& ours, auto& peers) {
    return read_request({ours, 0, peers, 0, 64});
  });
}

TEST_P(VerbsErrors, SourceOutsideOurRegionIsALocalAccessError) {
  expect_failure(kRemoteReadWrite, CompletionStatus::kLocalAccess, [](auto& ours, auto& peers) {
    SendRequest request = write_request({ours, 0, peers, 0, 64});
    request.local = static_cast<std::byte*>(request.local) + ours.memory().size() - 63;
    return request;
  });
}

TEST_P(VerbsErrors, SourceWithAWrongKeyIsALocalAccessError) {
  expect_failure(kRemoteReadWrite, CompletionStatus::kLocalAccess, [](auto& ours, auto& peers) {
    SendRequest request = write_request({ours, 0, peers, 0, 64});
    request.local_key ^= 0x10;
    return request;
  });
}

TEST_P(VerbsErrors, ReadIntoMemoryOutsideOurRegionIsALocalAccessError) {
  expect_failure(kRemoteReadWrite, CompletionStatus::kLocalAccess, [](auto& ours, auto& peers) {
    SendRequest request = read_request({ours, 0, peers, 0, 64});
    request.local = static_cast<std::byte*>(request.local) + ours.memory().size() - 63;
    return request;
  });
}

TEST_P(VerbsErrors, DestroyedRegionTakesItsKeyBack) {
  for (const Opcode opcode : {Opcode::kWrite, Opcode::kWriteWithImmediate, Opcode::kRead}) {
    run(
        [&](VerbsSide& side) {
          const MemoryRegion& ours = side.allocate(4096, kLocalOnly);
          const RemoteRegion target = side.exchange({});
          side.complete(write_request({ours, 0, target, 0, 64}, 1));
          side.peer.barrier();
          side.peer.barrier();
          SendRequest late = write_request({ours, 0, target, 0, 64}, 2);
          late.opcode = opcode;
          side.post(late);
          expect_completion(side.send_completion(), 2, CompletionStatus::kRemoteAccess);
        },
        [](VerbsSide& side) {
          auto target = side.device->allocate(4096, kRemoteReadWrite);
          const MemoryRegion& other = side.allocate(4096, kRemoteReadWrite, kFilling);
          side.post_receives(1);
          side.exchange(target->remote());
          side.peer.barrier();
          target.reset();
          side.peer.barrier();
          expect_filled(other.memory(), kFilling);
        });
  }
}

TEST_P(VerbsErrors, RegionMayBeDestroyedWhileThePeerWritesIt) {
  run(
      [](VerbsSide& side) {
        const MemoryRegion& ours = side.allocate(1 << 20, kLocalOnly);
        const RemoteRegion target = side.exchange({});
        const Deadline deadline = hang_deadline();
        Completion completion;
        while (!is_failure(completion) && !passed(deadline)) {
          side.post(write_request({ours, 0, target, 0, 1 << 20}));
          completion = side.send_completion();
        }
        expect_completion(completion, 0, CompletionStatus::kRemoteAccess);
      },
      [](VerbsSide& side) {
        auto target = side.device->allocate(1 << 20, kRemoteWrite);
        side.exchange(target->remote());
        const auto* word = reinterpret_cast<const volatile std::byte*>(target->memory().data());
        for (int i = 0; i < 1000; ++i) static_cast<void>(*word);
        target.reset();
      });
}

TEST_P(VerbsErrors, DestroyingWithWorkPendingIsSafe) {
  const std::size_t rounds = scaled(20);
  for (std::size_t round = 0; round < rounds; ++round) {
    run_both([](VerbsSide& side) {
      const MemoryRegion& ours = side.allocate(1 << 20, kRemoteWrite);
      side.post_receives(11);
      const RemoteRegion target = side.exchange(ours.remote());
      std::vector<SendRequest> requests;
      for (std::uint64_t id = 0; id < 20; ++id) {
        requests.push_back(write_request({ours, 0, target, 0, 1 << 20}, id));
        requests.push_back(immediate_request(0, id));
      }
      side.queue_pair->post_send(requests);
      side.queue_pair.reset();
    });
  }
}

// --- Peers that vanish. The victim is the second side.

class VerbsDeath : public VerbsErrors {
 protected:
  // Runs `survivor` against a peer that ends in each way that the mode knows, after `victim`.
  void run_deaths(const VerbsBody& survivor, const VerbsBody& victim) {
    {
      SCOPED_TRACE("the queue pair is destroyed");
      run(survivor, [&](VerbsSide& side) {
        victim(side);
        side.queue_pair.reset();
      });
    }
    if (mode() == PeerMode::kThreads) return;
    {
      SCOPED_TRACE("the process exits");
      run(survivor,
          [&](VerbsSide& side) {
            victim(side);
            std::_Exit(0);
          },
          {.depths = {}, .second_ends = SecondEnds::kByVanishing});
    }
    {
      SCOPED_TRACE("the process is killed");
      run(survivor,
          [&](VerbsSide& side) {
            victim(side);
            ::raise(SIGKILL);
          },
          {.depths = {}, .second_ends = SecondEnds::kBySignal});
    }
  }

  // A request fails soon: with the peer's death; with its memory, if the kernel took that first;
  // or, if something failed before, flushed.
  static void expect_death(VerbsSide& side, const SendRequest& request) {
    const Deadline deadline = notice_deadline();
    Completion completion;
    while (!is_failure(completion)) {
      ASSERT_FALSE(passed(deadline)) << "requests to a dead peer go on succeeding";
      const std::size_t accepted = side.queue_pair->post_send({&request, 1});
      const std::size_t polled = side.queue_pair->poll_sends({&completion, 1});
      if (accepted + polled == 0) std::this_thread::yield();
    }
    EXPECT_TRUE(completion.status == CompletionStatus::kPeerGone ||
                completion.status == CompletionStatus::kFlushed ||
                completion.status == CompletionStatus::kRemoteAccess)
        << to_string(completion.status);
  }
};

TEST_P(VerbsDeath, FailsSendsThatWaitForAReceive) {
  run_deaths([](VerbsSide& side) { expect_death(side, immediate_request(0)); }, [](VerbsSide&) {});
}

TEST_P(VerbsDeath, FailsImmediatesAlthoughReceivesArePosted) {
  run_deaths([](VerbsSide& side) { expect_death(side, immediate_request(0)); },
             [](VerbsSide& side) { side.post_receives(1000); });
}

TEST_P(VerbsDeath, FailsPlainWrites) {
  run_deaths(
      [](VerbsSide& side) {
        const MemoryRegion& ours = side.allocate(4096, kLocalOnly);
        const RemoteRegion target = side.exchange({});
        expect_death(side, write_request({ours, 0, target, 0, 64}));
      },
      [](VerbsSide& side) {
        const MemoryRegion& target = side.allocate(4096, kRemoteWrite);
        side.exchange(target.remote());
      });
}

TEST_P(VerbsDeath, FailsReads) {
  run_deaths(
      [](VerbsSide& side) {
        const MemoryRegion& ours = side.allocate(4096, kLocalOnly);
        const RemoteRegion target = side.exchange({});
        expect_death(side, read_request({ours, 0, target, 0, 64}));
      },
      [](VerbsSide& side) {
        const MemoryRegion& target = side.allocate(4096, kRemoteRead);
        side.exchange(target.remote());
      });
}

TEST_P(VerbsDeath, FlushesPostedReceivesAfterWhatArrived) {
  run_deaths(
      [](VerbsSide& side) {
        side.post_receives(10);
        side.peer.tell("posted");
        for (std::uint32_t i = 0; i < 4; ++i) {
          const Completion completion = side.receive_completion();
          ASSERT_FALSE(is_failure(completion)) << to_string(completion.status);
          EXPECT_EQ(completion.immediate, i);
        }
        for (int i = 4; i < 10; ++i) expect_flushed(side.receive_completion());
        side.post_receives(1);
        expect_flushed(side.receive_completion());
      },
      [](VerbsSide& side) {
        side.peer.hear("posted");
        for (std::uint32_t i = 0; i < 4; ++i) side.complete(immediate_request(i));
      });
}

TEST_P(VerbsDeath, WakesASleepingReceiver) {
  run_deaths(
      [](VerbsSide& side) {
        side.post_receives(3);
        side.peer.tell("posted");
        for (int i = 0; i < 3; ++i) expect_flushed(side.sleep_for_receive());
      },
      [](VerbsSide& side) { side.peer.hear("posted"); });
}

TEST_P(VerbsDeath, WakesASleepingSender) {
  run_deaths(
      [](VerbsSide& side) {
        side.peer.tell("ready");
        const SendRequest request = immediate_request(0);
        side.sleep(Side::kSend, [&] { return side.queue_pair->post_send({&request, 1}) == 1; });
        const Completion completion = side.sleep_for_send();
        EXPECT_TRUE(is_failure(completion));
      },
      [](VerbsSide& side) { side.peer.hear("ready"); });
}

TEST_P(VerbsDeath, InTheMiddleOfAFloodIsNoticedByBothSides) {
  run_deaths(
      [](VerbsSide& side) {
        const MemoryRegion& ours = side.allocate(64 * 1024, kRemoteReadWrite);
        side.post_receives(200);
        const RemoteRegion target = side.exchange(ours.remote());
        SendRequest request = write_request({ours, 0, target, 0, 64 * 1024});
        request.opcode = Opcode::kWriteWithImmediate;
        expect_death(side, request);
        const Deadline deadline = notice_deadline();
        Completion completion;
        while (!is_failure(completion)) {
          ASSERT_FALSE(passed(deadline)) << "receives are not flushed";
          completion = side.receive_completion();
        }
      },
      [](VerbsSide& side) {
        const MemoryRegion& ours = side.allocate(64 * 1024, kRemoteReadWrite);
        side.post_receives(500);
        const RemoteRegion target = side.exchange(ours.remote());
        SendRequest request = write_request({ours, 0, target, 0, 64 * 1024});
        request.opcode = Opcode::kWriteWithImmediate;
        request.signaled = false;
        for (int i = 0; i < 100; ++i) {
          side.post(request);
          side.receive_completion();
        }
      });
}

LEAT_INSTANTIATE_ON_DEVICES(VerbsErrors);
LEAT_INSTANTIATE_ON_DEVICES(VerbsDeath);

}  // namespace
}  // namespace leat::detail

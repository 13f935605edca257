// What queue pairs promise while both sides are busy: visibility, whole words, two threads,
// sleeping.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "support/devices.h"
#include "support/verbs_side.h"

namespace leat::detail {
namespace {

constexpr std::size_t kSlots = 32;
constexpr std::size_t kSlotBytes = 4096;

std::uint64_t load_word(const std::byte* memory) {
  auto& word = *reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(memory));
  return std::atomic_ref(word).load(std::memory_order_acquire);
}

// One direction of messages through kSlots slots: each is announced by its own immediate or a later
// one, and the receiver returns credits by inlined, unsignaled writes of a counter, as transports
// do.
class SlotStream {
 public:
  enum class Announce { kByTheWriteItself, kByALaterImmediate };

  // Both sides at the same time.
  explicit SlotStream(VerbsSide& side, std::uint64_t seed = 0) : side_(side), seed_(seed) {
    side.post_receives(2 * kSlots);
    peer_target_ = side.exchange(target_.remote());
    peer_credits_ = side.exchange(credits_.remote());
  }

  static std::size_t bytes_of(std::uint64_t number) {
    std::mt19937_64 random(number);
    return 1 + random() % (number % 8 == 0 ? kSlotBytes : 200);
  }

  // In one thread.
  void send_all(std::uint64_t count, Announce announce) {
    const Deadline deadline = hang_deadline();
    for (std::uint64_t i = 0; i < count; ++i) {
      while (i - load_word(credits_.memory().data()) >= kSlots) {
        if (passed(deadline)) throw std::runtime_error("no credits come");
        std::this_thread::yield();
      }
      send_one(i, announce);
    }
    while (completed_ < count) take_completion();
  }

  // In the same thread or another.
  void receive_all(std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      const Completion completion = side_.receive_completion();
      ASSERT_EQ(completion.status, CompletionStatus::kSuccess);
      const std::size_t bytes = bytes_of(i);
      const std::byte* slot = target_.memory().data() + i % kSlots * kSlotBytes;
      ASSERT_EQ(pattern_mismatch({slot, bytes}, i + seed_), bytes) << "message " << i;
      side_.post_receives(1);
      return_credit(i + 1);
    }
  }

 private:
  void return_credit(std::uint64_t taken) {
    SendRequest request;
    request.signaled = false;
    request.inlined = true;
    request.local = &taken;
    request.bytes = sizeof(taken);
    request.remote_address = peer_credits_.address;
    request.remote_key = peer_credits_.key;
    side_.post(request);
  }

  void take_completion() {
    const Completion completion = side_.send_completion();
    ASSERT_EQ(completion.status, CompletionStatus::kSuccess);
    ASSERT_EQ(completion.id, completed_++);
  }

  void send_one(std::uint64_t i, Announce announce) {
    while (i - completed_ >= kSlots) take_completion();
    const std::size_t offset = i % kSlots * kSlotBytes;
    const std::size_t bytes = bytes_of(i);
    fill_pattern(source_.memory().subspan(offset, bytes), i + seed_);
    SendRequest write = write_request({source_, offset, peer_target_, offset, bytes}, i);
    if (announce == Announce::kByTheWriteItself) {
      write.opcode = Opcode::kWriteWithImmediate;
      side_.post(write);
      return;
    }
    write.signaled = false;
    side_.post(write);
    side_.post(immediate_request(0, i));
  }

  VerbsSide& side_;
  std::uint64_t seed_;
  const MemoryRegion& source_ = side_.allocate(kSlots * kSlotBytes, kLocalOnly);
  const MemoryRegion& target_ = side_.allocate(kSlots * kSlotBytes, kRemoteWrite);
  const MemoryRegion& credits_ = side_.allocate(64, kRemoteWrite);
  RemoteRegion peer_target_;
  RemoteRegion peer_credits_;
  std::uint64_t completed_ = 0;
};

class VerbsStreams : public VerbsTest {
 protected:
  void stream_one_way(SlotStream::Announce announce) {
    const std::size_t count = scaled(30'000);
    run([&](VerbsSide& side) { SlotStream(side).send_all(count, announce); },
        [&](VerbsSide& side) { SlotStream(side).receive_all(count); });
  }
};

TEST_P(VerbsStreams, BytesAreVisibleBeforeTheImmediateThatCarriesThem) {
  stream_one_way(SlotStream::Announce::kByTheWriteItself);
}

TEST_P(VerbsStreams, BytesOfAWriteAreVisibleBeforeALaterImmediate) {
  stream_one_way(SlotStream::Announce::kByALaterImmediate);
}

TEST_P(VerbsStreams, OneThreadSendsWhileAnotherReceivesAndReturnsCredits) {
  const std::size_t count = scaled(20'000);
  run_both([&](VerbsSide& side) {
    SlotStream stream(side);
    std::thread receiver([&] { stream.receive_all(count); });
    stream.send_all(count, SlotStream::Announce::kByTheWriteItself);
    receiver.join();
  });
}

// Every aligned word carries eight times the same byte; half of one would show.
std::uint64_t whole_word(std::uint64_t value) { return (value & 0xff) * 0x0101010101010101u; }
bool is_whole(std::uint64_t word) { return word == whole_word(word); }

TEST_P(VerbsStreams, AlignedWordsAreWrittenWhole) {
  const std::size_t rounds = scaled(100'000);
  run(
      [&](VerbsSide& side) {
        const MemoryRegion& source = side.allocate(4096, kLocalOnly);
        const RemoteRegion target = side.exchange({});
        auto* words = reinterpret_cast<std::uint64_t*>(source.memory().data());
        const std::size_t sizes[] = {8, 16, 24, 64, 72, 256, 4096};
        for (std::size_t i = 0; i < rounds; ++i) {
          const std::size_t bytes = sizes[i % std::size(sizes)];
          std::fill_n(words, bytes / 8, whole_word(i));
          side.complete(write_request({source, 0, target, 0, bytes}));
        }
        side.complete(immediate_request(0));
      },
      [&](VerbsSide& side) {
        const MemoryRegion& target = side.allocate(4096, kRemoteWrite);
        side.post_receives(1);
        side.exchange(target.remote());
        Completion completion;
        const Deadline deadline = hang_deadline();
        while (side.queue_pair->poll_receives({&completion, 1}) == 0 && !passed(deadline)) {
          for (std::size_t offset = 0; offset < 4096; offset += 8) {
            const std::uint64_t word = load_word(target.memory().data() + offset);
            ASSERT_TRUE(is_whole(word)) << std::hex << word << " at " << offset;
          }
        }
      });
}

// The only way in which a word in memory may announce other bytes.
TEST_P(VerbsStreams, FencedWriteIsSeenAfterTheWritesThatAnEarlierReadCameBehind) {
  const std::size_t rounds = scaled(5000);
  run(
      [&](VerbsSide& side) {
        const MemoryRegion& source = side.allocate(kSlotBytes + 64, kLocalOnly);
        const RemoteRegion target = side.exchange({});
        side.post_receives(2);
        for (std::uint64_t i = 1; i <= rounds; ++i) {
          const std::size_t bytes = SlotStream::bytes_of(i);
          fill_pattern(source.memory().first(bytes), i);
          SendRequest written = write_request({source, 0, target, 0, bytes});
          SendRequest read = read_request({source, kSlotBytes, target, kSlotBytes, 8});
          written.signaled = read.signaled = false;
          std::uint64_t word = i;
          SendRequest tells = write_request({source, 0, target, kSlotBytes, sizeof word}, i);
          tells.local = &word;
          tells.inlined = true;
          tells.fenced = true;
          for (const SendRequest& request : {written, read, tells}) side.post(request);
          ASSERT_EQ(side.send_completion().id, i);
          ASSERT_EQ(side.receive_completion().immediate, i) << "what was checked";
          side.post_receives(1);
        }
      },
      [&](VerbsSide& side) {
        const MemoryRegion& target = side.allocate(kSlotBytes + 64, kRemoteRead | kRemoteWrite);
        side.exchange(target.remote());
        for (std::uint64_t i = 1; i <= rounds; ++i) {
          const Deadline deadline = hang_deadline();
          while (load_word(target.memory().data() + kSlotBytes) != i) {
            ASSERT_FALSE(passed(deadline)) << "word " << i << " does not come";
            std::this_thread::yield();
          }
          const std::size_t bytes = SlotStream::bytes_of(i);
          ASSERT_EQ(pattern_mismatch(target.memory().first(bytes), i), bytes) << "round " << i;
          side.complete(immediate_request(static_cast<std::uint32_t>(i), i));
        }
      });
}

TEST_P(VerbsStreams, AlignedWordsAreReadWhole) {
  const std::size_t rounds = scaled(50'000);
  run(
      [&](VerbsSide& side) {
        const MemoryRegion& memory = side.allocate(4096, kLocalOnly);
        const RemoteRegion source = side.exchange({});
        const std::size_t sizes[] = {8, 16, 24, 64, 72, 256, 4096};
        for (std::size_t i = 0; i < rounds; ++i) {
          const std::size_t bytes = sizes[i % std::size(sizes)];
          side.complete(read_request({memory, 0, source, 0, bytes}));
          for (std::size_t offset = 0; offset < bytes; offset += 8) {
            const std::uint64_t word = load_word(memory.memory().data() + offset);
            ASSERT_TRUE(is_whole(word)) << std::hex << word << " at " << offset;
          }
        }
        side.complete(immediate_request(0));
      },
      [&](VerbsSide& side) {
        const MemoryRegion& source = side.allocate(4096, kRemoteRead);
        side.post_receives(1);
        side.exchange(source.remote());
        auto* words = reinterpret_cast<std::uint64_t*>(source.memory().data());
        Completion completion;
        const Deadline deadline = hang_deadline();
        for (std::uint64_t value = 0;
             side.queue_pair->poll_receives({&completion, 1}) == 0 && !passed(deadline); ++value) {
          for (std::size_t i = 0; i < 512; ++i) {
            std::atomic_ref(words[i]).store(whole_word(value), std::memory_order_relaxed);
          }
        }
      });
}

TEST_P(VerbsStreams, SleepingReceiverIsWokenByAnImmediate) {
  run(
      [](VerbsSide& side) {
        side.peer.hear("about to sleep");
        side.complete(immediate_request(8));
      },
      [](VerbsSide& side) {
        side.post_receives(1);
        side.peer.tell("about to sleep");
        EXPECT_EQ(side.sleep_for_receive().immediate, 8u);
      });
}

TEST_P(VerbsStreams, TakingACompletionAfterArmDoesNotTakeTheWishForAnEventBack) {
  run(
      [](VerbsSide& side) {
        side.peer.hear("armed");
        side.complete(immediate_request(1));
        side.peer.hear("about to sleep");
        side.complete(immediate_request(2));
      },
      [](VerbsSide& side) {
        side.post_receives(2);
        side.queue_pair->arm(Side::kReceive);
        side.peer.tell("armed");
        EXPECT_EQ(side.receive_completion().immediate, 1u);
        side.peer.tell("about to sleep");
        pollfd wait{side.queue_pair->event_fd(Side::kReceive), POLLIN, 0};
        ASSERT_EQ(::poll(&wait, 1, poll_timeout_ms(hang_deadline())), 1) << "no event";
        EXPECT_EQ(side.receive_completion().immediate, 2u);
      });
}

TEST_P(VerbsStreams, CompletionThatWasThereWhenArmedDoesNotTakeTheWishForAnEventBack) {
  run(
      [](VerbsSide& side) {
        side.complete(immediate_request(1));
        side.peer.tell("sent");
        side.peer.hear("about to sleep");
        side.complete(immediate_request(2));
      },
      [](VerbsSide& side) {
        side.post_receives(2);
        side.peer.hear("sent");
        side.queue_pair->arm(Side::kReceive);
        EXPECT_EQ(side.receive_completion().immediate, 1u);
        side.peer.tell("about to sleep");
        pollfd wait{side.queue_pair->event_fd(Side::kReceive), POLLIN, 0};
        ASSERT_EQ(::poll(&wait, 1, poll_timeout_ms(hang_deadline())), 1) << "no event";
        EXPECT_EQ(side.receive_completion().immediate, 2u);
      });
}

TEST_P(VerbsStreams, EventDescriptorsStayTheSame) {
  run_both([](VerbsSide& side) {
    for (const Side direction : {Side::kSend, Side::kReceive}) {
      const int fd = side.queue_pair->event_fd(direction);
      EXPECT_GE(fd, 0);
      side.queue_pair->arm(direction);
      EXPECT_EQ(side.queue_pair->event_fd(direction), fd);
    }
    EXPECT_FALSE(side.queue_pair->describe().empty());
    side.peer.barrier();
  });
}

// A lost wake hangs it.
TEST_P(VerbsStreams, PingPongBetweenSleepersLosesNoWake) {
  const std::size_t count = scaled(20'000);
  const auto body = [&](VerbsSide& side, bool begins) {
    side.post_receives(4);
    side.peer.barrier();
    for (std::uint32_t i = 0; i < count; ++i) {
      if (begins) side.post(immediate_request(i, i));
      ASSERT_EQ(side.sleep_for_receive().immediate, i);
      side.post_receives(1);
      if (!begins) side.post(immediate_request(i, i));
      ASSERT_EQ(side.sleep_for_send().id, i);
    }
  };
  run([&](VerbsSide& side) { body(side, true); }, [&](VerbsSide& side) { body(side, false); });
}

TEST_P(VerbsStreams, SenderThatSleepsForRoomLosesNoWake) {
  const std::size_t count = scaled(10'000);
  run(
      [&](VerbsSide& side) {
        for (std::uint32_t i = 0; i < count; ++i) {
          const SendRequest request = immediate_request(i, i);
          side.sleep(Side::kSend, [&] { return side.queue_pair->post_send({&request, 1}) == 1; });
          ASSERT_EQ(side.sleep_for_send().id, i);
        }
      },
      [&](VerbsSide& side) {
        for (std::uint32_t i = 0; i < count; ++i) {
          side.post_receives(1);
          ASSERT_EQ(side.sleep_for_receive().immediate, i);
        }
      });
}

// The sender runs ahead, so that arrivals meet the receiver at every step of going to sleep.
TEST_P(VerbsStreams, SleepingReceiverLosesNoWakeInAFlood) {
  const std::size_t count = scaled(50'000);
  run(
      [&](VerbsSide& side) {
        for (std::uint32_t i = 0; i < count; ++i) {
          SendRequest request = immediate_request(i, i);
          request.signaled = i % 16 == 15;
          side.post(request);
          if (request.signaled) side.send_completion();
        }
        side.peer.barrier();
      },
      [&](VerbsSide& side) {
        side.post_receives(64);
        for (std::uint32_t i = 0; i < count; ++i) {
          ASSERT_EQ(side.sleep_for_receive().immediate, i);
          side.post_receives(1);
        }
        side.peer.barrier();
      });
}

LEAT_INSTANTIATE_ON_DEVICES(VerbsStreams);

}  // namespace
}  // namespace leat::detail

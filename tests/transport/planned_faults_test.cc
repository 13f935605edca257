// The planned transport against a peer that breaks the rules, and over a device with faults.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "leat/error.h"
#include "support/devices.h"
#include "support/fault_device.h"
#include "support/pattern.h"
#include "support/peer_pair.h"
#include "support/planned_side.h"
#include "support/scale.h"
#include "transport/planned/planned.h"
#include "verbs/table.h"

namespace leat::detail {
namespace {

constexpr std::size_t kFaultyPlannedBytes = 64 * 1024;
const RingOptions kRings{.ring_bytes = 4096, .context_ring_bytes = 4096, .max_message_bytes = 4096};
// What docs/wire_format.md says is in the planned part of a setup.
struct PlannedSetup {
  std::uint64_t address;
  std::uint64_t bytes;
  std::uint32_t key;
  std::uint32_t digest_digits;
  char digest[64];
};

using Blob = std::vector<std::byte>;

std::string as_word(const Blob& blob) {
  return {reinterpret_cast<const char*>(blob.data()), blob.size()};
}
Blob as_blob(const std::string& word) {
  const auto bytes = std::as_bytes(std::span(word));
  return {bytes.begin(), bytes.end()};
}

void until(const char* what, const std::function<bool()>& ready) {
  const Deadline deadline = hang_deadline();
  while (!ready()) {
    if (passed(deadline)) throw std::runtime_error(std::string("hangs: ") + what);
    std::this_thread::yield();
  }
}

// A device and its queue pair to the other side.
struct Ends {
  std::unique_ptr<Device> device;
  std::unique_ptr<QueuePair> queue_pair;
};
Ends connect(Peer& peer, const std::string& name, const FaultProfile& profile, bool offers) {
  const std::string address = device_address(name);
  auto device = make_fault_device(open_device(name, address), profile);
  std::unique_ptr<QueuePair> queue_pair;
  if (offers) {
    const auto offer = device->offer(kRings.depths, address);
    peer.tell(as_word(offer->blob()));
    queue_pair = offer->accept(hang_deadline(), -1);
  } else {
    queue_pair = device->connect(as_blob(peer.hear()), kRings.depths, hang_deadline());
  }
  return {std::move(device), std::move(queue_pair)};
}

PlannedTransport make_planned(Ends ends) {
  return {std::move(ends.device), std::move(ends.queue_pair), kRings, {kFaultyPlannedBytes, ""}};
}

// The immediate data of a planned message. The first array that is open has the numbers from 0 on.
std::uint32_t number(std::uint64_t n) {
  return encode(Immediate::of_number(static_cast<std::uint32_t>(n)));
}

// A peer that speaks the ring part honestly, and writes what it likes into the planned region.
class Rogue : public RingTransport {
 public:
  explicit Rogue(Ends ends)
      : RingTransport(std::move(ends.device), std::move(ends.queue_pair), kRings) {
    region_ = device().allocate(kFaultyPlannedBytes + 8 * kArrayContexts, kRemoteWrite);
  }

  Blob planned_setup() const {
    const RemoteRegion region = region_->remote();
    const PlannedSetup planned{region.address, kFaultyPlannedBytes, region.key, 0, {}};
    Blob blob = setup();
    const auto bytes = std::as_bytes(std::span(&planned, 1));
    blob.insert(blob.end(), bytes.begin(), bytes.end());
    return blob;
  }
  void hear(const Blob& blob) {
    if (blob.size() != kRingSetupBytes + sizeof peer_) throw std::runtime_error("an odd setup");
    start(std::span(blob).first(kRingSetupBytes));
    std::memcpy(&peer_, blob.data() + kRingSetupBytes, sizeof peer_);
  }

  void write(std::uint32_t immediate, std::size_t bytes) {
    SendRequest request;
    request.opcode = Opcode::kWriteWithImmediate;
    request.signaled = false;
    request.bytes = bytes;
    request.local = region_->memory().data();
    request.local_key = region_->local_key();
    request.remote_address = peer_.address;
    request.remote_key = peer_.key;
    request.immediate = immediate;
    until("write", [&] { return find_credit() && post_request(request); });
  }
  void say(unsigned context, std::uint64_t word) {
    until("word", [&] {
      return post_word(queue_pair(), peer_.address + kFaultyPlannedBytes + 8 * context, peer_.key,
                       word);
    });
  }
  // Whether the peer has opened an array there, its first one, with the numbers from 0 on.
  bool peer_has_opened(unsigned context) const {
    std::uint64_t word = 0;
    std::memcpy(&word, region_->memory().data() + kFaultyPlannedBytes + 8 * context, sizeof word);
    return word == MessageArrays::word_of(1, 0);
  }

 private:
  std::unique_ptr<MemoryRegion> region_;
  PlannedSetup peer_{};
};

class PlannedRogue : public testing::TestWithParam<std::string> {
 protected:
  // The honest side must end with an error of that code.
  static void run(const std::function<void(PlannedTransport&)>& honest,
                  const std::function<void(Rogue&)>& rogue, ErrorCode code,
                  const std::string& text) {
    run_pair(
        PeerMode::kThreads,
        [&](Peer& peer) {
          PlannedTransport transport = make_planned(connect(peer, GetParam(), {}, true));
          peer.tell(as_word(transport.setup()));
          try {
            transport.start(as_blob(peer.hear()));
            honest(transport);
            ADD_FAILURE() << "no error";
          } catch (const Error& error) {
            EXPECT_EQ(error.code(), code) << error.what();
            EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
          }
          peer.tell("done");
        },
        [&](Peer& peer) {
          Rogue transport(connect(peer, GetParam(), {}, false));
          peer.tell(as_word(transport.planned_setup()));
          transport.hear(as_blob(peer.hear()));
          rogue(transport);
          peer.hear("done");
        });
  }
  static void expect_refused(std::uint32_t immediate, std::size_t bytes, const std::string& text,
                             std::uint64_t incoming = MessageArray::kAll) {
    run(
        [&](PlannedTransport& transport) {
          transport.open(
              3, {.base_bytes = 64, .message_bytes = 16, .count = 10, .incoming = incoming});
          until("tell", [&] { return transport.try_tell(3); });
          until("the write", [&] {
            transport.try_progress();
            return false;
          });
        },
        [&](Rogue& rogue) {
          until("open", [&] { return rogue.peer_has_opened(3); });
          rogue.write(immediate, bytes);
        },
        ErrorCode::kProtocol, text);
  }
};

TEST_P(PlannedRogue, ANumberOfNobody) {
  expect_refused(number(MessageNumbers::kChunk), 16, "no array is open");
}
TEST_P(PlannedRogue, AnIndexOutside) { expect_refused(number(10), 16, "outside the array"); }
TEST_P(PlannedRogue, TheLargestNumber) {
  expect_refused(number(0x7fff'ffff), 16, "no array is open");
}
TEST_P(PlannedRogue, MoreNeighboursThanThereAre) {
  expect_refused(number(9), 32, "outside the array");
}
TEST_P(PlannedRogue, ACutMessage) { expect_refused(number(0), 15, "not whole messages"); }
TEST_P(PlannedRogue, NoBytes) { expect_refused(number(0), 0, "not whole messages"); }
TEST_P(PlannedRogue, MoreThanWasToCome) {
  expect_refused(number(0), 16, "all that were to come", 0);
}
TEST_P(PlannedRogue, APlaceBeyondTheRings) {
  expect_refused(encode({3, kMaxPlace}), 16, "at place");
}

TEST_P(PlannedRogue, AMessageTwice) {
  run(
      [](PlannedTransport& transport) {
        transport.open(0, {.base_bytes = 0, .message_bytes = 4, .count = 100});
        until("tell", [&] { return transport.try_tell(0); });
        until("the second", [&] {
          transport.try_progress();
          return false;
        });
      },
      [](Rogue& rogue) {
        until("open", [&] { return rogue.peer_has_opened(0); });
        rogue.write(number(30), 40);
        rogue.write(number(39), 4);
      },
      ErrorCode::kProtocol, "came before");
}

TEST_P(PlannedRogue, AnEpochThatCannotBe) {
  run(
      [](PlannedTransport& transport) {
        transport.open(0, {.base_bytes = 0, .message_bytes = 4, .count = 100});
        until("tell", [&] { return transport.try_tell(0); });
        until("its epoch", [&] { return transport.peer_is_open(0); });
      },
      [](Rogue& rogue) { rogue.say(0, MessageArrays::word_of(2, 0)); }, ErrorCode::kProtocol,
      "context 0 again");
}

// Random immediates and sizes: always an error in the end, never anything outside the array.
TEST_P(PlannedRogue, AnyWrites) {
  for (std::uint32_t seed = 0; seed < scaled(50); ++seed) {
    run(
        [](PlannedTransport& transport) {
          transport.open(0, {.base_bytes = 0, .message_bytes = 4, .count = 100});
          until("tell", [&] { return transport.try_tell(0); });
          Delivery delivery;
          until("an error", [&] {
            // The rogue may also announce its end, which alone is not an error.
            if (transport.try_receive(5, delivery) == ReceiveResult::kEnd)
              transport.check_not_ended();
            delivery.must_release = false;
            return false;
          });
        },
        [&](Rogue& rogue) {
          until("open", [&] { return rogue.peer_has_opened(0); });
          std::mt19937 random(seed);
          for (int i = 0; i < 5; ++i) rogue.write(number(random() % 100), 4);
          rogue.write(static_cast<std::uint32_t>(random()) | 1U << 27, random() % 500);
          rogue.write(number(0), 4);
          rogue.write(number(0), 4);
        },
        ErrorCode::kProtocol, "");
  }
}

// Setups that contradict themselves: an error, at once.
TEST_P(PlannedRogue, BrokenSetups) {
  run_pair(
      PeerMode::kThreads,
      [&](Peer& peer) {
        PlannedTransport transport = make_planned(connect(peer, GetParam(), {}, true));
        const Blob good = transport.setup();
        const auto expect_refused = [&](const std::function<void(PlannedSetup&)>& change) {
          PlannedSetup planned;
          std::memcpy(&planned, good.data() + kRingSetupBytes, sizeof planned);
          change(planned);
          Blob bad = good;
          std::memcpy(bad.data() + kRingSetupBytes, &planned, sizeof planned);
          EXPECT_THROW(transport.start(bad), Error);
        };
        ASSERT_EQ(good.size(), kRingSetupBytes + sizeof(PlannedSetup));
        expect_refused([](PlannedSetup& setup) { setup.address = UINT64_MAX - 7; });
        expect_refused([](PlannedSetup& setup) { setup.address += 4; });
        expect_refused([](PlannedSetup& setup) { setup.bytes += 64; });
        expect_refused([](PlannedSetup& setup) { setup.digest_digits = 65; });
        expect_refused([](PlannedSetup& setup) { setup.digest_digits = UINT32_MAX; });
        expect_refused([](PlannedSetup& setup) {
          setup.digest_digits = 2;
          setup.digest[0] = '\n';
        });
        for (std::size_t bytes = 0; bytes < good.size(); ++bytes)
          EXPECT_THROW(transport.start(std::span(good).first(bytes)), Error);
        peer.tell("done");
      },
      [&](Peer& peer) {
        const Ends ends = connect(peer, GetParam(), {}, false);
        peer.hear("done");
      });
}

INSTANTIATE_TEST_SUITE_P(Devices, PlannedRogue, testing::ValuesIn(test_devices()),
                         [](const auto& parameters) { return device_label(parameters.param); });

// --- Faults of the device

std::vector<Fault> harmless() {
  std::vector<Fault> faults{{"none", {}}, {"like_hardware", {.like_hardware = true}}};
  for (const std::uint64_t seed : {1, 2, 3}) {
    faults.push_back({"delayed_short_" + std::to_string(seed),
                      {.seed = seed, .max_delay_polls = 20, .short_acceptance = true}});
    faults.push_back(
        {"delayed_short_hardware_" + std::to_string(seed),
         {.seed = seed, .max_delay_polls = 50, .short_acceptance = true, .like_hardware = true}});
  }
  return faults;
}

// Like hardware, because a broken queue pair of the fault device takes the peer's memory with it.
std::vector<Fault> breaks() {
  std::vector<Fault> faults;
  for (const std::uint64_t n : {1, 2, 5, 40, 300}) {
    const std::string number = std::to_string(n);
    faults.push_back({"failing_" + number,
                      {.failing_request = n,
                       .failure = CompletionStatus::kRemoteAccess,
                       .like_hardware = true}});
    faults.push_back({"dead_" + number, {.failing_request = n, .like_hardware = true}});
    faults.push_back(
        {"flushed_" + number, {.max_delay_polls = 5, .flushed_receive = n, .like_hardware = true}});
    faults.push_back({"replay_" + number, {.replayed_request = n}});
  }
  return faults;
}

// Rounds of one array each way; returns how many were whole. What arrives is as it was sent.
std::uint64_t exchange(PlannedTransport& transport, bool first, std::uint64_t rounds,
                       std::string& error, const std::function<bool()>& other_broke) {
  const MessageArray array{.base_bytes = 128, .message_bytes = 40, .count = 300};
  std::mt19937 random(first ? 1 : 2);
  std::vector<std::byte> expected(array.message_bytes);
  std::uint64_t round = 0;
  const auto wait = [&](const char* what, const std::function<bool()>& ready) {
    until(what, [&] {
      if (ready()) return true;
      if (other_broke() && !ready()) throw Error(ErrorCode::kPeerDied, "the other side broke");
      return false;
    });
  };
  try {
    for (; round < rounds; ++round) {
      const auto context = static_cast<Context>(round % 3);
      transport.open(context, array);
      wait("tell", [&] { return transport.try_tell(context); });
      wait("its open", [&] { return transport.peer_is_open(context); });
      for (std::uint64_t left = array.count; left != 0;) {
        const std::uint64_t count = std::min<std::uint64_t>(1 + random() % 20, left);
        left -= count;  // backwards: cuts are never merged
        const auto bytes = transport.outgoing(context, left, count);
        for (std::uint64_t i = 0; i < count; ++i)
          fill_pattern(bytes.subspan(i * 40, 40), round << 32 | (left + i) << 1 | (first ? 1 : 0));
        wait("append", [&] { return transport.try_append(context, left, count); });
      }
      wait("arrivals", [&] {
        const bool posted = transport.try_post();
        while (transport.arrays().missing(context) != 0 && transport.try_progress()) {
        }
        return posted && transport.arrays().missing(context) == 0;
      });
      for (std::uint64_t i = 0; i < array.count; ++i) {
        EXPECT_EQ(pattern_mismatch(transport.incoming(context, i, 1),
                                   round << 32 | i << 1 | (first ? 0 : 1)),
                  40U)
            << "message " << i << " of round " << round;
      }
      if (testing::Test::HasFailure()) break;
      transport.close(context);
    }
    wait("flush", [&] { return transport.try_flush(); });
  } catch (const Error& caught) {
    error = caught.what();
    EXPECT_TRUE(caught.code() == ErrorCode::kPeerDied || caught.code() == ErrorCode::kProtocol)
        << error;
  }
  return round;
}

class PlannedFaults : public testing::TestWithParam<std::tuple<PeerMode, Fault>> {
 protected:
  // `whole`: every round must succeed. The first side's device has the fault.
  static void run(bool whole) {
    const std::uint64_t rounds = scaled(20);
    const auto side = [&](bool first) {
      return [&, first](Peer& peer) {
        const Fault& fault = std::get<1>(GetParam());
        PlannedTransport transport = make_planned(
            connect(peer, "shm", first || whole ? fault.profile : FaultProfile{}, first));
        peer.tell(as_word(transport.setup()));
        transport.start(as_blob(peer.hear()));
        std::string error;
        std::optional<std::string> heard;
        const auto other_broke = [&] {
          if (!whole && !heard && peer.has_word()) heard = peer.hear();
          return heard && !heard->empty();
        };
        const std::uint64_t done = exchange(transport, first, rounds, error, other_broke);
        // An error may also meet the flush after the last round.
        EXPECT_TRUE(done == rounds || !error.empty()) << done << " rounds";
        if (whole) {
          EXPECT_EQ(error, "");
          peer.barrier();
        } else {
          peer.tell(error);
          if (!heard) peer.hear();
        }
      };
    };
    run_pair(std::get<0>(GetParam()), side(true), side(false));
  }
};
class PlannedBreaks : public PlannedFaults {};

TEST_P(PlannedFaults, HarmlessOnesChangeNothing) { run(true); }
TEST_P(PlannedBreaks, GiveErrorsAndNothingWrong) { run(false); }

std::string fault_name(const testing::TestParamInfo<PlannedFaults::ParamType>& info) {
  return std::get<1>(info.param).name + "_" + to_string(std::get<0>(info.param));
}
INSTANTIATE_TEST_SUITE_P(Faults, PlannedFaults,
                         testing::Combine(testing::Values(PeerMode::kThreads, PeerMode::kProcesses),
                                          testing::ValuesIn(harmless())),
                         fault_name);
INSTANTIATE_TEST_SUITE_P(Faults, PlannedBreaks,
                         testing::Combine(testing::Values(PeerMode::kThreads, PeerMode::kProcesses),
                                          testing::ValuesIn(breaks())),
                         fault_name);

}  // namespace
}  // namespace leat::detail

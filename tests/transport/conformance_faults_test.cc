// Each transport over a device with faults: either every message arrives intact, or both sides
// get a clear error after an intact part; nothing wrong, doubled or cut is ever handed out.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "leat/error.h"
#include "support/devices.h"
#include "support/pattern.h"
#include "support/scale.h"
#include "support/transport_side.h"
#include "transport/table.h"

namespace leat::detail {
namespace {

constexpr std::size_t kFaultyRingBytes = 256 * 1024;
constexpr std::size_t kContextRingBytes = 64 * 1024;
constexpr std::size_t kFaultySlotBytes = 2048;
constexpr std::size_t kFaultyRegionBytes = 64 * 1024;
constexpr std::size_t kFaultyChunkBytes = 20 * 1024;
constexpr unsigned kSlotCount = 80;  // a word and a part of one

// The size of the n-th message.
std::size_t size_of(std::uint64_t n) {
  std::mt19937_64 random(n);
  if (n % 50 == 49) return random() % 300'000;  // in pieces
  return random() % (n % 10 == 0 ? 8000 : 200);
}

// Before some messages comes one that its sender may give up; no other message has its size.
constexpr std::size_t kDoubtfulBytes = 300'001;
bool doubtful_comes_before(const TransportSide& side, std::uint64_t n) {
  return n % 40 == 30 && side.transport->facts().takes_back;
}

// How a stream of messages ended.
struct Outcome {
  std::uint64_t messages = 0;  // intact, from the first
  std::string error;           // empty: orderly

  bool orderly() const { return error.empty(); }
};

// Sends `count` messages and the end, as far as it gets.
Outcome send_stream(TransportSide& side, std::uint64_t count) {
  Outcome outcome;
  std::vector<std::byte> message;
  try {
    for (; outcome.messages < count; ++outcome.messages) {
      if (doubtful_comes_before(side, outcome.messages))
        side.send_or_give_up(kDoubtfulBytes, outcome.messages, context_of(outcome.messages));
      message.resize(size_of(outcome.messages));
      fill_pattern(message, outcome.messages);
      side.send(message, context_of(outcome.messages));
    }
    side.end();
  } catch (const Error& error) {
    outcome.error = error.what();
    EXPECT_TRUE(error.code() == ErrorCode::kPeerDied || error.code() == ErrorCode::kProtocol)
        << to_string(error.code()) << ": " << error.what();
  }
  return outcome;
}

// Receives until the end or an error. Sizes are checked, contents if `check_contents`.
Outcome receive_stream(TransportSide& side, bool check_contents = true) {
  Outcome outcome;
  try {
    for (;; ++outcome.messages) {
      Delivery delivery;
      if (!side.receive(context_of(outcome.messages), delivery)) break;
      if (delivery.bytes == kDoubtfulBytes && doubtful_comes_before(side, outcome.messages)) {
        if (check_contents) {
          EXPECT_EQ(pattern_mismatch(bytes_of(delivery), outcome.messages), kDoubtfulBytes);
        }
        if (delivery.must_release) side.transport->release(delivery);
        delivery = {};
        if (!side.receive(context_of(outcome.messages), delivery)) break;
      }
      const auto bytes = bytes_of(delivery);
      EXPECT_EQ(bytes.size(), size_of(outcome.messages)) << "message " << outcome.messages;
      if (check_contents) {
        EXPECT_EQ(pattern_mismatch(bytes, outcome.messages), bytes.size())
            << "message " << outcome.messages;
      }
      if (delivery.must_release) side.transport->release(delivery);
      if (testing::Test::HasFailure()) break;
    }
  } catch (const Error& error) {
    outcome.error = error.what();
    EXPECT_TRUE(error.code() == ErrorCode::kPeerDied || error.code() == ErrorCode::kProtocol)
        << to_string(error.code()) << ": " << error.what();
  }
  return outcome;
}

// On shm at all of these places; elsewhere, where connecting takes long, at some of them: what a
// transport makes of the others is the same.
using Numbers = std::vector<std::uint64_t>;
Numbers chosen(const std::string& device, const Numbers& all, const Numbers& some) {
  return device == "shm" ? all : some;
}

std::vector<Fault> harmless_faults(const std::string& device) {
  std::vector<Fault> cases{{"none", {}}, {"like_hardware", {.like_hardware = true}}};
  for (const std::uint64_t seed : chosen(device, {1, 2, 3}, {1})) {
    const std::string number = std::to_string(seed);
    cases.push_back({"delay_" + number, {.seed = seed, .max_delay_polls = 20}});
    cases.push_back({"short_" + number, {.seed = seed, .short_acceptance = true}});
    cases.push_back(
        {"delayed_short_hardware_" + number,
         {.seed = seed, .max_delay_polls = 50, .short_acceptance = true, .like_hardware = true}});
  }
  return cases;
}

std::vector<Fault> device_breaks(const std::string& device) {
  std::vector<Fault> cases;
  for (const std::uint64_t n : chosen(device, {1, 2, 3, 7, 60, 64, 65, 500}, {1, 7, 64, 500})) {
    const std::string number = std::to_string(n);
    cases.push_back(
        {"failing_" + number, {.failing_request = n, .failure = CompletionStatus::kRemoteAccess}});
    cases.push_back({"dead_" + number, {.failing_request = n, .like_hardware = n % 2 == 0}});
    cases.push_back({"flushed_" + number, {.max_delay_polls = 5, .flushed_receive = n}});
  }
  return cases;
}

std::vector<Fault> replays(const std::string& device) {
  std::vector<Fault> cases;
  for (const std::uint64_t n : chosen(device, {1, 2, 5, 50, 51, 300}, {1, 50})) {
    cases.push_back({"replay_" + std::to_string(n), {.replayed_request = n}});
    cases.push_back({"replay_like_hardware_" + std::to_string(n),
                     {.replayed_request = n, .like_hardware = true}});
  }
  return cases;
}

std::vector<Fault> flips(const std::string& device) {
  std::vector<Fault> cases;
  for (const std::uint64_t n : chosen(device, {1, 2, 10, 49, 50, 51, 400}, {1, 10, 50})) {
    for (const std::uint64_t seed : chosen(device, {1, 2, 3}, {1, 3})) {
      cases.push_back({"flip_" + std::to_string(n) + "_seed_" + std::to_string(seed),
                       {.seed = seed, .flipped_request = n, .like_hardware = seed == 3}});
    }
  }
  return cases;
}

// Parameters: transport, device, threads or processes, what goes wrong.
class TransportFaults
    : public testing::TestWithParam<std::tuple<std::string, std::string, PeerMode, Fault>> {
 protected:
  const std::string& transport() const { return std::get<0>(GetParam()); }
  PeerMode mode() const { return std::get<2>(GetParam()); }
  const FaultProfile& profile() const { return std::get<3>(GetParam()).profile; }

  TransportSetup setup(const FaultProfile& first, const FaultProfile& second) const {
    TransportSetup setup;
    setup.transport = transport();
    setup.device = std::get<1>(GetParam());
    setup.first = first;
    setup.second = second;
    setup.settings.ring_bytes = kFaultyRingBytes;
    setup.settings.ring_context_bytes = kContextRingBytes;
    setup.settings.slot_bytes = kFaultySlotBytes;
    setup.settings.slot_count = kSlotCount;
    setup.settings.chunked_region_bytes = kFaultyRegionBytes;
    setup.settings.chunked_chunk_bytes = kFaultyChunkBytes;
    setup.settings.max_message_bytes = std::size_t{1} << 20;
    return setup;
  }

  // The first side sends, the second receives. `judge` runs at the receiver with both outcomes.
  using Judge = std::function<void(const Outcome& sent, const Outcome& received)>;
  void run_one_way(const FaultProfile& senders, const FaultProfile& receivers, std::uint64_t count,
                   bool check_contents, const Judge& judge) const {
    run_transports(
        mode(), setup(senders, receivers),
        [&](TransportSide& side) {
          const Outcome sent = send_stream(side, count);
          side.tell_outcome(sent.messages, sent.error);
          side.hear_outcome();  // the transport lives until the receiver has ended as well
        },
        [&](TransportSide& side) {
          const Outcome received = receive_stream(side, check_contents);
          side.tell_outcome(received.messages, received.error);
          const auto [messages, error] = side.hear_outcome();
          judge({messages, error}, received);
        });
  }
};

// What was received is the intact first part of what was sent; all of it, if the end is orderly.
void expect_all_or_errors(const Outcome& sent, const Outcome& received, std::uint64_t count) {
  EXPECT_LE(received.messages, sent.messages + 1) << "more than was sent";
  if (received.orderly()) {
    EXPECT_EQ(received.messages, count) << "the rest is missing";
  }
}

class TransportHarmlessFaults : public TransportFaults {};

TEST_P(TransportHarmlessFaults, EveryMessageArrivesIntactInBothDirections) {
  const std::uint64_t count = scaled(2000);
  const auto body = [&](TransportSide& side) {
    side.watches_lifeline = false;
    std::thread receiver([&] {
      const Outcome received = receive_stream(side);
      EXPECT_EQ(received.error, "");
      EXPECT_EQ(received.messages, count);
    });
    const Outcome sent = send_stream(side, count);
    receiver.join();
    EXPECT_EQ(sent.error, "");
    side.peer.barrier();
  };
  run_transports(mode(), setup(profile(), profile()), body, body);
}

// Each sends one message and then only receives: what was accepted comes, though the device took
// only part of what it was given, and no further call of the send side helps.
TEST_P(TransportHarmlessFaults, AnswersOfSleepersAreNeverWaitedForInVain) {
  const std::uint64_t count = scaled(400);
  const auto send = [](TransportSide& side, std::uint64_t n) {
    std::vector<std::byte> message(n % 7 == 0 ? 3000 : n % 100);
    fill_pattern(message, n);
    side.send(message, context_of(n));
  };
  const auto receive = [](TransportSide& side, std::uint64_t n) {
    Delivery delivery;
    ASSERT_TRUE(side.receive(context_of(n), delivery));
    EXPECT_EQ(pattern_mismatch(bytes_of(delivery), n), delivery.bytes) << "message " << n;
    if (delivery.must_release) side.transport->release(delivery);
  };
  run_transports(
      mode(), setup(profile(), profile()),
      [&](TransportSide& side) {
        side.watches_lifeline = false;
        side.sleeps = true;
        for (std::uint64_t n = 0; n < count; ++n) {
          send(side, n);
          ASSERT_NO_FATAL_FAILURE(receive(side, n));
        }
        side.peer.barrier();
      },
      [&](TransportSide& side) {
        side.watches_lifeline = false;
        side.sleeps = true;
        for (std::uint64_t n = 0; n < count; ++n) {
          ASSERT_NO_FATAL_FAILURE(receive(side, n));
          send(side, n);
        }
        side.peer.barrier();
      });
}

class TransportBreaks : public TransportFaults {};

TEST_P(TransportBreaks, OfTheSenderGiveAnIntactPartAndThenErrors) {
  const std::uint64_t count = 2000;
  run_one_way(profile(), {}, count, true, [&](const Outcome& sent, const Outcome& received) {
    expect_all_or_errors(sent, received, count);
    if (profile().failing_request != 0) {
      EXPECT_FALSE(sent.orderly()) << "the fault did not happen";
    }
  });
}

TEST_P(TransportBreaks, OfTheReceiverGiveAnIntactPartAndThenErrors) {
  const std::uint64_t count = 2000;
  run_one_way({}, profile(), count, true, [&](const Outcome& sent, const Outcome& received) {
    expect_all_or_errors(sent, received, count);
    // The receives of batched serve only to notify an idle side; neither side idles here.
    if (profile().flushed_receive != 0 && transport() != "batched") {
      EXPECT_FALSE(received.orderly()) << "the fault did not happen";
    }
  });
}

class TransportReplays : public TransportFaults {};

TEST_P(TransportReplays, OfTheSenderAreErrorsOrHaveNoEffect) {
  const std::uint64_t count = scaled(1000);
  run_one_way(profile(), {}, count, true, [&](const Outcome& sent, const Outcome& received) {
    expect_all_or_errors(sent, received, count);
  });
}

TEST_P(TransportReplays, OfTheReceiversCreditsHaveNoEffect) {
  const std::uint64_t count = scaled(1000);
  run_one_way({}, profile(), count, true, [&](const Outcome& sent, const Outcome& received) {
    // It gives back each slot by a message of its own, and one that comes twice is an error.
    if (transport() == "confirm-each") return expect_all_or_errors(sent, received, count);
    EXPECT_EQ(sent.error, "");
    EXPECT_EQ(received.error, "");
    EXPECT_EQ(received.messages, count);
  });
}

class TransportFlips : public TransportFaults {};

// Transports do not protect contents, so only sizes are looked at.
TEST_P(TransportFlips, OfTheSenderNeverChangeTheSizeOrNumberOfMessages) {
  const std::uint64_t count = scaled(1000);
  run_one_way(profile(), {}, count, false, [&](const Outcome& sent, const Outcome& received) {
    expect_all_or_errors(sent, received, count);
  });
}

TEST_P(TransportFlips, OfTheReceiversCreditsNeverChangeTheSizeOrNumberOfMessages) {
  const std::uint64_t count = scaled(1000);
  run_one_way({}, profile(), count, false, [&](const Outcome& sent, const Outcome& received) {
    expect_all_or_errors(sent, received, count);
  });
}

std::string fault_test_name(const testing::TestParamInfo<TransportFaults::ParamType>& parameters) {
  const auto& [transport, device, mode, fault] = parameters.param;
  return device_label(transport) + "_on_" + device_label(device) + "_" + to_string(mode) + "_" +
         fault.name;
}

using FaultParameters = std::vector<TransportFaults::ParamType>;
FaultParameters with_faults(std::vector<Fault> (*cases)(const std::string& device)) {
  FaultParameters all;
  for (const TransportRow& row : transport_rows()) {
    // planned has faults of its own, planned_faults_test.cc; what it shares with ring is tested
    // there.
    if (!row.rdma || row.name == std::string_view("planned")) continue;
    for (const std::string& device : test_devices())
      for (const PeerMode mode : {PeerMode::kThreads, PeerMode::kProcesses})
        for (Fault& fault : cases(device))
          all.emplace_back(row.name, device, mode, std::move(fault));
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Devices, TransportHarmlessFaults,
                         testing::ValuesIn(with_faults(harmless_faults)), fault_test_name);
INSTANTIATE_TEST_SUITE_P(Devices, TransportBreaks, testing::ValuesIn(with_faults(device_breaks)),
                         fault_test_name);
INSTANTIATE_TEST_SUITE_P(Devices, TransportReplays, testing::ValuesIn(with_faults(replays)),
                         fault_test_name);
INSTANTIATE_TEST_SUITE_P(Devices, TransportFlips, testing::ValuesIn(with_faults(flips)),
                         fault_test_name);

}  // namespace
}  // namespace leat::detail

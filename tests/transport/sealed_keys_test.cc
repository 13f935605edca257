// Keys that change many times over real transports: both sides change them at the same record, in
// each context and direction by itself, whatever else is under way.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "support/devices.h"
#include "support/pattern.h"
#include "support/scale.h"
#include "support/transport_side.h"
#include "transport/decorated.h"
#include "transport/sealed/setup.h"
#include "transport/table.h"

namespace leat::detail {
namespace {

constexpr std::uint64_t kKeyedMessages = 600;
// The n-th message of a side goes in the context at n modulo their number.
constexpr std::array<Context, 4> kKeyedContexts = {0, 1, 9, 15};

// Mostly small ones, and some of more than X takes in place.
std::size_t keyed_message_bytes(std::uint64_t n) {
  return n % 50 == 49 ? 100'000 + n * 97 : n % 9 * 83 + n % 4;
}

// One side of an exchange. It sends and receives in turns, as far as there is room and something
// has come, so that neither side waits for the other's room while it keeps its own.
class KeyedExchange {
 public:
  // The two sides' messages differ by their seeds, which begin with `own` and `others`.
  KeyedExchange(TransportSide& side, std::uint64_t own, std::uint64_t others)
      : transport_(*side.transport), own_(own), others_(others) {
    for (std::size_t i = 0; i < next_in_.size(); ++i) next_in_[i] = i;
  }

  // Until all is sent and the ends of all contexts have come.
  void run() {
    const Deadline deadline = hang_deadline();
    while (!ended_ || ends_ < kKeyedContexts.size()) {
      if (passed(deadline)) throw std::runtime_error("hangs: " + state());
      send_one();
      for (std::size_t i = 0; i < kKeyedContexts.size(); ++i) receive_all(i);
      std::this_thread::yield();
    }
    while (!transport_.try_flush()) {
      if (passed(deadline)) throw std::runtime_error("hangs: flush");
      std::this_thread::yield();
    }
  }

  std::uint64_t received() const { return received_; }

 private:
  std::string state() const {
    return std::to_string(sent_) + " sent, " + std::to_string(received_) + " received";
  }

  void send_one() {
    if (sent_ == kKeyedMessages) {
      ended_ = ended_ || transport_.try_end();
      return;
    }
    message_.resize(keyed_message_bytes(sent_));
    fill_pattern(message_, own_ + sent_);
    if (sent(transport_.try_send(message_, kKeyedContexts[sent_ % kKeyedContexts.size()]))) ++sent_;
  }

  void receive_all(std::size_t i) {
    while (!over_[i]) {
      Delivery delivery;
      const ReceiveResult result = transport_.try_receive(kKeyedContexts[i], delivery);
      if (result == ReceiveResult::kNothing) return;
      if (result == ReceiveResult::kEnd) {
        over_[i] = true;
        ++ends_;
        return;
      }
      const auto bytes = bytes_of(delivery);
      EXPECT_EQ(bytes.size(), keyed_message_bytes(next_in_[i]));
      EXPECT_EQ(pattern_mismatch(bytes, others_ + next_in_[i]), bytes.size());
      next_in_[i] += kKeyedContexts.size();
      ++received_;
      if (delivery.must_release) transport_.release(delivery);
    }
  }

  Transport& transport_;
  const std::uint64_t own_;
  const std::uint64_t others_;
  std::vector<std::byte> message_;
  std::uint64_t sent_ = 0;
  bool ended_ = false;
  std::array<std::uint64_t, kKeyedContexts.size()> next_in_{};  // number of the next one to come
  std::array<bool, kKeyedContexts.size()> over_{};
  std::size_t ends_ = 0;
  std::uint64_t received_ = 0;
};

struct KeyedLimits {
  std::string name;
  KeyLimits limits;
};
void PrintTo(const KeyedLimits& limits, std::ostream* out) { *out << limits.name; }

// Parameters: transport, limits.
class SealedKeyChanges : public testing::TestWithParam<std::tuple<std::string, KeyedLimits>> {};

std::vector<std::string> keyed_over_all() {
  std::vector<std::string> names;
  for (const TransportRow& row : transport_rows())
    names.push_back(std::string("sealed+") + row.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(
    Inner, SealedKeyChanges,
    testing::Combine(testing::ValuesIn(keyed_over_all()),
                     testing::Values(KeyedLimits{"after_3_records", {.records = 3}},
                                     KeyedLimits{"after_each_record", {.records = 1}},
                                     KeyedLimits{"after_1000_bytes", {.bytes = 1000}})),
    [](const auto& tested) {
      return device_label(std::get<0>(tested.param)) + "_" + std::get<1>(tested.param).name;
    });

TEST_P(SealedKeyChanges, LeaveEveryMessageIntactBothWaysInEachContext) {
  const auto& [transport, changes] = GetParam();
  TransportSetup setup;
  setup.transport = transport;
  setup.settings.max_message_bytes = 1 << 20;
  setup.key_limits = changes.limits;
  constexpr std::uint64_t kOffers = 1'000'000;
  constexpr std::uint64_t kConnects = 2'000'000;
  const KeyLimits limits = changes.limits;
  const auto exchange = [limits](TransportSide& side, std::uint64_t own, std::uint64_t others) {
    const auto offered = side.transport->setup();
    ASSERT_EQ(decode_seal_offer(std::span(offered).first(SealOffer::kBytes)).limits, limits);
    KeyedExchange messages(side, own, others);
    messages.run();
    EXPECT_EQ(messages.received(), kKeyedMessages);
    EXPECT_EQ(stats_of(side).refused_records, 0U);
    // What this side has sent may be in memory of its own.
    side.peer.barrier();
  };
  run_transports(
      kUsualPeers, setup, [&](TransportSide& side) { exchange(side, kOffers, kConnects); },
      [&](TransportSide& side) { exchange(side, kConnects, kOffers); });
}

}  // namespace
}  // namespace leat::detail

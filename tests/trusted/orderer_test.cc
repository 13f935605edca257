// Steps never have more bytes than an attestation kernel attests, whatever clients ask for; and no
// client's requests keep another's from being ordered.
#include "trusted/parts/orderer.h"

#include <gtest/gtest.h>

#include <random>

#include "leat/error.h"
#include "leat/trusted/chain.h"
#include "trusted/parties.h"
#include "trusted/parts/quorum.h"

namespace leat::trusted {
namespace {

using detail::Ledger;
using detail::MessageType;
using detail::Orderer;
using detail::Quorum;
using detail::read_signed;
using detail::read_step;
using detail::Result;

constexpr std::size_t kRoom = 40'000;

// Requests with large commands, and commands with large outputs: all are executed, in steps that
// have room, and a replica that applies the steps comes to the same state.
TEST(Orderer, requests_and_outputs_go_in_as_many_steps_as_they_need) {
  const Directory directory(parties(1));
  const SigningKey key = key_of(kClient);
  Ledger ledger(directory, kSystemEpoch, make_store), follower(directory, kSystemEpoch, make_store);
  Orderer orderer(ledger, 64, kRoom);
  Quorum client(directory, key,
                {.self = kClient, .epoch = kSystemEpoch, .nodes = {1}, .quorum = 1, .window = 16},
                1000);
  std::size_t commands = 0;
  const auto ask = [&](const std::vector<Bytes>& all) {
    const Bytes& request = client.submit(all);
    orderer.take(request, *read_signed(request, MessageType::kRequest));
    orderer.take(request, *read_signed(request, MessageType::kRequest));  // sent again
    commands += all.size();
  };
  for (int i = 0; i < 6; ++i)
    ask({KeyValueMachine::put("key", std::string(14'000, 'v')), KeyValueMachine::get("key")});
  ask(std::vector<Bytes>(200, KeyValueMachine::get("key")));
  std::size_t steps = 0, executed = 0;
  for (; orderer.ready(true); ++steps) {
    Result result;
    Bytes snapshot;
    const auto payload = orderer.next(true, result, snapshot);
    if (!payload) continue;
    EXPECT_LE(payload->size(), kRoom);
    executed += result.count;
    EXPECT_EQ(follower.apply(*read_step(*payload)), std::nullopt);
    EXPECT_EQ(follower.digest(), *result.digest);
  }
  EXPECT_EQ(executed, commands);
  EXPECT_GT(steps, 100U) << "outputs of 14000 bytes, two in a step";
}

TEST(Orderer, what_no_step_has_room_for_is_not_taken) {
  const Directory directory(parties(1));
  const SigningKey key = key_of(kClient);
  Ledger ledger(directory, kSystemEpoch, make_store);
  Orderer orderer(ledger, 1, kRoom);
  Quorum client(directory, key,
                {.self = kClient, .epoch = kSystemEpoch, .nodes = {1}, .quorum = 1, .window = 2},
                1000);
  const Bytes& large = client.submit(std::vector<Bytes>(3, Bytes(8000)));
  EXPECT_GT(large.size(), orderer.max_request_bytes());
  orderer.take(large, *read_signed(large, MessageType::kRequest));
  EXPECT_FALSE(orderer.ready(true));
  const Bytes& largest =
      client.submit(std::vector<Bytes>(2, Bytes((orderer.max_request_bytes() - 96) / 2)));
  EXPECT_EQ(largest.size(), orderer.max_request_bytes());
  orderer.take(largest, *read_signed(largest, MessageType::kRequest));
  Result result;
  Bytes snapshot;
  EXPECT_LE(orderer.next(true, result, snapshot)->size(), kRoom);
  EXPECT_EQ(result.count, 1U);
  EXPECT_THROW(Orderer(ledger, 1, 17'000), Error);
}

class OrdererTurns : public testing::Test {
 protected:
  Bytes request(PartyId client, std::uint64_t first, std::size_t commands, PartyId key = 0) const {
    Bytes body;
    for (const Bytes& command : additions(commands)) detail::Items::append(body, command);
    return detail::write_signed(key_of(key == 0 ? client : key),
                                {.type = MessageType::kRequest,
                                 .sender = client,
                                 .epoch = kSystemEpoch,
                                 .first = first,
                                 .items = *detail::Items::read(body, commands)});
  }
  void take(const Bytes& request) {
    orderer_.take(request, *read_signed(request, MessageType::kRequest));
  }
  // The requests of all steps, in their order, as client and number.
  std::vector<std::pair<PartyId, std::uint64_t>> order() {
    std::vector<std::pair<PartyId, std::uint64_t>> ordered;
    while (orderer_.ready(true)) {
      Result result;
      Bytes snapshot;
      const auto payload = orderer_.next(false, result, snapshot);
      if (!payload) continue;
      const auto step = *read_step(*payload);
      for (const detail::View one : step.requests) {
        const auto content = read_signed(one, MessageType::kRequest);
        ordered.emplace_back(content->sender, content->first);
      }
      executed_ += result.count;
      if (executed_before_other_ == 0 && ledger_.has_executed(kOtherClient, 1))
        executed_before_other_ = executed_;
    }
    return ordered;
  }

  static constexpr unsigned kBatch = 10;
  const Directory directory_{parties(1)};
  Ledger ledger_{directory_, kSystemEpoch, make_counter};
  Orderer orderer_{ledger_, kBatch, kRoom};
  std::size_t executed_ = 0, executed_before_other_ = 0;
};

// The first client has asked for 1600 commands when the other asks for one.
TEST_F(OrdererTurns, a_client_waits_for_one_request_of_each_other_client) {
  for (std::uint64_t i = 0; i < 16; ++i) take(request(kClient, 1 + 100 * i, 100));
  take(request(kOtherClient, 1, 1));
  order();
  EXPECT_EQ(executed_, 1601U);
  EXPECT_LE(executed_before_other_, 100U + kBatch);
}

TEST_F(OrdererTurns, small_requests_of_all_clients_share_a_step) {
  for (std::uint64_t i = 0; i < 5; ++i) {
    take(request(kClient, 1 + i, 1));
    take(request(kOtherClient, 1 + i, 1));
  }
  Result result;
  Bytes snapshot;
  const auto payload = orderer_.next(false, result, snapshot);
  ASSERT_TRUE(payload);
  EXPECT_EQ(read_step(*payload)->requests.size(), 10U);
  EXPECT_EQ(result.count, 10U);
}

// Whatever it sends, and in whatever order: a lower number must not be overtaken for good.
TEST_F(OrdererTurns, of_a_client_that_asks_for_too_much_the_lowest_numbers_wait) {
  std::vector<std::uint64_t> numbers(1000);
  for (std::uint64_t i = 0; i < numbers.size(); ++i) numbers[i] = 1 + i;
  std::ranges::shuffle(numbers, std::mt19937(3));
  for (const std::uint64_t first : numbers) take(request(kClient, first, 1));
  const auto ordered = order();
  ASSERT_EQ(ordered.size(), 16U);
  for (std::size_t i = 0; i < ordered.size(); ++i)
    EXPECT_EQ(ordered[i], (std::pair<PartyId, std::uint64_t>(kClient, 1 + i)));
}

// Such as a follower passes on that lies, or says again.
TEST_F(OrdererTurns, what_a_client_did_not_sign_or_sent_before_takes_no_place) {
  for (std::uint64_t i = 0; i < 16; ++i) take(request(kClient, 1 + i, 1, kOtherClient));
  EXPECT_FALSE(orderer_.ready(true));
  const Bytes right = request(kClient, 100, 1);
  for (int i = 0; i < 20; ++i) take(right);
  EXPECT_EQ(order().size(), 1U);
  take(right);
  EXPECT_FALSE(orderer_.ready(true));
}

}  // namespace
}  // namespace leat::trusted

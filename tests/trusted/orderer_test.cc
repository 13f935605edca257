// Steps never have more bytes than an attestation kernel attests, whatever clients ask for.
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

}  // namespace
}  // namespace leat::trusted

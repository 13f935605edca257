// Nodes and clients of trusted systems, for tests: keys that follow from the number, kernels with
// the sessions of a group each, and addresses that are free now.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "leat/attest/attestation.h"
#include "leat/attest/identity.h"
#include "leat/error.h"
#include "leat/trusted/chain.h"
#include "leat/trusted/counter.h"
#include "support/free_port.h"

namespace leat::trusted {

constexpr std::uint64_t kSystemEpoch = 7;
constexpr std::uint32_t kFirstSession = 1;
constexpr PartyId kClient = 101, kOtherClient = 102;

inline SigningKey key_of(PartyId id) {
  std::array<std::byte, 32> seed{};
  seed[0] = std::byte(id);
  return SigningKey(seed);
}

// Nodes 1, 2, ..., and two clients.
inline std::vector<Party> parties(std::size_t nodes) {
  std::vector<Party> all;
  for (PartyId id = 1; id <= nodes; ++id)
    all.push_back(
        {id, key_of(id).public_key(), "127.0.0.1:" + std::to_string(leat::detail::free_port())});
  for (const PartyId id : {kClient, kOtherClient}) all.push_back({id, key_of(id).public_key(), {}});
  return all;
}

// Of the session on which that node attests.
inline std::vector<std::byte> session_key_of(PartyId sender) {
  return std::vector<std::byte>(kMinKeyBytes, std::byte(sender + 50));
}

inline std::unique_ptr<LocalKernel> kernel_of(PartyId id, std::size_t nodes,
                                              std::uint64_t epoch = kSystemEpoch) {
  auto kernel = std::make_unique<LocalKernel>(id, epoch);
  for (PartyId sender = 1; sender <= nodes; ++sender) {
    const auto key = session_key_of(sender);
    kernel->provision({.id = kFirstSession + sender - 1,
                       .role = sender == id ? Role::kGroupSender : Role::kGroupReceiver,
                       .peer = sender == id ? 0 : sender,
                       .key = key});
  }
  kernel->enable();
  return kernel;
}

inline BftOptions bft_options(std::size_t nodes, unsigned batch = 1) {
  BftOptions options{.faults = static_cast<unsigned>((nodes - 1) / 2),
                     .first_session = kFirstSession,
                     .batch = batch};
  for (PartyId id = 1; id <= nodes; ++id) options.replicas.push_back(id);
  return options;
}

inline std::unique_ptr<StateMachine> make_counter() { return std::make_unique<CounterMachine>(); }
inline std::unique_ptr<StateMachine> make_store() { return std::make_unique<KeyValueMachine>(); }

inline std::vector<Bytes> additions(std::size_t count, std::uint64_t number = 1) {
  return std::vector<Bytes>(count, CounterMachine::add(number));
}

}  // namespace leat::trusted

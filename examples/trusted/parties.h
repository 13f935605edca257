// The parties of the examples of replicated systems, and what they know of each other.
#pragma once

#include <leat/attest/attestation.h>
#include <leat/attest/identity.h>
#include <leat/options.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "local_processes.h"

constexpr std::uint64_t kEpoch = 1;
constexpr leat::trusted::PartyId kFirstClient = 101;

// In earnest everybody makes a key and tells only its public half, and each kernel gets its
// sessions by remote attestation. Here all keys are known to everybody who reads this.
inline leat::trusted::SigningKey key_of(leat::trusted::PartyId id) {
  std::array<std::byte, 32> seed{};
  seed[0] = static_cast<std::byte>(id);
  return leat::trusted::SigningKey(seed);
}

// Nodes 1, 2, ... of this machine, and clients.
inline std::vector<leat::trusted::Party> parties(unsigned nodes, unsigned clients) {
  std::vector<leat::trusted::Party> all;
  leat::trusted::PartyId id = 0;
  for (const std::string& address : free_local_addresses(nodes))
    all.push_back({++id, key_of(id).public_key(), address});
  for (id = kFirstClient; id < kFirstClient + clients; ++id)
    all.push_back({id, key_of(id).public_key(), {}});
  return all;
}

// One group session for each node: it alone sends there, all others receive.
inline void provision(leat::trusted::LocalKernel& kernel,
                      const std::vector<leat::trusted::PartyId>& nodes, std::uint32_t session) {
  using leat::trusted::Role;
  for (const leat::trusted::PartyId sender : nodes) {
    const std::vector<std::byte> key(leat::trusted::kMinKeyBytes, static_cast<std::byte>(sender));
    const bool own = sender == kernel.device();
    kernel.provision({.id = session++,
                      .role = own ? Role::kGroupSender : Role::kGroupReceiver,
                      .peer = own ? 0 : sender,
                      .key = key});
  }
  kernel.enable();
}

inline leat::Options channel_options() {
  leat::Options options;
  options.spin = std::chrono::microseconds(0);  // more processes than cores: sleep at once
  options.connect_retry = true;                 // the nodes start at the same time
  return options;
}

// What a process runs: says what it throws, and then fails.
inline std::function<int()> guarded(const char* program, std::function<int()> body) {
  return [program, body = std::move(body)] {
    try {
      return body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s: %s\n", program, error.what());
      return 1;
    }
  };
}

// A configuration service, the nodes of its chain, and their attestors, one for each epoch.
#pragma once

#include <memory>
#include <vector>

#include "leat/trusted/configuration.h"
#include "trusted/parties.h"

namespace leat::trusted {

// Party 1 is the service, 2 to 4 are the chain, 5 and 6 are spare.
constexpr PartyId kService = 1;
constexpr std::size_t kParties = 6;

inline KernelFactory kernels_of(PartyId id) {
  return [id](const Configuration& configuration) -> std::unique_ptr<AttestationKernel> {
    auto kernel = std::make_unique<LocalKernel>(id, configuration.epoch);
    for (const PartyId sender : configuration.nodes) {
      std::vector<std::byte> key(kMinKeyBytes, std::byte(sender));
      key[0] = std::byte(configuration.epoch);
      kernel->provision({.id = kFirstSession + sender - 1,
                         .role = sender == id ? Role::kGroupSender : Role::kGroupReceiver,
                         .peer = sender == id ? 0 : sender,
                         .key = key});
    }
    kernel->enable();
    return kernel;
  };
}

}  // namespace leat::trusted

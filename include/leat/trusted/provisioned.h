// Attestation kernels that were provisioned ahead: each party has a leat-attestd for every epoch to
// come, so that a chain is reconfigured without booting a device. examples/trusted/provisioned.sh
// sets them up by leat-provision.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "leat/attest/identity.h"
#include "leat/export.h"
#include "leat/trusted/configuration.h"

namespace leat::trusted {

// The leat-attestd daemons of one party.
struct ProvisionedKernels {
  PartyId self = 0;  // their device number
  // Has a folder for each epoch, which is named by its number. In that are `socket`, where the
  // daemon serves, and `key`, the public key that it must prove: 64 hexadecimal digits, which
  // `leat-provision vendor run` prints as what the device signs replies with.
  std::string folder;
  std::uint32_t first_session = 1;  // as in ChainOptions
  // As for IsolatedKernel.
  std::chrono::microseconds spin{50};
  std::string user = "leat-attestd";
};

// Returns a factory that gives an IsolatedKernel for each epoch. It throws leat::Error:
// kUnavailable if the epoch has not been provisioned or its daemon has ended; kInvalidArgument if
// the daemon is of another device or epoch, or lacks the session of one of the configuration's
// nodes; and what IsolatedKernel throws. It gives the same counters to all that ask for one epoch,
// whichever process they are in; a node that has forgotten what it attested there is refused by the
// nodes' constructors.
LEAT_EXPORT KernelFactory provisioned_kernels(const ProvisionedKernels& kernels);

}  // namespace leat::trusted

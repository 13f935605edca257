// The faults of which a node of a trusted system can be found guilty.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "leat/attest/identity.h"
#include "leat/export.h"
#include "leat/trusted/state_machine.h"

namespace leat::trusted {

// The numbers are those in the bytes of evidence.
enum class FaultKind : std::uint8_t {
  kFormat = 1,   // attested something that is not a message
  kRequest = 2,  // a request that no client signed, or a repeated one
  kQueue = 3,    // executed commands that no client had sent
  kOutput = 4,   // outputs that the commands do not have
  kDigest = 5,   // a state that the commands do not lead to
  kSilent = 7,   // does not order a request, or does not answer, in time
  kLog = 16,     // signed as its log what it has not attested as such
};
LEAT_EXPORT std::string_view to_string(FaultKind kind) noexcept;

// Evidence exposes a node: any member of the sessions can verify it. Without evidence a node is
// only suspected; that is so for kSilent, whose traces others could have caused.
struct Fault {
  PartyId accused = 0;
  FaultKind kind = FaultKind::kFormat;
  Bytes evidence;
};
using FaultHook = std::function<void(const Fault&)>;

}  // namespace leat::trusted

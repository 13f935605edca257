// What a node of a trusted system can be found to have done.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "leat/export.h"
#include "leat/trusted/identity.h"
#include "leat/trusted/state_machine.h"

namespace leat::trusted {

// The numbers are those of the bytes of evidence.
enum class FaultKind : std::uint8_t {
  kFormat = 1,   // attested what is no message of the protocol
  kRequest = 2,  // a request that no client signed, or for the second time
  kQueue = 3,    // executed commands that nobody had sent
  kOutput = 4,   // outputs that are not those of the commands
  kDigest = 5,   // another state than that of the commands
  kAhead = 6,    // says to have executed what was not ordered
  kSilent = 7,   // does not order a request, or does not answer, in time
  kLog = 16,     // signed as its log what it has not attested so
};
LEAT_EXPORT std::string_view to_string(FaultKind kind) noexcept;

// With evidence a node is exposed: any member of the sessions can verify it. Without it is only
// suspected: kAhead and kSilent, which leave no trace that others could not have caused.
struct Fault {
  PartyId accused = 0;
  FaultKind kind = FaultKind::kFormat;
  Bytes evidence;
};
using FaultHook = std::function<void(const Fault&)>;

}  // namespace leat::trusted

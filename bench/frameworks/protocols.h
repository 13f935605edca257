// The messages of EMP's protocols, as emp-ot of May 2026 sends them, without their cryptography.
#pragma once

#include <cstdint>
#include <string_view>

#include "frameworks/io.h"

namespace leat::bench {

enum class Protocol { kIknp, kFerret, kTriples, kGates };

struct ProtocolRow {
  Protocol protocol;
  const char* name;     // "iknp"
  const char* what;     // what is counted: "OTs"
  std::uint64_t share;  // one of it for so many OTs of --ots
};
// In the order in which they are measured.
inline constexpr ProtocolRow kProtocols[] = {
    {Protocol::kIknp, "iknp", "OTs", 1},
    {Protocol::kFerret, "ferret", "OTs", 1},
    {Protocol::kTriples, "triples", "triples", 64},
    {Protocol::kGates, "gates", "rounds", 256},
};

// Plays one side, `first` or the other; returns what came of it on both sides when all has arrived.
// Each byte is written by its sender and read by its receiver; throws std::runtime_error if what
// was read is not what was written. `in_place`: writes and reads where the channel has the bytes.
void play(Protocol protocol, Io& io, bool first, bool in_place, std::uint64_t count);

// How many are made for `count`: whole chunks, trees and batches.
std::uint64_t rounded(Protocol protocol, std::uint64_t count);

}  // namespace leat::bench

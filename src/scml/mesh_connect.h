// How the parties find each other.
#pragma once

#include <cstdint>
#include <vector>

#include "leat/channel.h"
#include "leat/scml/party.h"

namespace leat::scml::detail {

// Memory for the messages of each pair of parties.
std::uint64_t region_bytes(const MeshOptions& options);

// A channel to every other party, in the order of their numbers. Throws as Mesh's constructor.
std::vector<Channel> connect_parties(const MeshOptions& options);

}  // namespace leat::scml::detail

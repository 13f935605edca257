// How the parties of a mesh connect.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "leat/channel.h"
#include "leat/error.h"
#include "leat/scml/party.h"

namespace leat::scml::detail {

inline Error invalid(const std::string& failure, const std::string& advice = {}) {
  return {ErrorCode::kInvalidArgument, failure, advice};
}

// Memory for the messages of each pair of parties.
std::uint64_t region_bytes(const MeshOptions& options);

// Returns a channel to every other party, in the order of their numbers. Throws as Mesh's
// constructor.
std::vector<Channel> connect_parties(const MeshOptions& options);

}  // namespace leat::scml::detail

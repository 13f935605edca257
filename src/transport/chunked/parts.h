// What a chunked transport is made of: its options, how its memory lies, and a transfer on its way.
// Plain values.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/settings.h"
#include "transport/chunked/digest.h"
#include "transport/chunked/pool.h"
#include "transport/context.h"
#include "verbs/device.h"

namespace leat::detail {

struct ChunkedOptions {
  ChunkMode mode = ChunkMode::kInPlace;
  std::size_t chunk_bytes = std::size_t{4} << 20;
  std::size_t window = 0;  // chunks; 0: adaptive
  LinkEnable link_enable = LinkEnable::kAuto;
  std::size_t region_bytes = 0;  // of context 0; 0: by device
  std::size_t region_count = 4;
  bool verify = false;
  std::chrono::milliseconds resume_timeout{20'000};
  std::size_t max_message_bytes = 0;
  QueueDepths depths;  // with which the queue pair was made
};

// The pools of one side, one after the other.
struct ChunkLayout {
  RegionShape first;   // of context 0
  RegionShape others;  // of each other context
  const RegionShape& shape(Context context) const { return context == 0 ? first : others; }
  std::uint64_t first_unit(Context context) const {
    return context == 0 ? 0 : first.units() + (context - 1) * others.units();
  }
  std::size_t bytes() const { return first_unit(kContextCount) * kPlaceUnitBytes; }
};

// A transfer of which a part is on its way.
struct OutgoingTransfer {
  bool active = false;
  bool abandoned = false;      // active, but the peer is to drop it before anything else goes
  std::uint32_t sequence = 0;  // of the part that is being sent
  std::size_t total = 0;
  std::size_t posted = 0;     // bytes, of all parts
  std::size_t part_left = 0;  // of an open part: bytes from its start that were not posted
  bool part_open = false;     // it has a place, and its last chunks are on their way
  PoolSender::Place place;
  std::optional<ChunkDigester> digester;
};

// The way of one context's transfers to the peer.
struct OutgoingFlow {
  PoolSender places;
  OutgoingTransfer transfer;
  std::uint32_t transfers = 0;  // sent ever
  std::uint64_t parts = 0;      // of all of them
};

// Bytes to be sent, and the key of the registered memory they are in, if they are.
struct TransferSource {
  std::span<const std::byte> bytes;
  std::uint32_t local_key = 0;  // of memory with room for a header in front
  bool registered = false;
};

}  // namespace leat::detail

// The memory of transport batched that its peer reads and writes, and what each side knows of the
// other's bundles and of its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "transport/batched/bundle.h"
#include "transport/context.h"
#include "transport/slots/header.h"
#include "transport/slots/slots.h"

namespace leat::detail {

using BitmapWords = std::array<std::uint64_t, kMaxSlotWords>;
using BitmapEchoes = std::array<Echo, kMaxSlotWords>;

// The start of each side's region. Every word is aligned, and read and written whole.
struct BatchedHead {
  // The sender's half, read by the peer: Posted, and the bitmap.
  alignas(64) std::uint64_t posted;
  union {
    BitmapWords filled;     // where memory is shared
    BitmapEchoes echoed{};  // where it is not: written by our device, from the peer's slots
  };
  // The receiver's half, read by the peer: how often it gave slots back, and its bitmap.
  alignas(64) std::uint64_t given_back;
  BitmapWords given;
  // Written by the peer, sealed: how often we may notify it; up to which message all has landed.
  alignas(64) std::uint64_t notify_limit;
  alignas(64) std::uint64_t landed;
  // Our reads of the peer's two halves land here.
  alignas(64) std::uint64_t peer_posted;
  BitmapEchoes peer_echoed;
  alignas(64) std::uint64_t peer_given_back;
  BitmapWords peer_given;
  // Where memory is shared, the headers of our slots, side by side. Written by the peer.
  alignas(64) std::array<SlotHeader, kMaxAllSlots> headers;
  // Our reads of the peer's open bundle land here: its place, sealed, and its messages.
  alignas(64) std::uint64_t pulled_place;
  std::array<std::byte, kMostBundleBytes> pulled;
};

// The ids of reads: of the peer's open bundle, of its sender's half, of its receiver's half. Only
// the completion of a read says that its words are here: they land in any order, and those of an
// earlier read may land on those of a later one.
inline constexpr std::uint64_t kPullId = 2, kFilledId = 3, kGivenId = 4;

// The sender's open bundle. Its run has no slot while none is open.
struct OpenBundle {
  Context context = 0;
  SlotRun run;
  std::size_t bytes = 0;
  std::byte* end = nullptr;  // where the next message goes
};

// What the receiver knows of a slot that has a bundle.
struct BundleUse {
  std::uint32_t taken_bytes = 0;  // of what was handed out while it was open
  std::uint16_t held = 0;         // messages that were not released
  bool done = false;              // all handed out, and closed
};

// The bundle of which the receiver hands out messages.
struct Unbundling {
  BundleReader messages;
  unsigned slot = 0;  // of all contexts
  bool closed = false;
  bool stays = false;  // its bytes lie in their slot; else the next pull may overwrite them
};

// How far the receiver knows the peer's open bundle.
struct OpenView {
  Context context = 0;
  unsigned slot = 0;
  std::size_t end = 0;               // 0: no open bundle is known
  const std::byte* bytes = nullptr;  // in its slot, or pulled
  bool stays = false;                // as of Unbundling
};

}  // namespace leat::detail

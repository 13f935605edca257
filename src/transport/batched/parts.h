// What transport batched keeps in memory that its peer reads and writes, and what it knows of
// bundles, each side of those of its peer and of its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "transport/batched/bundle.h"
#include "transport/parts/context.h"
#include "transport/slots/slots.h"

namespace leat::detail {

// The start of each side's region. Every word is aligned, and read and written whole.
struct BatchedHead {
  // The sender's half, read by the peer: Posted, and the bitmap.
  alignas(64) std::uint64_t posted;
  std::array<std::uint64_t, kMaxSlotWords> filled;
  // The receiver's half, read by the peer: how often it gave slots back, and its bitmap.
  alignas(64) std::uint64_t given_back;
  std::array<std::uint64_t, kMaxSlotWords> given;
  // Written by the peer, sealed: how often we may ring; up to which message all has landed.
  alignas(64) std::uint64_t ring_limit;
  alignas(64) std::uint64_t landed;
  // Where our reads of the peer's two halves land.
  alignas(64) std::uint64_t peer_posted;
  std::array<std::uint64_t, kMaxSlotWords> peer_filled;
  alignas(64) std::uint64_t peer_given_back;
  std::array<std::uint64_t, kMaxSlotWords> peer_given;
  // Where memory is shared: of our slots, side by side. Written by the peer.
  alignas(64) std::array<SlotHeader, kMaxAllSlots> headers;
  // Where what we read of the peer's open bundle lands: its place, sealed, and its messages.
  alignas(64) std::uint64_t pulled_place;
  std::array<std::byte, kMostBundleBytes> pulled;
};

// Of reads: of the peer's open bundle, of its sender's half, of its receiver's half. Nothing less
// than its completion says that what a read brings is here: its words land in any order, and those
// of an earlier read may land on those of a later one.
inline constexpr std::uint64_t kPullId = 2, kFilledId = 3, kGivenId = 4;

// The sender's open bundle: no run, there is none.
struct OpenBundle {
  Context context = 0;
  SlotRun run;
  std::size_t bytes = 0;
};

// Of a slot that has a bundle, at the receiver.
struct BundleUse {
  std::uint32_t taken_bytes = 0;  // of what was handed out while it was open
  std::uint16_t held = 0;         // messages that were not released
  bool done = false;              // all handed out, and closed
};

// What is handed out of one next.
struct Unbundling {
  BundleReader messages;
  unsigned slot = 0;  // of all contexts
  bool closed = false;
};

// How far the peer's open bundle is known.
struct OpenView {
  Context context = 0;
  unsigned slot = 0;
  std::size_t end = 0;  // 0: there is none
};

}  // namespace leat::detail

// What transport batched knows of bundles, each side of those of its peer and of its own.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/context.h"
#include "proto/slot_bundle.h"
#include "proto/slots.h"

namespace leat::detail {

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

// A device around another one that fails in a chosen way, the same way in every run.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>

#include "verbs/device.h"

namespace leat::detail {

// What goes wrong, at every queue pair of the device. Requests are counted from 1 over all that
// were posted to a queue pair's send queue, receives over all that completed; 0: never.
struct FaultProfile {
  std::uint64_t seed = 1;  // of delays and short acceptance

  // Completions are held back for up to so many polls; their order stays.
  unsigned max_delay_polls = 0;
  // post_send now and then takes fewer than given, also none, though there is room.
  bool short_acceptance = false;

  // That request does not run but completes with `failure`; the queue pair is then in error, and
  // its peer sees it vanish.
  std::uint64_t failing_request = 0;
  CompletionStatus failure = CompletionStatus::kPeerGone;
  // That receive and all later ones are flushed, as if the peer had died before.
  std::uint64_t flushed_receive = 0;

  // A bit of the payload of that request, or of the next one that has a payload, is flipped.
  std::uint64_t flipped_request = 0;
  // That request, or the next one of which the device takes a second copy, arrives twice.
  std::uint64_t replayed_request = 0;

  // No peer_memory, no payload in completions, few inlined bytes: as an RDMA card.
  bool like_hardware = false;
};

// A profile, and its name in that of a test.
struct Fault {
  std::string name;
  FaultProfile profile;
};
void PrintTo(const Fault& fault, std::ostream* out);

std::unique_ptr<Device> make_fault_device(std::unique_ptr<Device> device,
                                          const FaultProfile& profile);

}  // namespace leat::detail

// The Planner (CORA, section 3.3): where in the receivers' memory the messages of a task go, and in
// which protocol contexts, fixed before the run and the same on all parties.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "leat/export.h"
#include "leat/scml/parser.h"

namespace leat::scml {

// An immediate carries 4 bits of context, and context 0 is the transport's own for control.
inline constexpr unsigned kFirstContext = 1;
inline constexpr unsigned kContextLimit = 16;
// The other 28 bits name a message by its index: half of them, less those that have a meaning.
inline constexpr std::uint64_t kMaxArrayMessages = (1ULL << 27) - 3;
inline constexpr std::uint64_t kAlignmentBytes = 64;

struct PlanOptions {
  std::uint64_t memory_bytes = 16ULL << 30;  // of the region that each pair of parties shares
  // Limit of the fixed part at the region's start in which triples are made, batch by batch.
  std::uint64_t offline_bytes = 64ULL << 20;
};

// One open context: message i along every flow has its place at base_bytes + message_bytes * i of
// the receiver's region for that sender (equation 1).
struct Placement {
  MessageArray messages;
  unsigned context = 0;
  std::uint64_t base_bytes = 0;
  std::size_t first_step = 0;  // opened before this step
  std::size_t last_step = 0;   // closed and freed after this one

  std::uint64_t address(std::uint64_t index) const noexcept {
    return base_bytes + messages.message_bytes * index;
  }
};

// One operation of the task. A party opens the contexts of `opens`, runs the operation, and closes
// those of `frees`; an offline step does all of that `repeats` times.
struct Step {
  std::string name;
  std::size_t layer = 0;
  Pass pass = Pass::kForward;
  Protocol protocol = Protocol::kSs;
  std::uint64_t repeats = 1;
  std::vector<std::size_t> opens;  // in Plan::placements
  std::vector<std::size_t> frees;
};

// Plain value, a function of task and options alone.
struct Plan {
  std::string model;
  ParseOptions task_options;
  PlanOptions options;
  std::vector<Step> steps;
  std::vector<Placement> placements;
  std::uint64_t offline_bytes = 0;  // what the fixed part takes
  std::uint64_t peak_bytes = 0;     // a region of this size suffices
  unsigned peak_contexts = 0;       // open at the same time, the fixed ones of triples included
  // SHA-256 of all of the above: parties whose digests agree have the same plan.
  std::array<std::uint8_t, 32> digest{};
};

// Takes microseconds per operation. leat::Error, which names the operation: kResource if memory
// (with the bytes missing) or contexts do not suffice, kTooLarge for an array above
// kMaxArrayMessages, kInvalidArgument if an operation reads one that is not before it.
LEAT_EXPORT Plan make_plan(const Task& task, const PlanOptions& options);

}  // namespace leat::scml

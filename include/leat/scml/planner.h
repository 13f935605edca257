// The Planner (CORA, section 3.3): fixes before the run, and equally at all parties, in which
// protocol contexts and where in the receivers' memory the messages of a task go.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "leat/export.h"
#include "leat/message_array.h"
#include "leat/scml/parser.h"

namespace leat::scml {

// Arrays are in the contexts 1 to 255: 0 is reserved for the mesh's control messages. (The paper,
// section 4, has 16: 4 bits of an immediate. Here arrays share its bits as they need them.)
inline constexpr unsigned kFirstContext = 1;
inline constexpr unsigned kContextLimit = leat::kArrayContexts;
inline constexpr std::uint64_t kMaxArrayMessages = leat::MessageArray::kMaxCount;
inline constexpr std::uint64_t kMaxPlannedMessageBytes = UINT32_MAX;  // of one message
inline constexpr std::uint64_t kAlignmentBytes = 64;

struct PlanOptions {
  std::uint64_t memory_bytes = 16ULL << 30;  // of the region that each pair of parties shares
  // Limit of the fixed part at the start of the region, in which triples are made batch by batch.
  std::uint64_t offline_bytes = 64ULL << 20;
  // Makes each round of an operation a step of its own, but for offline ones: its messages are
  // freed after the next round, and not after the next operation. The parties keep what they
  // computed. Takes less memory; each round then waits until the peer has opened its array.
  bool by_round = false;
};

// One open context. Message i along every flow lies at base_bytes + message_bytes * i of the
// receiver's region for that sender (equation 1).
struct Placement {
  MessageArray messages;
  unsigned context = 0;
  std::uint64_t base_bytes = 0;
  std::size_t first_step = 0;  // opened before this step; its operation may be a later one
  std::size_t last_step = 0;   // closed and freed after this step

  std::uint64_t address(std::uint64_t index) const noexcept {
    return base_bytes + messages.message_bytes * index;
  }
};

// One operation of the task. A party opens the contexts of `opens`, runs the operation, which moves
// the messages of `arrays`, and closes those of `frees`; it repeats an offline step `repeats`
// times. Where memory and contexts allow it, the arrays of the next operation that has any are open
// while this one runs, so that a party that is ahead need not wait for one that is behind.
struct Step {
  std::string name;
  std::size_t layer = 0;
  Pass pass = Pass::kForward;
  Protocol protocol = Protocol::kSs;
  std::uint64_t repeats = 1;
  std::vector<std::size_t> arrays;  // indexes in Plan::placements, as the other two
  std::vector<std::size_t> opens;
  std::vector<std::size_t> frees;
};

// Plain value; depends only on the task and the options.
struct Plan {
  std::string model;
  ParseOptions task_options;
  PlanOptions options;
  std::vector<Step> steps;
  std::vector<Placement> placements;
  std::uint64_t offline_bytes = 0;  // size of the fixed part
  std::uint64_t peak_bytes = 0;     // a region of this size suffices
  unsigned peak_contexts = 0;       // most open at a time
  // SHA-256 of all fields above. Parties with equal digests have equal plans.
  std::array<std::uint8_t, 32> digest{};
};

// The digest in hexadecimal, for the option planned_digest.
LEAT_EXPORT std::string digest_text(const std::array<std::uint8_t, 32>& digest);

// What all parties together send in a run, at most: the last repeat of an offline step may need
// less. Throws kTooLarge if a number exceeds 64 bits.
struct Totals {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  std::uint64_t rounds = 0;
};
LEAT_EXPORT Totals total_of(const Plan& plan);

// Makes the plan, in microseconds per operation. Throws leat::Error, naming the operation:
// kResource if memory (with the number of missing bytes), contexts, or numbers of messages
// (MessageArray::kMaxOpenCount) do not suffice, kTooLarge for an array above kMaxArrayMessages or
// messages above kMaxPlannedMessageBytes, kInvalidArgument if an operation reads one that does not
// precede it, or has an array without messages, without flows, with a flow twice or with one that
// is none between two of the task's parties.
LEAT_EXPORT Plan make_plan(const Task& task, const PlanOptions& options);

}  // namespace leat::scml

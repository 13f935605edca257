// Algorithm 1 of CORA over the whole graph at once: before an operation runs, its contexts are
// placed first fit; when it has finished, the contexts of those whose last reader it was are freed.
// In memory that this leaves free, contexts are placed an operation ahead.
#include "leat/scml/planner.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "leat/error.h"
#include "scml/checked.h"
#include "scml/digest.h"
#include "scml/region.h"

namespace leat::scml {
namespace {

using detail::divide_up;
using detail::Region;

// One of `parts` equal parts of an array, the larger one where they cannot be equal.
MessageArray part_of(const MessageArray& array, std::uint64_t parts) {
  MessageArray part = array;
  for (std::uint64_t& messages : part.round_messages) messages = divide_up(messages, parts);
  return part;
}

// The messages of such a part; a sum that would wrap stays at kMaxProduct.
std::uint64_t part_count(const MessageArray& array, std::uint64_t parts) {
  std::uint64_t count = 0;
  for (const std::uint64_t messages : array.round_messages) {
    const std::uint64_t more = divide_up(messages, parts);
    count = more > detail::kMaxProduct - count ? detail::kMaxProduct : count + more;
  }
  return count;
}

void check_array(const Task& task, const Operation& operation, const MessageArray& array) {
  const auto refuse = [&](ErrorCode code, const std::string& what) {
    throw Error(code, operation.name + " has an array " + what + " (" + array.content + ")");
  };
  if (array.message_bytes == 0 || part_count(array, 1) == 0)
    refuse(ErrorCode::kInvalidArgument, "without messages");
  if (array.message_bytes > kMaxPlannedMessageBytes)
    refuse(ErrorCode::kTooLarge, "with messages of " + std::to_string(array.message_bytes) +
                                     " bytes, above " + std::to_string(kMaxPlannedMessageBytes));
  if (array.flows.empty()) refuse(ErrorCode::kInvalidArgument, "that nobody sends");
  const unsigned parties = task.options.parties;
  for (auto flow = array.flows.begin(); flow != array.flows.end(); ++flow) {
    const std::string text = "from party " + std::to_string(flow->sender) + " to party " +
                             std::to_string(flow->receiver);
    if (flow->sender == flow->receiver || flow->sender >= parties || flow->receiver >= parties)
      refuse(ErrorCode::kInvalidArgument, text + ", of " + std::to_string(parties) + " parties");
    if (std::find(array.flows.begin(), flow, *flow) != flow)
      refuse(ErrorCode::kInvalidArgument, text + " twice");
  }
}

void check_graph(const Task& task) {
  for (std::size_t step = 0; step < task.operations.size(); ++step) {
    const Operation& operation = task.operations[step];
    for (const auto* earlier : {&operation.inputs, &operation.reuses}) {
      for (const std::size_t input : *earlier) {
        if (input >= step)
          throw Error(ErrorCode::kInvalidArgument,
                      operation.name +
                          " reads an operation that is not before it, so the graph has a "
                          "cycle or is out of order");
      }
    }
    for (const MessageArray& array : operation.arrays) check_array(task, operation, array);
  }
}

// The same task with an operation for each round, in the order of the arrays, which reads the one
// before; readers of the whole read its last.
Task rounds_of(const Task& task) {
  Task result{task.model, task.options, {}};
  std::vector<std::size_t> last;  // of each operation
  for (const Operation& operation : task.operations) {
    Operation next = operation;
    for (std::size_t& input : next.inputs) input = last[input];
    for (std::size_t& reused : next.reuses) reused = last[reused];
    if (operation.pass != Pass::kOffline) {
      std::size_t number = 0;
      next.arrays.clear();
      for (const MessageArray& array : operation.arrays) {
        for (const std::uint64_t messages : array.round_messages) {
          if (messages == 0) continue;
          if (number++ > 0) {
            result.operations.push_back(next);
            next.inputs = {result.operations.size() - 1};
            next.reuses.clear();
          }
          next.name = operation.name + " round " + std::to_string(number);
          next.arrays = {{array.content, array.message_bytes, {messages}, array.flows}};
        }
      }
      if (number == 1) next.name = operation.name;
    }
    last.push_back(result.operations.size());
    result.operations.push_back(std::move(next));
  }
  return result;
}

class Planning {
 public:
  Planning(const Task& task, const PlanOptions& options) : task_(task), options_(options) {}

  Plan run() {
    size_offline();
    const Plan lean = place_all(0);
    // The same with arrays that are open ahead in what is free of that memory. Gaps may then lie so
    // that later arrays need more than before; that is not worth it.
    std::optional<Plan> ahead = place_ahead(lean.peak_bytes);
    Plan plan = ahead ? *std::move(ahead) : lean;
    plan.digest = detail::digest_of(plan);
    return plan;
  }

 private:
  const Operation& operation(std::size_t step) const { return task_.operations[step]; }
  const std::string& name(std::size_t step) const { return operation(step).name; }

  std::uint64_t checked_bytes(std::size_t step, const MessageArray& array) const {
    const std::uint64_t count = part_count(array, 1);
    if (count > kMaxArrayMessages)
      throw Error(ErrorCode::kTooLarge,
                  name(step) + ": " + std::to_string(count) + " messages (" + array.content +
                      ") in one context, above the transport's limit of " +
                      std::to_string(kMaxArrayMessages),
                  "Take a smaller batch, or multiply whole matrices instead of inner products.");
    return detail::checked_product({array.message_bytes, count},
                                   name(step) + ": the size of its messages");
  }

  // What such a part of an offline operation takes; kMaxProduct, more than any region has, if that
  // is too much for contexts or for 64 bits.
  std::uint64_t part_bytes(const Operation& operation, std::uint64_t parts) const {
    std::uint64_t bytes = 0;
    for (const MessageArray& array : operation.arrays) {
      const std::uint64_t count = part_count(array, parts);
      if (count > kMaxArrayMessages || array.message_bytes > detail::kMaxProduct / count / 2)
        return detail::kMaxProduct;
      bytes = std::min(bytes + Region::rounded(array.message_bytes * count), detail::kMaxProduct);
    }
    return bytes;
  }

  std::uint64_t usable_bytes() const {
    const std::uint64_t bytes = std::min(options_.memory_bytes, detail::kMaxProduct - 1);
    return bytes / kAlignmentBytes * kAlignmentBytes;
  }

  // In how few repeats each offline operation fits, and the fixed part that serves all of them.
  void size_offline() {
    const std::uint64_t limit = std::min(options_.offline_bytes, usable_bytes());
    repeats_.assign(task_.operations.size(), 1);
    for (std::size_t step = 0; step < task_.operations.size(); ++step) {
      const Operation& operation = task_.operations[step];
      if (operation.pass != Pass::kOffline || operation.arrays.empty()) continue;
      std::uint64_t low = 1, high = 1;
      for (const MessageArray& array : operation.arrays)
        high = std::max(high, part_count(array, 1));
      const std::uint64_t least = part_bytes(operation, high);
      if (least > limit)
        throw Error(ErrorCode::kResource,
                    name(step) + " needs " + std::to_string(least) +
                        " bytes of the fixed memory for triples, which has " +
                        std::to_string(limit) + ": " + std::to_string(least - limit) +
                        " bytes are missing",
                    "Raise memory_bytes or offline_bytes.");
      while (low < high) {
        const std::uint64_t middle = low + (high - low) / 2;
        if (part_bytes(operation, middle) <= limit)
          high = middle;
        else
          low = middle + 1;
      }
      repeats_[step] = low;
      offline_bytes_ = std::max(offline_bytes_, part_bytes(operation, low));
    }
  }

  // --- one pass through the operations

  std::optional<Plan> place_ahead(std::uint64_t most_bytes) {
    try {
      Plan plan = place_all(most_bytes);
      if (plan.peak_bytes <= most_bytes) {
        plan.peak_bytes = most_bytes;  // with less it could not be planned
        return plan;
      }
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kResource) throw;
    }
    return std::nullopt;
  }

  // `ahead_end_bytes`: where arrays that are open ahead must end; 0: none is.
  Plan place_all(std::uint64_t ahead_end_bytes) {
    plan_ = Plan{.model = task_.model,
                 .task_options = task_.options,
                 .options = options_,
                 .steps = {},
                 .placements = {},
                 .offline_bytes = offline_bytes_};
    placed_.assign(task_.operations.size(), {});
    readers_.assign(task_.operations.size(), 0);
    for (const Operation& operation : task_.operations)
      for (const std::size_t input : operation.inputs) ++readers_[input];
    region_ = Region(offline_bytes_, usable_bytes());
    in_use_ = {};
    live_ = 0;
    numbers_ = Region(0, leat::MessageArray::kMaxOpenCount);
    first_numbers_.clear();
    for (std::size_t step = 0; step < task_.operations.size(); ++step) {
      const Operation& operation = task_.operations[step];
      plan_.steps.push_back(
          {operation.name, operation.layer, operation.pass, operation.protocol, repeats_[step]});
      if (operation.pass == Pass::kOffline)
        place_offline(step);
      else
        place_online(step, ahead_end_bytes);
    }
    plan_.peak_bytes = std::max(offline_bytes_, region_.peak_end_bytes());
    return std::move(plan_);
  }

  // The array of that operation is open from before `step` on.
  void open(std::size_t step, std::size_t operation, Placement placement,
            std::uint64_t first_number) {
    placement.first_step = placement.last_step = step;
    in_use_[placement.context] = true;
    plan_.peak_contexts = std::max(plan_.peak_contexts, ++live_);
    first_numbers_.push_back(first_number);
    plan_.steps[step].opens.push_back(plan_.placements.size());
    placed_[operation].push_back(plan_.placements.size());
    plan_.placements.push_back(std::move(placement));
  }

  // The fixed part is this step's alone while it lasts.
  void place_offline(std::size_t step) {
    std::uint64_t base = 0;
    for (const MessageArray& array : operation(step).arrays) {
      const MessageArray part = part_of(array, repeats_[step]);
      Placement placement{part, take_context(step), base};
      base += Region::rounded(placement.messages.bytes());
      open(step, step, std::move(placement), take_numbers(step, part));
    }
    plan_.steps[step].arrays = placed_[step];
    free(step, step);
  }

  void place_online(std::size_t step, std::uint64_t ahead_end_bytes) {
    if (placed_[step].empty()) {
      for (const MessageArray& array : operation(step).arrays) {
        const std::uint64_t bytes = checked_bytes(step, array);
        const unsigned context = take_context(step);
        const std::uint64_t first_number = take_numbers(step, array);
        open(step, step, {array, context, take_memory(step, array, bytes)}, first_number);
      }
    }
    plan_.steps[step].arrays = placed_[step];
    if (ahead_end_bytes != 0) open_ahead(step, ahead_end_bytes);
    for (const std::size_t input : operation(step).inputs) {
      if (--readers_[input] == 0 && operation(input).pass != Pass::kOffline) free(input, step);
    }
    if (readers_[step] == 0) free(step, step);
  }

  // Opens all arrays of the next operation that has any, or none.
  void open_ahead(std::size_t step, std::uint64_t end_bytes) {
    std::size_t next = step + 1;
    while (next < task_.operations.size() && operation(next).arrays.empty()) ++next;
    if (next == task_.operations.size() || operation(next).pass == Pass::kOffline ||
        !placed_[next].empty() ||
        operation(next).arrays.size() > kContextLimit - kFirstContext - live_)
      return;
    std::vector<std::uint64_t> bases, first_numbers;
    for (const MessageArray& array : operation(next).arrays) {
      const auto base = region_.place(checked_bytes(next, array), end_bytes);
      if (base) bases.push_back(*base);
      const auto first_number = numbers_.place(counted(array));
      if (first_number) first_numbers.push_back(*first_number);
      if (!base || !first_number) {
        for (const std::uint64_t placed : bases) region_.free(placed);
        for (const std::uint64_t placed : first_numbers) numbers_.free(placed);
        return;
      }
    }
    for (std::size_t i = 0; i < bases.size(); ++i)
      open(step, next, {operation(next).arrays[i], take_context(next), bases[i]}, first_numbers[i]);
  }

  // How many of the numbers that messages have on the wire an array takes: whole chunks.
  static std::uint64_t counted(const MessageArray& array) {
    return divide_up(part_count(array, 1), leat::MessageArray::kCountedIn) *
           leat::MessageArray::kCountedIn;
  }

  // The first of them. A receiver gives an array the lowest range that is free, as here; where not
  // every array is for every connection, this counts as if it were.
  std::uint64_t take_numbers(std::size_t step, const MessageArray& array) {
    if (const auto first = numbers_.place(counted(array))) return *first;
    throw Error(ErrorCode::kResource,
                name(step) + ": the transport has no numbers for " +
                    std::to_string(part_count(array, 1)) + " messages (" + array.content +
                    ") beside those of the arrays that are open; it has " +
                    std::to_string(leat::MessageArray::kMaxOpenCount),
                "Take a smaller batch, or multiply whole matrices instead of inner products.");
  }

  // The lowest one that is free.
  unsigned take_context(std::size_t step) const {
    for (unsigned context = kFirstContext; context < kContextLimit; ++context)
      if (!in_use_[context]) return context;
    throw Error(ErrorCode::kResource,
                name(step) + ": all " + std::to_string(kContextLimit - kFirstContext) +
                    " contexts are open",
                "Too many layers wait for a later reader; let fewer branches be open at a time.");
  }

  std::uint64_t take_memory(std::size_t step, const MessageArray& array, std::uint64_t bytes) {
    if (const auto base = region_.place(bytes)) return *base;
    const std::uint64_t missing = region_.missing(bytes);
    throw Error(ErrorCode::kResource,
                name(step) + " needs " + std::to_string(bytes) + " bytes (" + array.content +
                    "), for which the region of " + std::to_string(usable_bytes()) +
                    " bytes has no place: " + std::to_string(missing) + " bytes are missing",
                "Raise memory_bytes, or take a smaller batch.");
  }

  void free(std::size_t finished, std::size_t step) {
    for (const std::size_t index : placed_[finished]) {
      Placement& placement = plan_.placements[index];
      placement.last_step = step;
      if (operation(finished).pass != Pass::kOffline) region_.free(placement.base_bytes);
      in_use_[placement.context] = false;
      --live_;
      numbers_.free(first_numbers_[index]);
      plan_.steps[step].frees.push_back(index);
    }
  }

  // --- set before the first pass
  const Task& task_;
  const PlanOptions& options_;
  std::vector<std::uint64_t> repeats_;  // of each operation
  std::uint64_t offline_bytes_ = 0;

  // --- of a pass
  Plan plan_;
  std::vector<std::size_t> readers_;              // of each operation, that have not finished
  std::vector<std::vector<std::size_t>> placed_;  // the placements of each operation
  Region region_{0, 0};
  Region numbers_{0, 0};                      // of messages on the wire
  std::vector<std::uint64_t> first_numbers_;  // of each placement
  std::array<bool, kContextLimit> in_use_{};
  unsigned live_ = 0;
};

}  // namespace

std::string digest_text(const std::array<std::uint8_t, 32>& digest) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

Totals total_of(const Plan& plan) {
  Totals totals;
  const auto add = [](std::uint64_t& total, std::initializer_list<std::uint64_t> factors,
                      const std::string& what) {
    if (__builtin_add_overflow(total, detail::checked_product(factors, what), &total))
      throw Error(ErrorCode::kTooLarge, what + " of the plan exceed 64 bits");
  };
  for (const Step& step : plan.steps) {
    for (const std::size_t index : step.arrays) {
      const MessageArray& array = plan.placements[index].messages;
      const std::uint64_t flows = array.flows.size();
      add(totals.messages, {step.repeats, flows, array.message_count()}, "the messages");
      add(totals.bytes, {step.repeats, flows, array.message_count(), array.message_bytes},
          "the bytes");
      add(totals.rounds, {step.repeats, array.rounds()}, "the rounds");
    }
  }
  return totals;
}

Plan make_plan(const Task& task, const PlanOptions& options) {
  check_graph(task);
  if (!options.by_round) return Planning(task, options).run();
  const Task rounds = rounds_of(task);
  return Planning(rounds, options).run();
}

}  // namespace leat::scml

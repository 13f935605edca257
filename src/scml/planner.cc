// Algorithm 1 of CORA over the whole graph at once: before an operation runs, its contexts are
// placed first fit; when it has finished, the contexts of those whose last reader it was are freed.
#include "leat/scml/planner.h"

#include <algorithm>
#include <string>
#include <utility>

#include "leat/error.h"
#include "scml/checked.h"
#include "scml/digest.h"
#include "scml/region.h"

namespace leat::scml {
namespace {

using detail::Region;

std::uint64_t divide_up(std::uint64_t value, std::uint64_t by) {
  return value == 0 ? 0 : (value - 1) / by + 1;
}

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

class Planning {
 public:
  Planning(const Task& task, const PlanOptions& options) : task_(task) {
    plan_.model = task.model;
    plan_.task_options = task.options;
    plan_.options = options;
  }

  Plan run() {
    check_graph();
    size_offline();
    for (std::size_t step = 0; step < task_.operations.size(); ++step) {
      if (task_.operations[step].pass == Pass::kOffline)
        plan_offline(step);
      else
        plan_online(step);
    }
    plan_.peak_bytes = std::max(plan_.offline_bytes, region_.peak_end_bytes());
    plan_.peak_contexts = offline_contexts_ + peak_online_;
    plan_.digest = detail::digest_of(plan_);
    return std::move(plan_);
  }

 private:
  const std::string& name(std::size_t step) const { return task_.operations[step].name; }

  // Counts the readers of each operation.
  void check_graph() {
    readers_.assign(task_.operations.size(), 0);
    for (std::size_t step = 0; step < task_.operations.size(); ++step) {
      for (const std::size_t input : task_.operations[step].inputs) {
        if (input >= step)
          throw Error(ErrorCode::kInvalidArgument,
                      name(step) +
                          " reads an operation that is not before it, so the graph has a "
                          "cycle or is out of order");
        ++readers_[input];
      }
      for (const MessageArray& array : task_.operations[step].arrays) {
        if (array.message_bytes == 0 || part_count(array, 1) == 0)
          throw Error(ErrorCode::kInvalidArgument,
                      name(step) + " has an array without messages (" + array.content + ")");
      }
    }
  }

  std::uint64_t checked_bytes(std::size_t step, const MessageArray& array,
                              std::uint64_t parts = 1) const {
    const std::uint64_t count = part_count(array, parts);
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
    const std::uint64_t bytes = std::min(plan_.options.memory_bytes, detail::kMaxProduct - 1);
    return bytes / kAlignmentBytes * kAlignmentBytes;
  }

  // In how few repeats each offline operation fits, and the fixed part that serves all of them.
  void size_offline() {
    const std::uint64_t limit = std::min(plan_.options.offline_bytes, usable_bytes());
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
      plan_.offline_bytes = std::max(plan_.offline_bytes, part_bytes(operation, low));
      offline_contexts_ =
          std::max(offline_contexts_, static_cast<unsigned>(operation.arrays.size()));
    }
    require_contexts_for_offline();
    region_ = Region(plan_.offline_bytes, usable_bytes());
  }

  void require_contexts_for_offline() const {
    if (offline_contexts_ > kContextLimit - kFirstContext)
      throw Error(ErrorCode::kResource, "an offline operation needs " +
                                            std::to_string(offline_contexts_) + " contexts of " +
                                            std::to_string(kContextLimit - kFirstContext));
  }

  Step& add_step(std::size_t step) {
    const Operation& operation = task_.operations[step];
    plan_.steps.push_back(
        {operation.name, operation.layer, operation.pass, operation.protocol, repeats_[step]});
    return plan_.steps.back();
  }

  void open(Step& step, Placement placement) {
    step.opens.push_back(plan_.placements.size());
    plan_.placements.push_back(std::move(placement));
  }

  // The fixed part is this step's alone while it lasts.
  void plan_offline(std::size_t index) {
    Step& step = add_step(index);
    std::uint64_t base = 0;
    unsigned context = kFirstContext;
    for (const MessageArray& array : task_.operations[index].arrays) {
      Placement placement{part_of(array, step.repeats), context++, base, index, index};
      base += Region::rounded(placement.messages.bytes());
      open(step, std::move(placement));
    }
    step.frees = step.opens;
  }

  void plan_online(std::size_t index) {
    const Operation& operation = task_.operations[index];
    Step& step = add_step(index);
    for (const MessageArray& array : operation.arrays) {
      const std::uint64_t bytes = checked_bytes(index, array);
      const unsigned context = take_context(index);
      open(step, {array, context, take_memory(index, array, bytes), index, index});
    }
    for (const std::size_t input : operation.inputs) {
      if (--readers_[input] == 0 && task_.operations[input].pass != Pass::kOffline)
        free(input, index);
    }
    if (readers_[index] == 0) free(index, index);
  }

  unsigned take_context(std::size_t step) {
    for (unsigned context = kFirstContext + offline_contexts_; context < kContextLimit; ++context) {
      if (in_use_[context]) continue;
      in_use_[context] = true;
      peak_online_ = std::max(peak_online_, ++live_);
      return context;
    }
    throw Error(ErrorCode::kResource,
                name(step) + ": all " + std::to_string(kContextLimit - kFirstContext) +
                    " contexts are open, " + std::to_string(offline_contexts_) +
                    " of them for triples",
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
    for (const std::size_t index : plan_.steps[finished].opens) {
      Placement& placement = plan_.placements[index];
      placement.last_step = step;
      region_.free(placement.base_bytes);
      in_use_[placement.context] = false;
      --live_;
      plan_.steps[step].frees.push_back(index);
    }
  }

  const Task& task_;
  Plan plan_;
  std::vector<std::size_t> readers_;    // of each operation, that have not finished
  std::vector<std::uint64_t> repeats_;  // of each operation
  Region region_{0, 0};
  unsigned offline_contexts_ = 0;
  std::array<bool, kContextLimit> in_use_{};
  unsigned live_ = 0;
  unsigned peak_online_ = 0;
};

}  // namespace

Plan make_plan(const Task& task, const PlanOptions& options) {
  return Planning(task, options).run();
}

}  // namespace leat::scml

// What holds for every plan, tried on thousands of random graphs and on the models that come with
// leat.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "leat/error.h"
#include "leat/scml/planner.h"

namespace leat::scml {
namespace {

using testing::HasSubstr;

constexpr unsigned kMostOpen = kContextLimit - kFirstContext;

// A graph like those of networks: mostly chains, with shortcuts, local layers and triples; one in
// twenty so large and with so many shortcuts that contexts may not suffice.
Task random_task(std::mt19937_64& random) {
  const auto below = [&](std::uint64_t limit) { return random() % limit; };
  Task task;
  task.model = "random";
  const std::size_t offline = below(4);
  const bool tangled = below(20) == 0;
  const std::size_t count = offline + 1 + below(tangled ? 300 : 60);
  for (std::size_t i = 0; i < count; ++i) {
    Operation operation{"op" + std::to_string(i), i};
    if (i < offline) operation.pass = Pass::kOffline;
    for (std::uint64_t arrays = below(tangled && i >= offline ? 12 : 4); arrays > 0; --arrays) {
      MessageArray array{"random", 1 + below(200), {}, {{0, 1}, {1, 0}}};
      for (std::uint64_t rounds = 1 + below(3); rounds > 0; --rounds)
        array.round_messages.push_back(1 + below(500));
      operation.arrays.push_back(array);
    }
    if (i > offline && below(10) > 0) operation.inputs.push_back(i - 1);
    if (i > offline + 1 && below(tangled ? 1 : 5) == 0) {
      const std::size_t back = 1 + below(std::min<std::uint64_t>(tangled ? 200 : 5, i - offline));
      if (operation.inputs.empty() || operation.inputs[0] != i - back)
        operation.inputs.push_back(i - back);
    }
    task.operations.push_back(operation);
  }
  return task;
}

// When each operation's messages may go: after its last reader, or after itself.
std::vector<std::size_t> last_uses(const Task& task) {
  std::vector<std::size_t> last;
  for (std::size_t i = 0; i < task.operations.size(); ++i) {
    last.push_back(i);
    for (const std::size_t input : task.operations[i].inputs) last[input] = i;
  }
  return last;
}

// The most contexts that must be open at the same time, counted from the graph alone.
std::size_t contexts_needed(const Task& task) {
  const std::vector<std::size_t> last = last_uses(task);
  std::size_t most = 0;
  for (std::size_t step = 0; step < task.operations.size(); ++step) {
    std::size_t open = 0;
    for (std::size_t i = 0; i <= step; ++i) {
      const Operation& operation = task.operations[i];
      if (i == step || (operation.pass != Pass::kOffline && last[i] >= step))
        open += operation.arrays.size();
    }
    most = std::max(most, open);
  }
  return most;
}

std::uint64_t rounded(std::uint64_t bytes) { return (bytes + 63) / 64 * 64; }

// Runs a plan as a party would, with nothing but its own books, and checks each step.
class Party {
 public:
  Party(const Task& task, const Plan& plan)
      : task_(task), plan_(plan), last_uses_(last_uses(task)) {
    for (std::size_t step = 0; step < plan.steps.size(); ++step)
      for (const std::size_t index : plan.steps[step].arrays)
        EXPECT_TRUE(owners_.emplace(index, step).second) << "of two operations";
  }

  void check() {
    ASSERT_EQ(plan_.steps.size(), task_.operations.size());
    for (step_ = 0; step_ < plan_.steps.size(); ++step_) {
      const Step& step = plan_.steps[step_];
      ASSERT_EQ(step.arrays.size(), task_.operations[step_].arrays.size());
      for (const std::size_t index : step.opens) open(index);
      for (const std::size_t input : task_.operations[step_].inputs) expect_open(input);
      expect_open(step_);
      for (const std::size_t index : step.frees) close(index);
    }
    EXPECT_TRUE(memory_.empty()) << "bytes are left at the end";
    EXPECT_TRUE(slots_.empty()) << "contexts are left at the end";
    EXPECT_EQ(opened_.size(), plan_.placements.size());
    EXPECT_LE(peak_bytes_, plan_.peak_bytes);
    EXPECT_EQ(peak_contexts_, plan_.peak_contexts);
  }

 private:
  bool is_offline() const { return plan_.steps[step_].pass == Pass::kOffline; }

  void open(std::size_t index) {
    ASSERT_LT(index, plan_.placements.size());
    const Placement& placement = plan_.placements[index];
    ASSERT_TRUE(owners_.contains(index));
    const std::size_t owner = owners_[index];
    const std::vector<std::size_t>& of_owner = plan_.steps[owner].arrays;
    const MessageArray& array = task_.operations[owner].arrays[static_cast<std::size_t>(
        std::ranges::find(of_owner, index) - of_owner.begin())];
    // Its own, or of the next operation that has any.
    for (std::size_t i = step_ + 1; i < owner; ++i)
      EXPECT_TRUE(task_.operations[i].arrays.empty()) << "open too early";
    if (owner != step_) {
      ASSERT_LT(step_, owner);
      EXPECT_FALSE(is_offline());
      EXPECT_EQ(plan_.steps[owner].repeats, 1U);
    }
    EXPECT_TRUE(opened_.insert(index).second) << "opened twice";
    EXPECT_EQ(placement.first_step, step_);
    EXPECT_EQ(placement.messages.message_bytes, array.message_bytes);
    EXPECT_GE(placement.messages.message_count() * plan_.steps[step_].repeats,
              array.message_count());
    EXPECT_EQ(placement.base_bytes % 64, 0U);
    EXPECT_GE(placement.context, 1U);
    EXPECT_LT(placement.context, kContextLimit);
    EXPECT_TRUE(slots_.emplace(placement.context, index).second) << "a context is open twice";
    peak_contexts_ = std::max(peak_contexts_, slots_.size());
    const std::uint64_t base = placement.base_bytes;
    const std::uint64_t end = base + rounded(placement.messages.bytes());
    EXPECT_LE(end, is_offline() ? plan_.offline_bytes : plan_.options.memory_bytes);
    if (!is_offline()) {
      EXPECT_GE(base, plan_.offline_bytes) << "in the fixed part";
      EXPECT_EQ(base, first_gap(end - base)) << "not the first fit";
    }
    for (const auto& [other_base, other_end] : memory_)
      EXPECT_TRUE(end <= other_base || other_end <= base) << "memory overlaps";
    memory_[base] = end;
    peak_bytes_ = std::max({peak_bytes_, end, plan_.offline_bytes});
  }

  // By trying every place where a first fit can begin.
  std::uint64_t first_gap(std::uint64_t bytes) const {
    std::set<std::uint64_t> candidates{plan_.offline_bytes};
    for (const auto& [base, end] : memory_) candidates.insert(end);
    for (const std::uint64_t candidate : candidates) {
      const bool fits = std::all_of(memory_.begin(), memory_.end(), [&](const auto& block) {
        return candidate + bytes <= block.first || block.second <= candidate;
      });
      if (fits) return candidate;
    }
    return 0;
  }

  void expect_open(std::size_t operation) {
    if (task_.operations[operation].pass == Pass::kOffline && operation != step_) return;
    for (const std::size_t index : plan_.steps[operation].arrays) {
      const auto slot = slots_.find(plan_.placements[index].context);
      EXPECT_TRUE(slot != slots_.end() && slot->second == index)
          << "step " << step_ << " reads what was freed";
    }
  }

  void close(std::size_t index) {
    const Placement& placement = plan_.placements[index];
    EXPECT_EQ(placement.last_step, step_);
    EXPECT_EQ(last_uses_[owners_[index]], step_) << "freed at the wrong time";
    EXPECT_EQ(slots_.erase(placement.context), 1U) << "freed, but not open";
    EXPECT_EQ(memory_.erase(placement.base_bytes), 1U);
  }

  const Task& task_;
  const Plan& plan_;
  const std::vector<std::size_t> last_uses_;
  std::size_t step_ = 0;
  std::map<unsigned, std::size_t> slots_;          // context to placement
  std::map<std::uint64_t, std::uint64_t> memory_;  // base to end
  std::set<std::size_t> opened_;
  std::map<std::size_t, std::size_t> owners_;  // placement to operation
  std::uint64_t peak_bytes_ = 0;
  std::size_t peak_contexts_ = 0;
};

TEST(PlanProperties, HoldForRandomGraphs) {
  std::mt19937_64 random(20241121);
  int planned = 0, refused = 0, ahead = 0;
  for (int graph = 0; graph < 5000 && !HasFailure(); ++graph) {
    SCOPED_TRACE("graph " + std::to_string(graph));
    const Task task = random_task(random);
    const PlanOptions options{.offline_bytes = 64 * (16 + random() % 5000)};
    if (contexts_needed(task) > kMostOpen) {
      ++refused;
      try {
        make_plan(task, options);
        ADD_FAILURE() << "planned, but there are not enough contexts";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kResource);
        EXPECT_THAT(error.what(), HasSubstr("contexts are open"));
      }
      continue;
    }
    ++planned;
    const Plan plan = make_plan(task, options);
    Party(task, plan).check();
    EXPECT_GE(plan.peak_contexts, contexts_needed(task));
    EXPECT_LE(plan.peak_contexts, kMostOpen);
    for (const Placement& placement : plan.placements)
      ahead += plan.steps[placement.first_step].arrays.size() != 0 &&
               std::ranges::count(plan.steps[placement.first_step].arrays,
                                  &placement - plan.placements.data()) == 0;
    // Another party, which works it out by itself.
    const Task same = task;
    EXPECT_EQ(make_plan(same, options).digest, plan.digest);
  }
  EXPECT_GT(planned, 3000);
  EXPECT_GT(ahead, 10000);
  EXPECT_GT(refused, 50);
}

TEST(PlanProperties, ARegionOfThePeakSufficesAndASmallerOneDoesNot) {
  std::mt19937_64 random(7);
  int tried = 0;
  for (int graph = 0; graph < 1000 && !HasFailure(); ++graph) {
    SCOPED_TRACE("graph " + std::to_string(graph));
    const Task task = random_task(random);
    if (contexts_needed(task) > kMostOpen) continue;
    const Plan roomy = make_plan(task, {});
    if (roomy.peak_bytes == roomy.offline_bytes) continue;
    ++tried;
    const Plan tight = make_plan(task, {.memory_bytes = roomy.peak_bytes});
    ASSERT_EQ(tight.placements.size(), roomy.placements.size());
    for (std::size_t i = 0; i < tight.placements.size(); ++i)
      EXPECT_EQ(tight.placements[i].base_bytes, roomy.placements[i].base_bytes);
    try {
      make_plan(task, {.memory_bytes = roomy.peak_bytes - 1});
      ADD_FAILURE() << "planned in less than the peak";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kResource);
      EXPECT_THAT(error.what(), HasSubstr("64 bytes are missing"));
    }
  }
  EXPECT_GT(tried, 500);
}

TEST(PlanProperties, HoldForTheModelsThatComeWithLeat) {
  for (const char* name : {"secureml", "lenet", "alexnet", "vgg16"}) {
    const Model model =
        load_model(std::string(LEAT_SOURCE_FOLDER "/examples/models/") + name + ".json");
    for (const unsigned parties : {2U, 3U, 4U}) {
      for (const bool train : {false, true}) {
        for (const Triples triples : {Triples::kNone, Triples::kOt, Triples::kHe}) {
          for (const Profile profile : kProfiles) {
            SCOPED_TRACE(std::string(name) + " " + std::to_string(parties) + " " +
                         std::string(to_string(profile)));
            const Task task =
                parse(model,
                      {.parties = parties, .train = train, .triples = triples, .profile = profile});
            const Plan plan = make_plan(task, {});
            Party(task, plan).check();
            // By rounds, the same is sent through less memory.
            const Plan rounds = make_plan(task, {.by_round = true});
            EXPECT_EQ(total_of(rounds).bytes, total_of(plan).bytes);
            EXPECT_EQ(total_of(rounds).rounds, total_of(plan).rounds);
            EXPECT_LE(rounds.peak_bytes, plan.peak_bytes);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace leat::scml

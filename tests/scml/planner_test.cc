// The Planner's placements by example, and what it says when they are impossible.
#include "leat/scml/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "leat/error.h"
#include "support/errors.h"

namespace leat::scml {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

MessageArray array_of(std::uint64_t message_bytes, std::uint64_t count) {
  return {"test", message_bytes, {count}, {{0, 1}}};
}

Operation operation(const std::string& name, std::vector<std::size_t> inputs,
                    std::vector<MessageArray> arrays, Pass pass = Pass::kForward) {
  return {name, 0, pass, Protocol::kSs, std::move(inputs), std::move(arrays)};
}

// Each operation reads the one before it, and sends one array of so many bytes.
Task chain(const std::vector<std::uint64_t>& bytes) {
  Task task;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    task.operations.push_back(operation("op" + std::to_string(i),
                                        i == 0 ? std::vector<std::size_t>{} : std::vector{i - 1},
                                        {array_of(1, bytes[i])}));
  return task;
}

std::vector<std::uint64_t> bases(const Plan& plan) {
  std::vector<std::uint64_t> result;
  for (const Placement& placement : plan.placements) result.push_back(placement.base_bytes);
  return result;
}

std::vector<unsigned> contexts(const Plan& plan) {
  std::vector<unsigned> result;
  for (const Placement& placement : plan.placements) result.push_back(placement.context);
  return result;
}

std::string error_of(const Task& task, const PlanOptions& options, ErrorCode code) {
  return leat::detail::error_of(code, [&] { make_plan(task, options); });
}

TEST(Planner, PlacesFirstFitAndFreesWhenTheLastReaderHasFinished) {
  // op0 at 0 to 128; op1 behind it; op0 is freed after op1, so op2 (64 bytes) fits at 0; op1 is
  // freed after op2, so op3 (100, rounded to 128) stands right behind op2. Only op1 fits beside the
  // one before it in these 192 bytes.
  const Plan plan = make_plan(chain({100, 64, 64, 100}), {});
  EXPECT_THAT(bases(plan), ElementsAre(0U, 128U, 0U, 64U));
  EXPECT_THAT(contexts(plan), ElementsAre(1U, 2U, 1U, 2U));
  EXPECT_THAT(plan.steps[0].opens, ElementsAre(0U, 1U));
  EXPECT_THAT(plan.steps[1].opens, IsEmpty());
  EXPECT_THAT(plan.steps[1].arrays, ElementsAre(1U));
  EXPECT_EQ(plan.placements[1].first_step, 0U);
  EXPECT_EQ(plan.placements[2].first_step, 2U);
  EXPECT_EQ(plan.placements[0].last_step, 1U);
  EXPECT_EQ(plan.placements[3].last_step, 3U);
  EXPECT_THAT(plan.steps[1].frees, ElementsAre(0U));
  EXPECT_THAT(plan.steps[3].frees, ElementsAre(2U, 3U));
  EXPECT_EQ(plan.peak_bytes, 192U);
  EXPECT_EQ(plan.peak_contexts, 2U);
}

TEST(Planner, OpensArraysAStepAheadInMemoryThatIsThereAnyway) {
  // op0 and op1 need 1024 bytes, so nothing is open ahead while op1 runs; op3 is local, so op4 is
  // open from op2 on.
  Task task = chain({512, 512, 64, 64, 64});
  task.operations[3].arrays.clear();
  const Plan plan = make_plan(task, {});
  EXPECT_EQ(plan.peak_bytes, 1024U);
  std::vector<std::size_t> opened;
  for (const Placement& placement : plan.placements) opened.push_back(placement.first_step);
  EXPECT_THAT(opened, ElementsAre(0U, 0U, 2U, 2U));
  EXPECT_THAT(bases(plan), ElementsAre(0U, 512U, 0U, 64U));
  EXPECT_EQ(plan.peak_contexts, 3U);
}

TEST(Planner, AddressesFollowEquationOne) {
  const Plan plan = make_plan(chain({64, 100}), {});
  Placement placement = plan.placements[1];
  placement.messages.message_bytes = 12;
  EXPECT_EQ(placement.address(0), 64U);
  EXPECT_EQ(placement.address(5), 124U);
}

TEST(Planner, KeepsWhatALaterReaderNeeds) {
  // op3 reads op0 too, as a shortcut does.
  Task task = chain({64, 64, 64, 64});
  task.operations[3].inputs.push_back(0);
  const Plan plan = make_plan(task, {});
  EXPECT_EQ(plan.placements[0].last_step, 3U);
  EXPECT_THAT(bases(plan), ElementsAre(0U, 64U, 128U, 64U));
}

TEST(Planner, WhatIsReusedKeepsNoMemory) {
  // op3 uses what the parties have kept of op0, whose messages are freed after op1.
  Task task = chain({64, 64, 64, 64});
  task.operations[3].reuses.push_back(0);
  const Plan plan = make_plan(task, {});
  EXPECT_EQ(plan.placements[0].last_step, 1U);
  EXPECT_EQ(plan.peak_bytes, 128U);
}

TEST(Planner, ByRoundEachRoundIsAStep) {
  // op1 has rounds of 10 and 20 messages of 64 bytes, and then one of 5 of 128; op2 reads it.
  Task task = chain({64, 1, 64});
  task.operations[1].arrays = {{"a", 64, {10, 20}, {{0, 1}}}, {"b", 128, {5}, {{1, 0}}}};
  task.operations[2].reuses = {1};
  const Plan plan = make_plan(task, {.by_round = true});
  std::vector<std::string> names;
  std::vector<std::uint64_t> bytes;
  std::vector<std::size_t> freed;
  for (const Step& step : plan.steps) {
    names.push_back(step.name);
    ASSERT_THAT(step.arrays, SizeIs(1));
    const Placement& placement = plan.placements[step.arrays[0]];
    bytes.push_back(placement.messages.bytes());
    freed.push_back(placement.last_step);
  }
  EXPECT_THAT(names, ElementsAre("op0", "op1 round 1", "op1 round 2", "op1 round 3", "op2"));
  EXPECT_THAT(bytes, ElementsAre(64U, 640U, 1280U, 640U, 64U));
  // Each until the next has finished; the last two with the end.
  EXPECT_THAT(freed, ElementsAre(1U, 2U, 3U, 4U, 4U));
  // Rounds 1 and 2 together, behind op0: 64 + 640 + 1280; by layers 64 + 1920 + 640.
  EXPECT_EQ(plan.peak_bytes, 1984U);
  EXPECT_EQ(make_plan(task, {}).peak_bytes, 2624U);
  EXPECT_NE(make_plan(chain({64}), {.by_round = true}).digest, make_plan(chain({64}), {}).digest);
}

TEST(Planner, ByRoundTriplesStayWhole) {
  Task task;
  task.operations.push_back({"t", 0, Pass::kOffline, Protocol::kOt, {}, {array_of(64, 4)}});
  task.operations[0].arrays[0].round_messages = {4, 4};
  const Plan plan = make_plan(task, {.offline_bytes = 256, .by_round = true});
  ASSERT_THAT(plan.steps, SizeIs(1));
  EXPECT_EQ(plan.steps[0].repeats, 2U);
}

TEST(Planner, LocalOperationsOpenNothingButHoldWhatTheyRead) {
  Task task = chain({64, 64, 64});
  task.operations[1].arrays.clear();
  const Plan plan = make_plan(task, {});
  EXPECT_THAT(plan.steps[1].arrays, IsEmpty());
  EXPECT_THAT(plan.steps[1].frees, ElementsAre(0U));
  EXPECT_THAT(plan.placements, SizeIs(2));
}

TEST(Planner, AnArrayOfEachSizeHasItsOwnContext) {
  Task task;
  task.operations.push_back(
      operation("a", {}, {array_of(4, 10), array_of(512, 2), array_of(1, 1)}));
  const Plan plan = make_plan(task, {});
  EXPECT_THAT(contexts(plan), ElementsAre(1U, 2U, 3U));
  EXPECT_THAT(bases(plan), ElementsAre(0U, 64U, 1088U));
}

TEST(Planner, TriplesHaveAFixedPart) {
  Task task;
  task.operations.push_back(operation("t0", {}, {array_of(64, 4)}, Pass::kOffline));
  task.operations.push_back(
      operation("t1", {}, {array_of(64, 1), array_of(64, 1)}, Pass::kOffline));
  task.operations.push_back(operation("a", {}, {array_of(64, 1)}));
  const Plan plan = make_plan(task, {});
  EXPECT_EQ(plan.offline_bytes, 256U);
  EXPECT_THAT(bases(plan), ElementsAre(0U, 0U, 64U, 256U));
  EXPECT_THAT(contexts(plan), ElementsAre(1U, 1U, 2U, 1U));
  EXPECT_EQ(plan.peak_contexts, 2U);
}

TEST(Planner, TriplesThatDoNotFitAtOnceAreMadeInRepeats) {
  // 10 and 7 messages of 64 bytes in 512: 2 repeats of 5 + 4 are 576 bytes, 3 of 4 + 3 are 448.
  Task task;
  task.operations.push_back(
      operation("t", {}, {array_of(64, 10), array_of(64, 7)}, Pass::kOffline));
  const Plan plan = make_plan(task, {.offline_bytes = 512});
  EXPECT_EQ(plan.steps[0].repeats, 3U);
  EXPECT_EQ(plan.placements[0].messages.message_count(), 4U);
  EXPECT_EQ(plan.placements[1].messages.message_count(), 3U);
  EXPECT_EQ(plan.offline_bytes, 448U);
}

TEST(Planner, TheDigestCoversPlacementsAndParameters) {
  const Task task = chain({100, 64, 64, 100});
  const Plan plan = make_plan(task, {});
  EXPECT_EQ(make_plan(task, {}).digest, plan.digest);
  EXPECT_NE(make_plan(task, {.memory_bytes = 1024}).digest, plan.digest);
  Task other = task;
  other.options.batch = 7;
  EXPECT_NE(make_plan(other, {}).digest, plan.digest);
  other = task;
  other.options.profile = Profile::kBest;
  EXPECT_NE(make_plan(other, {}).digest, plan.digest);
  other = task;
  other.operations[2].protocol = Protocol::kGc;
  EXPECT_NE(make_plan(other, {}).digest, plan.digest);
  other = task;
  other.operations[2].arrays[0].flows[0] = {1, 0};
  EXPECT_NE(make_plan(other, {}).digest, plan.digest);
  EXPECT_NE(make_plan(chain({100, 64, 64, 101}), {}).digest, plan.digest);
}

TEST(Planner, TheDigestIsTheSameOnEveryMachine) {
  // SHA-256 of the serialisation that docs/scml.md describes, worked out by another program.
  // Parties of different builds compare it; a change of what it covers needs a new "leat plan N".
  std::string hex;
  for (const std::uint8_t byte : make_plan(chain({100, 64}), {}).digest) {
    hex += "0123456789abcdef"[byte >> 4];
    hex += "0123456789abcdef"[byte & 15];
  }
  EXPECT_EQ(hex, "5a712c4f72df84cebd1f4f1b9885349c2e3236bce95943773abb6065393f5b15");
}

// What does not fit.

TEST(PlanTooLarge, MemoryThatDoesNotSuffice) {
  // op0 and op1 take 256 bytes, and op2 needs 1000, rounded to 1024, behind them.
  EXPECT_THAT(error_of(chain({100, 100, 1000}), {.memory_bytes = 1000}, ErrorCode::kResource),
              AllOf(HasSubstr("op2 needs 1000 bytes"), HasSubstr("the region of 960 bytes"),
                    HasSubstr("320 bytes are missing")));
  // 128 to 256 is op1's; 960 + 320 = 256 + 1024.
  EXPECT_EQ(make_plan(chain({100, 100, 1000}), {.memory_bytes = 1280}).peak_bytes, 1280U);
  EXPECT_THAT(error_of(chain({1}), {.memory_bytes = 0}, ErrorCode::kResource),
              HasSubstr("64 bytes are missing"));
}

TEST(PlanTooLarge, TriplesOfWhichNotOneFits) {
  Task task;
  task.operations.push_back(operation("t", {}, {array_of(1000, 5)}, Pass::kOffline));
  EXPECT_THAT(error_of(task, {.offline_bytes = 512}, ErrorCode::kResource),
              AllOf(HasSubstr("t needs 1024 bytes"), HasSubstr("512 bytes are missing")));
}

TEST(PlanTooLarge, MoreContextsThanThereAre) {
  // 255 contexts can be open; one more cannot. All are read by the last operation.
  const auto fan = [](std::size_t branches) {
    Task task;
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < branches; ++i) {
      task.operations.push_back(operation("branch" + std::to_string(i), {}, {array_of(4, 4)}));
      all.push_back(i);
    }
    task.operations.push_back(operation("join", all, {}));
    return task;
  };
  const Plan plan = make_plan(fan(255), {});
  EXPECT_EQ(plan.peak_contexts, 255U);
  for (const Placement& placement : plan.placements) {
    EXPECT_GE(placement.context, 1U);
    EXPECT_LE(placement.context, 255U);
  }
  EXPECT_THAT(error_of(fan(256), {}, ErrorCode::kResource),
              HasSubstr("branch255: all 255 contexts are open"));
}

TEST(PlanTooLarge, MoreMessagesThanAContextHolds) {
  EXPECT_EQ(make_plan(chain({kMaxArrayMessages}), {}).placements.size(), 1U);
  EXPECT_THAT(error_of(chain({kMaxArrayMessages + 1}), {}, ErrorCode::kTooLarge),
              AllOf(HasSubstr("op0: 134217729 messages"), HasSubstr("limit of 134217728")));
  EXPECT_THAT(error_of(chain({~std::uint64_t{0}}), {}, ErrorCode::kTooLarge), HasSubstr("op0"));
}

TEST(PlanTooLarge, MoreOpenMessagesThanThereAreNumbers) {
  const auto fan = [](std::size_t branches) {
    Task task;
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < branches; ++i) {
      task.operations.push_back(
          operation("branch" + std::to_string(i), {}, {array_of(1, kMaxArrayMessages)}));
      all.push_back(i);
    }
    task.operations.push_back(operation("join", all, {}));
    return task;
  };
  EXPECT_EQ(make_plan(fan(16), {}).peak_contexts, 16U);
  EXPECT_THAT(error_of(fan(17), {}, ErrorCode::kResource),
              AllOf(HasSubstr("branch16: "), HasSubstr("it has 2147483648")));
}

// A range of numbers has no gaps, so what is free may be too scattered, as memory may.
TEST(PlanTooLarge, NumbersThatAreFreeHereAndThere) {
  // Between sixteen small arrays there is room for as many large ones, but for none that is larger.
  const auto with_last = [](std::uint64_t messages) {
    Task task;
    std::vector<std::size_t> small, large;
    for (unsigned i = 0; i < 16; ++i) {
      const std::string n = std::to_string(i);
      large.push_back(task.operations.size());
      task.operations.push_back(
          operation("large" + n, {}, {array_of(1, 255 * leat::MessageArray::kCountedIn)}));
      small.push_back(task.operations.size());
      task.operations.push_back(operation("small" + n, {}, {array_of(1, 1)}));
    }
    task.operations.push_back(operation("join", large, {}));
    task.operations.push_back(operation("last", small, {array_of(1, messages)}));
    return task;
  };
  EXPECT_EQ(make_plan(with_last(255 * leat::MessageArray::kCountedIn), {}).peak_contexts, 32U);
  EXPECT_THAT(error_of(with_last(kMaxArrayMessages), {}, ErrorCode::kResource),
              HasSubstr("last: the transport has no"));
}

TEST(PlanTooLarge, SizesThatOverflow) {
  Task task;
  task.operations.push_back(operation("a", {}, {array_of(kMaxPlannedMessageBytes, (1 << 27) + 1)}));
  const PlanOptions most{.memory_bytes = ~std::uint64_t{0}, .offline_bytes = ~std::uint64_t{0}};
  EXPECT_THAT(error_of(task, most, ErrorCode::kTooLarge), HasSubstr("a: 134217729 messages"));
  for (MessageArray& array : task.operations[0].arrays) array.round_messages = {1 << 26};
  EXPECT_THAT(error_of(task, most, ErrorCode::kTooLarge), HasSubstr("a: the size of its messages"));
  task.operations[0].pass = Pass::kOffline;
  task.operations[0].arrays.assign(1, array_of(kMaxPlannedMessageBytes, 1));
  EXPECT_THAT(error_of(task, {.memory_bytes = std::uint64_t{1} << 30}, ErrorCode::kResource),
              HasSubstr("a needs"));
}

TEST(PlanTooLarge, MessagesOfFourGibibytes) {
  EXPECT_EQ(make_plan({.model = {},
                       .options = {},
                       .operations = {operation("a", {}, {array_of(kMaxPlannedMessageBytes, 1)})}},
                      {})
                .placements.size(),
            1U);
  for (const Pass pass : {Pass::kForward, Pass::kOffline}) {
    Task task;
    task.operations.push_back(
        operation("a", {}, {array_of(std::uint64_t{kMaxPlannedMessageBytes} + 1, 1)}, pass));
    EXPECT_THAT(error_of(task, {}, ErrorCode::kTooLarge),
                AllOf(HasSubstr("a has an array with messages of 4294967296 bytes"),
                      HasSubstr("above 4294967295")));
  }
}

TEST(PlanTooLarge, TotalsThatOverflow) {
  Plan plan = make_plan(chain({1000}), {});
  EXPECT_EQ(total_of(plan).bytes, 1000U);
  plan.steps[0].repeats = ~std::uint64_t{0};
  EXPECT_THAT(leat::detail::error_of(ErrorCode::kTooLarge, [&] { (void)total_of(plan); }),
              HasSubstr("the messages"));
  // Each step alone is within the limits, all together are not.
  plan.steps[0].repeats = std::uint64_t{1} << 46;
  EXPECT_EQ(total_of(plan).messages, 1000ULL << 46);
  plan.steps.resize(300, plan.steps[0]);
  EXPECT_THAT(leat::detail::error_of(ErrorCode::kTooLarge, [&] { (void)total_of(plan); }),
              HasSubstr("exceed 64 bits"));
}

TEST(BadGraph, Cycles) {
  Task task = chain({64, 64});
  task.operations[0].inputs = {1};
  EXPECT_THAT(error_of(task, {}, ErrorCode::kInvalidArgument), HasSubstr("op0 reads an operation"));
  task.operations[0].inputs = {0};
  EXPECT_THAT(error_of(task, {}, ErrorCode::kInvalidArgument), HasSubstr("op0 reads an operation"));
  task.operations[0].inputs = {99};
  EXPECT_THAT(error_of(task, {}, ErrorCode::kInvalidArgument), HasSubstr("op0 reads an operation"));
  task.operations[0].inputs.clear();
  task.operations[0].reuses = {1};
  EXPECT_THAT(error_of(task, {}, ErrorCode::kInvalidArgument), HasSubstr("op0 reads an operation"));
}

TEST(BadGraph, FlowsThatCannotBe) {
  const auto refusal = [](std::vector<Flow> flows, Pass pass) {
    Task task;
    task.options.parties = 3;
    task.operations.push_back(operation("a", {}, {array_of(4, 4)}, pass));
    task.operations[0].arrays[0].flows = std::move(flows);
    return error_of(task, {}, ErrorCode::kInvalidArgument);
  };
  for (const Pass pass : {Pass::kForward, Pass::kOffline}) {
    EXPECT_THAT(refusal({}, pass), HasSubstr("a has an array that nobody sends (test)"));
    EXPECT_THAT(refusal({{0, 1}, {1, 1}}, pass), HasSubstr("from party 1 to party 1"));
    EXPECT_THAT(refusal({{0, 3}}, pass), HasSubstr("from party 0 to party 3, of 3 parties (test)"));
    EXPECT_THAT(refusal({{~0U, 0}}, pass), HasSubstr("of 3 parties"));
    EXPECT_THAT(refusal({{0, 1}, {1, 0}, {0, 1}}, pass),
                HasSubstr("from party 0 to party 1 twice"));
  }
}

TEST(BadGraph, ArraysWithoutMessages) {
  EXPECT_THAT(error_of(chain({0}), {}, ErrorCode::kInvalidArgument), HasSubstr("without messages"));
  Task task = chain({1});
  task.operations[0].arrays[0].message_bytes = 0;
  EXPECT_THAT(error_of(task, {}, ErrorCode::kInvalidArgument), HasSubstr("without messages"));
}

}  // namespace
}  // namespace leat::scml

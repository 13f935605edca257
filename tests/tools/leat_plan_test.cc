// leat-plan, run as a user would.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "leat/scml/planner.h"
#include "leat/version.h"
#include "support/program.h"
#include "support/scratch.h"

namespace leat::scml {
namespace {

using leat::detail::ProgramResult;
using leat::detail::read_file;
using leat::detail::ScratchFolder;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kLenet = LEAT_SOURCE_FOLDER "/examples/models/lenet.json";

ProgramResult plan_program(const std::vector<std::string>& arguments) {
  return leat::detail::run_program("src/tools/leat-plan", arguments);
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

TEST(LeatPlan, JsonIsThePlanOfTheLibrary) {
  const ProgramResult result =
      plan_program({kLenet, "--pass", "train", "--parties", "3", "--batch", "2", "--form", "inner",
                    "--profile", "secureml-aby3", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json shown = json::parse(result.out);
  const Plan plan = make_plan(parse(load_model(kLenet), {.parties = 3,
                                                         .train = true,
                                                         .form = Form::kInnerProducts,
                                                         .batch = 2,
                                                         .profile = Profile::kSecureMlAby3}),
                              {});
  EXPECT_EQ(shown.at("parties"), 3);
  EXPECT_EQ(shown.at("pass"), "train");
  EXPECT_EQ(shown.at("form"), "inner");
  EXPECT_EQ(shown.at("profile"), "secureml-aby3");
  EXPECT_EQ(shown.at("peak_bytes"), plan.peak_bytes);
  ASSERT_EQ(shown.at("steps").size(), plan.steps.size());
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const json& step = shown.at("steps")[i];
    EXPECT_EQ(step.at("name"), plan.steps[i].name);
    ASSERT_EQ(step.at("contexts").size(), plan.steps[i].arrays.size());
    for (std::size_t j = 0; j < plan.steps[i].arrays.size(); ++j) {
      const Placement& placement = plan.placements[plan.steps[i].arrays[j]];
      const json& context = step.at("contexts")[j];
      EXPECT_EQ(context.at("context"), placement.context);
      EXPECT_EQ(context.at("base_bytes"), placement.base_bytes);
      EXPECT_EQ(context.at("message_count"), placement.messages.message_count());
      EXPECT_EQ(context.at("opened_before_step"), placement.first_step);
      EXPECT_EQ(context.at("freed_after_step"), placement.last_step);
      EXPECT_EQ(context.at("flows").size(), placement.messages.flows.size());
    }
  }
  std::string digest;
  for (const std::uint8_t byte : plan.digest) {
    digest += "0123456789abcdef"[byte >> 4];
    digest += "0123456789abcdef"[byte & 15];
  }
  EXPECT_EQ(shown.at("digest"), digest);
}

TEST(LeatPlan, TableHasALineForEachContext) {
  const ProgramResult result = plan_program({kLenet});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("LeNet, 2 parties, batch 128, inference, profile piranha"));
  for (const char* part : {"context", "base", "freed after", "maxpool2", "Digest: "})
    EXPECT_THAT(result.out, HasSubstr(part));
  // 128 samples of 28x28 numbers, 20 filters of 25: 100352 + 500.
  EXPECT_THAT(result.out, HasSubstr("100852 x 4"));
}

TEST(LeatPlan, ProfilesHaveTheirNames) {
  for (const Profile profile : kProfiles) {
    const std::string name(to_string(profile));
    const ProgramResult result = plan_program({kLenet, "--profile", name, "--json"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const json shown = json::parse(result.out);
    EXPECT_EQ(shown.at("profile"), name);
    EXPECT_EQ(shown.at("digest"),
              digest_text(make_plan(parse(load_model(kLenet), {.profile = profile}), {}).digest));
  }
  const ProgramResult unknown = plan_program({kLenet, "--profile", "aby3"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("Allowed: piranha, secureml-aby3 or best"));
}

TEST(LeatPlan, MemoryIsFreedByRound) {
  const ProgramResult layers = plan_program({kLenet, "--json"});
  const ProgramResult rounds = plan_program({kLenet, "--free", "round", "--json"});
  ASSERT_EQ(rounds.exit_code, 0) << rounds.err;
  EXPECT_EQ(json::parse(rounds.out).at("free"), "round");
  EXPECT_EQ(json::parse(layers.out).at("free"), "layer");
  EXPECT_LT(json::parse(rounds.out).at("peak_bytes"), json::parse(layers.out).at("peak_bytes"));
  EXPECT_THAT(rounds.out, HasSubstr("\"maxpool2 round 1\""));
}

TEST(LeatPlan, TriplesAndRepeatsAreShown) {
  const ProgramResult result =
      plan_program({kLenet, "--batch", "1", "--triples", "ot", "--offline-memory", "1MiB"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("cnn1 triples"), HasSubstr(" times)"), HasSubstr("offline")));
}

TEST(LeatPlan, SvgShowsEveryPlacementWithTitleAndAxes) {
  const ScratchFolder folder;
  const std::string path = folder.path() + "/plan.svg";
  const ProgramResult result = plan_program(
      {kLenet, "--pass", "train", "--batch", "4", "--profile", "secureml-aby3", "--svg", path});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Plan plan = make_plan(
      parse(load_model(kLenet), {.train = true, .batch = 4, .profile = Profile::kSecureMlAby3}),
      {});
  const std::string svg = read_file(path);
  EXPECT_THAT(svg, AllOf(HasSubstr("Message memory: LeNet, 2 parties, batch 4, training, profile"),
                         HasSubstr("place in the region (MiB)"), HasSubstr("steps, in the order"),
                         HasSubstr(">conversion</text>"), HasSubstr("</svg>\n")));
  EXPECT_EQ(count_of(svg, "<title>"), plan.placements.size());
}

TEST(LeatPlan, NamesCannotBreakTheImage) {
  const ScratchFolder folder;
  const std::string model = folder.write(
      "odd.json",
      R"({"name": "<script>&\"", "batch_size": 1, "input_size": 2, "num_classes": 2, "model": [
          {"layer": "fc", "input_dim": 2, "output_dim": 2}]})");
  const std::string path = folder.path() + "/plan.svg";
  ASSERT_EQ(plan_program({model, "--svg", path}).exit_code, 0);
  EXPECT_THAT(read_file(path),
              AllOf(HasSubstr("&lt;script&gt;&amp;&quot;"), testing::Not(HasSubstr("<script>"))));
}

TEST(LeatPlan, AnImageThatCannotBeWrittenIsAnError) {
  const ProgramResult result = plan_program({kLenet, "--svg", "/nonexistent/plan.svg"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("/nonexistent/plan.svg: cannot be written"));
}

TEST(LeatPlan, TooLittleMemoryNamesTheLayerAndWhatIsMissing) {
  const ProgramResult result =
      plan_program({kLenet, "--profile", "secureml-aby3", "--memory", "7MiB"});
  EXPECT_EQ(result.exit_code, 1);
  // cnn1's 7374800 bytes are 34752 more than 7 MiB, rounded up to 64.
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("cnn1 needs 7374800 bytes"), HasSubstr("34816 bytes are missing")));
}

TEST(LeatPlan, AModelOfAThousandLayersIsPlannedAndTimed) {
  const ScratchFolder folder;
  std::string layers;
  for (int i = 0; i < 500; ++i) {
    layers += std::string(layers.empty() ? "" : ",") +
              R"({"layer": "fc", "input_dim": 8, "output_dim": 8},)" +
              R"({"layer": "relu", "input_dim": 8})";
  }
  const std::string model = folder.write(
      "long.json",
      R"({"batch_size": 4, "input_size": 8, "num_classes": 8, "model": [)" + layers + "]}");
  const ProgramResult result = plan_program({model, "--pass", "train", "--time", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json shown = json::parse(result.out);
  // Forward 500 fc and relu; the loss; backward two for each fc but the first's input, and one for
  // each relu.
  EXPECT_EQ(shown.at("steps").size(), 1000U + 1 + 2 * 500 - 1 + 500);
  EXPECT_GT(shown.at("plan_ms"), 0);
}

TEST(LeatPlan, ABadModelIsNamedAndFails) {
  const ScratchFolder folder;
  const std::string path = folder.write("bad.json", R"({"batch_size": -1})");
  const ProgramResult result = plan_program({path});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr(path), HasSubstr("field 'batch_size': is -1")));
  EXPECT_EQ(plan_program({folder.path() + "/none.json"}).exit_code, 1);
}

TEST(LeatPlan, WrongArgumentsExitWithTwo) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{},
                                             {kLenet, "--nosuch"},
                                             {kLenet, "--parties", "5"},
                                             {kLenet, "--batch", "0"},
                                             {kLenet, "--pass", "sideways"},
                                             {kLenet, "--memory", "much"},
                                             {kLenet, "--memory", "-1"}}) {
    const ProgramResult result = plan_program(arguments);
    EXPECT_EQ(result.exit_code, 2) << testing::PrintToString(arguments);
    EXPECT_THAT(result.err, HasSubstr("--help"));
  }
}

TEST(LeatPlan, WrongWordsAndSizesAreToldWhatIsAllowed) {
  EXPECT_THAT(plan_program({kLenet, "--triples", "x"}).err,
              HasSubstr("--triples: 'x' is not allowed. Allowed: he, none or ot."));
  EXPECT_THAT(plan_program({kLenet, "--memory", "much"}).err,
              HasSubstr("--memory: 'much' is not an allowed size. Give bytes; K, M, G"));
}

TEST(LeatPlan, HelpTeachesWithExamples) {
  const ProgramResult result = plan_program({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("Examples:"), HasSubstr("--pass train --svg plan.svg")));
}

TEST(LeatPlan, TellsItsVersion) {
  const ProgramResult result = plan_program({"-v"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, std::string("leat ") + leat::version() + "\n");
}

}  // namespace
}  // namespace leat::scml

// The plan of the example secure_training, which its code writes while it runs, beside what the
// Parser counts for the same network with Profile::kBest.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "leat/scml/planner.h"
#include "secure_training/plan.h"

namespace training {
namespace {

using leat::scml::Plan;
using leat::scml::Step;

using FlowBytes = std::map<std::pair<unsigned, unsigned>, std::uint64_t>;
using LayerBytes = std::map<std::string, FlowBytes>;  // of each layer and pass

void add(const Plan& plan, const Step& step, FlowBytes& bytes) {
  for (const std::size_t index : step.arrays) {
    const leat::scml::MessageArray& array = plan.placements[index].messages;
    for (const leat::scml::Flow& flow : array.flows)
      bytes[{flow.sender, flow.receiver}] += array.bytes();
  }
}

// The Parser gives a layer with weights two operations in the backward pass.
std::string layer_of(const std::string& step) {
  for (const std::string ending : {" weight gradient", " input gradient"})
    if (step.ends_with(ending)) return step.substr(0, step.size() - ending.size()) + " gradient";
  return step;
}

TEST(SecureTrainingPlan, IsWhatProfileBestCounts) {
  const leat::scml::Model model = leat::scml::read_model(
      R"({"batch_size": 32, "input_size": 12, "num_classes": 4, "model": [
          {"layer": "fc", "name": "fc1", "input_dim": 12, "output_dim": 16},
          {"layer": "relu", "name": "relu1", "input_dim": 16},
          {"layer": "fc", "name": "fc2", "input_dim": 16, "output_dim": 20},
          {"layer": "relu", "name": "relu2", "input_dim": 20},
          {"layer": "fc", "name": "fc3", "input_dim": 20, "output_dim": 4}]})");
  for (const unsigned parties : {2U, 3U}) {
    SCOPED_TRACE(std::to_string(parties) + " parties");
    Settings settings;
    settings.parties = parties;
    settings.network.widths = {12, 16, 20, 4};
    settings.network.batch = 32;
    settings.samples = 64;
    const Plan run = plan_training(settings).plan;
    const Plan counted = make_plan(
        parse(model, {.parties = parties, .train = true, .profile = leat::scml::Profile::kBest}),
        {});
    LayerBytes expected, found;
    for (const Step& step : counted.steps) add(counted, step, expected[layer_of(step.name)]);
    EXPECT_EQ(expected.size(), 10U);
    for (const Step& step : run.steps)
      if (expected.contains(step.name)) add(run, step, found[step.name]);
    EXPECT_EQ(found, expected);
  }
}

}  // namespace
}  // namespace training

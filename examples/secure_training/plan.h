// The plan of what a training sends.
#pragma once

#include <cstddef>

#include "leat/scml/planner.h"
#include "session.h"

namespace training {

struct TrainingPlan {
  leat::scml::Plan plan;        // a step for each stage, with its name
  std::size_t corrections = 0;  // words from the dealer to the second party for one step
};

// Nothing is counted by hand: the code of parties 0 and 1 runs once, on zeros, with an exchange
// that writes down what is sent and received; process 2 never sends to or receives from anyone
// else. So the plan has exactly the messages of the run, whatever the protocol. Takes as long as
// three steps of training. Throws leat::Error as make_plan does.
TrainingPlan plan_training(const Settings& settings);

}  // namespace training

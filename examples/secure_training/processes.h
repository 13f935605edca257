// The whole of a training, as each of its three processes does it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "leat/scml/party.h"
#include "mesh_exchange.h"
#include "plan.h"
#include "session.h"

namespace training {

struct Report {
  Outcome outcome;
  double offline_seconds = 0;  // dealing
  double online_seconds = 0;   // training
  std::map<std::string, StageFigures> stages;
};

// Called after each step.
using Progress = std::function<void(std::size_t epoch, double fraction)>;

// What process 2 alone knows.
struct OwnerSettings {
  std::string digits_file;
  // With a seed, a run can be repeated bit for bit, and nothing in it is secret.
  std::optional<std::uint64_t> seed;
};

// Process 0 or 1. Blocks until the training is over. Throws leat::Error if another process goes
// away.
Report run_party(leat::scml::Mesh& mesh, const Settings& settings, const TrainingPlan& plan,
                 const Progress& progress);

// Process 2. Reads the file before it waits for anyone.
class Owner {
 public:
  // Throws std::runtime_error about the file.
  Owner(const Settings& settings, const OwnerSettings& owner);
  Report run(leat::scml::Mesh& mesh, const TrainingPlan& plan, const Progress& progress);

 private:
  Outcome judge(const std::vector<Matrix>& weights) const;

  const Settings settings_;
  std::uint64_t seed_;
  OwnerInputs inputs_;
  Digits test_;
};

}  // namespace training

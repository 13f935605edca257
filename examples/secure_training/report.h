// What a training says at its end.
#pragma once

#include <string>

#include "processes.h"

namespace training {

// What was run, for people and programs.
struct RunDescription {
  Settings settings;
  std::string transport;
  unsigned self = 0;
  bool reproducible = false;
};

// A table of stages with totals, times, accuracies, and the digest of the weights.
void print_table(const RunDescription& run, const Report& report);
// The same as one JSON object.
void print_json(const RunDescription& run, const Report& report);

}  // namespace training

// What a federated training says, for people and for programs.
#pragma once

#include <leat/stats.h>

#include <string>

#include "server.h"

namespace federated {

struct RunDescription {
  std::string transport;
  std::string device;
  unsigned clients = 0;
  std::size_t tensors = 0;
  std::uint64_t parameters = 0;
};

void print_beginning(const RunDescription& run);
void print_round(const RoundReport& round);
void print_end(const Report& report);
// All of it as one JSON object. `stats`: the server's, of all connections together.
void print_json(const RunDescription& run, const Report& report, const leat::Stats& stats);

}  // namespace federated

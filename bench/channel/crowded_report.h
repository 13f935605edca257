// What leat-bench pingpong --crowded shows: leat beside plain TCP, in one place after the other.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "arguments.h"
#include "leat/channel.h"

namespace leat::bench {

// Each of TCP and of leat in turn, over a new connection.
inline constexpr unsigned kBlocks = 9;

enum class Cores { kOneEach, kOne, kBoth, kAny };

struct Place {
  const char* name;
  const char* caption;
  Cores cores;
  // The kernel shares a core between sessions first, and then within them.
  bool other_session = false;
  bool loops = false;
  // Two take turns. More stand in a ring: in a round each sends to the next, then waits for the
  // message of the one before.
  unsigned parties = 2;
};

// Half round trips, or rounds of a ring.
struct CrowdedBlock {
  double average_us = 0;
  double first_us = 0;
};

struct Blocks {
  std::vector<double> averages_us;
  std::vector<double> firsts_us;

  void add(const CrowdedBlock& block) {
    averages_us.push_back(block.average_us);
    firsts_us.push_back(block.first_us);
  }
  double average_us() const;
};

class CrowdedReport {
 public:
  explicit CrowdedReport(const ChannelArguments& arguments) : arguments_(arguments) {}

  // Prints the header, the first time that it is called; before the first add().
  void describe(const Channel& channel);
  void add(const Place& place, std::size_t bytes, const Blocks& tcp, const Blocks& leat);
  void finish() const;

 private:
  const ChannelArguments& arguments_;
  std::string device_;
  std::string transport_;
  nlohmann::ordered_json results_ = nlohmann::ordered_json::array();
  nlohmann::ordered_json ratios_ = nlohmann::ordered_json::object();
};

}  // namespace leat::bench

// Two processes with a channel between them: a peer that this program starts, or one on another
// machine.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "arguments.h"
#include "leat/leat.h"
#include "report.h"

namespace leat::bench {

// What the measuring side tells the serving side before anything else, so that only one of them
// needs arguments.
struct Plan {
  std::string bench;
  bool verify = false;
  bool in_place = false;
  bool read = false;
};

// Seeds of the patterns of the two directions.
inline constexpr std::uint64_t kMeasuringSeed = 1;
inline constexpr std::uint64_t kServingSeed = 2;

// Sends messages of one benchmark, as the plan wants: from a buffer or filled in place, all the
// same or with the pattern of their number.
class Sender {
 public:
  Sender(Channel& channel, const Plan& plan, std::uint64_t seed)
      : channel_(channel), in_place_(plan.in_place), verify_(plan.verify), seed_(seed) {}

  void send(std::size_t bytes);
  // Starts counting again at message 0.
  void restart() { index_ = 0; }

 private:
  Channel& channel_;
  const bool in_place_;
  const bool verify_;
  const std::uint64_t seed_;
  std::uint64_t index_ = 0;
  std::vector<std::byte> buffer_;
};

struct ChannelBench {
  std::string title;
  // Measures each size and adds rows to the report.
  void (*measure)(Channel& channel, const Plan& plan, const ChannelArguments& arguments,
                  Report& report);
  // Serves until the other side ends.
  void (*serve)(Channel& channel, const Plan& plan);
};

// Runs one side of the benchmark, or both if the arguments name no other machine.
void run_channel_bench(const std::string& name, const ChannelBench& bench,
                       const ChannelArguments& arguments);

}  // namespace leat::bench

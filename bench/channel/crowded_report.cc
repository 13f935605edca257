#include "channel/crowded_report.h"

#include <cstdio>
#include <iostream>

#include "machine.h"
#include "measure.h"

namespace leat::bench {

using nlohmann::ordered_json;

double Blocks::average_us() const {
  double sum = 0;
  for (const double value : averages_us) sum += value;
  return sum / static_cast<double>(averages_us.size());
}

void CrowdedReport::add(const Place& place, std::size_t bytes, const Blocks& tcp,
                        const Blocks& leat) {
  const double ratio = leat.average_us() / tcp.average_us();
  const double tcp_first = median_of(tcp.firsts_us);
  const double leat_first = median_of(leat.firsts_us);
  const double typical = median_of(leat.averages_us) / median_of(tcp.averages_us);
  results_.push_back({{"place", place.name},
                      {"parties", place.parties},
                      {"bytes", bytes},
                      {"iterations", kBlocks * arguments_.length.iterations},
                      {"tcp_us", tcp.average_us()},
                      {"leat_us", leat.average_us()},
                      {"tcp_first_us", tcp_first},
                      {"leat_first_us", leat_first}});
  const std::string name = std::string(place.name) + "_" + std::to_string(bytes) + "B";
  ratios_[name] = ratio;
  ratios_[name + "_median"] = typical;
  ratios_[name + "_first"] = leat_first / tcp_first;
  if (arguments_.json) return;
  std::printf(" %-38s %-8zu %-12.3f %-12.3f %-8.3f %-8.3f %-14.3f %-14.3f %.3f\n", place.caption,
              bytes, tcp.average_us(), leat.average_us(), ratio, typical, tcp_first, leat_first,
              leat_first / tcp_first);
  std::fflush(stdout);
}

void CrowdedReport::finish() const {
  if (!arguments_.json) return;
  const Machine machine = this_machine();
  std::cout << ordered_json{{"bench", "pingpong-crowded"},
                            {"device", device_},
                            {"transport", transport_},
                            {"host",
                             {{"cpu", machine.cpu},
                              {"cores", machine.cores},
                              {"kernel", machine.kernel}}},
                            {"results", results_},
                            {"ratios", ratios_}}
                   .dump(2)
            << '\n';
}

void CrowdedReport::describe(const Channel& channel) {
  if (!device_.empty()) return;
  device_ = channel.device();
  transport_ = channel.transport();
  if (arguments_.json) return;
  std::printf(
      "leat on a crowded machine: half round trips beside those of plain TCP\n"
      " %-15s : %s\n %-15s : %s\n"
      " %-15s : %u x %llu there and back, TCP and leat in turn over new connections, all "
      "counted\n"
      " %-15s : median is of the %u, first of their first round trips\n"
      " %-15s : of three and four parties rounds, not half round trips: each sends to the next "
      "and\n"
      " %-15s   receives from the one before\n"
      " %-38s %-8s %-12s %-12s %-8s %-8s %-14s %-14s %s\n",
      "Device", device_.c_str(), "Transport", transport_.c_str(), "Messages", kBlocks,
      static_cast<unsigned long long>(arguments_.length.iterations), "Ratios", kBlocks, "Times", "",
      "place", "#bytes", "tcp[usec]", "leat[usec]", "leat/tcp", "median", "tcp 1st[usec]",
      "leat 1st[usec]", "1st/1st");
}

}  // namespace leat::bench

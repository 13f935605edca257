#include "frameworks/report.h"

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "machine.h"
#include "measure.h"

namespace leat::bench {
namespace {

using nlohmann::ordered_json;

// Where the paper says how many times faster than TCP; of real protocols, on 100 Gbit/s.
ordered_json published() {
  const char* const source = "CORA, figure 9, between two hosts with 100 Gbit/s";
  const auto row = [&](const char* what, double least, double most) {
    return ordered_json{{"what", what}, {"least", least}, {"most", most}, {"source", source}};
  };
  return ordered_json::array({row("speedup over TCP, OT (IKNP, Ferret)", 1.3, 4.5),
                              row("speedup over TCP, triples of 32 bits", 1.8, 2.6)});
}

}  // namespace

void FrameworkReport::print_header() const {
  std::printf("leat in EMP: the messages of its protocols, without their cryptography\n");
  const auto line = [](const std::string& name, const std::string& value) {
    std::printf(" %-15s : %s\n", name.c_str(), value.c_str());
  };
  line("Device", device_);
  line("Transport", transport_);
  for (const auto& [name, value] : lines_) line(name, value);
  std::printf(" %-9s %-9s %-8s %-8s %-10s %-9s %-9s %s\n", "protocol", "count", "of", "way",
              "time[ms]", "min[ms]", "ns each", "tcp/way");
}

void FrameworkReport::add(const FrameworkRow& row) {
  device_ = row.device;
  transport_ = row.transport;
  if (!json_ && results_.empty()) print_header();
  const double tcp = median_of(row.milliseconds[0]);
  for (std::size_t way = 0; way < kFrameworkWays.size(); ++way) {
    const double time = median_of(row.milliseconds[way]);
    const double least = *std::ranges::min_element(row.milliseconds[way]);
    const double each_ns = time * 1e6 / static_cast<double>(row.count);
    results_.push_back({{"protocol", row.protocol},
                        {"way", kFrameworkWays[way]},
                        {"of", row.what},
                        {"count", row.count},
                        {"t_typical_ms", time},
                        {"t_min_ms", least},
                        {"each_ns", each_ns}});
    if (way != 0) {
      ratios_["frameworks_" + row.protocol + "_tcp_vs_" + kFrameworkWays[way]] = tcp / time;
    }
    if (json_) continue;
    std::printf(" %-9s %-9llu %-8s %-8s %-10.3f %-9.3f %-9.1f %.2f\n", row.protocol.c_str(),
                static_cast<unsigned long long>(row.count), row.what.c_str(), kFrameworkWays[way],
                time, least, each_ns, tcp / time);
  }
  std::fflush(stdout);
}

void FrameworkReport::finish() const {
  if (!json_) return;
  const Machine machine = this_machine();
  const ordered_json object{
      {"bench", "frameworks"},
      {"device", device_},
      {"transport", transport_},
      {"host", {{"cpu", machine.cpu}, {"cores", machine.cores}, {"kernel", machine.kernel}}},
      {"results", results_},
      {"published", published()},
      {"ratios", ratios_}};
  std::cout << object.dump(2) << '\n';
}

}  // namespace leat::bench

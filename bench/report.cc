#include "report.h"

#include <cstdio>
#include <iostream>

#include "machine.h"

namespace leat::bench {
namespace {

constexpr const char* kRule =
    "---------------------------------------------------------------------------------------\n";
constexpr const char* kLatencyColumns =
    " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    "
    "t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]\n";
constexpr const char* kDurationColumns =
    " #bytes        #iterations       t_avg[usec]    tps average\n";
constexpr const char* kBandwidthColumns =
    " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n";
constexpr double kMiB = 1024.0 * 1024.0;

}  // namespace

Report::Report(ReportHeader header, bool json) : header_(std::move(header)), json_(json) {}

void Report::print_header() {
  if (header_printed_) return;
  header_printed_ = true;
  std::fputs(kRule, stdout);
  std::printf("                    %s\n", header_.title.c_str());
  std::printf(" %-15s : %s\n", "Device", header_.device.c_str());
  std::printf(" %-15s : %s\n", "Transport", header_.transport.c_str());
  for (const auto& [name, value] : header_.lines) {
    std::printf(" %-15s : %s\n", name.c_str(), value.c_str());
  }
}

void Report::print_columns(const char* columns) {
  print_header();
  if (columns_ == columns) return;
  columns_ = columns;
  std::fputs(kRule, stdout);
  std::fputs(columns, stdout);
}

void Report::begin_part(const std::string& limit, const std::string& caption) {
  limit_ = limit;
  if (json_) return;
  print_header();
  std::printf("%s %s\n", kRule, caption.c_str());
}

nlohmann::ordered_json Report::new_row(std::size_t bytes, std::uint64_t iterations) const {
  nlohmann::ordered_json row;
  if (!limit_.empty()) row["limit"] = limit_;
  row["bytes"] = bytes;
  row["iterations"] = iterations;
  return row;
}

void Report::add(const Latency& latency) {
  const double average = latency.average_us;
  nlohmann::ordered_json row = new_row(latency.bytes, latency.iterations);
  if (latency.distribution) {
    const Latency::Distribution& spread = *latency.distribution;
    row["t_min_us"] = spread.min_us;
    row["t_max_us"] = spread.max_us;
    row["t_typical_us"] = spread.typical_us;
    row["t_avg_us"] = average;
    row["t_stdev_us"] = spread.stdev_us;
    row["t_p99_us"] = spread.p99_us;
    row["t_p999_us"] = spread.p999_us;
    if (!json_) {
      print_columns(kLatencyColumns);
      std::printf(" %-7zu %-14llu %-14.3f %-13.3f %-18.3f %-14.3f %-15.3f %-22.3f %.3f\n",
                  latency.bytes, static_cast<unsigned long long>(latency.iterations), spread.min_us,
                  spread.max_us, spread.typical_us, average, spread.stdev_us, spread.p99_us,
                  spread.p999_us);
    }
  } else {
    const double per_second = 1e6 / (2 * average);
    row["t_avg_us"] = average;
    row["tps_average"] = per_second;
    if (!json_) {
      print_columns(kDurationColumns);
      std::printf(" %-14zu %-17llu %-14.3f %.2f\n", latency.bytes,
                  static_cast<unsigned long long>(latency.iterations), average, per_second);
    }
  }
  results_.push_back(std::move(row));
  std::fflush(stdout);
}

void Report::add(const Bandwidth& bandwidth) {
  const double average = bandwidth.average_bytes_per_second();
  nlohmann::ordered_json row = new_row(bandwidth.bytes, bandwidth.iterations);
  row["bw_peak_gbytes"] = bandwidth.peak_bytes_per_second * 1e-9;
  row["bw_average_gbytes"] = average * 1e-9;
  row["msg_rate_million"] = bandwidth.messages_per_second() * 1e-6;
  results_.push_back(std::move(row));
  if (json_) return;
  print_columns(kBandwidthColumns);
  std::printf(" %-11zu %-14llu %-19.2f %-21.2f %.6f\n", bandwidth.bytes,
              static_cast<unsigned long long>(bandwidth.iterations),
              bandwidth.peak_bytes_per_second / kMiB, average / kMiB,
              bandwidth.messages_per_second() * 1e-6);
  std::fflush(stdout);
}

void Report::add_ratio(const std::string& name, double ratio) {
  ratios_[name] = ratio;
  if (json_) return;
  std::printf("%s %s: %.3f\n", kRule, name.c_str(), ratio);
}

void Report::add_published(const std::string& what, double value, const std::string& unit,
                           const std::string& source) {
  published_.push_back(
      {{"what", what}, {"value", value}, {"unit", unit}, {"another_machine", source}});
  if (json_) return;
  std::printf(" %-40s %10.2f %s\n", what.c_str(), value, unit.c_str());
}

void Report::finish() {
  if (!json_) {
    std::fputs(kRule, stdout);
    return;
  }
  const Machine machine = this_machine();
  nlohmann::ordered_json object{
      {"bench", header_.bench},
      {"device", header_.device},
      {"transport", header_.transport},
      {"host", {{"cpu", machine.cpu}, {"cores", machine.cores}, {"kernel", machine.kernel}}},
      {"results", results_},
      {"ratios", ratios_}};
  if (!published_.empty()) object["published"] = published_;
  std::cout << object.dump(2) << '\n';
}

}  // namespace leat::bench

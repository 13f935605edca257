#include "transfer/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <limits>
#include <set>

#include "arguments.h"
#include "cli/allowed.h"
#include "machine.h"
#include "measure.h"

namespace leat::bench {
namespace {

using nlohmann::ordered_json;

constexpr const char* kRule =
    "---------------------------------------------------------------------------------------"
    "------------------------\n";
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kGiB = std::size_t{1} << 30;

bool chunked(Carrier carrier) {
  return carrier == Carrier::kHeader || carrier == Carrier::kInPlace || carrier == Carrier::kAuto;
}

// A figure of the complete runs, their median.
template <typename Get>
double median(const TransferRow& row, Get&& get) {
  std::vector<double> values;
  for (const TransferResult& run : row.runs)
    if (run.complete) values.push_back(static_cast<double>(get(run)));
  return values.empty() ? kNone : median_of(std::move(values));
}

double resent(const TransferRow& row) {
  std::vector<double> values;  // also of those that did not get through
  for (const TransferResult& run : row.runs)
    values.push_back(static_cast<double>(run.resent_packets));
  return median_of(std::move(values));
}

ordered_json number(double value) { return std::isfinite(value) ? ordered_json(value) : nullptr; }

ordered_json side(const TransferRow& row, SideUsage TransferResult::*which) {
  return {{"cpu_seconds",
           number(median(row, [&](const auto& run) { return (run.*which).cpu_seconds; }))},
          {"extra_bytes",
           number(median(row, [&](const auto& run) { return (run.*which).first_bytes; }))},
          {"most_extra_bytes",
           number(median(row, [&](const auto& run) { return (run.*which).most_bytes; }))},
          {"connection_bytes",
           number(median(row, [&](const auto& run) { return (run.*which).connection_bytes; }))}};
}

ordered_json json_of(const TransferRow& row) {
  ordered_json errors = ordered_json::array();
  std::uint64_t resumes = 0;
  for (const TransferResult& run : row.runs) {
    if (!run.error.empty()) errors.push_back(run.error);
    resumes += run.resumes;
  }
  return {{"carrier", name_of(row.transfer.carrier)},
          {"bytes", row.transfer.bytes},
          {"chunk_bytes", chunked(row.transfer.carrier) ? ordered_json(row.transfer.chunk_bytes)
                                                        : ordered_json(nullptr)},
          {"runs", row.runs.size()},
          {"complete", row.complete()},
          {"seconds", number(row.seconds())},
          {"goodput_mbytes", number(row.goodput() * 1e-6)},
          {"resent_packets", resent(row)},
          {"resumes", resumes},
          {"sender", side(row, &TransferResult::sender)},
          {"receiver", side(row, &TransferResult::receiver)},
          {"errors", errors}};
}

std::string kib(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f", bytes / 1024);
  return text;
}

}  // namespace

std::size_t TransferRow::complete() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(runs, [](const TransferResult& run) { return run.complete; }));
}
double TransferRow::seconds() const {
  return median(*this, [](const TransferResult& run) { return run.median_seconds(); });
}
double TransferRow::best_seconds() const {
  double best = kNone;
  for (const TransferResult& run : runs)
    if (run.complete) best = std::fmin(best, *std::ranges::min_element(run.seconds));
  return best;
}
double TransferRow::goodput() const { return static_cast<double>(transfer.bytes) / seconds(); }

void TransferReport::begin(const std::vector<std::pair<std::string, std::string>>& lines) const {
  if (json_) return;
  std::printf("%s                    Transfers of one buffer to another process\n", kRule);
  for (const auto& [name, value] : lines) std::printf(" %-15s : %s\n", name.c_str(), value.c_str());
  std::printf(
      "%s #carrier                        bytes   chunk   through  t[sec]    MB/sec    resent   "
      "CPU[sec]       beyond payload[KiB]\n"
      "                                                                             packets  "
      "send    recv   send     recv     most\n",
      kRule);
}

void TransferReport::add(TransferRow row) {
  for (const TransferResult& run : row.runs)
    if (chunked(row.transfer.carrier) && !run.device.empty()) device_ = run.device;
  if (!json_) print(row);
  rows_.push_back(std::move(row));
}

void TransferReport::print(const TransferRow& row) const {
  const ordered_json send = side(row, &TransferResult::sender);
  const ordered_json receive = side(row, &TransferResult::receiver);
  const std::string through =
      std::to_string(row.complete()) + "/" + std::to_string(row.runs.size());
  std::printf(
      " %-31s %-7s %-7s %-8s ", title_of(row.transfer.carrier),
      cli::size_text(row.transfer.bytes).c_str(),
      chunked(row.transfer.carrier) ? cli::size_text(row.transfer.chunk_bytes).c_str() : "-",
      through.c_str());
  if (row.complete() > 0) {
    std::printf("%-9.4g %-9.4g %-8.0f %-7.3g %-6.3g %-8s %-8s %s\n", row.seconds(),
                row.goodput() * 1e-6, resent(row), send["cpu_seconds"].get<double>(),
                receive["cpu_seconds"].get<double>(), kib(send["extra_bytes"]).c_str(),
                kib(receive["extra_bytes"]).c_str(), kib(receive["most_extra_bytes"]).c_str());
  } else {
    std::printf("%-9s %-9s %-8.0f\n", "-", "-", resent(row));
  }
  std::set<std::string> errors;
  for (const TransferResult& run : row.runs)
    if (!run.error.empty() && errors.insert(run.error).second)
      std::printf("   %s\n", run.error.c_str());
  std::fflush(stdout);
}

void TransferReport::add_ratio(const std::string& name, double ratio) {
  ratios_[name] = number(ratio);
  if (!json_ && std::isfinite(ratio)) std::printf(" %s: %.3f\n", name.c_str(), ratio);
}

const TransferRow* TransferReport::row(Carrier carrier, std::size_t bytes,
                                       std::size_t chunk_bytes) const {
  const auto found = std::ranges::find_if(rows_, [&](const TransferRow& one) {
    return one.transfer.carrier == carrier && one.transfer.bytes == bytes &&
           (!chunked(carrier) || one.transfer.chunk_bytes == chunk_bytes);
  });
  return found == rows_.end() ? nullptr : &*found;
}

std::vector<std::size_t> TransferReport::sizes() const {
  std::set<std::size_t> all;
  for (const TransferRow& one : rows_) all.insert(one.transfer.bytes);
  return {all.begin(), all.end()};
}
std::vector<std::size_t> TransferReport::chunks() const {
  std::set<std::size_t> all;
  for (const TransferRow& one : rows_) all.insert(one.transfer.chunk_bytes);
  return {all.begin(), all.end()};
}

void TransferReport::finish(double memcpy_bytes_per_second) {
  const std::size_t bytes = sizes().back();
  const std::size_t chunk_bytes = rows_.front().transfer.chunk_bytes;
  const auto seconds = [&](Carrier carrier) {
    const TransferRow* found = row(carrier, bytes, chunk_bytes);
    return found == nullptr ? kNone : found->seconds();
  };
  const double size = static_cast<double>(bytes);
  if (!json_) std::fputs(kRule, stdout);
  add_ratio("inplace_vs_grpc", seconds(Carrier::kGrpc) / seconds(Carrier::kInPlace));
  add_ratio("inplace_vs_header", seconds(Carrier::kHeader) / seconds(Carrier::kInPlace));
  add_ratio("auto_vs_window1", seconds(Carrier::kInPlace) / seconds(Carrier::kAuto));
  add_ratio("auto_vs_path_rate", size / seconds(Carrier::kAuto) / path_rate_);
  double extra = kNone;
  double most = kNone;
  double at_best = kNone;  // against the best of memcpy
  for (const Carrier carrier : {Carrier::kInPlace, Carrier::kAuto}) {
    const TransferRow* found = row(carrier, bytes, chunk_bytes);
    if (found == nullptr) continue;
    at_best = std::fmin(at_best, found->best_seconds());
    extra = std::fmax(extra, median(*found, [](const TransferResult& run) {
                        return run.sender.first_bytes + run.receiver.first_bytes;
                      }));
    most = std::fmax(most, median(*found, [](const TransferResult& run) {
                       return run.sender.most_bytes + run.receiver.most_bytes;
                     }));
  }
  add_ratio(bytes == kGiB ? "shm_1GiB_vs_memcpy" : "shm_vs_memcpy",
            device_ == "shm" ? size / at_best / memcpy_bytes_per_second : kNone);
  add_ratio("extra_memory_bytes", extra);
  add_ratio("most_extra_memory_bytes", most);
  if (!json_) {
    std::fputs(kRule, stdout);
    return;
  }
  const Machine machine = this_machine();
  ordered_json results = ordered_json::array();
  for (const TransferRow& one : rows_) results.push_back(json_of(one));
  const ordered_json object{
      {"bench", "transfer"},
      {"device", device_},
      {"transport", "chunked against a raw write, tcp and grpc"},
      {"host", {{"cpu", machine.cpu}, {"cores", machine.cores}, {"kernel", machine.kernel}}},
      {"settings", settings_},
      {"results", results},
      {"ratios", ratios_}};
  std::cout << object.dump(2) << '\n';
}

std::size_t TransferReport::failures() const {
  std::size_t count = 0;
  for (const TransferRow& one : rows_)
    if (chunked(one.transfer.carrier)) count += one.runs.size() - one.complete();
  return count;
}

// Lines over the sizes of transfers, or over those of chunks.
Chart TransferReport::chart(const std::string& name, const std::string& title, bool by_size) const {
  Chart chart{Chart::Kind::kLines,
              name,
              title,
              by_size ? "bytes of a transfer" : "bytes of a chunk",
              by_size ? "seconds" : "MB/s",
              {},
              {}};
  const std::vector<std::size_t> places = by_size ? sizes() : chunks();
  for (const std::size_t place : places)
    chart.ticks.emplace_back(cli::size_text(place), static_cast<double>(place));
  for (const Carrier carrier : kCarriers) {
    if (!by_size && !chunked(carrier)) continue;
    Curve curve{title_of(carrier), {}};
    for (const std::size_t place : places) {
      const TransferRow* found = by_size ? row(carrier, place, rows_.front().transfer.chunk_bytes)
                                         : row(carrier, sizes().back(), place);
      const bool known = found != nullptr && found->complete() > 0;
      curve.values.push_back(!known ? kNone : by_size ? found->seconds() : found->goodput() * 1e-6);
    }
    if (std::ranges::any_of(curve.values, [](double value) { return std::isfinite(value); }))
      chart.curves.push_back(std::move(curve));
  }
  return chart;
}

void TransferReport::draw(const Plotter& plotter) const {
  const std::size_t bytes = sizes().back();
  Chart bars{Chart::Kind::kBars,
             "transfer-goodput",
             "A transfer of " + cli::size_text(bytes) + " bytes",
             "carrier",
             "MB/s",
             {},
             {{"goodput", {}}}};
  for (const Carrier carrier : kCarriers) {
    const TransferRow* found = row(carrier, bytes, rows_.front().transfer.chunk_bytes);
    if (found == nullptr) continue;
    bars.ticks.emplace_back(name_of(carrier), 0);
    bars.curves[0].values.push_back(found->complete() > 0 ? found->goodput() * 1e-6 : 0);
  }
  plotter.draw(bars);
  if (sizes().size() > 1) {
    const Chart lines = chart("transfer-sizes", "Time of a transfer", /*by_size=*/true);
    if (!lines.curves.empty()) plotter.draw(lines);
  }
  if (chunks().size() > 1) {
    const Chart lines = chart("transfer-chunks", "Transfers of " + cli::size_text(bytes) + " bytes",
                              /*by_size=*/false);
    if (!lines.curves.empty()) plotter.draw(lines);
  }
}

}  // namespace leat::bench

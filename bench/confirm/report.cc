#include "confirm/report.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <limits>

#include "arguments.h"
#include "cli/allowed.h"
#include "machine.h"
#include "measure.h"

namespace leat::bench {
namespace {

using nlohmann::ordered_json;

constexpr struct {
  const char* name;  // in JSON
  double Figures::*value;
} kFigures[] = {
    {"messages_per_second", &Figures::messages_per_second},
    {"t_p50_us", &Figures::p50_us},
    {"t_p90_us", &Figures::p90_us},
    {"t_p99_us", &Figures::p99_us},
    {"t_p999_us", &Figures::p999_us},
    {"sender_cpu_us", &Figures::sender_cpu_us},
    {"receiver_cpu_us", &Figures::receiver_cpu_us},
    {"sender_sleeps", &Figures::sender_sleeps},
    {"receiver_sleeps", &Figures::receiver_sleeps},
    {"sender_switches", &Figures::sender_switches},
    {"receiver_switches", &Figures::receiver_switches},
    {"stream_sender_cpu_us", &Figures::stream_sender_cpu_us},
    {"stream_receiver_cpu_us", &Figures::stream_receiver_cpu_us},
    {"requests", &Figures::requests},
    {"completions", &Figures::completions},
    {"receives", &Figures::receives},
};

constexpr const char* kRule =
    "------------------------------------------------------------------------------------------"
    "------------------------------------------------------------\n";

double gbytes_per_second(const Figures& figures, std::size_t bytes) {
  return figures.messages_per_second * static_cast<double>(bytes) * 1e-9;
}
double seconds_per_gbyte(double us_per_message, std::size_t bytes) {
  return us_per_message * 1e3 / static_cast<double>(bytes);
}

// What is drawn over the message size, for each transport.
struct Line {
  const char* title = "";
  double (*value)(const Figures&, std::size_t bytes) = nullptr;
};
struct Diagram {
  const char* name;
  const char* title;
  const char* y_label;
  Line lines[2];
};
constexpr Diagram kDiagrams[] = {
    {"throughput", "Throughput", "GB/s", {{"", gbytes_per_second}, {}}},
    {"latency",
     "Latency",
     "us",
     {{", 50 %", [](const Figures& figures, std::size_t) { return figures.p50_us; }},
      {", 99 %", [](const Figures& figures, std::size_t) { return figures.p99_us; }}}},
    {"cpu",
     "Processor time",
     "us per message",
     {{", sender", [](const Figures& figures, std::size_t) { return figures.sender_cpu_us; }},
      {", receiver", [](const Figures& figures, std::size_t) { return figures.receiver_cpu_us; }}}},
};

// None where there is nothing to divide by: JSON has null for it.
double ratio_of(double value, double baseline) {
  return baseline > 0 ? value / baseline : std::numeric_limits<double>::quiet_NaN();
}

void print_row(const std::string& bytes, const std::string& who, const std::string& messages,
               double gbytes, const Figures& figures, double sender_per_gb,
               double receiver_per_gb) {
  std::printf(
      " %-7s %-17s %-9s %9.4g %10.4g %9.4g %9.4g %9.4g %9.4g %9.4g %9.4g %8.4g %8.4g %8.3g %8.3g "
      "%8.3g\n",
      bytes.c_str(), who.c_str(), messages.c_str(), gbytes, figures.messages_per_second,
      figures.p50_us, figures.p90_us, figures.p99_us, figures.p999_us, figures.sender_cpu_us,
      figures.receiver_cpu_us, sender_per_gb, receiver_per_gb, figures.requests,
      figures.completions, figures.receives);
}

}  // namespace

const char* to_string(Pattern pattern) {
  switch (pattern) {
    case Pattern::kOneToOne:
      return "one-to-one";
    case Pattern::kBroadcast:
      return "broadcast";
    case Pattern::kGather:
      return "gather";
  }
  return "?";
}

Figures medians_of(const std::vector<Figures>& rounds) {
  Figures medians;
  for (const auto& [name, value] : kFigures) {
    std::vector<double> values;
    values.reserve(rounds.size());
    for (const Figures& round : rounds) values.push_back(round.*value);
    medians.*value = median_of(std::move(values));
  }
  return medians;
}

void ConfirmReport::begin(Pattern pattern, const std::string& device,
                          const std::vector<std::pair<std::string, std::string>>& lines) {
  pattern_ = pattern;
  device_ = device;
  if (json_) return;
  std::printf("%s                    leat Confirmation Test, %s\n", kRule, to_string(pattern));
  std::printf(" %-15s : %s\n", "Device", device.c_str());
  for (const auto& [name, value] : lines) std::printf(" %-15s : %s\n", name.c_str(), value.c_str());
  std::printf(
      "%s                                    throughput           latency[usec]                   "
      "          CPU/message[usec]   CPU/GB[sec]       per message\n"
      " #bytes  transport         #messages     GB/sec    msg/sec       50%%       90%%       99%% "
      "    "
      "99.9%%    sender  receiver   sender receiver requests complet. receives\n",
      kRule);
}

void ConfirmReport::add(std::size_t bytes, std::uint64_t messages, std::vector<Figures> figures) {
  for (std::size_t i = 0; i < figures.size(); ++i) {
    const double sender_per_gb = seconds_per_gbyte(figures[i].sender_cpu_us, bytes);
    const double receiver_per_gb = seconds_per_gbyte(figures[i].receiver_cpu_us, bytes);
    ordered_json row{{"pattern", to_string(pattern_)}};
    ways_[i].describe(row);
    row["bytes"] = bytes;
    row["messages"] = messages;
    row["gbytes_per_second"] = gbytes_per_second(figures[i], bytes);
    for (const auto& [name, value] : kFigures) row[name] = figures[i].*value;
    row["sender_cpu_s_per_gb"] = sender_per_gb;
    row["receiver_cpu_s_per_gb"] = receiver_per_gb;
    results_.push_back(std::move(row));
    if (!json_)
      print_row(cli::size_text(bytes), ways_[i].name(), std::to_string(messages),
                gbytes_per_second(figures[i], bytes), figures[i], sender_per_gb, receiver_per_gb);
    if (i != 0) {
      Figures ratio;
      for (const auto& [name, value] : kFigures)
        ratio.*value = ratio_of(figures[i].*value, figures[0].*value);
      add_ratios(bytes, ways_[i], ratio);
    }
  }
  if (!json_) {
    for (std::size_t i = 0; i < figures.size(); ++i)
      std::printf(
          "         %-17s per 1000 messages: sender %.3g sleeps, %.3g switches; receiver %.3g, "
          "%.3g\n",
          ways_[i].name().c_str(), figures[i].sender_sleeps, figures[i].sender_switches,
          figures[i].receiver_sleeps, figures[i].receiver_switches);
  }
  rows_.push_back({pattern_, bytes, std::move(figures)});
  std::fflush(stdout);
}

void ConfirmReport::add_ratios(std::size_t bytes, const Way& way, const Figures& ratio) {
  if (!json_)
    print_row("", "  / " + ways_.front().name(), "", ratio.messages_per_second, ratio,
              ratio.sender_cpu_us, ratio.receiver_cpu_us);
  const bool single = pattern_ == Pattern::kOneToOne;
  const bool master_sends = pattern_ == Pattern::kBroadcast;
  const std::string prefix =
      way.prefix() + (single ? std::string() : std::string(to_string(pattern_)) + "_");
  std::string ending = "_" + std::to_string(bytes);
  if (way.threshold) ending += "_at_" + std::to_string(*way.threshold);
  ratios_[prefix + "throughput" + ending] = ratio.messages_per_second;
  ratios_[prefix + "latency" + ending] = ratio.p50_us;
  ratios_[prefix +
          (single         ? "sender_cpu"
           : master_sends ? "master_cpu"
                          : "worker_cpu") +
          ending] = ratio.sender_cpu_us;
  ratios_[prefix +
          (single         ? "receiver_cpu"
           : master_sends ? "worker_cpu"
                          : "master_cpu") +
          ending] = ratio.receiver_cpu_us;
  ratios_[prefix + "completions" + ending] = ratio.completions;
  ratios_[prefix + "receives" + ending] = ratio.receives;
}

void ConfirmReport::add_ratio(const std::string& name, double ratio) {
  ratios_[name] = ratio;
  if (!json_) std::printf(" %s: %.4g\n", name.c_str(), ratio);
}

void ConfirmReport::add(const std::vector<Quiet>& quiet) {
  if (!json_)
    std::printf(
        "%s                    Quiet channels, with the default spinning\n"
        " transport         idle pair[%% of a core]   first message after a pause[usec]\n",
        kRule);
  double ring_us = 0;
  Quiet batched;
  for (const Quiet& one : quiet) {
    quiet_.push_back({{"transport", one.transport},
                      {"idle_cpu", one.idle_cpu},
                      {"first_after_pause_us", one.first_us}});
    if (!json_)
      std::printf(" %-17s %-25.4g %.4g\n", one.transport.c_str(), one.idle_cpu * 100, one.first_us);
    if (one.transport == "ring") ring_us = one.first_us;
    if (one.transport == "batched") batched = one;
  }
  add_ratio("idle_cpu", batched.idle_cpu);
  add_ratio("first_after_pause_vs_ring", ratio_of(batched.first_us, ring_us));
}

void ConfirmReport::finish() const {
  if (!json_) {
    std::fputs(kRule, stdout);
    return;
  }
  const Machine machine = this_machine();
  const ordered_json object{
      {"bench", "confirm"},
      {"device", device_},
      {"transport", "batched against confirm-each"},
      {"host", {{"cpu", machine.cpu}, {"cores", machine.cores}, {"kernel", machine.kernel}}},
      {"settings", settings_},
      {"results", results_},
      {"quiet", quiet_},
      {"ratios", ratios_}};
  std::cout << object.dump(2) << '\n';
}

void ConfirmReport::draw(const Plotter& plotter) const {
  for (const Pattern pattern : {Pattern::kOneToOne, Pattern::kBroadcast, Pattern::kGather}) {
    for (const Diagram& diagram : kDiagrams) {
      Chart chart;
      chart.name = std::string("confirm-") + to_string(pattern) + "-" + diagram.name;
      chart.title = std::string(diagram.title) + ", " + to_string(pattern) + " on " + device_;
      chart.x_label = "message size";
      chart.y_label = diagram.y_label;
      for (const Line& line : diagram.lines)
        for (const Way& way : ways_)
          if (line.value != nullptr) chart.curves.push_back({way.name() + line.title, {}});
      for (const Row& row : rows_) {
        if (row.pattern != pattern) continue;
        chart.ticks.emplace_back(cli::size_text(row.bytes), static_cast<double>(row.bytes));
        for (std::size_t i = 0; i < chart.curves.size(); ++i)
          chart.curves[i].values.push_back(
              diagram.lines[i / ways_.size()].value(row.figures[i % ways_.size()], row.bytes));
      }
      if (!chart.ticks.empty()) plotter.draw(chart);
    }
  }
}

}  // namespace leat::bench

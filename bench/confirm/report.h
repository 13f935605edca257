// What leat-bench confirm found, as a table, one JSON object, and diagrams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "confirm/ways.h"
#include "plots.h"

namespace leat::bench {

enum class Pattern { kOneToOne, kBroadcast, kGather };
const char* to_string(Pattern pattern);

// Of one way at one size: of a round, or the medians of rounds.
struct Figures {
  double messages_per_second = 0;
  double p50_us = 0;
  double p90_us = 0;
  double p99_us = 0;
  double p999_us = 0;
  // Per message: processor time of all senders and of all receivers, waits sleeping at once; the
  // same of the stream that gave the throughput; and what both sides posted and polled in that.
  double sender_cpu_us = 0;
  double receiver_cpu_us = 0;
  // In the stream for processor time, of a thousand messages.
  double sender_sleeps = 0;
  double receiver_sleeps = 0;
  double sender_switches = 0;
  double receiver_switches = 0;
  double stream_sender_cpu_us = 0;
  double stream_receiver_cpu_us = 0;
  double requests = 0;
  double completions = 0;
  double receives = 0;
};
Figures medians_of(const std::vector<Figures>& rounds);

// What a channel costs and takes when little happens, by transport.
struct Quiet {
  std::string transport;
  double idle_cpu = 0;  // of a core, both sides
  double first_us = 0;  // a message after a pause
};

class ConfirmReport {
 public:
  // `settings` goes into the JSON object. The first of the ways is the baseline of the others.
  ConfirmReport(bool json, nlohmann::ordered_json settings, std::vector<Way> ways)
      : json_(json), settings_(std::move(settings)), ways_(std::move(ways)) {}

  // The rows to come are of that pattern; `lines` stand above its table.
  void begin(Pattern pattern, const std::string& device,
             const std::vector<std::pair<std::string, std::string>>& lines);
  // `figures`: of each way.
  void add(std::size_t bytes, std::uint64_t messages, std::vector<Figures> figures);
  void add(const std::vector<Quiet>& quiet);
  void finish() const;
  void draw(const Plotter& plotter) const;

 private:
  struct Row {
    Pattern pattern;
    std::size_t bytes;
    std::vector<Figures> figures;
  };
  void add_ratios(std::size_t bytes, const Way& way, const Figures& ratio);
  void add_ratio(const std::string& name, double ratio);

  const bool json_;
  const nlohmann::ordered_json settings_;
  const std::vector<Way> ways_;
  Pattern pattern_ = Pattern::kOneToOne;
  std::string device_;
  std::vector<Row> rows_;
  nlohmann::ordered_json results_ = nlohmann::ordered_json::array();
  nlohmann::ordered_json quiet_ = nlohmann::ordered_json::array();
  nlohmann::ordered_json ratios_ = nlohmann::ordered_json::object();
};

}  // namespace leat::bench

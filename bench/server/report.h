// What leat-bench server found, as a table or one JSON object.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "server/run.h"

namespace leat::bench {

// One way of serving with so many channels, and the medians of its rounds.
struct ServerRow {
  ServerWay way = ServerWay::kEpoll;
  std::size_t channels = 1;
  std::size_t active = 1;
  bool spins = false;                  // the server
  ServerWay beside = ServerWay::kTcp;  // the TCP that waits alike
  ServerFigures figures;
};

class ServerReport {
 public:
  // `lines` stand above the table; "clients_spin" and what else is in `settings` is in the JSON
  // object.
  ServerReport(bool json, std::vector<std::pair<std::string, std::string>> lines,
               nlohmann::ordered_json settings)
      : json_(json), lines_(std::move(lines)), settings_(std::move(settings)) {}

  // Rows that took turns: those with `channels` channels or TCP connections, and the blocking pair.
  void add(std::size_t channels, const std::vector<ServerRow>& rows);
  void finish() const;

 private:
  void print_header(const ServerFigures& figures);
  void add_row(const ServerRow& row, double vs_tcp, double vs_pair);
  void add_ratios(std::size_t channels, const std::vector<ServerRow>& rows);

  const bool json_;
  const std::vector<std::pair<std::string, std::string>> lines_;
  const nlohmann::ordered_json settings_;
  std::string device_;
  std::string transport_;
  nlohmann::ordered_json results_ = nlohmann::ordered_json::array();
  nlohmann::ordered_json ratios_ = nlohmann::ordered_json::object();
};

}  // namespace leat::bench

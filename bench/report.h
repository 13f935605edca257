// Results as a table with perftest's columns, or as one JSON object.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "measure.h"

namespace leat::bench {

// What stands above the table, and in the JSON object beside the results.
struct ReportHeader {
  std::string bench;      // "pingpong"
  std::string title;      // "Send Latency Test"
  std::string device;     // "shm"
  std::string transport;  // "ring"
  // Further lines of the block; not in the JSON object.
  std::vector<std::pair<std::string, std::string>> lines;
};

// Prints the header at the first row, each row as it is added, and JSON at finish().
class Report {
 public:
  Report(ReportHeader header, bool json);

  // The rows to come belong to this part: "limit" in the JSON rows, a caption above the table.
  void begin_part(const std::string& limit, const std::string& caption);
  void add(const Latency& latency);
  void add(const Bandwidth& bandwidth);
  // A figure of this run through another of it.
  void add_ratio(const std::string& name, double ratio);
  // What somebody published of their system, on their machine; `source` says where.
  void add_published(const std::string& what, double value, const std::string& unit,
                     const std::string& source);
  void finish();

 private:
  void print_header();
  void print_columns(const char* columns);
  nlohmann::ordered_json new_row(std::size_t bytes, std::uint64_t iterations) const;

  ReportHeader header_;
  bool json_;
  bool header_printed_ = false;
  std::string columns_;
  std::string limit_;
  nlohmann::ordered_json results_ = nlohmann::ordered_json::array();
  nlohmann::ordered_json published_ = nlohmann::ordered_json::array();
  nlohmann::ordered_json ratios_ = nlohmann::ordered_json::object();
};

}  // namespace leat::bench

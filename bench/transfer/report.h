// What leat-bench transfer found, as a table, one JSON object, and diagrams.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plots.h"
#include "transfer/run.h"

namespace leat::bench {

// All runs of one carrier with one size of transfer and of chunks.
struct TransferRow {
  TransferCase transfer;
  std::vector<TransferResult> runs;

  std::size_t complete() const;
  // Of the complete runs the median, and the best transfer; not a number if there is none.
  double seconds() const;
  double best_seconds() const;
  double goodput() const;  // bytes a second
};

class TransferReport {
 public:
  TransferReport(bool json, nlohmann::ordered_json settings, double path_bytes_per_second)
      : json_(json), settings_(std::move(settings)), path_rate_(path_bytes_per_second) {}

  // Lines above the table.
  void begin(const std::vector<std::pair<std::string, std::string>>& lines) const;
  void add(TransferRow row);
  // Ratios of the largest transfers, with the first size of chunks.
  void finish(double memcpy_bytes_per_second);
  void draw(const Plotter& plotter) const;
  // Of transport chunked, the runs that did not complete.
  std::size_t failures() const;

 private:
  void print(const TransferRow& row) const;
  void add_ratio(const std::string& name, double ratio);
  const TransferRow* row(Carrier carrier, std::size_t bytes, std::size_t chunk_bytes) const;
  std::vector<std::size_t> sizes() const;
  std::vector<std::size_t> chunks() const;
  Chart chart(const std::string& name, const std::string& title, bool by_size) const;

  const bool json_;
  const nlohmann::ordered_json settings_;
  const double path_rate_;
  std::string device_;
  std::vector<TransferRow> rows_;
  nlohmann::ordered_json ratios_ = nlohmann::ordered_json::object();
};

}  // namespace leat::bench

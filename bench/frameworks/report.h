// What leat-bench frameworks found, as a table or one JSON object.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace leat::bench {

// What carries the protocols.
enum class FrameworkWay { kTcp, kStream, kAware };
inline constexpr std::array<const char*, 3> kFrameworkWays = {"tcp", "stream", "aware"};

struct FrameworkRow {
  std::string protocol;  // "iknp", or "together"
  std::string what;      // "OTs"
  std::uint64_t count = 0;
  std::string device;
  std::string transport;
  // Of each way, in the order of kFrameworkWays: the times of the rounds.
  std::array<std::vector<double>, kFrameworkWays.size()> milliseconds;
};

class FrameworkReport {
 public:
  FrameworkReport(bool json, std::vector<std::pair<std::string, std::string>> lines)
      : json_(json), lines_(std::move(lines)) {}

  void add(const FrameworkRow& row);
  void finish() const;

 private:
  void print_header() const;

  const bool json_;
  const std::vector<std::pair<std::string, std::string>> lines_;
  std::string device_;
  std::string transport_;
  nlohmann::ordered_json results_ = nlohmann::ordered_json::array();
  nlohmann::ordered_json ratios_ = nlohmann::ordered_json::object();
};

}  // namespace leat::bench

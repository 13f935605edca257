// The systems that leat-bench trusted measures, one source file each.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace leat::bench {

struct TrustedArguments {
  std::string system = "a2m";
  std::string kernel = "in-process";
  std::uint64_t entries = 2'000'000;
  std::string folder;          // empty: in memory
  unsigned batch = 0;          // commands in an attested record; 0: 1, 8 and 16 one after the other
  std::size_t request = 2048;  // commands under one signature of a client
  std::uint64_t commands = 400'000;
  bool json = false;

  bool isolated() const { return kernel == "isolated"; }
  // Whether a system of TNIC's paper has its keys where this run has them: SSL-lib in the process,
  // all others apart from it.
  bool is_like(std::string_view published) const { return isolated() != (published == "SSL-lib"); }
  // What holds the keys of this run.
  std::string_view home() const { return isolated() ? "a leat-attestd each" : "each process"; }
};

// Adds to a row what the paper has for the same system, and prints it if people read. It stands
// beside ours for orientation: other hardware on other machines, so no ratio is drawn.
void add_published(nlohmann::ordered_json& row, std::string_view system, double thousand_per_s,
                   std::string_view figure, const TrustedArguments& arguments);

// What a system reports: rows of its own, and figures by stable names.
struct TrustedResult {
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  nlohmann::ordered_json ratios = nlohmann::ordered_json::object();
};

TrustedResult measure_a2m(const TrustedArguments& arguments);
TrustedResult measure_replicated(const TrustedArguments& arguments);
TrustedResult measure_peer_review(const TrustedArguments& arguments);

}  // namespace leat::bench

// Short runs of leat-bench, and what their JSON must have.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "support/program.h"

namespace leat::detail {

using Words = std::vector<std::string>;

inline ProgramResult bench(const Words& arguments) {
  return run_program("bench/leat-bench", arguments);
}

// A short run with few iterations.
inline nlohmann::json json_of(Words arguments) {
  arguments.emplace_back("--json");
  const ProgramResult result = bench(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return nlohmann::json::parse(result.out, nullptr, false);
}

inline nlohmann::json bench_json(Words arguments) {
  for (const char* word : {"-n", "50", "--warmup", "5"}) arguments.emplace_back(word);
  return json_of(std::move(arguments));
}

inline void expect_frame(const nlohmann::json& object, const std::string& name, std::size_t rows) {
  ASSERT_TRUE(object.is_object());
  EXPECT_EQ(object.at("bench"), name);
  EXPECT_NE(object.at("device"), "");
  EXPECT_NE(object.at("transport"), "");
  EXPECT_NE(object.at("host").at("cpu"), "");
  EXPECT_GT(object.at("host").at("cores"), 0);
  EXPECT_NE(object.at("host").at("kernel"), "");
  EXPECT_EQ(object.at("results").size(), rows);
  EXPECT_TRUE(object.at("ratios").is_object());
}

inline void expect_latency(const nlohmann::json& row, std::size_t bytes) {
  EXPECT_EQ(row.at("bytes"), bytes);
  EXPECT_EQ(row.at("iterations"), 50);
  EXPECT_GT(row.at("t_avg_us"), 0);
  EXPECT_GE(row.at("t_stdev_us"), 0);
  EXPECT_GT(row.at("t_min_us"), 0);
  EXPECT_LE(row.at("t_min_us"), row.at("t_typical_us"));
  EXPECT_LE(row.at("t_typical_us"), row.at("t_p99_us"));
  EXPECT_LE(row.at("t_p99_us"), row.at("t_p999_us"));
  EXPECT_LE(row.at("t_p999_us"), row.at("t_max_us"));
}

inline void expect_bandwidth(const nlohmann::json& row, std::size_t bytes) {
  EXPECT_EQ(row.at("bytes"), bytes);
  EXPECT_EQ(row.at("iterations"), 50);
  EXPECT_GT(row.at("bw_average_gbytes"), 0);
  EXPECT_GT(row.at("bw_peak_gbytes"), 0);
  EXPECT_GT(row.at("msg_rate_million"), 0);
}

// Where the ratios that users and docs refer to must stand.
inline void expect_ratio(const nlohmann::json& object, const std::string& name) {
  ASSERT_TRUE(object.at("ratios").contains(name)) << name << " in " << object.at("ratios");
  EXPECT_TRUE(object.at("ratios").at(name).is_number()) << name;
  EXPECT_GE(object.at("ratios").at(name), 0) << name;
}

}  // namespace leat::detail

// leat-bench frameworks, run as a user would: short runs, whose figures are not judged.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tools/bench_runs.h"

namespace leat::detail {
namespace {

using nlohmann::json;

TEST(LeatBenchFrameworks, HasEveryProtocolOverEveryWay) {
  const json object =
      json_of({"frameworks", "-n", "131072", "-r", "1", "-d", "shm", "--transport", "ring"});
  expect_frame(object, "frameworks", 5 * 3);
  EXPECT_EQ(object.at("device"), "shm");
  EXPECT_EQ(object.at("transport"), "ring");
  std::size_t number = 0;
  for (const std::string protocol : {"iknp", "ferret", "triples", "gates", "together"}) {
    for (const std::string way : {"tcp", "stream", "aware"}) {
      const json& row = object.at("results")[number++];
      EXPECT_EQ(row.at("protocol"), protocol);
      EXPECT_EQ(row.at("way"), way);
      EXPECT_GT(row.at("t_typical_ms"), 0) << row;
      if (way != "tcp") {
        EXPECT_GT(object.at("ratios").at("frameworks_" + protocol + "_tcp_vs_" + way), 0);
      }
    }
  }
}

}  // namespace
}  // namespace leat::detail

// leat-bench confirm and resnet152, run as a user would: short runs, whose figures are not judged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "support/devices.h"
#include "support/program.h"
#include "support/scratch.h"
#include "tools/bench_runs.h"

namespace leat::detail {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class LeatBenchConfirmOnDevice : public testing::TestWithParam<std::string> {};

TEST_P(LeatBenchConfirmOnDevice, ConfirmHasEveryFigureAndEveryRatio) {
  const ProgramResult result = bench({"confirm", "--quick", "--pattern", "all", "--workers", "2",
                                      "-s", "64,64K", "-d", GetParam(), "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json object = json::parse(result.out, nullptr, false);
  expect_frame(object, "confirm", 3 * 2 * 3);
  EXPECT_EQ(object.at("device"), GetParam());
  std::size_t number = 0;
  for (const char* pattern : {"one-to-one", "broadcast", "gather"}) {
    for (const std::size_t bytes : {64, 65536}) {
      for (const char* way : {"confirm-each", "batched", "unbundled"}) {
        const json& row = object.at("results")[number++];
        EXPECT_EQ(row.at("pattern"), pattern);
        if (way == std::string("confirm-each")) {
          EXPECT_EQ(row.at("transport"), way);
          EXPECT_FALSE(row.contains("bundles"));
        } else {
          EXPECT_EQ(row.at("transport"), "batched");
          EXPECT_EQ(row.at("bundles"), way == std::string("batched"));
        }
        EXPECT_EQ(row.at("bytes"), bytes);
        for (const char* figure : {"messages", "messages_per_second", "gbytes_per_second",
                                   "t_p50_us", "requests", "sender_cpu_us", "receiver_cpu_us"})
          EXPECT_GT(row.at(figure), 0) << figure << row;
        EXPECT_LE(row.at("t_p50_us"), row.at("t_p90_us"));
        EXPECT_LE(row.at("t_p90_us"), row.at("t_p99_us"));
        EXPECT_LE(row.at("t_p99_us"), row.at("t_p999_us"));
        EXPECT_GE(row.at("completions"), 0);
        EXPECT_GE(row.at("receives"), 0);
      }
      // A slot given back for each message and its announcement: that is the baseline.
      EXPECT_GT(object.at("results")[number - 3].at("completions"), 1);
    }
  }
  for (const std::string bundles : {"", "unbundled_"}) {
    for (const char* bytes : {"64", "65536"}) {
      for (const char* name :
           {"throughput_", "latency_", "sender_cpu_", "receiver_cpu_", "completions_", "receives_"})
        expect_ratio(object, bundles + name + bytes);
      for (const char* pattern : {"broadcast_", "gather_"})
        for (const char* name :
             {"throughput_", "latency_", "master_cpu_", "worker_cpu_", "completions_", "receives_"})
          expect_ratio(object, bundles + pattern + name + bytes);
    }
  }
  EXPECT_EQ(object.at("quiet").size(), 3U);
  expect_ratio(object, "idle_cpu");
  expect_ratio(object, "first_after_pause_vs_ring");
}

TEST_P(LeatBenchConfirmOnDevice, ConfirmSweepsThresholds) {
  const ProgramResult result = bench({"confirm", "--quick", "--thresholds", "0,50,100", "-s",
                                      "64,512", "-d", GetParam(), "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json object = json::parse(result.out, nullptr, false);
  expect_frame(object, "confirm", 2 * (1 + 3 * 2));
  EXPECT_EQ(object.at("settings").at("thresholds"), json({0, 50, 100}));
  std::size_t number = 0;
  for (const char* bytes : {"64", "512"}) {
    EXPECT_FALSE(object.at("results")[number++].contains("threshold"));
    for (const unsigned threshold : {0U, 50U, 100U}) {
      for (const bool bundles : {true, false}) {
        const json& row = object.at("results")[number++];
        EXPECT_EQ(row.at("threshold"), threshold);
        EXPECT_EQ(row.at("bundles"), bundles);
        for (const char* name : {"throughput_", "latency_", "sender_cpu_", "receiver_cpu_"})
          expect_ratio(object, std::string(bundles ? "" : "unbundled_") + name + bytes + "_at_" +
                                   std::to_string(threshold));
      }
    }
  }
}

TEST_P(LeatBenchConfirmOnDevice, Resnet152MovesEveryTensorOverEveryTransport) {
  const ProgramResult result =
      bench({"resnet152", "--quick", "--workers", "1", "-d", GetParam(), "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json object = json::parse(result.out, nullptr, false);
  expect_frame(object, "resnet152", 2 * 4);
  EXPECT_EQ(object.at("device"), GetParam());
  for (const json& row : object.at("results")) EXPECT_GT(row.at("fct_ms"), 0) << row;
  EXPECT_EQ(object.at("results")[0].at("bytes"), 4U * 60'236'904);
  EXPECT_EQ(object.at("results")[4].at("bytes"), 2 * 4U * 60'236'904);
  for (const char* bundles : {"", "unbundled_"})
    for (const char* pattern : {"", "parameter_server_"})
      for (const char* baseline : {"", "_vs_tcp"})
        expect_ratio(object, std::string(bundles) + pattern + "fct_resnet152" + baseline);
}

INSTANTIATE_TEST_SUITE_P(Devices, LeatBenchConfirmOnDevice, testing::ValuesIn(test_devices()),
                         [](const auto& device) { return device_label(device.param); });

TEST(LeatBenchConfirm, Resnet152ListsItsTensors) {
  const ProgramResult result = bench({"resnet152", "--list", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json object = json::parse(result.out, nullptr, false);
  EXPECT_EQ(object.at("model").at("parameters"), 60'236'904);
  EXPECT_EQ(object.at("blocks").size(), 514U);
  EXPECT_EQ(object.at("blocks")[0].at("shape"), json({64, 3, 7, 7}));
  const std::string text = bench({"resnet152", "--list"}).out;
  EXPECT_THAT(text, HasSubstr(" fc.weight "));
  EXPECT_THAT(text, HasSubstr("514 blocks, 60236904 parameters"));
}

TEST(LeatBenchConfirm, ConfirmPrintsAllWaysAndTheirRatios) {
  const ProgramResult result = bench({"confirm", "--quick", "-s", "64"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* text :
       {"one-to-one", "\n 64      confirm-each ", "\n 64      batched ", "\n 64      unbundled ",
        " / confirm-each ", "idle_cpu: ", "first_after_pause_vs_ring: "})
    EXPECT_THAT(result.out, HasSubstr(text));
}

TEST(LeatBenchConfirm, Resnet152DrawsItsBlocksAndBothFlows) {
  const ScratchFolder folder;
  const ProgramResult result =
      bench({"resnet152", "--quick", "--workers", "1", "--plots", folder.path()});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* name : {"blocks", "one-to-one", "parameter-server"})
    EXPECT_THAT(read_file(folder.path() + "/resnet152-" + name + ".svg"), HasSubstr("</svg>"));
  EXPECT_THAT(result.out, HasSubstr(" parameter_server_fct_resnet152_vs_tcp: "));
}

}  // namespace
}  // namespace leat::detail

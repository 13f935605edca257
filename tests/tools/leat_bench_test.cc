// leat-bench, run as a user would: short runs, whose figures are not judged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "support/program.h"
#include "support/scratch.h"
#include "tools/bench_runs.h"

namespace leat::detail {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

TEST(LeatBench, PingPongJsonHasEveryField) {
  const json object = bench_json({"pingpong", "-d", "shm", "--transport", "ring", "-s", "8,4K"});
  expect_frame(object, "pingpong", 2);
  EXPECT_EQ(object.at("device"), "shm");
  EXPECT_EQ(object.at("transport"), "ring");
  expect_latency(object.at("results")[0], 8);
  expect_latency(object.at("results")[1], 4096);
}

TEST(LeatBench, CrowdedHasEveryPlaceBesideTcp) {
  const json object = json_of(
      {"pingpong", "--crowded", "-d", "shm", "--transport", "ring", "-s", "8,1K", "-n", "20"});
  const bool two_cores = std::thread::hardware_concurrency() >= 2;
  expect_frame(object, "pingpong-crowded", two_cores ? 2 * 9 : 2 * 2);
  EXPECT_EQ(object.at("device"), "shm");
  EXPECT_EQ(object.at("transport"), "ring");
  for (const json& row : object.at("results")) {
    EXPECT_EQ(row.at("iterations"), 9 * 20);
    for (const char* figure : {"tcp_us", "leat_us", "tcp_first_us", "leat_first_us"})
      EXPECT_GT(row.at(figure), 0) << figure << row;
    const std::string name =
        row.at("place").get<std::string>() + "_" + std::to_string(row.at("bytes").get<int>()) + "B";
    for (const char* which : {"", "_median", "_first"})
      EXPECT_GT(object.at("ratios").at(name + which), 0) << name << which;
  }
  EXPECT_TRUE(object.at("ratios").contains("unpinned_busy_8B"));
  if (two_cores) {
    EXPECT_TRUE(object.at("ratios").contains("three_parties_8B"));
    EXPECT_EQ(object.at("results").back().at("parties"), 4);
  }
}

TEST(LeatBench, CrowdedIsForOneMachineAndCountsTheFirstMessage) {
  for (const Words& other : {Words{"--listen"}, Words{"--connect", "127.0.0.1"}, Words{"-D", "1"},
                             Words{"--warmup", "1"}, Words{"--verify"}, Words{"--in-place"}}) {
    Words words{"pingpong", "--crowded"};
    words.insert(words.end(), other.begin(), other.end());
    const ProgramResult result = bench(words);
    EXPECT_EQ(result.exit_code, 2) << other.front();
    EXPECT_THAT(result.err, AllOf(HasSubstr("--crowded"), HasSubstr("excludes"))) << result.err;
  }
  // A ring whose messages are too large for all to send at once is left out.
  const ProgramResult text = bench({"pingpong", "--crowded", "-n", "5", "-s", "2,64K"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr(" not pinned, two busy loops "), HasSubstr("leat/tcp")));
}

TEST(LeatBench, StreamJsonHasEveryField) {
  const json object = bench_json({"stream", "-d", "tcp", "-s", "64K"});
  expect_frame(object, "stream", 1);
  EXPECT_EQ(object.at("transport"), "tcp");
  expect_bandwidth(object.at("results")[0], 65536);
}

TEST(LeatBench, ReceiversThatReadStandBesideEachOther) {
  for (const char* name : {"stream", "tcp-stream"}) {
    const json object = bench_json({name, "-s", "9,64K", "--read"});
    expect_frame(object, name, 2);
    expect_bandwidth(object.at("results")[1], 65536);
    const ProgramResult text = bench({name, "-n", "5", "--read"});
    EXPECT_THAT(text.out, HasSubstr("every byte read")) << text.err;
  }
  EXPECT_EQ(bench({"tcp-pingpong", "--read"}).exit_code, 2);
}

TEST(LeatBench, ScmlMovesEveryMessageOverEveryCarrier) {
  // The last has a party that sends nothing.
  constexpr std::array<const char*, 3> kRuns[] = {{"2", "piranha", "layer"},
                                                  {"3", "piranha", "round"},
                                                  {"3", "secureml-aby3", "layer"},
                                                  {"4", "best", "round"}};
  for (const auto& [parties, profile, freed] : kRuns) {
    const ProgramResult result = bench({"scml", "--model", "secureml", "--batch", "4", "--pass",
                                        "train", "--parties", parties, "--free", freed, "--profile",
                                        profile, "-r", "1", "-n", "2", "--verify", "--json"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const json object = json::parse(result.out, nullptr, false);
    EXPECT_EQ(object.at("bench"), "scml");
    ASSERT_EQ(object.at("results").size(), 1U);
    const json& row = object.at("results")[0];
    EXPECT_EQ(row.at("model"), "secureml");
    EXPECT_EQ(std::to_string(row.at("parties").get<unsigned>()), parties);
    EXPECT_EQ(row.at("profile"), profile);
    EXPECT_EQ(row.at("free"), freed);
    for (const char* carrier : {"tcp", "unified", "contexts", "planned"})
      EXPECT_GT(row.at(std::string(carrier) + "_ms"), 0) << carrier;
    for (const char* carrier : {"tcp", "unified", "contexts"})
      EXPECT_GT(object.at("ratios").at(std::string("planned_vs_") + carrier + "_secureml"), 0);
  }
  const ProgramResult unknown = bench({"scml", "--model", "nosuch"});
  EXPECT_NE(unknown.exit_code, 0);
  EXPECT_THAT(unknown.err, HasSubstr("there is no model 'nosuch'"));
}

TEST(LeatBench, PlotsAreDrawnByGnuplot) {
  const ScratchFolder folder;
  const std::string plots = folder.path() + "/it's here/plots";
  const ProgramResult result = bench({"confirm", "--quick", "-s", "64,1K", "--plots", plots});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* what : {"throughput", "latency", "cpu"}) {
    const std::string image =
        read_file(plots + "/confirm-one-to-one-" + std::string(what) + ".svg");
    EXPECT_THAT(image, HasSubstr("<svg")) << what;
    EXPECT_THAT(image, HasSubstr("</svg>")) << what;
    EXPECT_THAT(image, HasSubstr("confirm-each")) << what;
    EXPECT_THAT(image, HasSubstr("batched")) << what;
    EXPECT_THAT(image, HasSubstr("unbundled")) << what;
    EXPECT_THAT(image, HasSubstr("1K")) << what;
  }
}

TEST(LeatBench, PlotsWithoutGnuplotAreRefusedBeforeAnythingIsMeasured) {
  const ScratchFolder folder;
  ProgramResult missing;
  {
    const ScratchVariable path("PATH", folder.path());
    missing = bench({"confirm", "--quick", "--plots", folder.path()});
  }
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_EQ(missing.out, "");
  EXPECT_THAT(missing.err, HasSubstr("apt-get install gnuplot-nox"));
  const ProgramResult no_folder = bench({"resnet152", "--quick", "--plots", "/proc/nosuch"});
  EXPECT_EQ(no_folder.exit_code, 1);
  EXPECT_EQ(no_folder.out, "");
  EXPECT_THAT(no_folder.err, HasSubstr("cannot write to the folder '/proc/nosuch'"));
}

TEST(LeatBench, PlainTcpHasTheSameShape) {
  const json latency = bench_json({"tcp-pingpong", "-s", "64,1K"});
  expect_frame(latency, "tcp-pingpong", 2);
  expect_frame(bench_json({"tcp-pingpong", "-s", "64", "--spin"}), "tcp-pingpong", 1);
  expect_latency(latency.at("results")[1], 1024);
  const json bandwidth = bench_json({"tcp-stream", "-s", "64"});
  expect_frame(bandwidth, "tcp-stream", 1);
  expect_bandwidth(bandwidth.at("results")[0], 64);
}

TEST(LeatBench, LimitsAreACacheLineAndMemcpy) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "needs two cores";
  const json object = bench_json({"limits", "-s", "1K,1M", "--window", "4M"});
  expect_frame(object, "limits", 3);
  EXPECT_EQ(object.at("results")[0].at("limit"), "cacheline");
  expect_latency(object.at("results")[0], 8);
  EXPECT_EQ(object.at("results")[2].at("limit"), "memcpy");
  expect_bandwidth(object.at("results")[2], 1 << 20);
}

TEST(LeatBench, PlannedIsSetAgainstTheBareWrite) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "needs two cores";
  const json object = bench_json({"planned"});
  expect_frame(object, "planned", 2);
  EXPECT_EQ(object.at("results")[0].at("limit"), "write_imm");
  EXPECT_EQ(object.at("results")[1].at("limit"), "planned");
  EXPECT_GT(object.at("ratios").at("planned_vs_write_imm_64B"), 0);
}

class LeatBenchVerify : public testing::TestWithParam<const char*> {};

TEST_P(LeatBenchVerify, ChecksEveryByteOfAllSizes) {
  for (const char* name : {"pingpong", "stream"}) {
    for (const bool in_place : {false, true}) {
      Words words{name, "-d", GetParam(), "--verify", "-s", "1,7,8,63,64,65,1000,70001", "--json"};
      if (in_place) words.emplace_back("--in-place");
      words.insert(words.end(), {"-n", "300", "--warmup", "3"});
      const ProgramResult result = bench(words);
      EXPECT_EQ(result.exit_code, 0) << name << in_place << result.err;
      EXPECT_EQ(json::parse(result.out).at("results").size(), 8);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, LeatBenchVerify, testing::Values("shm", "tcp"),
                         [](const auto& device) { return std::string(device.param); });

TEST(LeatBench, AllSizesAreThoseOfPerftest) {
  const ProgramResult result =
      bench({"stream", "-a", "-n", "2", "--warmup", "1", "--verify", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json rows = json::parse(result.out).at("results");
  ASSERT_EQ(rows.size(), 23);
  for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i].at("bytes"), 2ULL << i);
}

TEST(LeatBench, DurationGivesTheMean) {
  const json object = json::parse(bench({"pingpong", "-D", "0.05", "--json"}).out);
  const json& row = object.at("results")[0];
  EXPECT_GT(row.at("iterations"), 0);
  EXPECT_GT(row.at("t_avg_us"), 0);
  EXPECT_GT(row.at("tps_average"), 0);
  EXPECT_FALSE(row.contains("t_p99_us"));
}

TEST(LeatBench, TablesHaveTheColumnsOfPerftest) {
  const std::string latency = bench({"pingpong", "-n", "10", "--warmup", "0"}).out;
  EXPECT_THAT(latency, HasSubstr(" #bytes #iterations    t_min[usec]    t_max[usec]  "
                                 "t_typical[usec]    t_avg[usec]    t_stdev[usec]   "
                                 "99% percentile[usec]   99.9% percentile[usec]"));
  EXPECT_THAT(latency, HasSubstr("\n 2       10 "));
  const std::string bandwidth = bench({"stream", "-n", "10", "--warmup", "0"}).out;
  EXPECT_THAT(bandwidth, HasSubstr(" #bytes     #iterations    BW peak[MiB/sec]    "
                                   "BW average[MiB/sec]   MsgRate[Mpps]"));
  EXPECT_THAT(bandwidth, HasSubstr("\n 65536       10 "));
}

TEST(LeatBench, ListenAndConnectMeasureBetweenTwoPrograms) {
  for (const char* name : {"pingpong", "stream"}) {
    Program listener("bench/leat-bench", {name, "--listen", "-p", "0"});
    const std::string port = listener.wait_for("--connect THIS_HOST:");
    ASSERT_NE(port, "");
    const json object = bench_json({name, "--connect", "127.0.0.1:" + port, "--verify"});
    expect_frame(object, name, 1);
    EXPECT_EQ(listener.wait().exit_code, 0);
  }
}

TEST(LeatBench, SidesWithDifferentSubcommandsAreTold) {
  Program listener("bench/leat-bench", {"stream", "--listen", "-p", "0"});
  const std::string port = listener.wait_for("--connect THIS_HOST:");
  EXPECT_EQ(bench({"pingpong", "--connect", "127.0.0.1:" + port}).exit_code, 1);
  const ProgramResult result = listener.wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("the other side runs 'pingpong', this one 'stream'"));
}

TEST(LeatBench, WrongArgumentsExitWithTwoAndTeach) {
  const struct {
    Words words;
    const char* hint;
  } cases[] = {
      {{}, "--help"},
      {{"nosuch"}, "--help"},
      {{"pingpong", "-s", "12x"}, "such as 64, 4K or 1M"},
      {{"pingpong", "-s", "0"}, "at least 1"},
      {{"pingpong", "-s", "99999999999999999999"}, "is no message size"},
      {{"pingpong", "-n", "0"}, "not in range 1 to 4294967296"},
      {{"stream", "--spin-us", "soon"}, "inf (never)"},
      {{"stream", "-a", "-s", "8"}, "excludes"},
      {{"pingpong", "--cpus", "x"}, "not in range 0 to 65535"},
      {{"pingpong", "--warmup", "-1"}, "not in range 0 to 4294967296"},
      {{"pingpong", "-p", "99999"}, "not in range 0 to 65535"},
      {{"limits", "--window", "-1"}, "'-1' is not an allowed size. Give bytes, at least 1;"},
      {{"limits", "--window", "1X"}, "K, M, G and T stand for powers of 1024"},
      {{"attest", "--kernel", "x"}, "'x' is not allowed. Allowed: in-process or isolated."},
      {{"scml", "--pass", "x"}, "'x' is not allowed. Allowed: infer or train."},
      {{"scml", "--profile", "x"}, "Allowed: piranha, secureml-aby3 or best."},
      {{"scml", "-n", "-1"}, "not in range"},
      {{"trusted", "--system", "x"}, "Allowed: a2m, counter, chain or peer-review."},
      {{"transfer", "--carriers", "raw,x"},
       "'x' is not allowed. Allowed: auto, grpc, header, inplace, raw or tcp."},
      {{"transfer", "--chunk-bytes", "1K"}, "Give bytes, 4K to 1G;"},
      {{"confirm", "--pattern", "scatter"},
       "'scatter' is not allowed. Allowed: one-to-one, broadcast, gather or all."},
      {{"confirm", "--slot-count", "0"}, "Value 0 not in range 16 to 1024"},
      {{"confirm", "--slot-bytes", "32M"}, "Give bytes, 64 to 16M;"},
      {{"confirm", "-s", "64,7"}, "at least 8"},
      {{"confirm", "--workers", "0"}, "not in range"},
      {{"confirm", "--seconds", "0"}, "not in range"},
      {{"confirm", "--thresholds", "40,101"}, "Value 101 not in range 0 to 100"},
      {{"confirm", "--thresholds", "40%"}, "--thresholds"},
      {{"confirm", "-r", "0"}, "not in range"},
      {{"resnet152", "-n", "0"}, "not in range"},
      {{"resnet152", "--workers", "17"}, "not in range"},
      {{"transfer", "--listen", ":0", "--connect", "127.0.0.1:7"}, "excludes"},
      {{"server", "--channels", "0"}, "not in range"},
      {{"server", "--channels", "1,many"}, "not in range"},
      {{"server", "--active", "0"}, "'0' is not a number of channels. Give 1 or more, or all."},
      {{"server", "--active", "some"}, "Give 1 or more, or all."},
      {{"server", "--wait", "epoll,select"},
       "'select' is not allowed. Allowed: epoll, poller, wait_any, blocking or poll."},
      {{"server", "-s", "64K"}, "Give bytes, 1 to 32K;"},
      {{"server", "--clients", "0"}, "not in range"},
      {{"server", "-r", "0"}, "not in range"},
      {{"server", "--spin-us", "soon"}, "inf (never)"},
  };
  for (const auto& wrong : cases) {
    const ProgramResult result = bench(wrong.words);
    EXPECT_EQ(result.exit_code, 2) << testing::PrintToString(wrong.words);
    EXPECT_THAT(result.err, HasSubstr(wrong.hint));
  }
}

TEST(LeatBench, WhatCannotRunExitsWithOneAndSaysWhy) {
  const ProgramResult device = bench({"pingpong", "-d", "ib:nosuch9"});
  EXPECT_EQ(device.exit_code, 1);
  EXPECT_THAT(device.err, HasSubstr("nosuch9"));
  const ProgramResult tcp = bench({"confirm", "-d", "tcp"});
  EXPECT_EQ(tcp.exit_code, 1);
  EXPECT_THAT(tcp.err, HasSubstr("cannot run on device"));
  const ProgramResult core = bench({"pingpong", "--cpus", "1000"});
  EXPECT_EQ(core.exit_code, 1);
  EXPECT_THAT(core.err, HasSubstr("cannot run on core 1000"));
}

}  // namespace
}  // namespace leat::detail

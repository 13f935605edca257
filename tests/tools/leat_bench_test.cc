// leat-bench, run as a user would: short runs, whose figures are not judged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "support/devices.h"
#include "support/program.h"
#include "support/scale.h"
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

// Where the ratios that users and docs refer to must stand.
void expect_ratio(const json& object, const std::string& name) {
  ASSERT_TRUE(object.at("ratios").contains(name)) << name << " in " << object.at("ratios");
  EXPECT_TRUE(object.at("ratios").at(name).is_number()) << name;
  EXPECT_GE(object.at("ratios").at(name), 0) << name;
}

class LeatBenchOnDevice : public testing::TestWithParam<std::string> {};

TEST_P(LeatBenchOnDevice, ConfirmHasEveryFigureAndEveryRatio) {
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

TEST_P(LeatBenchOnDevice, ConfirmSweepsThresholds) {
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

TEST_P(LeatBenchOnDevice, Resnet152MovesEveryTensorOverEveryTransport) {
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

TEST_P(LeatBenchOnDevice, TransferMovesABufferOverEveryCarrier) {
  const ProgramResult result =
      bench({"transfer", "-s", "100K,1M", "--chunk-bytes", "64K,128K", "--carriers",
             "raw,header,inplace,auto,tcp", "-d", GetParam(), "--host",
             GetParam() == "shm" ? "127.0.0.1" : "10.0.0.1", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json object = json::parse(result.out, nullptr, false);
  expect_frame(object, "transfer", 2 * (3 * 2 + 2));
  EXPECT_EQ(object.at("device"), GetParam());
  for (const json& row : object.at("results")) {
    EXPECT_EQ(row.at("complete"), 1) << row;
    EXPECT_GT(row.at("seconds"), 0) << row;
    EXPECT_EQ(row.at("errors"), json::array()) << row;
  }
  for (const char* name : {"inplace_vs_header", "auto_vs_window1", "extra_memory_bytes"})
    EXPECT_TRUE(object.at("ratios").at(name).is_number()) << name;
  EXPECT_TRUE(object.at("ratios").at("auto_vs_path_rate").is_null()) << "nobody said a rate";
  EXPECT_LE(object.at("ratios").at("extra_memory_bytes"), 64 << 10);
}

// Both are compared in memory that is new, and all that stays after several transfers is counted.
TEST(LeatBench, TransferComparesNewMemoryAndCountsWhatStays) {
  constexpr std::int64_t kBytes = 8 << 20;
  constexpr std::int64_t kLittle = 1 << 20;
  const ProgramResult result =
      bench({"transfer", "-s", "8M", "-n", "3", "--carriers", "auto,tcp", "-d", "shm", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json object = json::parse(result.out, nullptr, false);
  for (const json& row : object.at("results")) {
    const json& receiver = row.at("receiver");
    EXPECT_LT(receiver.at("extra_bytes"), kLittle) << row;
    EXPECT_GT(receiver.at("extra_bytes"), -kLittle) << "it was there before: " << row;
  }
  EXPECT_LT(object.at("ratios").at("extra_memory_bytes"), kLittle);
  EXPECT_GT(object.at("ratios").at("most_extra_memory_bytes"), kBytes - kLittle)
      << "the second region";
  EXPECT_LT(object.at("ratios").at("most_extra_memory_bytes"), kBytes + kLittle);
}

// As between two hosts.
TEST_P(LeatBenchOnDevice, TransferBetweenTwoPrograms) {
  const std::string host = GetParam() == "shm" ? "127.0.0.1" : device_address(GetParam());
  Program listener("bench/leat-bench",
                   {"transfer", "--listen", host + ":0", "-d", GetParam(), "--cpus", "0"});
  const std::string port = listener.wait_for("--connect HOST:");
  ASSERT_NE(port, "");
  const ProgramResult result =
      bench({"transfer", "--connect", host + ":" + port, "-s", "100K", "--chunk-bytes", "32K",
             "--carriers", "raw,auto,tcp", "-n", "3", "-r", "2", "-d", GetParam(), "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json object = json::parse(result.out, nullptr, false);
  expect_frame(object, "transfer", 3);
  EXPECT_EQ(object.at("device"), GetParam());
  for (const json& row : object.at("results")) EXPECT_EQ(row.at("complete"), 2) << row;
  EXPECT_EQ(listener.wait().exit_code, 0);
}

INSTANTIATE_TEST_SUITE_P(Devices, LeatBenchOnDevice, testing::ValuesIn(test_devices()),
                         [](const auto& device) { return device_label(device.param); });

TEST(LeatBench, Resnet152ListsItsTensors) {
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

TEST(LeatBench, ConfirmPrintsAllWaysAndTheirRatios) {
  const ProgramResult result = bench({"confirm", "--quick", "-s", "64"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* text :
       {"one-to-one", "\n 64      confirm-each ", "\n 64      batched ", "\n 64      unbundled ",
        " / confirm-each ", "idle_cpu: ", "first_after_pause_vs_ring: "})
    EXPECT_THAT(result.out, HasSubstr(text));
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

TEST(LeatBench, Resnet152DrawsItsBlocksAndBothFlows) {
  const ScratchFolder folder;
  const ProgramResult result =
      bench({"resnet152", "--quick", "--workers", "1", "--plots", folder.path()});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* name : {"blocks", "one-to-one", "parameter-server"})
    EXPECT_THAT(read_file(folder.path() + "/resnet152-" + name + ".svg"), HasSubstr("</svg>"));
  EXPECT_THAT(result.out, HasSubstr(" parameter_server_fct_resnet152_vs_tcp: "));
}

TEST(LeatBench, TransferDrawsGoodputSizesAndChunks) {
  const ScratchFolder folder;
  const ProgramResult result =
      bench({"transfer", "-s", "64K,128K", "--chunk-bytes", "16K,32K", "--carriers", "inplace,auto",
             "--path-rate", "1000", "--plots", folder.path()});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* name : {"goodput", "sizes", "chunks"})
    EXPECT_THAT(read_file(folder.path() + "/transfer-" + name + ".svg"), HasSubstr("</svg>"));
  EXPECT_THAT(result.out, HasSubstr(" auto_vs_path_rate: "));
}

TEST(LeatBench, TransferThatDoesNotGetThroughIsTold) {
  const ProgramResult result =
      bench({"transfer", "-s", "64K", "--carriers", "auto", "--host", "192.0.2.1"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr(" 0/1 "));
  EXPECT_THAT(result.out, HasSubstr("192.0.2.1"));
  EXPECT_THAT(result.err, HasSubstr("1 transfers over transport chunked did not get through"));
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

TEST(LeatBench, AttestHasEveryAlgorithmBesideTheBareMac) {
  for (const std::string kernel : {"in-process", "isolated"}) {
    const json report = bench_json({"attest", "-s", "128,32K", "--kernel", kernel});
    expect_frame(report, "attest", 2 * (4 * 4 + 2 * 5));
    const json& ratios = report.at("ratios");
    const std::string home = kernel == "isolated" ? "isolated_" : "";
    EXPECT_GT(ratios.at(home + "attest_verify_128B_us"), 0);
    EXPECT_GT(ratios.at(home + "attest_128B_us"), 0);
    EXPECT_GT(ratios.at("throughput_32KiB_mbytes_ring"), 0);
    for (const char* name : {"hmac_sha256", "hmac_sha384", "hmac_sha512", "aes256_gmac"}) {
      EXPECT_GT(ratios.at(home + "mac_vs_openssl_" + name), 0) << name;
      EXPECT_GT(ratios.at(home + "throughput_32KiB_mbytes_" + name), 0) << name;
    }
    // What isolates its keys is beside what does.
    EXPECT_EQ(report.contains("published"), kernel == "isolated");
    if (kernel == "isolated") {
      EXPECT_THAT(report.at("published")[0].at("another_machine").get<std::string>(),
                  testing::HasSubstr("TNIC"));
    }
  }
}

TEST(LeatBench, TrustedHasEverySystemAndBothHomesOfTheKernel) {
  for (const std::string kernel : {"in-process", "isolated"}) {
    const json memory = json_of({"trusted", "--entries", "2000", "--kernel", kernel});
    EXPECT_EQ(memory.at("kernel"), kernel);
    EXPECT_GT(memory.at("ratios").at("a2m_append_per_s"), 0);
    EXPECT_GT(memory.at("ratios").at("a2m_lookup_per_s"), 0);
  }
  for (const auto& [system, name] :
       {std::pair("counter", "counter_batch1"), std::pair("chain", "chain_batch1"),
        std::pair("peer-review", "peer_review_batch1")}) {
    for (const std::string kernel : {"in-process", "isolated"}) {
      const json report = json_of({"trusted", "--system", system, "--kernel", kernel, "--batch",
                                   "1", "--request", "10", "--commands", "50"});
      const json& ratios = report.at("ratios");
      const bool isolated = kernel == "isolated";
      EXPECT_GT(ratios.at(name + std::string("_per_s")), 0) << system;
      // Other hardware on other machines stands beside it, and is in no ratio.
      for (const auto& [ratio, value] : ratios.items())
        EXPECT_THAT(ratio, testing::Not(HasSubstr("_vs_"))) << value;
      const json& published = report.at("results")[0].at("published");
      EXPECT_EQ(published.front().at("system"), isolated ? "SSL-server" : "SSL-lib") << system;
      EXPECT_EQ(published.back().at("system"), isolated ? "TNIC" : "SSL-lib") << system;
      EXPECT_EQ(published.back().at("keys"),
                isolated ? "an emulated FPGA network card each" : "each process");
      EXPECT_GT(report.at("results")[0].at("single_command_us").at("p99"), 0) << system;
    }
  }
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

TEST(LeatBench, TransferTellsWhatFailedAtTheOtherHost) {
  Program listener("bench/leat-bench", {"transfer", "--listen", "127.0.0.1:0", "--cpus", "1000"});
  const std::string port = listener.wait_for("--connect HOST:");
  ASSERT_NE(port, "");
  const ProgramResult result = bench(
      {"transfer", "--connect", "127.0.0.1:" + port, "-s", "64K", "--carriers", "auto", "-r", "2"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr(" 0/2 ")) << "it goes on after the first";
  EXPECT_THAT(result.out, HasSubstr("cannot run on core 1000"));
  EXPECT_EQ(listener.wait().exit_code, 0);
}

TEST(LeatBench, TransferServesNobodyElse) {
  Program listener("bench/leat-bench", {"transfer", "--listen", "127.0.0.1:0"});
  const std::string port = listener.wait_for("--connect HOST:");
  EXPECT_EQ(bench({"pingpong", "-d", "tcp", "--connect", "127.0.0.1:" + port}).exit_code, 1);
  const ProgramResult result = listener.wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("is no leat-bench transfer of this version"));
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

TEST(LeatBench, TheSecondLogInAFolderIsRefusedWithAdvice) {
  const ScratchFolder folder;
  const Words words{"trusted", "--entries", "1000", "--folder", folder.path(), "--json"};
  EXPECT_EQ(bench(words).exit_code, 0);
  const ProgramResult again = bench(words);
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.err, AllOf(HasSubstr("--folder " + folder.path() + " has a log already"),
                               HasSubstr("Name a folder without one")));
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

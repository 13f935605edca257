// leat-bench transfer, run as a user would: short runs, whose figures are not judged.
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

class LeatBenchTransferOnDevice : public testing::TestWithParam<std::string> {};

TEST_P(LeatBenchTransferOnDevice, TransferMovesABufferOverEveryCarrier) {
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
TEST(LeatBenchTransfer, TransferComparesNewMemoryAndCountsWhatStays) {
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
TEST_P(LeatBenchTransferOnDevice, TransferBetweenTwoPrograms) {
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

INSTANTIATE_TEST_SUITE_P(Devices, LeatBenchTransferOnDevice, testing::ValuesIn(test_devices()),
                         [](const auto& device) { return device_label(device.param); });

TEST(LeatBenchTransfer, TransferDrawsGoodputSizesAndChunks) {
  const ScratchFolder folder;
  const ProgramResult result =
      bench({"transfer", "-s", "64K,128K", "--chunk-bytes", "16K,32K", "--carriers", "inplace,auto",
             "--path-rate", "1000", "--plots", folder.path()});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* name : {"goodput", "sizes", "chunks"})
    EXPECT_THAT(read_file(folder.path() + "/transfer-" + name + ".svg"), HasSubstr("</svg>"));
  EXPECT_THAT(result.out, HasSubstr(" auto_vs_path_rate: "));
}

TEST(LeatBenchTransfer, TransferThatDoesNotGetThroughIsTold) {
  const ProgramResult result =
      bench({"transfer", "-s", "64K", "--carriers", "auto", "--host", "192.0.2.1"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr(" 0/1 "));
  EXPECT_THAT(result.out, HasSubstr("192.0.2.1"));
  EXPECT_THAT(result.err, HasSubstr("1 transfers over transport chunked did not get through"));
}

TEST(LeatBenchTransfer, TransferTellsWhatFailedAtTheOtherHost) {
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

TEST(LeatBenchTransfer, TransferServesNobodyElse) {
  Program listener("bench/leat-bench", {"transfer", "--listen", "127.0.0.1:0"});
  const std::string port = listener.wait_for("--connect HOST:");
  EXPECT_EQ(bench({"pingpong", "-d", "tcp", "--connect", "127.0.0.1:" + port}).exit_code, 1);
  const ProgramResult result = listener.wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("is no leat-bench transfer of this version"));
}

}  // namespace
}  // namespace leat::detail

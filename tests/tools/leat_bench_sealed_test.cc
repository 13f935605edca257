// leat-bench sealed, run as a user would: a short run, whose figures are not judged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/devices.h"
#include "support/program.h"
#include "support/scratch.h"
#include "tools/bench_runs.h"

namespace leat::detail {
namespace {

class LeatBenchSealedOnDevice : public testing::TestWithParam<std::string> {};

TEST_P(LeatBenchSealedOnDevice, EachCipherStandsBesideClearTlsAndOpenSsl) {
  const nlohmann::json report = bench_json({"sealed", "-d", GetParam(), "-s", "64,4K"});
  // Streams and half round trips in clear, by each of three ciphers and inside TLS; and each bare
  // cipher.
  expect_frame(report, "sealed", 2 * (2 * 5 + 3));
  EXPECT_EQ(report.at("device"), GetParam());
  EXPECT_EQ(report.at("transport"), "sealed+ring");
  for (const std::string cipher : {"aes-256-gcm", "aes-128-gcm", "chacha20-poly1305"}) {
    for (const std::string what :
         {"half_round_trip_64_us_", "throughput_vs_openssl_64_", "throughput_vs_ring_4K_",
          "throughput_vs_tcp_tls_4K_", "tcp_tls_latency_through_64_"})
      expect_ratio(report, what + cipher);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, LeatBenchSealedOnDevice, testing::ValuesIn(test_devices()),
                         [](const auto& parameters) { return device_label(parameters.param); });

// The setting, where a subcommand does not seal of itself.
class LeatBenchConfidential : public testing::TestWithParam<std::string> {};

TEST_P(LeatBenchConfidential, HoldsForEveryLinkThatLeavesTheHost) {
  const ScratchFolder folder;
  const ScratchVariable confidential("LEAT_CONFIDENTIAL", "require");
  const bool leaves_the_host = GetParam() != "shm";
  {
    const ProgramResult refused = bench({"pingpong", "-d", GetParam(), "-s", "64", "-n", "50"});
    EXPECT_EQ(refused.exit_code == 0, !leaves_the_host) << refused.err;
    if (leaves_the_host) {
      EXPECT_THAT(refused.err, testing::HasSubstr("tls_psk_file"));
    }
  }
  const ScratchVariable key("LEAT_TLS_PSK_FILE", folder.write("key", std::string(64, 'a')));
  const nlohmann::json report = bench_json({"pingpong", "-d", GetParam(), "-s", "64"});
  expect_frame(report, "pingpong", 1);
  const std::string ring = leaves_the_host ? "sealed+ring" : "ring";
  EXPECT_EQ(report.at("transport"), GetParam() == "tcp" ? "tcp" : ring);
}

std::vector<std::string> devices_and_tcp() {
  std::vector<std::string> devices = test_devices();
  devices.emplace_back("tcp");
  return devices;
}

INSTANTIATE_TEST_SUITE_P(Devices, LeatBenchConfidential, testing::ValuesIn(devices_and_tcp()),
                         [](const auto& parameters) { return device_label(parameters.param); });

}  // namespace
}  // namespace leat::detail

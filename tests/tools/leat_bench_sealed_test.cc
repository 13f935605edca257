// leat-bench sealed, run as a user would: a short run, whose figures are not judged.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "support/devices.h"
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

}  // namespace
}  // namespace leat::detail

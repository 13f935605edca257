// leat-bench attest and trusted, run as a user would: short runs, whose figures are not judged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "support/program.h"
#include "support/scratch.h"
#include "tools/bench_runs.h"

namespace leat::detail {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

TEST(LeatBenchTrusted, AttestHasEveryAlgorithmBesideTheBareMac) {
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

TEST(LeatBenchTrusted, TrustedHasEverySystemAndBothHomesOfTheKernel) {
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

TEST(LeatBenchTrusted, TheSecondLogInAFolderIsRefusedWithAdvice) {
  const ScratchFolder folder;
  const Words words{"trusted", "--entries", "1000", "--folder", folder.path(), "--json"};
  EXPECT_EQ(bench(words).exit_code, 0);
  const ProgramResult again = bench(words);
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.err, AllOf(HasSubstr("--folder " + folder.path() + " has a log already"),
                               HasSubstr("Name a folder without one")));
}

}  // namespace
}  // namespace leat::detail

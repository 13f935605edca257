// The fuzzer itself on TCP, and leat-run by a fixed set of its seeds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "support/program.h"
#include "support/scratch.h"

namespace leat::detail {
namespace {

#ifdef LEAT_RUN
constexpr const char* kRunner = LEAT_RUN " --all";
#else
constexpr const char* kRunner = nullptr;
#endif

constexpr const char* kNoRunner = "leat-run is not built: configure with -DLEAT_BUILD_TOOLS=ON";

ProgramResult fuzz(const std::vector<std::string>& arguments) {
  return run_program(LEAT_POSIX_FUZZ, arguments);
}

std::vector<std::string> found_before() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(LEAT_POSIX_FUZZ_FOUND))
    names.push_back(file.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

// The scripts are sound: TCP gives the same twice.
TEST(PosixFuzz, tcp_is_like_tcp) {
  const ProgramResult result = fuzz({"--count", "300"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
}

// A runner that differs from TCP; two steps of the script are needed to show that.
TEST(PosixFuzz, tells_a_difference_and_shrinks_it) {
  const ScratchFolder scratch;
  const std::string script = scratch.path() + "/script";
  std::ofstream(script) << "A pipe c d libc\nA file b libc\nB look\nA dupfd b a 1015 0\n"
                           "A close b close\nB look\n";
  const ProgramResult result =
      fuzz({"--runner", "prlimit --nofile=1010:1010", "--script", script, "--shrink"});
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  EXPECT_THAT(result.out, testing::HasSubstr("  0 A file b libc   A = 3; \n"
                                             "- 1 A dupfd b a 1015 0   A = 1015; \n"
                                             "+ 1 A dupfd b a 1015 0   A = -1 EINVAL; \n\n"));
}

TEST(PosixFuzz, refuses_what_it_cannot_read) {
  const ScratchFolder scratch;
  const std::string script = scratch.path() + "/script";
  std::ofstream(script) << "A put c whistle 10 0\n";
  const ProgramResult result = fuzz({"--script", script});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, testing::HasSubstr("no such word: whistle"));
  EXPECT_EQ(fuzz({"--count", "many"}).exit_code, 2);
}

// Stops early where much differs.
// The seeds that the fuzzer reported as differing.
std::vector<std::string> differing_seeds(const std::string& out) {
  std::vector<std::string> seeds;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    std::string seed;
    std::string differs;
    if (words >> word >> seed >> differs && word == "seed" && differs == "differs")
      seeds.push_back(seed);
  }
  return seeds;
}

// What differs only behind the sequences before it is printed, and left to the hours by hand.
TEST(PosixFuzz, leat_run_is_like_tcp) {
  ASSERT_NE(kRunner, nullptr) << kNoRunner;
  const ProgramResult all =
      fuzz({"--runner", kRunner, "--count", "2000", "--most", "10", "--always", "--tries", "6"});
  const std::vector<std::string> seeds = differing_seeds(all.out);
  EXPECT_EQ(all.exit_code, seeds.empty() ? 0 : 1) << all.out << all.err;
  for (const std::string& seed : seeds) {
    const ProgramResult alone =
        fuzz({"--runner", kRunner, "--seed", seed, "--count", "1", "--always", "--tries", "6"});
    EXPECT_EQ(alone.exit_code, 0) << alone.out << alone.err;
    if (alone.exit_code == 0) std::printf("%s", all.out.c_str());
  }
}

// Parameter: a script of the folder found, in which the fuzzer once found a difference.
class PosixFuzzFound : public testing::TestWithParam<std::string> {};

TEST_P(PosixFuzzFound, leat_run_is_like_tcp) {
  ASSERT_NE(kRunner, nullptr) << kNoRunner;
  const ProgramResult result =
      fuzz({"--runner", kRunner, "--always", "--script",
            std::string(LEAT_POSIX_FUZZ_FOUND "/") + GetParam() + ".script"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
}

INSTANTIATE_TEST_SUITE_P(Scripts, PosixFuzzFound, testing::ValuesIn(found_before()),
                         [](const auto& parameters) { return parameters.param; });

}  // namespace
}  // namespace leat::detail

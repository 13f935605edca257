// A program that knows nothing of leat sees the same of its stream sockets under leat-run as of the
// kernel's TCP: every result, every errno, every byte, whether both ends run under leat-run or only
// one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "support/program.h"

namespace leat::detail {
namespace {

#ifdef LEAT_RUN
constexpr const char* kRunner = LEAT_RUN;
#else
constexpr const char* kRunner = nullptr;
#endif

// What the cases said, by case, one after the other.
using Transcripts = std::map<std::string, std::string>;

Transcripts run_cases(const std::vector<std::string>& arguments) {
  const ProgramResult result = run_program(LEAT_POSIX_CASES, arguments);
  Transcripts transcripts;
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) {
    transcripts[line.substr(0, line.find(' '))] += line + "\n";
  }
  return transcripts;
}

const Transcripts& of_tcp() {
  static const Transcripts kTranscripts = run_cases({});
  return kTranscripts;
}

// Fails with the lines that differ, of each case.
void expect_as_tcp(const Transcripts& transcripts) {
  for (const auto& [name, expected] : of_tcp()) {
    const auto found = transcripts.find(name);
    EXPECT_EQ(found == transcripts.end() ? "" : found->second, expected) << name;
  }
}

// The suite itself: on TCP every case ends, has what it waits for, and says something.
TEST(Posix, tcp) {
  EXPECT_GT(of_tcp().size(), 100u);
  for (const auto& [name, transcript] : of_tcp()) {
    EXPECT_THAT(transcript, testing::Not(testing::HasSubstr("HUNG"))) << name;
    EXPECT_THAT(transcript, testing::Not(testing::HasSubstr("never had"))) << name;
    EXPECT_THAT(transcript, testing::Not(testing::HasSubstr(" failed: "))) << name;
  }
}

class PosixUnderRunner : public testing::Test {
 protected:
  void SetUp() override {
    if (kRunner == nullptr) GTEST_SKIP() << "leat-run is not built";
  }
};

TEST_F(PosixUnderRunner, both_ends) {
  expect_as_tcp(run_cases({"--server-runner", kRunner, "--client-runner", kRunner}));
}

TEST_F(PosixUnderRunner, server) { expect_as_tcp(run_cases({"--server-runner", kRunner})); }

TEST_F(PosixUnderRunner, client) { expect_as_tcp(run_cases({"--client-runner", kRunner})); }

}  // namespace
}  // namespace leat::detail

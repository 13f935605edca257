// A program that knows nothing of leat sees the same of its stream sockets under leat-run as of the
// kernel's TCP: every result, every errno, every byte, whether both ends run under leat-run or only
// one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "posix/c_api/left_out.h"
#include "support/program.h"
#include "support/scratch.h"

namespace leat::detail {
namespace {

#ifdef LEAT_RUN
constexpr const char* kRunner = LEAT_RUN;
#else
constexpr const char* kRunner = nullptr;
#endif

// What the cases said, by case, one after the other.
using Transcripts = std::map<std::string, std::string>;

Transcripts run_cases(const std::vector<std::string>& arguments,
                      const char* program = LEAT_POSIX_CASES) {
  const ProgramResult result = run_program(program, arguments);
  Transcripts transcripts;
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) {
    transcripts[line.substr(0, line.find(' '))] += line + "\n";
  }
  return transcripts;
}

const Transcripts& of_tcp() {
  static const Transcripts transcripts = run_cases({});
  return transcripts;
}

std::size_t count_of(const std::string& part, const std::string& text) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// The lines that one of them has and the other has not, or has elsewhere: as diff shows them, but
// for what both begin and end with.
std::string difference(const std::string& expected, const std::string& found) {
  std::vector<std::string> before = lines_of(expected);
  std::vector<std::string> after = lines_of(found);
  const auto [left, right] =
      std::mismatch(before.begin(), before.end(), after.begin(), after.end());
  before.erase(before.begin(), left);
  after.erase(after.begin(), right);
  while (!before.empty() && !after.empty() && before.back() == after.back()) {
    before.pop_back();
    after.pop_back();
  }
  std::string text;
  for (const std::string& line : before) text += "\n- " + line;
  for (const std::string& line : after) text += "\n+ " + line;
  return text;
}

// What carried connections do in another way, as docs/sockets.md says.
std::set<std::string> documented_differences() {
  return {
      "option.low_water",     // SO_RCVLOWAT is ignored after connecting
      "signal.asynchronous",  // SIGIO is not reliable
  };
}

// Fails with the lines that differ (- on TCP, + here), of each case.
void expect_as_tcp(const Transcripts& transcripts, const std::set<std::string>& but = {}) {
  for (const auto& [name, expected] : of_tcp()) {
    if (but.contains(name)) continue;
    const auto found = transcripts.find(name);
    const std::string differs =
        difference(expected, found == transcripts.end() ? "" : found->second);
    EXPECT_TRUE(differs.empty()) << name << " differs from TCP:" << differs;
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

// The same cases by the calls of leat/c.h, on both sides.
TEST(PosixCApi, both_ends) {
  const auto& left_out = posix_cases::left_out_of_c_api();
  std::set<std::string> out;
  std::vector<std::string> names;
  for (const auto& [name, transcript] : of_tcp()) {
    const bool claimed = std::none_of(left_out.begin(), left_out.end(), [&](const auto& entry) {
      return name.starts_with(entry.first);
    });
    if (claimed) {
      names.push_back(name);
    } else {
      out.insert(name);
    }
  }
  EXPECT_GT(names.size(), 100u);
  expect_as_tcp(run_cases(names, LEAT_POSIX_CASES_C_API), out);
}

class PosixUnderRunner : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(kRunner, nullptr) << "leat-run is not built: configure with -DLEAT_BUILD_TOOLS=ON";
  }
};

TEST_F(PosixUnderRunner, both_ends) {
  const ScratchFolder scratch;
  const std::string log = scratch.path() + "/log";
  const ScratchVariable level("LEAT_LOG_LEVEL", "info");
  const ScratchVariable file("LEAT_LOG_FILE", log);
  expect_as_tcp(run_cases({"--server-runner", kRunner, "--client-runner", kRunner}),
                documented_differences());
  // And it was not the kernel's TCP again.
  EXPECT_GT(count_of("carried through shared memory", read_file(log)), of_tcp().size());
}

TEST_F(PosixUnderRunner, server) { expect_as_tcp(run_cases({"--server-runner", kRunner})); }

TEST_F(PosixUnderRunner, client) { expect_as_tcp(run_cases({"--client-runner", kRunner})); }

}  // namespace
}  // namespace leat::detail

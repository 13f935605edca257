// A program that knows nothing of leat sees the same of its stream sockets under leat-run as of the
// kernel's TCP: every result, every errno, every byte, whether both ends run under leat-run or only
// one. So does one that calls leat/c.h instead, on every device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "posix/c_api/left_out.h"
#include "posix/case.h"
#include "support/devices.h"
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

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

const std::vector<std::string>& all_names() {
  static const std::vector<std::string> names =
      lines_of(run_program(LEAT_POSIX_CASES, {"--list"}).out);
  return names;
}

// Some at a time, because run_program waits minutes, not hours.
Transcripts run_cases(const std::vector<std::string>& options,
                      const std::vector<std::string>& names = all_names(),
                      const char* program = LEAT_POSIX_CASES) {
  constexpr std::size_t kAtATime = 20;
  Transcripts transcripts;
  for (std::size_t first = 0; first < names.size(); first += kAtATime) {
    std::vector<std::string> arguments = options;
    for (std::size_t i = first; i < std::min(first + kAtATime, names.size()); ++i)
      arguments.push_back(names[i]);
    for (const std::string& line : lines_of(run_program(program, arguments).out))
      transcripts[line.substr(0, line.find(' '))] += line + "\n";
  }
  return transcripts;
}

const Transcripts& of_tcp() {
  static const Transcripts transcripts = run_cases({});
  return transcripts;
}

Transcripts only(const std::vector<std::string>& names, Transcripts transcripts) {
  std::erase_if(transcripts, [&](const auto& transcript) {
    return std::ranges::find(names, transcript.first) == names.end();
  });
  return transcripts;
}

// The lines that only one of them has, or that they have in different places: as diff shows them,
// but for what both begin and end with.
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

// A program that does not load leat's library finds connections and listeners closed.
std::set<std::string> refused_to_children() {
  return {"spawn.scrubbed_fork_inherits", "spawn.scrubbed_inherits"};
}

// What carried connections do in another way, as docs/sockets.md says.
std::set<std::string> documented_differences() {
  std::set<std::string> names = {
      "option.low_water",     // SO_RCVLOWAT is ignored after connecting
      "signal.asynchronous",  // SIGIO is not reliable
      // A send hears of a peer that was killed some milliseconds later.
      "ending.killed_with_unread_send",
  };
  names.merge(refused_to_children());
  return names;
}

// Fails with the lines that differ (- on TCP, + here), of each case.
void expect_same(const Transcripts& of_tcp, const Transcripts& transcripts,
                 const std::set<std::string>& but = {}) {
  for (const auto& [name, expected] : of_tcp) {
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

// The same cases by the calls of leat/c.h, on both sides. Parameter: the device; where it has an
// address, the cases meet there, and those about other addresses are carried by TCP.
class PosixCApi : public testing::TestWithParam<std::string> {};

// Cases of what a device has a part in: bytes on their way, ends, and waiting for both. The others
// are about calls and descriptors, for which any device does.
bool moves_bytes(const std::string& name) {
  const std::string group = name.substr(0, name.find('.'));
  return std::ranges::count(
             std::array{"transfer", "end", "ending", "shutdown", "sleeper", "nonblocking",
                        "connect", "poll", "epoll", "timeout", "many", "limit"},
             group) != 0;
}

std::vector<std::string> names_of_c_api() {
  const auto& left_out = posix_cases::left_out_of_c_api();
  std::vector<std::string> names;
  for (const std::string& name : all_names()) {
    const bool claimed = std::none_of(left_out.begin(), left_out.end(), [&](const auto& entry) {
      return name.starts_with(entry.first);
    });
    if (claimed) names.push_back(name);
  }
  return names;
}

TEST_P(PosixCApi, both_ends) {
  const std::string address = device_address(GetParam());
  std::vector<std::string> names = names_of_c_api();
  EXPECT_GT(names.size(), 200u);
  if (!address.empty()) std::erase_if(names, std::not_fn(moves_bytes));
  EXPECT_GT(names.size(), 80u);
  const ScratchFolder scratch;
  const std::string log = scratch.path() + "/log";
  const ScratchVariable level("LEAT_LOG_LEVEL", "info");
  const ScratchVariable file("LEAT_LOG_FILE", log);
  const ScratchVariable host(posix_cases::kHostVariable, address.empty() ? "127.0.0.1" : address);
  const ScratchVariable device("LEAT_DEVICE", address.empty() ? GetParam() : "^shm");
  // The guest with kernel RDMA is slow.
  const ScratchVariable handshake("LEAT_HANDSHAKE_TIMEOUT_MS", "60000");
  const ScratchVariable connecting("LEAT_CONNECT_TIMEOUT_MS", "60000");
  const ScratchVariable linger("LEAT_LINGER_MS", "60000");
  const Transcripts tcp = address.empty() ? only(names, of_tcp()) : run_cases({}, names);
  expect_same(tcp, run_cases({}, names, LEAT_POSIX_CASES_C_API));
  EXPECT_GT(count_of("ring on " + GetParam(), read_file(log)), names.size());
}

INSTANTIATE_TEST_SUITE_P(Devices, PosixCApi, testing::ValuesIn(test_devices()),
                         [](const auto& parameters) { return device_label(parameters.param); });

class PosixUnderRunner : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(kRunner, nullptr) << "leat-run is not built: configure with -DLEAT_BUILD_TOOLS=ON";
  }
};

TEST_F(PosixUnderRunner, both_ends) {
  const ScratchFolder scratch;
  const std::string log = scratch.path() + "/log";
  const ScratchVariable all("LEAT_PRELOAD_ALL", "1");
  const ScratchVariable level("LEAT_LOG_LEVEL", "info");
  const ScratchVariable file("LEAT_LOG_FILE", log);
  expect_same(of_tcp(), run_cases({"--server-runner", kRunner, "--client-runner", kRunner}),
              documented_differences());
  // And it was not the kernel's TCP again.
  EXPECT_GT(count_of("carried through shared memory", read_file(log)), of_tcp().size());
}

// Cases of how two processes meet, and of what becomes of listeners and connections that have.
bool meets(const std::string& name) {
  const std::string group = name.substr(0, name.find('.'));
  return std::ranges::count(
             std::array{"connect", "listener", "exec", "spawn", "fork", "process", "descriptor",
                        "limit", "exhaustion", "many", "end", "ending"},
             group) != 0;
}

TEST_F(PosixUnderRunner, both_ends_in_a_folder) {
  const ScratchFolder scratch;
  const std::string log = scratch.path() + "/log";
  const ScratchVariable all("LEAT_PRELOAD_ALL", "1");
  const ScratchVariable folder("LEAT_PRELOAD_MEET", scratch.path());
  const ScratchVariable level("LEAT_LOG_LEVEL", "info");
  const ScratchVariable file("LEAT_LOG_FILE", log);
  std::vector<std::string> names = all_names();
  std::erase_if(names, std::not_fn(meets));
  ASSERT_GT(names.size(), 80u);
  expect_same(only(names, of_tcp()),
              run_cases({"--server-runner", kRunner, "--client-runner", kRunner}, names),
              documented_differences());
  EXPECT_GT(count_of("carried through shared memory", read_file(log)), names.size());
  EXPECT_EQ(count_of("cannot be used to meet", read_file(log)), 0u);
}

TEST_F(PosixUnderRunner, server) {
  expect_same(of_tcp(), run_cases({"--server-runner", kRunner}), refused_to_children());
}

TEST_F(PosixUnderRunner, client) { expect_same(of_tcp(), run_cases({"--client-runner", kRunner})); }

}  // namespace
}  // namespace leat::detail

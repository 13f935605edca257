// leat-run: a program sees over shared memory what it sees over TCP.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "preload/marks.h"
#include "preload/offering.h"
#include "support/program.h"
#include "support/scratch.h"

namespace leat::detail {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kProgram = LEAT_BUILD_FOLDER "/tests/sockets_program";
constexpr const char* kCarried = "carried through shared memory";

ProgramResult under_leat(std::vector<std::string> arguments) {
  return run_program("src/tools/leat-run", arguments);
}

class SocketsProgram : public testing::TestWithParam<std::string> {};

TEST_P(SocketsProgram, SeesWhatItSeesOverTcp) {
  const ProgramResult tcp = run_program(kProgram, {GetParam()});
  ASSERT_EQ(tcp.exit_code, 0) << tcp.err;
  ASSERT_NE(tcp.out, "");
  for (const std::string spin : {"50", "0"}) {
    const ProgramResult leat =
        under_leat({"--all", "--log", "info", "--spin", spin, kProgram, GetParam()});
    EXPECT_EQ(leat.exit_code, 0) << leat.err;
    EXPECT_EQ(leat.out, tcp.out) << "with LEAT_SPIN_US=" << spin;
    EXPECT_THAT(leat.err, HasSubstr(kCarried));
  }
}

INSTANTIATE_TEST_SUITE_P(Scenarios, SocketsProgram,
                         testing::Values("bulk", "half_close", "closing", "killed", "flags",
                                         "signals", "epoll", "selecting", "following", "streams",
                                         "files", "connecting", "reconnecting", "prefork",
                                         "waking"),
                         [](const auto& scenario) { return scenario.param; });

TEST(LeatRun, CarriesOnlyWhatIsMatched) {
  const ProgramResult result =
      under_leat({"--log", "info", "--match", "^127.0.0.0/8", kProgram, "half_close"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr(kCarried)));
  EXPECT_EQ(result.out, run_program(kProgram, {"half_close"}).out);
}

TEST(LeatRun, CarriesNothingForUsersWhoAreNotMapped) {
  const std::string leat_run = LEAT_BUILD_FOLDER "/src/tools/leat-run";
  if (run_program("/usr/bin/unshare", {"--user", "true"}).exit_code != 0)
    GTEST_SKIP() << "no user namespaces here";
  const ProgramResult result = run_program(
      "/usr/bin/unshare", {"--user", leat_run, "--all", "--log", "info", kProgram, "half_close"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr(kCarried)));
  EXPECT_EQ(result.out, run_program(kProgram, {"half_close"}).out);
}

// Which may accept by a ring, past leat-run.
TEST(LeatRun, CarriesNothingForProgramsWithLiburing) {
  const std::string leat_run = LEAT_BUILD_FOLDER "/src/tools/leat-run";
  const ProgramResult result =
      run_program("/usr/bin/env", {"LD_PRELOAD=" LEAT_BUILD_FOLDER "/tests/libnamed_as_liburing.so",
                                   leat_run, "--all", "--log", "info", kProgram, "half_close"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr(kCarried)));
  EXPECT_THAT(result.err, HasSubstr("this program has liburing"));
  EXPECT_EQ(result.out, run_program(kProgram, {"half_close"}).out);
}

TEST(LeatRun, AWrongMatchCarriesNothingAndSaysSo) {
  const ProgramResult result =
      under_leat({"--log", "info", "--match", "localhost:x", kProgram, "half_close"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("cannot read 'localhost:x'"));
  EXPECT_THAT(result.err, Not(HasSubstr(kCarried)));
}

TEST(LeatRun, LeavesToTcpWhatEndsAtOnceAndLooksNowAndThen) {
  const ProgramResult result = under_leat({"--log", "info", kProgram, "reconnecting"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, run_program(kProgram, {"reconnecting"}).out);
  // Of 60 one after the other: 9 carried, as that with a forked child does not count, then 16 by
  // TCP, one with a child and another carried, 32 by TCP, and one carried.
  EXPECT_EQ(count_of("to 127.0.0.1:", result.err), 48U) << result.err;
  EXPECT_EQ(count_of("TCP (connections to it have ended too soon to be worth ", result.err), 48U);
  EXPECT_EQ(count_of(kCarried, result.err), 2 * 12U) << "each end says so";
}

TEST(LeatRun, ASocketThatTriedToBeCarriedIsNoneElsewhere) {
  const ProgramResult result = under_leat({"--match", "224.0.0.0/4", kProgram, "elsewhere"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, run_program(kProgram, {"elsewhere"}).out);
}

TEST(LeatRun, WhoSpinsForLongIsInterruptedByNothingElse) {
  const ProgramResult result = under_leat({"--spin", "100000000", kProgram, "children"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, run_program(kProgram, {"children"}).out);
}

TEST(LeatRun, RefusedConnectionsLeaveNothingBehind) {
  const ProgramResult result = under_leat({kProgram, "refused"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "refused 60000, leaked 0 descriptors, 0 MiB\n");
}

TEST(LeatRun, AChildThatCannotCarryFindsNoConnection) {
  const ProgramResult result = under_leat({kProgram, "refusing"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            "/bin/sh: 0\n/bin/sh: 1\nexecuted: 1\n/bin/sh: 2\nscript: 0\n/bin/true: 0\n"
            "[still there]\n");
  EXPECT_EQ(count_of("not passed on", result.err), 5U) << result.err;
  EXPECT_EQ(count_of("not passed on: /bin/sh runs without leat-run's LD_PRELOAD", result.err), 4U);
  EXPECT_THAT(result.err, HasSubstr("is linked statically"));
}

TEST(LeatRun, TheDebugModeSaysWhatEscapes) {
  const ProgramResult silent = under_leat({kProgram, "escaping"});
  EXPECT_THAT(silent.err, Not(HasSubstr("escape")));
  const ProgramResult result = under_leat({"--debug", kProgram, "escaping"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("wrote past leat-run, to the kernel's socket"));
  EXPECT_THAT(result.err, HasSubstr("escaped: it was closed past the C library's close()"));
}

// Wrong or missing bytes never pass silently.
TEST(LeatRun, AConnectionThatIsWrittenPastLeatIsReset) {
  const std::string reset = ": ECONNRESET\nthen: 0\n";
  const std::string epoll = "(1in hup )\nepoll" + reset;
  const std::string expected = "recv" + reset + "the peer" + reset + "recv without blocking" +
                               reset + "IN HUP ERR \npoll" + reset + epoll + epoll + "between" +
                               reset + "before the end" + reset + "before the close" + reset +
                               "send: ECONNRESET\nsend without blocking: ECONNRESET\n";
  for (const std::string spin : {"50", "0", "inf"}) {
    const ProgramResult result = under_leat({"--all", "--spin", spin, kProgram, "writing_past"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, expected) << "with LEAT_SPIN_US=" << spin;
    EXPECT_EQ(count_of("wrote past leat-run", result.err), 10U) << result.err;
  }
}

// Connects with the mark of an offer, and sends a byte as if it had been made.
int connect_as_stranger(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const int size = preload::connector_size(static_cast<int>(preload::user_code(geteuid())));
  EXPECT_EQ(setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &size, sizeof(size)), 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(send(fd, "!", 1, 0), 1);
  return fd;
}

// Whom it tells that it has gone within some seconds.
TEST(LeatRun, AStrangerThatOffersNothingHoldsUpNobodyElse) {
  Program server("src/tools/leat-run", {"--all", "--log", "info", kProgram, "minding_strangers"});
  const int stranger = connect_as_stranger(std::stoi(server.wait_for("port ")));
  const auto begin = std::chrono::steady_clock::now();
  const ProgramResult result = server.wait();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  close(stranger);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(count_of("served hello", result.out), 10U) << result.out;
  EXPECT_THAT(result.out, HasSubstr("the stranger (1in hup )\nrecv: 0\n"));
  EXPECT_EQ(count_of("its offer of shared memory is lost", result.err), 1U) << result.err;
  EXPECT_EQ(count_of(kCarried, result.err), 20U) << result.err;
}

TEST(LeatStat, ShowsWhatWasCarried) {
  Program program("src/tools/leat-run", {kProgram, "standing"});
  const std::string pid = program.wait_for("standing ");
  const ProgramResult stat = run_program("src/tools/leat-stat", {"--json", pid});
  ASSERT_EQ(stat.exit_code, 0) << stat.err;
  const auto list = nlohmann::json::parse(stat.out);
  ASSERT_EQ(list.size(), 2U) << "both ends are in this process";
  EXPECT_EQ(list[0]["sent_bytes"], 1000);
  EXPECT_EQ(list[1]["received_bytes"], 1000);
  EXPECT_EQ(list[0]["peer"], list[1]["local"]);
  const ProgramResult table = run_program("src/tools/leat-stat", {pid});
  EXPECT_THAT(table.out, HasSubstr(" device transport "));
  EXPECT_THAT(table.out, HasSubstr(" shm    bytes "));
  EXPECT_EQ(run_program("src/tools/leat-stat", {"999999999"}).exit_code, 1);
  const ProgramResult wrong = run_program("src/tools/leat-stat", {"0"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("PID: Value 0 not in range 1 to "));
}

TEST(LeatStat, ShowsWhatAChildUses) {
  Program program("src/tools/leat-run", {kProgram, "standing_child"});
  const std::string pid = program.wait_for("standing ");
  const ProgramResult stat = run_program("src/tools/leat-stat", {"--json", pid});
  ASSERT_EQ(stat.exit_code, 0) << stat.err;
  const auto list = nlohmann::json::parse(stat.out);
  ASSERT_EQ(list.size(), 1U) << stat.out;
  EXPECT_EQ(list[0]["side"], "accepted");
  EXPECT_EQ(list[0]["received_bytes"], 1000);
  kill(static_cast<pid_t>(std::stol(pid)), SIGKILL);
}

TEST(LeatRun, SaysWhatIsWrongWithItsArguments) {
  EXPECT_EQ(under_leat({}).exit_code, 2);
  EXPECT_EQ(under_leat({"--nonsense"}).exit_code, 2);
  EXPECT_THAT(under_leat({"--spin"}).err, HasSubstr("needs a value"));
  for (const char* spin : {"", "abc", "-1", "5us", "9999999999"})
    EXPECT_EQ(under_leat({"--spin", spin, "true"}).exit_code, 2) << spin;
  EXPECT_EQ(under_leat({"--spin", "inf", "true"}).exit_code, 0);
  EXPECT_THAT(under_leat({"--log", "loud", "true"}).err,
              HasSubstr("--log loud: must be error, warn, info or debug"));
  EXPECT_EQ(under_leat({"no-such-program-anywhere"}).exit_code, 127);
  EXPECT_EQ(under_leat({"false"}).exit_code, 1);
}

TEST(LeatRun, SaysThatConfidentialDoesNotReachTheProgramsOwnConnections) {
  const ScratchVariable require("LEAT_CONFIDENTIAL", "require");
  const ProgramResult warned = under_leat({"true"});
  EXPECT_EQ(warned.exit_code, 0);
  EXPECT_EQ(count_of("LEAT_CONFIDENTIAL=require does not reach", warned.err), 1U) << warned.err;
  EXPECT_EQ(under_leat({"--log", "error", "true"}).err, "");
  const ScratchVariable off("LEAT_CONFIDENTIAL", "off");
  EXPECT_EQ(under_leat({"true"}).err, "");
}

}  // namespace
}  // namespace leat::detail

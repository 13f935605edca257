// leat-bench server, run as a user would: short runs, whose figures are not judged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "support/scale.h"
#include "tools/bench_runs.h"

namespace leat::detail {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

TEST(LeatBenchServer, HasEveryWayBesideTcpAndThePair) {
  const json object = json_of(
      {"server", "--channels", "1,5", "-r", "1", "-n", "40", "-d", "shm", "--transport", "ring"});
  const bool two_cores = std::thread::hardware_concurrency() >= 2;
  expect_frame(object, "server",
               2 * (5 + 2));  // the server of poll always spins, that of epoll never
  EXPECT_EQ(object.at("device"), "shm");
  EXPECT_EQ(object.at("transport"), "ring");
  EXPECT_EQ(object.at("bytes"), 64);
  EXPECT_EQ(object.at("clients_spin"), two_cores);
  std::size_t number = 0;
  for (const unsigned channels : {1U, 5U}) {
    for (const std::string way :
         {"epoll", "poller", "wait_any", "blocking", "poll", "tcp", "tcp_spin"}) {
      const json& row = object.at("results")[number++];
      EXPECT_EQ(row.at("way"), way);
      EXPECT_EQ(row.at("channels"), way == "blocking" ? 1 : channels) << row;
      EXPECT_EQ(row.at("active"), 1) << row;
      const bool follows_settings = way == "poller" || way == "wait_any" || way == "blocking";
      EXPECT_EQ(row.at("server_spins"),
                way == "poll" || way == "tcp_spin" || (follows_settings && two_cores))
          << row;
      for (const char* figure : {"t_typical_us", "messages_per_second", "connect_s", "close_s"})
        EXPECT_GT(row.at(figure), 0) << figure << row;
      EXPECT_TRUE(row.at("kib_each").is_number()) << row;
      if (way.starts_with("tcp"))
        EXPECT_EQ(row.at("fds_each"), 1) << row;
      else
        EXPECT_GT(row.at("fds_each"), 1) << row;
    }
    const std::string count = std::to_string(channels);
    for (const std::string way : {"epoll", "wait_any", "poll"}) {
      EXPECT_GT(object.at("ratios").at("server_" + way + "_" + count + "_vs_tcp"), 0);
      EXPECT_GT(object.at("ratios").at("server_" + way + "_" + count + "_vs_pair"), 0);
    }
    for (const char* beside : {"_vs_tcp", "_vs_pair"})
      EXPECT_GT(object.at("ratios").at("poller_" + count + beside), 0);
    for (const char* figure : {"_connect_s", "_close_s", "_fds_each"})
      EXPECT_GT(object.at("ratios").at("server_" + count + figure), 0) << figure;
    EXPECT_TRUE(object.at("ratios").at("server_" + count + "_kib_each").is_number());
  }
  EXPECT_GT(object.at("ratios").at("server_blocking_1_vs_tcp"), 0);
  EXPECT_FALSE(object.at("ratios").contains("server_blocking_1_vs_pair")) << "it is the pair";
}

// More client processes exchange than there are cores, so they sleep as with --spin-us 0.
TEST(LeatBenchServer, WithAllChannelsActiveDoesNotSpinOnCrowdedCores) {
  const std::string clients = std::to_string(std::thread::hardware_concurrency());
  const json all = json_of({"server", "--channels", "70", "--active", "all", "--clients", clients,
                            "--wait", "epoll,poller,wait_any", "-r", "1", "-n", "140"});
  expect_frame(all, "server", 4);
  EXPECT_EQ(all.at("clients_spin"), false);
  for (const json& row : all.at("results")) {
    EXPECT_EQ(row.at("active"), 70) << row;
    EXPECT_EQ(row.at("server_spins"), false) << row;
  }
  const json sleeping = json_of({"server", "--channels", "3", "--active", "2", "--clients", "1",
                                 "--wait", "wait_any", "--spin-us", "0", "-r", "1", "-n", "20"});
  EXPECT_EQ(sleeping.at("clients_spin"), false);
  EXPECT_EQ(sleeping.at("results")[0].at("active"), 2);
  EXPECT_TRUE(sleeping.at("ratios").contains("server_wait_any_3_vs_tcp"));
}

TEST(LeatBenchServer, PrintsHowItsClientsWait) {
  const ProgramResult result =
      bench({"server", "--channels", "2", "-r", "1", "-n", "10", "--spin-us", "0"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* text :
       {" Clients' waits  : sleep\n", "\n epoll     2 ", "\n poller    2 ", "\n wait_any  2 ",
        "\n blocking  1 ", "\n poll      2 ", "\n tcp       2 ", "\n tcp_spin  2 ", "connect[s]",
        "KiB each", "fds each"})
    EXPECT_THAT(result.out, HasSubstr(text));
}

TEST(LeatBenchServer, HelpNamesEveryOption) {
  const ProgramResult help = bench({"server", "--help"});
  EXPECT_EQ(help.exit_code, 0) << help.err;
  for (const char* option : {"--channels N=1,100,1000", "--active M=1", "--size BYTES=64",
                             "--wait LIST=epoll,poller,wait_any,blocking,poll", "--clients",
                             "--iters", "--rounds", "--spin-us", "--json"})
    EXPECT_THAT(help.out, HasSubstr(option));
}

TEST(LeatBenchServer, SaysHowManyConnectionsTheDescriptorsAllow) {
  const std::string few = "ulimit -n 256; exec " LEAT_BUILD_FOLDER
                          "/bench/leat-bench server --channels 1,1000 --wait epoll -n 1";
  const ProgramResult refused = run_program("/bin/sh", {"-c", few});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("1000 channels need "), HasSubstr("the limit of 256 "),
                                 HasSubstr(" connections. Raise the limit")))
      << refused.err;
  const std::string soft = "ulimit -S -n 64; exec " LEAT_BUILD_FOLDER
                           "/bench/leat-bench server --channels 20 --wait epoll -r 1 -n 1";
  const ProgramResult raised = run_program("/bin/sh", {"-c", soft});
  EXPECT_EQ(raised.exit_code, 0) << "up to the hard limit: " << raised.err;
}

// The processes that `process` has started.
std::vector<pid_t> children_of(pid_t process) {
  const std::string name = std::to_string(process);
  std::ifstream file("/proc/" + name + "/task/" + name + "/children");
  std::vector<pid_t> children;
  for (pid_t child = 0; file >> child;) children.push_back(child);
  return children;
}

TEST(LeatBenchServer, WhoseClientDiesEndsAndSaysSo) {
  for (const std::string way : {"epoll", "poller", "wait_any", "poll"}) {
    Program program("bench/leat-bench", {"server", "--channels", "3", "--clients", "3", "--wait",
                                         way, "-r", "1", "-n", "100000000"});
    // The server that counts descriptors before has two clients only.
    std::vector<pid_t> clients;
    for (const auto deadline = hang_deadline(); clients.size() < 3 && Clock::now() < deadline;) {
      std::this_thread::yield();
      for (const pid_t server : children_of(program.pid())) clients = children_of(server);
    }
    ASSERT_EQ(clients.size(), 3U) << way;
    ::kill(clients.back(), SIGKILL);
    const ProgramResult result = program.wait();
    EXPECT_EQ(result.exit_code, 1) << way;
    EXPECT_THAT(result.err, HasSubstr("a client process ended in the middle of the benchmark"))
        << way;
  }
}

}  // namespace
}  // namespace leat::detail

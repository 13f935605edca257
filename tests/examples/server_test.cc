// The examples of servers, with ping_pong as their clients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "leat/leat.h"
#include "support/program.h"

namespace leat::detail {
namespace {

using testing::HasSubstr;

#ifdef LEAT_WITH_ASIO
constexpr const char* kAsio = "server_asio";
#else
constexpr const char* kAsio = nullptr;  // Boost.Asio is not installed
#endif

std::vector<std::string> with_asio(std::vector<std::string> servers) {
  if (kAsio != nullptr) servers.emplace_back(kAsio);
  return servers;
}

class ServerExample : public testing::TestWithParam<std::string> {};

TEST_P(ServerExample, ServesManyClientsAndSurvivesOneThatIsKilled) {
  Program server("examples/" + GetParam(), {});
  const std::string address = server.wait_for("listening at ");
  ASSERT_NE(address, "");
  Program killed("examples/ping_pong", {address});
  killed.kill();  // wherever it is
  Channel idle = Channel::connect(address);
  std::vector<std::unique_ptr<Program>> clients;
  for (const char* device : {"shm", "tcp", "shm"})
    clients.push_back(std::make_unique<Program>("examples/ping_pong",
                                                std::vector{address + "?device=" + device}));
  for (const auto& client : clients) {
    const ProgramResult result = client->wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("half a round trip: "));
  }
  idle.send("still there");
  EXPECT_EQ(idle.receive().text(), "still there");
}

INSTANTIATE_TEST_SUITE_P(Ways, ServerExample,
                         testing::ValuesIn(with_asio({"server_poller", "server_epoll"})),
                         [](const auto& way) { return way.param; });

class ServerWithPollerExample : public ServerExample {};

// A client that sends without taking the answers is not listened to any more; the others are.
TEST_P(ServerWithPollerExample, AClientThatTakesNoAnswersHoldsUpNobody) {
  Program server("examples/" + GetParam(), {});
  const std::string address = server.wait_for("listening at ");
  Channel greedy = Channel::connect(address);
  Channel other = Channel::connect(address);
  std::size_t sent = 0;
  for (int refusals = 0; refusals < 200;) {
    if (greedy.try_send(std::string(1000, 'x'))) {
      ++sent;
      refusals = 0;
      continue;
    }
    ++refusals;
    other.send("in between");
    EXPECT_EQ(other.receive().text(), "in between");
  }
  for (std::size_t i = 0; i < sent; ++i) ASSERT_EQ(greedy.receive().size(), 1000U);
  ASSERT_EQ(::kill(server.pid(), SIGTERM), 0);
  EXPECT_EQ(server.wait().exit_code, 0);
}

INSTANTIATE_TEST_SUITE_P(Ways, ServerWithPollerExample,
                         testing::ValuesIn(with_asio({"server_poller"})),
                         [](const auto& way) { return way.param; });

}  // namespace
}  // namespace leat::detail

// connect_link and accept_link between two threads, over real sockets.
#include "conn/link.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "conn/choice.h"
#include "support/leaks.h"
#include "support/link_pair.h"
#include "support/scale.h"
#include "verbs/device_table.h"

namespace leat::detail {
namespace {

std::string text(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void expect_word_passes(Stream& from, Stream& to) {
  const std::string word = "through the lifeline";
  write_all(from, std::as_bytes(std::span(word)), hang_deadline());
  std::vector<std::byte> got(word.size());
  read_all(to, got, hang_deadline());
  EXPECT_EQ(text(got), word);
}

// Fails on the devices of that name, as for want of memory.
Prepare prepare_failing_on(const std::string& device) {
  return [device](Link& link) -> std::vector<std::byte> {
    if (link.device_name == device) {
      throw Error(ErrorCode::kResource, "no room for a ring on " + device);
    }
    return {};
  };
}

TEST(LinkTest, TcpExchangesSetupsAndLeavesTheStreamClean) {
  LinkPair pair(link_settings("tcp"), link_settings("auto"));
  Link& active = pair.active.get();
  Link& passive = pair.passive.get();
  EXPECT_TRUE(active.active);
  EXPECT_FALSE(passive.active);
  EXPECT_EQ(text(active.peer_setup), "listener");
  EXPECT_EQ(text(passive.peer_setup), "client");
  EXPECT_EQ(active.peer_address, passive.local_address);
  EXPECT_EQ(active.local_address, passive.peer_address);
  for (Link* link : {&active, &passive}) {
    EXPECT_EQ(link->transport, "tcp");
    EXPECT_EQ(link->device_name, "tcp");
    EXPECT_EQ(link->device, nullptr);
    EXPECT_EQ(link->queue_pair, nullptr);
    EXPECT_EQ(link->fallbacks, 0U);
    EXPECT_NE(link->rejected.find("shm: excluded by the client's device = 'tcp'"),
              std::string::npos)
        << link->rejected;
  }
  expect_word_passes(*active.stream, *passive.stream);
  expect_word_passes(*passive.stream, *active.stream);
}

TEST(LinkTest, SameHostAndUserTakeShmWithRing) {
  LinkPair pair(link_settings("auto"), link_settings("auto"));
  for (LinkOutcome* side : {&pair.active, &pair.passive}) {
    Link& link = side->get();
    EXPECT_EQ(link.device_name, "shm");
    EXPECT_EQ(link.transport, "ring");
    EXPECT_EQ(link.rejected, "");
    EXPECT_EQ(link.fallbacks, 0U);
    ASSERT_NE(link.device, nullptr);
    ASSERT_NE(link.queue_pair, nullptr);
  }
  // The two queue pairs are connected with each other.
  const ReceiveRequest receive{7, nullptr, 0, 0};
  ASSERT_EQ(pair.passive.get().queue_pair->post_receive({&receive, 1}), 1U);
  SendRequest send;
  send.opcode = Opcode::kWriteWithImmediate;
  send.immediate = 4711;
  ASSERT_EQ(pair.active.get().queue_pair->post_send({&send, 1}), 1U);
  Completion completion;
  const Deadline deadline = hang_deadline();
  while (pair.passive.get().queue_pair->poll_receives({&completion, 1}) == 0) {
    ASSERT_FALSE(passed(deadline));
  }
  EXPECT_EQ(completion.status, CompletionStatus::kSuccess);
  EXPECT_EQ(completion.immediate, 4711U);
}

TEST(LinkTest, SettingsOfBothSidesCount) {
  LinkPair pair(link_settings("auto"), link_settings("^shm,ib"));
  EXPECT_EQ(pair.active.get().device_name, "tcp");
  EXPECT_NE(pair.active.get().rejected.find("excluded by the listener's device = '^shm,ib'"),
            std::string::npos);
  EXPECT_EQ(pair.active.get().fallbacks, 0U) << "what a setting excludes is no fallback";

  LinkPair by_transport(link_settings("auto", "tcp"), link_settings("auto"));
  EXPECT_EQ(by_transport.passive.get().transport, "tcp");
  LinkPair by_listener(link_settings("auto"), link_settings("auto", "tcp"));
  EXPECT_EQ(by_listener.active.get().transport, "tcp");
}

TEST(LinkTest, ForcedDeviceThatThePeerExcludesNamesBothSides) {
  LinkPair pair(link_settings("shm"), link_settings("tcp"));
  for (const LinkOutcome* side : {&pair.active, &pair.passive}) {
    side->expect_error(ErrorCode::kUnavailable, {"shm: excluded by the listener's device = 'tcp'",
                                                 "tcp: excluded by the client's device = 'shm'"});
  }
}

TEST(LinkTest, ForcedVerbsDeviceThatIsMissingNamesBothSides) {
  std::string why_not;
  if (!ib_device_for_route("127.0.0.1", "127.0.0.1", why_not).empty()) {
    GTEST_SKIP() << "the loopback routes to a verbs device here";
  }
  LinkPair pair(link_settings("ib"), link_settings("auto"));
  for (const LinkOutcome* side : {&pair.active, &pair.passive}) {
    side->expect_error(ErrorCode::kUnavailable, {"ib: ", "listener: ", "shm: excluded"});
  }
}

TEST(LinkTest, ContradictingSettingsFailBeforeConnecting) {
  ListeningSide nobody_needed(link_settings("tcp"));
  connect_to(nobody_needed.uri(), link_settings("tcp", "ring"))
      .expect_error(ErrorCode::kInvalidArgument, {"transport ring", "'tcp'"});
  connect_to(nobody_needed.uri(), link_settings("shm", "tcp"))
      .expect_error(ErrorCode::kInvalidArgument, {"transport tcp", "'shm'"});
  connect_to(nobody_needed.uri(), link_settings("auto", "pigeon"))
      .expect_error(ErrorCode::kInvalidArgument, {"'pigeon'", "ring", "tcp"});
  EXPECT_THROW(check_settings(link_settings("tcp", "ring")), Error);
  EXPECT_NO_THROW(check_settings(link_settings("auto")));
}

TEST(LinkTest, TransportsThatDisagreeNameBoth) {
  LinkPair pair(link_settings("auto", "ring"), link_settings("auto", "tcp"));
  for (const LinkOutcome* side : {&pair.active, &pair.passive}) {
    side->expect_error(ErrorCode::kUnavailable,
                       {"client asks for transport ring", "listener for tcp"});
  }
}

TEST(LinkTest, FailingClientFallsBackAndBothKnowWhy) {
  LinkPair pair(link_settings("auto"), link_settings("auto"), prepare_failing_on("shm"));
  for (LinkOutcome* side : {&pair.active, &pair.passive}) {
    Link& link = side->get();
    EXPECT_NE(link.device_name, "shm");
    EXPECT_GE(link.fallbacks, 1U);
    EXPECT_NE(link.rejected.find("shm: client: no room for a ring on shm"), std::string::npos)
        << link.rejected;
  }
  expect_word_passes(*pair.active.get().stream, *pair.passive.get().stream);
}

TEST(LinkTest, FailingListenerFallsBackAndBothKnowWhy) {
  LinkPair pair(link_settings("auto"), link_settings("auto"), prepare_saying("client"),
                prepare_failing_on("shm"));
  for (LinkOutcome* side : {&pair.active, &pair.passive}) {
    EXPECT_EQ(side->get().rejected.find("shm: listener: no room"), 0U) << side->get().rejected;
    EXPECT_GE(side->get().fallbacks, 1U);
  }
}

TEST(LinkTest, FallbackNeverOfEitherSideIsAnError) {
  Settings strict = link_settings("auto");
  strict.fallback = Fallback::kNever;
  LinkPair by_client(strict, link_settings("auto"), prepare_failing_on("shm"));
  LinkPair by_listener(link_settings("auto"), strict, prepare_saying("client"),
                       prepare_failing_on("shm"));
  for (const LinkPair* pair : {&by_client, &by_listener}) {
    const char* who =
        pair == &by_client ? "client's fallback = never" : "listener's fallback = never";
    for (const LinkOutcome* side : {&pair->active, &pair->passive}) {
      side->expect_error(ErrorCode::kUnavailable, {who, "no room for a ring on shm"});
    }
  }
  LinkPair best(strict, strict);
  EXPECT_EQ(best.active.get().device_name, "shm");
}

TEST(LinkTest, FallbackWarnWarnsTheSideThatAsksForIt) {
  Settings careful = link_settings("shm,tcp");
  careful.fallback = Fallback::kWarn;
  testing::internal::CaptureStderr();
  LinkPair pair(careful, link_settings("auto"), prepare_failing_on("shm"));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(pair.active.get().device_name, "tcp");
  EXPECT_EQ(pair.active.get().fallbacks, 1U);
  const std::size_t first = said.find("falls back to tcp because shm: client: no room for a ring");
  EXPECT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find("falls back", first + 1), std::string::npos) << "the other side allows it";
}

TEST(LinkTest, WhenEverythingFailsTheReasonsAndTheCodeArrive) {
  LinkPair pair(link_settings("tcp"), link_settings("auto"), prepare_failing_on("tcp"),
                prepare_failing_on("tcp"));
  for (const LinkOutcome* side : {&pair.active, &pair.passive}) {
    side->expect_error(ErrorCode::kResource,
                       {"tcp: listener: no room for a ring on tcp, client: no room"});
  }
}

TEST(LinkTest, SetupThatIsTooLargeIsAnError) {
  const Prepare too_large = [](Link&) { return std::vector<std::byte>(kMaxSetupBytes + 1); };
  LinkPair pair(link_settings("tcp"), link_settings("tcp"), too_large);
  pair.active.expect_error(ErrorCode::kInvalidArgument, {"1024"});
  const Prepare large = [](Link&) { return std::vector<std::byte>(kMaxSetupBytes, std::byte{9}); };
  LinkPair fits(link_settings("tcp"), link_settings("tcp"), large);
  EXPECT_EQ(fits.passive.get().peer_setup, std::vector<std::byte>(kMaxSetupBytes, std::byte{9}));
}

TEST(LinkTest, NothingIsLeftBehind) {
  const auto all = [] {
    LinkPair ring(link_settings("auto"), link_settings("auto"));
    LinkPair tcp(link_settings("tcp"), link_settings("auto"));
    LinkPair fell_back(link_settings("auto"), link_settings("auto"), prepare_failing_on("shm"));
    LinkPair failed(link_settings("shm"), link_settings("auto"), prepare_failing_on("shm"));
    EXPECT_TRUE(failed.active.error);
  };
  all();  // once for what stays on purpose
  const Holdings before = count_holdings();
  all();
  expect_no_more_than(before, std::size_t{1} << 20);
}

TEST(LinkTest, ListenerIsToldOfTheStreamAndOfItsEnd) {
  std::vector<Stream*> told;
  Uri uri;
  uri.host = "127.0.0.1";
  const Fd socket = listen_tcp(uri);
  uri.port = bound_port(socket.get());
  const Fd client = raw_connection(uri);
  wait_ready(socket.get(), POLLIN, hang_deadline(), "nobody came");
  Fd newcomer(accept(socket.get(), nullptr, nullptr));
  // Aborted while it waits for a hello that never comes.
  EXPECT_THROW(accept_link(std::move(newcomer), link_settings("tcp"), prepare_saying(""),
                           {[&](Stream* stream) {
                              told.push_back(stream);
                              if (stream != nullptr) stream->abort();
                            },
                            [](LastWord) {}}),
               Error);
  ASSERT_EQ(told.size(), 2U);
  EXPECT_NE(told[0], nullptr);
  EXPECT_EQ(told[1], nullptr);
}

}  // namespace
}  // namespace leat::detail

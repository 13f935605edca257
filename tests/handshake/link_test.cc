// open_connection and accept_connection between two threads, over real sockets.
#include "handshake/connection.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "handshake/choice.h"
#include "handshake/hello.h"
#include "net/tcp.h"
#include "support/leaks.h"
#include "support/link_pair.h"
#include "support/scale.h"
#include "support/silent_transport.h"
#include "transport/table.h"
#include "verbs/ib/row.h"

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

void expect_message_passes(Transport& from, Transport& to) {
  const std::string word = "through the transport";
  const Deadline deadline = hang_deadline();
  while (!sent(from.try_send(std::as_bytes(std::span(word)), 0))) ASSERT_FALSE(passed(deadline));
  Delivery delivery;
  while (to.try_receive(0, delivery) == ReceiveResult::kNothing) ASSERT_FALSE(passed(deadline));
  ASSERT_EQ(delivery.bytes, word.size());
  const std::byte* bytes = delivery.data == nullptr ? delivery.small.data() : delivery.data;
  EXPECT_EQ(std::memcmp(bytes, word.data(), word.size()), 0);
  if (delivery.must_release) to.release(delivery);
}

// Of a side whose transport finds no memory on devices, as long as a NoMemoryForRings lives.
Settings no_memory(const std::string& device) {
  Settings settings = link_settings(device);
  settings.ring_bytes = kNoRingBytes;
  return settings;
}

TEST(LinkTest, TcpIsSetUpAndTheStreamIsLeftClean) {
  LinkPair pair(link_settings("tcp"), link_settings("auto"));
  Connection& active = pair.active.get();
  Connection& passive = pair.passive.get();
  EXPECT_EQ(active.description.find("connected to 127.0.0.1:"), 0U) << active.description;
  EXPECT_EQ(passive.description.find("accepted 127.0.0.1:"), 0U) << passive.description;
  EXPECT_EQ(active.peer_address, passive.local_address);
  EXPECT_EQ(active.local_address, passive.peer_address);
  for (Connection* link : {&active, &passive}) {
    EXPECT_EQ(link->transport_name, "tcp");
    EXPECT_EQ(link->device_name, "tcp");
    EXPECT_EQ(link->fallbacks, 0U);
    EXPECT_NE(link->rejected.find("shm: excluded by the client's device = 'tcp'"),
              std::string::npos)
        << link->rejected;
  }
  expect_message_passes(*active.transport, *passive.transport);
  expect_message_passes(*passive.transport, *active.transport);
}

TEST(LinkTest, SameHostAndUserTakeShmWithRing) {
  LinkPair pair(link_settings("auto"), link_settings("auto"));
  for (LinkOutcome* side : {&pair.active, &pair.passive}) {
    Connection& link = side->get();
    EXPECT_EQ(link.device_name, "shm");
    EXPECT_EQ(link.transport_name, "ring");
    EXPECT_EQ(link.rejected, "");
    EXPECT_EQ(link.fallbacks, 0U);
  }
  expect_message_passes(*pair.active.get().transport, *pair.passive.get().transport);
  expect_word_passes(*pair.active.get().stream, *pair.passive.get().stream);
}

TEST(LinkTest, SettingsOfBothSidesCount) {
  LinkPair pair(link_settings("auto"), link_settings("^shm,ib"));
  EXPECT_EQ(pair.active.get().device_name, "tcp");
  EXPECT_NE(pair.active.get().rejected.find("excluded by the listener's device = '^shm,ib'"),
            std::string::npos);
  EXPECT_EQ(pair.active.get().fallbacks, 0U)
      << "a device that a setting excludes does not count as a fallback";

  LinkPair by_transport(link_settings("auto", "tcp"), link_settings("auto"));
  EXPECT_EQ(by_transport.passive.get().transport_name, "tcp");
  LinkPair by_listener(link_settings("auto"), link_settings("auto", "tcp"));
  EXPECT_EQ(by_listener.active.get().transport_name, "tcp");
}

TEST(LinkTest, ForcedDeviceThatThePeerExcludesNamesBothSides) {
  LinkPair pair(link_settings("shm"), link_settings("tcp"));
  for (const LinkOutcome* side : {&pair.active, &pair.passive}) {
    side->expect_error(ErrorCode::kUnavailable, {"shm: excluded by the listener's device = 'tcp'",
                                                 "tcp: excluded by the client's device = 'shm'"});
  }
}

TEST(LinkTest, ForcedVerbsDeviceThatIsMissingNamesBothSides) {
  if (!find_ib_device({"127.0.0.1", "127.0.0.1"}).name.empty()) {
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

TEST(LinkTest, DeviceThatDoesNotExistIsFoundBeforeConnecting) {
  Uri nobody;
  nobody.host = "127.0.0.1";
  {
    const Fd socket = listen_tcp(nobody);
    nobody.port = bound_port(socket.get());
  }
  for (const char* slip : {"shn", "ib:mlx5_O", "=no_such,ib:mlx5_O:1"}) {
    connect_to(nobody, link_settings(slip))
        .expect_error(ErrorCode::kUnavailable, {slip, "this machine does not have", "leat-info"});
    EXPECT_THROW(check_settings(link_settings(slip)), Error) << slip;
  }
  connect_to(nobody, link_settings("mlx5_O,tcp")).expect_error(ErrorCode::kRefused, {});
}

TEST(LinkTest, TransportsThatDisagreeNameBoth) {
  LinkPair pair(link_settings("auto", "ring"), link_settings("auto", "tcp"));
  for (const LinkOutcome* side : {&pair.active, &pair.passive}) {
    side->expect_error(ErrorCode::kUnavailable,
                       {"client asks for transport ring", "listener for tcp"});
  }
}

TEST(LinkTest, FailingClientFallsBackAndBothKnowWhy) {
  const NoMemoryForRings scarce;
  LinkPair pair(no_memory("auto"), link_settings("auto"));
  for (LinkOutcome* side : {&pair.active, &pair.passive}) {
    Connection& link = side->get();
    EXPECT_NE(link.device_name, "shm");
    EXPECT_GE(link.fallbacks, 1U);
    EXPECT_NE(link.rejected.find("shm: client: no room for a ring on shm"), std::string::npos)
        << link.rejected;
  }
  expect_message_passes(*pair.active.get().transport, *pair.passive.get().transport);
}

TEST(LinkTest, FailingListenerFallsBackAndBothKnowWhy) {
  const NoMemoryForRings scarce;
  LinkPair pair(link_settings("auto"), no_memory("auto"));
  for (LinkOutcome* side : {&pair.active, &pair.passive}) {
    EXPECT_EQ(side->get().rejected.find("shm: listener: no room"), 0U) << side->get().rejected;
    EXPECT_GE(side->get().fallbacks, 1U);
  }
}

TEST(LinkTest, FallbackNeverOfEitherSideIsAnError) {
  Settings strict = no_memory("auto");
  strict.fallback = Fallback::kNever;
  std::optional<NoMemoryForRings> scarce(std::in_place);
  LinkPair by_client(strict, link_settings("auto"));
  LinkPair by_listener(link_settings("auto"), strict);
  scarce.reset();
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
  const NoMemoryForRings scarce;
  Settings careful = no_memory("shm,tcp");
  careful.fallback = Fallback::kWarn;
  testing::internal::CaptureStderr();
  LinkPair pair(careful, link_settings("auto"));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(pair.active.get().device_name, "tcp");
  EXPECT_EQ(pair.active.get().fallbacks, 1U);
  const std::size_t first = said.find("falls back to tcp because shm: client: no room for a ring");
  EXPECT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find("falls back", first + 1), std::string::npos) << "the other side allows it";
}

TEST(LinkTest, WhenEverythingFailsTheReasonsAndTheCodeArrive) {
  const NoMemoryForRings scarce;
  LinkPair pair(no_memory("shm"), no_memory("auto"));
  for (const LinkOutcome* side : {&pair.active, &pair.passive}) {
    side->expect_error(ErrorCode::kResource,
                       {"shm: listener: no room for a ring on shm, client: no room"});
  }
}

// A transport that says to its peer just what a result has room for, or more.
class SetupOf final : public SilentTransport {
 public:
  explicit SetupOf(std::size_t bytes) : bytes_(bytes) {}
  std::vector<std::byte> setup() const override { return {bytes_, std::byte{9}}; }
  void start(std::span<const std::byte> peer_setup) override {
    EXPECT_EQ(std::vector(peer_setup.begin(), peer_setup.end()),
              std::vector(kMaxSetupBytes, std::byte{9}));
  }

 private:
  const std::size_t bytes_;
};

// While it lives the client, which is this thread, and the listener have transports with setups of
// so many bytes.
class SetupsOf {
 public:
  SetupsOf(std::size_t clients_bytes, std::size_t listeners_bytes) {
    bytes_[0] = listeners_bytes;
    bytes_[1] = clients_bytes;
    client_ = std::this_thread::get_id();
    replace_transports([](std::unique_ptr<Transport>) -> std::unique_ptr<Transport> {
      return std::make_unique<SetupOf>(bytes_[std::this_thread::get_id() == client_]);
    });
  }
  SetupsOf(const SetupsOf&) = delete;
  SetupsOf& operator=(const SetupsOf&) = delete;
  ~SetupsOf() { replace_transports(nullptr); }

 private:
  static inline std::size_t bytes_[2];
  static inline std::thread::id client_;
};

TEST(LinkTest, SetupThatIsTooLargeIsAnErrorThatBothHear) {
  for (const bool clients : {false, true}) {
    const SetupsOf too_large(kMaxSetupBytes + clients, kMaxSetupBytes + !clients);
    LinkPair pair(link_settings("tcp"), link_settings("tcp"));
    for (const LinkOutcome* side : {&pair.active, &pair.passive}) {
      side->expect_error(ErrorCode::kInvalidArgument,
                         {clients ? "tcp: client: transport tcp" : "tcp: listener: transport tcp",
                          "1025", "1024"});
    }
  }
  const SetupsOf that_fit(kMaxSetupBytes, kMaxSetupBytes);
  LinkPair pair(link_settings("tcp"), link_settings("tcp"));
  EXPECT_EQ(pair.active.get().transport->describe(), "silent");
  EXPECT_EQ(pair.passive.get().transport->describe(), "silent");
}

TEST(LinkTest, NothingIsLeftBehind) {
  const NoMemoryForRings scarce;
  const auto all = [] {
    LinkPair ring(link_settings("auto"), link_settings("auto"));
    LinkPair tcp(link_settings("tcp"), link_settings("auto"));
    LinkPair fell_back(no_memory("auto"), link_settings("auto"));
    LinkPair failed(no_memory("shm"), link_settings("auto"));
    EXPECT_TRUE(failed.active.error);
  };
  all();  // once for what stays on purpose
  const Holdings before = count_holdings();
  all();
  expect_no_more_than(before, std::size_t{1} << 20);
}

TEST(LinkTest, ListenerIsToldOfTheEndOfTheStreamThatItMayAbort) {
  Uri uri;
  uri.host = "127.0.0.1";
  const Fd socket = listen_tcp(uri);
  uri.port = bound_port(socket.get());
  const Fd client = raw_connection(uri);
  const auto hello = encode(Hello{});
  raw_send(client.get(), hello.data(), hello.size());
  wait_ready(socket.get(), POLLIN, hang_deadline(), "nobody came");
  Heard heard = hear(Fd(accept(socket.get(), nullptr, nullptr)), link_settings("tcp"));
  heard.stream->abort();
  int ends = 0;
  EXPECT_THROW(
      accept_connection(std::move(heard), link_settings("tcp"), {[&] { ++ends; }, [](LastWord) {}}),
      Error);
  EXPECT_EQ(ends, 1);
}

}  // namespace
}  // namespace leat::detail

// The setting confidential, as a program gives it, where every device counts as leaving the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "leat/group.h"
#include "leat/planned.h"
#include "leat/remote_memory.h"
#include "leat/socket.h"
#include "support/certificates.h"
#include "support/channel_side.h"
#include "support/leaving_host.h"
#include "support/scratch.h"
#include "transport/table.h"

namespace leat::detail {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Options options_on(const std::string& device, const std::string& transport,
                   std::optional<std::string> confidential, bool key = true) {
  Options options = channel_options({transport, device});
  options.fallback = "allow";
  options.confidential = std::move(confidential);
  if (key) options.tls_psk_file = channel_key_file();
  return options;
}

struct Ends {
  Channel listener;
  Channel client;
};

// `suffix`: parameters of the client's URI.
Ends connected(const Options& listener_options, const Options& client_options,
               const std::string& suffix = "") {
  Listener listener("127.0.0.1:0", listener_options);
  Channel client = Channel::connect("leat://" + listener.address() + suffix, client_options);
  return {listener.accept(), std::move(client)};
}

void expect_messages(Ends& ends, unsigned context = 0) {
  for (const std::size_t bytes : {0UL, 17UL, 5000UL, 300'000UL}) {
    std::thread sender([&] { send_pattern(ends.client, bytes, bytes, context); });
    expect_message(ends.listener.receive(context), bytes, bytes);
    sender.join();
  }
}

std::string listening_refused(const Options& options) {
  return error_of(ErrorCode::kInvalidArgument,
                  [&] { const Listener listener("127.0.0.1:0", options); });
}

class LeavesTheHost : public testing::Test {
  const LeavingHost leaving_;
};
using ConfidentialChannels = LeavesTheHost;

TEST_F(ConfidentialChannels, EveryTransportIsSealedAndSaysSo) {
  for (const TransportRow& row : transport_rows()) {
    if (!row.rdma) continue;
    for (const char* value : {"require", "prefer"}) {
      Ends ends = connected(options_on("shm", row.name, value), options_on("shm", row.name, value));
      for (const Channel* end : {&ends.listener, &ends.client}) {
        EXPECT_EQ(end->transport(), std::string("sealed+") + row.name) << value;
        EXPECT_THAT(end->description(), AllOf(HasSubstr("sealed+"), Not(HasSubstr("in clear"))));
      }
      expect_messages(ends);
      expect_messages(ends, 15);
    }
  }
}

TEST_F(ConfidentialChannels, OneSideThatWishesItIsEnoughWhateverTheTransport) {
  for (const char* transport : {"auto", "chunked", "batched"}) {
    const std::string sealed = transport == std::string("auto") ? "ring" : transport;
    for (const bool client_wishes : {true, false}) {
      const Options wish = options_on("shm", transport, "require");
      const Options none = options_on("shm", transport, {});
      Ends ends = connected(client_wishes ? none : wish, client_wishes ? wish : none);
      EXPECT_EQ(ends.client.transport(), "sealed+" + sealed);
      expect_messages(ends);
    }
  }
}

TEST_F(ConfidentialChannels, TheUriAndTheEnvironmentSayItToo) {
  Ends by_uri = connected(options_on("shm", "ring", {}), options_on("shm", "ring", {}),
                          "?confidential=require");
  EXPECT_EQ(by_uri.client.transport(), "sealed+ring");
  const ScratchVariable variable("LEAT_CONFIDENTIAL", "require");
  Ends by_environment = connected(options_on("shm", "ring", {}), options_on("shm", "ring", {}));
  EXPECT_EQ(by_environment.listener.transport(), "sealed+ring");
  EXPECT_THAT(listening_refused(options_on("tcp", "tcp", {}, false)), HasSubstr("tls_psk_file"));
}

TEST_F(ConfidentialChannels, TcpNeedsTls) {
  Ends ends = connected(options_on("tcp", "auto", "require"), options_on("tcp", "auto", "require"));
  EXPECT_EQ(ends.client.transport(), "tcp");
  EXPECT_THAT(ends.client.description(), HasSubstr("TLS"));
  expect_messages(ends);
}

// With one that nothing could satisfy it fails before anybody waits for a peer.
TEST_F(ConfidentialChannels, RequireWithoutAKeyFailsAtOnceWithAdvice) {
  for (const char* device : {"shm", "tcp"}) {
    const Options options = options_on(device, "auto", "require", false);
    for (const std::string& text :
         {listening_refused(options), error_of(ErrorCode::kInvalidArgument, [&] {
            (void)Channel::connect("leat://127.0.0.1:9", options);
          })})
      EXPECT_THAT(text, AllOf(HasSubstr("confidential = require"), HasSubstr("tls_psk_file")));
  }
}

TEST_F(ConfidentialChannels, RequireRefusesAPeerThatHasNoKey) {
  Listener listener("127.0.0.1:0", options_on("shm", "ring", "require"));
  expect_error(ErrorCode::kAuthentication, [&] {
    (void)Channel::connect(listener.address(), options_on("shm", "ring", {}, false));
  });
}

TEST_F(ConfidentialChannels, PreferWithoutAKeyGoesInClearAndSaysSo) {
  for (const char* device : {"shm", "tcp"}) {
    Ends ends = connected(options_on(device, "auto", "prefer", false),
                          options_on(device, "auto", "prefer", false));
    EXPECT_THAT(ends.client.description(), HasSubstr(", in clear"));
    EXPECT_THAT(ends.listener.description(), HasSubstr(", in clear"));
    expect_messages(ends);
  }
}

// Peers that hold no common key, but certificates of a common authority.
class CertifiedChannels : public LeavesTheHost {
 protected:
  Options certified(const std::string& name, const Certificate& authority,
                    const Certificate& trusted, const std::string& transport = "auto") const {
    const CertificateFiles files =
        write_files(folder_, name, make_certificate(name, &authority), trusted);
    Options options = options_on("shm", transport, "require", false);
    options.tls_psk_file.reset();
    options.tls_cert_file = files.certificate;
    options.tls_key_file = files.key;
    options.tls_ca_file = files.authority;
    return options;
  }

  const ScratchFolder folder_;
  const Certificate authority_ = make_certificate("authority", nullptr);
  const Certificate other_authority_ = make_certificate("other authority", nullptr);
};

TEST_F(CertifiedChannels, OfOneAuthorityAreSealed) {
  for (const char* transport : {"auto", "ring", "sealed+ring"}) {
    Ends ends = connected(certified("bob", authority_, authority_, transport),
                          certified("alice", authority_, authority_));
    for (const Channel* end : {&ends.listener, &ends.client}) {
      EXPECT_EQ(end->transport(), "sealed+ring");
      EXPECT_THAT(end->description(), Not(HasSubstr("in clear")));
    }
    expect_messages(ends);
    expect_messages(ends, 15);
  }
}

TEST_F(CertifiedChannels, OfAnotherAuthorityAreRefusedAndTheListenerGoesOn) {
  Listener listener("127.0.0.1:0", certified("bob", authority_, authority_));
  // The stranger trusts the listener, and is not trusted by it.
  EXPECT_THAT(error_of(ErrorCode::kAuthentication,
                       [&] {
                         (void)Channel::connect(listener.address(),
                                                certified("mallory", other_authority_, authority_));
                       }),
              HasSubstr("tls_ca_file"));
  // The client is trusted by the listener, and does not trust it.
  EXPECT_THAT(error_of(ErrorCode::kAuthentication,
                       [&] {
                         (void)Channel::connect(listener.address(),
                                                certified("carol", authority_, other_authority_));
                       }),
              HasSubstr("certificate verify failed"));
  Channel client = Channel::connect(listener.address(), certified("alice", authority_, authority_));
  Ends ends{listener.accept(), std::move(client)};
  EXPECT_EQ(ends.listener.transport(), "sealed+ring");
  expect_messages(ends);
}

// A key does not stand for a certificate, nor a certificate for a key.
TEST_F(CertifiedChannels, AreRefusedWhereAKeyIsAskedFor) {
  const Options by_key = options_on("shm", "auto", "require");
  const Options by_certificate = certified("alice", authority_, authority_);
  for (const bool listener_has_key : {true, false}) {
    Listener listener("127.0.0.1:0", listener_has_key ? by_key : by_certificate);
    expect_error(ErrorCode::kAuthentication, [&] {
      (void)Channel::connect(listener.address(), listener_has_key ? by_certificate : by_key);
    });
  }
}

TEST_F(ConfidentialChannels, AttestedMessagesAreSealedToo) {
  for (const char* wish : {"require", "prefer"}) {
    Options options = options_on("shm", "attested+ring", wish);
    options.attest_key_file = channel_key_file();
    Ends ends = connected(options, options);
    EXPECT_EQ(ends.client.transport(), "attested+sealed+ring");
    EXPECT_EQ(ends.listener.transport(), "attested+sealed+ring");
  }
}

TEST_F(ConfidentialChannels, ArraysAndRemoteMemoryAreRefusedAndSayWhy) {
  const Options options = options_on("shm", "planned", "require");
  Ends ends = connected(options, options);
  EXPECT_EQ(ends.client.transport(), "sealed+planned");
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument,
                       [&] { const PlannedChannel arrays(std::move(ends.client)); }),
              HasSubstr("would go beside the records of sealed+planned"));
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument,
                       [&] {
                         const trusted::RemoteMemory memory(std::move(ends.listener),
                                                            {.memory_bytes = 4096});
                       }),
              HasSubstr("attested+"));
}

TEST_F(ConfidentialChannels, SocketsTakeItByTheUri) {
  const Options options = options_on("shm", "auto", {});
  Listener listener("127.0.0.1:0", options);
  Socket client =
      Socket::connect("leat://" + listener.address() + "?confidential=require", options);
  Socket server(listener.accept());
  EXPECT_EQ(client.transport(), "sealed+ring");
  const std::string_view secret = "secret";
  EXPECT_EQ(client.send(std::as_bytes(std::span(secret))), secret.size());
  std::array<std::byte, 10> got{};
  EXPECT_EQ(server.recv(got), secret.size());
  EXPECT_EQ(std::memcmp(got.data(), secret.data(), secret.size()), 0);
}

// The master's setting reaches every worker, whatever they say themselves.
using ConfidentialGroups = LeavesTheHost;

TEST_F(ConfidentialGroups, EveryConnectionIsSealed) {
  constexpr unsigned kWorkers = 3;
  for (const char* transport : {"auto", "chunked", "batched"}) {
    Options options = options_on("shm", transport, "require");
    if (transport == std::string("batched")) options = with_slot_memory(8 << 20, kWorkers, options);
    Listener listener("127.0.0.1:0", options);
    std::vector<std::thread> threads;
    threads.reserve(kWorkers + 1);
    for (unsigned i = 0; i < kWorkers; ++i) {
      threads.emplace_back([&, i] {
        GroupWorkerOptions mine;
        mine.rank = i;
        mine.options = options_on("shm", transport, {});
        GroupWorker worker = GroupWorker::connect(listener.address(), mine);
        EXPECT_THAT(worker.channel().transport(), HasSubstr("sealed+"));
        while (const Message task = worker.receive()) worker.send(task.text());
      });
    }
    threads.emplace_back([&] {  // without the key nobody is a worker, and none is held up
      GroupWorkerOptions stranger;
      stranger.options = options_on("shm", transport, {}, false);
      expect_error(ErrorCode::kAuthentication,
                   [&] { (void)GroupWorker::connect(listener.address(), stranger); });
    });
    {
      GroupMaster master = GroupMaster::accept(listener, kWorkers);
      for (unsigned i = 0; i < kWorkers; ++i)
        EXPECT_THAT(master.channel(i).transport(), HasSubstr("sealed+"));
      for (const std::size_t bytes : {0UL, 40UL, 100'000UL}) {
        const std::string text(bytes, 'x');
        EXPECT_EQ(master.broadcast(text), kWorkers);
        for (const GroupMessage& answer : master.gather()) EXPECT_EQ(answer.message.text(), text);
      }
    }
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace leat::detail

// Remote attestation over sockets: who gets through TLS, and what strangers can do.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <array>
#include <csignal>
#include <optional>
#include <thread>
#include <utility>

#include "base/system_error.h"
#include "base/uri.h"
#include "handshake/connection.h"
#include "net/tcp.h"
#include "support/remote_parties.h"
#include "support/scale.h"
#include "trusted/remote/controller_service.h"
#include "trusted/remote/exchange.h"

namespace leat::trusted::remote {
namespace {

using leat::detail::Deadline;
using leat::detail::Fd;
using leat::detail::hang_deadline;
using leat::detail::Stream;
using leat::detail::TlsContext;
using leat::detail::TlsRole;
using leat::detail::TlsStream;

std::pair<Fd, Fd> connected() {
  int pair[2];
  leat::detail::check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), "socketpair");
  return {Fd(pair[0]), Fd(pair[1])};
}

std::unique_ptr<Stream> clear(const Fd& socket) {
  return leat::detail::plain_stream(Fd(dup(socket.get())));
}

// A controller that serves one connection in a thread.
class Serving {
 public:
  Serving(ControllerSide& side, Fd socket,
          const ControllerLimits& limits = {leat::detail::hang_limit(), leat::detail::hang_limit()})
      : thread_([this, &side, limits, socket = std::move(socket)]() mutable {
          try {
            serve_vendor(std::move(socket), *side.session, side.boot, limits);
          } catch (const Error& error) {
            error_.emplace(error);
          }
        }) {}
  ~Serving() {
    if (thread_.joinable()) thread_.join();
  }

  // Of the end of the connection; "served" if it went well.
  std::string end() {
    thread_.join();
    return error_ ? error_->what() : "served";
  }
  std::optional<ErrorCode> code() const {
    return error_ ? std::optional(error_->code()) : std::nullopt;
  }

 private:
  std::optional<Error> error_;
  std::thread thread_;
};

class RemoteChannel : public testing::Test {
 protected:
  VendorConnection vendor_of(std::uint32_t device, Fd socket) {
    return {std::move(socket), VendorSession(policy_, parties_.secrets(device), parties_.image()),
            *parties_.vendor};
  }
  static Fd connected_to(const Fd& listener) {
    return leat::detail::connect_tcp(
        leat::detail::parse_uri(leat::detail::local_address(listener.get())), hang_deadline(),
        false);
  }
  // CHALLENGE and QUOTE by hand, as anybody can; then the socket is at the beginning of TLS.
  void ask(const Fd& socket, std::uint32_t device = 1) {
    const auto stream = clear(socket);
    write_frame(*stream, Type::kChallenge, encode(Challenge{device, random<Nonce>()}),
                hang_deadline());
    expect_frame(*stream, Type::kQuote, hang_deadline());
  }
  static std::unique_ptr<TlsStream> tls(Fd socket, EVP_PKEY& key, const Pin& peer, TlsRole role,
                                        const char* protocol = kProtocolName) {
    const CertificateHandle carrier = make_key_carrier(key, std::time(nullptr));
    auto stream = std::make_unique<TlsStream>(
        std::move(socket),
        std::make_unique<TlsContext>(leat::detail::TlsPinning{&key, carrier.get(), peer, protocol},
                                     role));
    stream->handshake(hang_deadline());
    return stream;
  }

  Parties parties_;
  VendorPolicy policy_ = parties_.policy();
  ControllerSide controller_{parties_};
};

TEST_F(RemoteChannel, ProvisionsAndEnablesTwoDevices) {
  ControllerSide second(parties_, 2);
  auto [vendor1, device1] = connected();
  auto [vendor2, device2] = connected();
  Serving serving1(controller_, std::move(device1));
  Serving serving2(second, std::move(device2));
  VendorConnection one = vendor_of(1, std::move(vendor1));
  VendorConnection two = vendor_of(2, std::move(vendor2));
  one.provision(hang_deadline());
  two.provision(hang_deadline());
  EXPECT_TRUE(controller_.kernel.members.empty()) << "before every member is done";
  one.enable({1, 2}, hang_deadline());
  two.enable({1, 2}, hang_deadline());
  EXPECT_EQ(serving1.end(), "served");
  EXPECT_EQ(serving2.end(), "served");
  EXPECT_TRUE(one.session().enabled() && two.session().enabled());
  ASSERT_EQ(controller_.kernel.sessions.size(), 2U);
  ASSERT_EQ(second.kernel.sessions.size(), 2U);
  EXPECT_EQ(controller_.kernel.sessions[0].key, second.kernel.sessions[0].key);
}

TEST_F(RemoteChannel, R11_QuoteReplayedByAManInTheMiddle) {
  auto [vendor, middle] = connected();
  auto [relay, device] = connected();
  Serving serving(controller_, std::move(device));
  const KeyHandle own = make_key();
  std::thread man([&, middle = std::move(middle), relay = std::move(relay)]() mutable {
    {
      const auto to_vendor = clear(middle);
      const auto to_device = clear(relay);
      write_frame(*to_device, Type::kChallenge,
                  expect_frame(*to_vendor, Type::kChallenge, hang_deadline()), hang_deadline());
      write_frame(*to_vendor, Type::kQuote, expect_frame(*to_device, Type::kQuote, hang_deadline()),
                  hang_deadline());
    }
    relay.reset();
    EXPECT_THROW(tls(std::move(middle), *own, pin_of(*parties_.vendor), TlsRole::kPassive), Error);
  });
  VendorConnection connection = vendor_of(1, std::move(vendor));
  try {
    connection.provision(hang_deadline());
    ADD_FAILURE() << "provisioned a man in the middle";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kAuthentication) << error.what();
  }
  man.join();
  EXPECT_NE(serving.end(), "served");
  EXPECT_EQ(controller_.kernel.provisioned, 0);
}

TEST_F(RemoteChannel, R12_RelayToASecondGenuineDevice) {
  ControllerSide second(parties_, 2);
  auto [relay1, device1] = connected();
  auto [relay2, device2] = connected();
  auto [vendor, middle] = connected();
  Serving serving1(controller_, std::move(device1));
  Serving serving2(second, std::move(device2));
  ask(relay2, 2);
  std::thread man([&, middle = std::move(middle), relay = std::move(relay1),
                   last = std::move(relay2)]() mutable {
    const auto to_vendor = clear(middle);
    const auto to_device = clear(relay);
    write_frame(*to_device, Type::kChallenge,
                expect_frame(*to_vendor, Type::kChallenge, hang_deadline()), hang_deadline());
    write_frame(*to_vendor, Type::kQuote, expect_frame(*to_device, Type::kQuote, hang_deadline()),
                hang_deadline());
    // From here on the vendor's bytes go to device 2, and back.
    const auto second_device = clear(last);
    std::array<std::byte, 4096> bytes;
    try {
      for (;;) {
        bool moved = false;
        for (const auto& [from, to] : {std::pair(to_vendor.get(), second_device.get()),
                                       std::pair(second_device.get(), to_vendor.get())}) {
          if (const auto got = from->try_read(bytes)) {
            if (*got == 0) return;
            leat::detail::write_all(*to, std::span(bytes).first(*got), hang_deadline());
            moved = true;
          }
        }
        if (!moved) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    } catch (const Error&) {
      // An end of it is gone.
    }
  });
  {
    VendorConnection connection = vendor_of(1, std::move(vendor));
    try {
      connection.provision(hang_deadline());
      ADD_FAILURE() << "provisioned another device";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kAuthentication) << error.what();
    }
  }
  man.join();
  EXPECT_NE(serving1.end(), "served");
  EXPECT_NE(serving2.end(), "served");
  EXPECT_EQ(controller_.kernel.provisioned + second.kernel.provisioned, 0);
}

TEST_F(RemoteChannel, R13_SomebodyElseThanTheVendor) {
  auto [vendor, device] = connected();
  Serving serving(controller_, std::move(device));
  ask(vendor);
  const KeyHandle own = make_key();
  std::array<std::byte, 1> byte{};
  try {
    // A client of TLS 1.3 learns only afterwards that it is not let in.
    const auto stream =
        tls(std::move(vendor), *own, pin_of(*controller_.boot.controller_key), TlsRole::kActive);
    leat::detail::read_all(*stream, byte, hang_deadline());
    ADD_FAILURE() << "let in";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kAuthentication) << error.what();
  }
  EXPECT_THAT(serving.end(), testing::HasSubstr("certificate verify failed"));
  EXPECT_FALSE(controller_.session->authenticated());

  controller_.begin();  // a stranger does not use up the boot
  auto [again, same_device] = connected();
  Serving once_more(controller_, std::move(same_device));
  VendorConnection connection = vendor_of(1, std::move(again));
  connection.provision(hang_deadline());
  connection.enable({1, 2}, hang_deadline());
  EXPECT_EQ(once_more.end(), "served");
}

// A client that does what leat's own never would. Returns whether the controller took part in the
// handshake and let it live: its answer to a first byte that begins no frame came back.
bool raw_client(
    Fd socket, const std::function<void(SSL_CTX*)>& change,
    const std::function<void(SSL*)>& look = [](SSL*) {}) {
  const std::unique_ptr<SSL_CTX, FreeBy<SSL_CTX_free>> context(SSL_CTX_new(TLS_client_method()));
  change(context.get());
  const std::unique_ptr<SSL, FreeBy<SSL_free>> ssl(SSL_new(context.get()));
  fcntl(socket.get(), F_SETFL, 0);  // OpenSSL is to wait by itself
  signal(SIGPIPE, SIG_IGN);         // its own sockets raise it
  SSL_set_fd(ssl.get(), socket.get());
  const char junk[kFrameHeaderBytes + 1] = "no frame, no";
  char byte = 0;
  const bool through = SSL_connect(ssl.get()) == 1 &&
                       SSL_write(ssl.get(), junk, kFrameHeaderBytes) > 0 &&
                       SSL_read(ssl.get(), &byte, 1) == 1;
  look(ssl.get());
  return through;
}

TEST_F(RemoteChannel, R13_R14_NoCertificateOldTlsOtherProtocolOrResumption) {
  const CertificateHandle carrier = make_key_carrier(*parties_.vendor, parties_.now);
  const unsigned char protocol[] = "\x09tnic-ra/1";
  const auto as_vendor = [&](SSL_CTX* context) {
    SSL_CTX_use_certificate(context, carrier.get());
    SSL_CTX_use_PrivateKey(context, parties_.vendor.get());
    SSL_CTX_set_alpn_protos(context, protocol, 10);
  };
  const auto refused = [&](const std::function<void(SSL_CTX*)>& change) {
    controller_.begin();
    auto [vendor, device] = connected();
    Serving serving(controller_, std::move(device));
    ask(vendor);
    EXPECT_FALSE(raw_client(std::move(vendor), change));
    EXPECT_NE(serving.end(), "served");
    EXPECT_EQ(controller_.kernel.provisioned, 0);
  };
  refused([&](SSL_CTX* context) { SSL_CTX_set_alpn_protos(context, protocol, 10); });
  refused([&](SSL_CTX* context) {
    as_vendor(context);
    SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION);
  });
  refused([&](SSL_CTX* context) {
    as_vendor(context);
    SSL_CTX_set_alpn_protos(context, reinterpret_cast<const unsigned char*>("\x02h2"), 3);
  });
  refused([&](SSL_CTX* context) {
    as_vendor(context);
    SSL_CTX_set_alpn_protos(context, nullptr, 0);
  });
  refused([&](SSL_CTX* context) {
    as_vendor(context);
    SSL_CTX_set1_groups_list(context, "P-256");
  });

  // The vendor's own key gets through, but gets nothing to come back with.
  controller_.begin();
  auto [vendor, device] = connected();
  Serving serving(controller_, std::move(device));
  ask(vendor);
  EXPECT_TRUE(raw_client(std::move(vendor), as_vendor, [](SSL* ssl) {
    EXPECT_EQ(SSL_version(ssl), TLS1_3_VERSION);
    EXPECT_EQ(SSL_session_reused(ssl), 0);
    EXPECT_EQ(SSL_SESSION_is_resumable(SSL_get0_session(ssl)), 0);
    EXPECT_EQ(SSL_SESSION_get_max_early_data(SSL_get0_session(ssl)), 0U);
  }));
  EXPECT_THAT(serving.end(), testing::HasSubstr("malformed"));
}

TEST_F(RemoteChannel, R21_ASecondAttestationOfTheSameBootIsRefusedByTheSession) {
  auto [vendor, device] = connected();
  Serving serving(controller_, std::move(device));
  VendorConnection connection = vendor_of(1, std::move(vendor));
  connection.provision(hang_deadline());
  connection.enable({1, 2}, hang_deadline());
  EXPECT_EQ(serving.end(), "served");
  EXPECT_TRUE(controller_.session->authenticated()) << "by which the program stops serving";
  auto [again, same_device] = connected();
  Serving refusing(controller_, std::move(same_device));
  VendorConnection second = vendor_of(1, std::move(again));
  EXPECT_THROW(second.provision(hang_deadline()), Error);
  EXPECT_THAT(refusing.end(), testing::HasSubstr("out of order"));
}

TEST_F(RemoteChannel, R21_StrangersChangeNothingButTheVendorUsesUpTheBoot) {
  const Fd listener = leat::detail::listen_tcp(leat::detail::parse_uri("127.0.0.1:0"));
  const auto connect = [&] { return connected_to(listener); };
  std::vector<std::string> strangers;
  std::optional<Error> ended;
  std::thread serving([&] {
    try {
      serve_until_enabled(listener.get(),
                          {controller_.boot,
                           *parties_.vendor,
                           controller_.record,
                           [](const DeviceRecord&) {},
                           controller_.kernel,
                           {leat::detail::hang_limit(), leat::detail::hang_limit()},
                           [&](const std::string& why) { strangers.push_back(why); }});
    } catch (const Error& error) {
      ended.emplace(error);
    }
  });
  connect().reset();
  {
    VendorConnection wrong = vendor_of(2, connect());
    EXPECT_THROW(wrong.provision(hang_deadline()), Error);
  }
  {
    VendorConnection vendor = vendor_of(1, connect());
    vendor.provision(hang_deadline());
  }  // goes away before ENABLE
  serving.join();
  EXPECT_EQ(strangers.size(), 2U);
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->code(), ErrorCode::kPeerDied) << ended->what();
  EXPECT_TRUE(controller_.kernel.members.empty());
}

TEST_F(RemoteChannel, R22_SilentStrangersDoNotHoldUpTheVendor) {
  const Fd listener = leat::detail::listen_tcp(leat::detail::parse_uri("127.0.0.1:0"));
  const auto connect = [&] { return connected_to(listener); };
  std::size_t strangers = 0;
  std::optional<std::string> failure;
  std::thread serving([&] {
    try {
      serve_until_enabled(listener.get(), {controller_.boot,
                                           *parties_.vendor,
                                           controller_.record,
                                           [](const DeviceRecord&) {},
                                           controller_.kernel,
                                           {leat::detail::hang_limit(), leat::detail::hang_limit()},
                                           [&](const std::string&) { ++strangers; }});
    } catch (const Error& error) {
      failure = error.what();
    }
  });
  // Some say nothing, some go on to where TLS begins: more than there is room for.
  std::vector<Fd> silent;
  for (std::size_t i = 0; i < ControllerService::kMostNewcomers + 8; ++i) {
    silent.push_back(connect());
    if (i % 2 == 1) ask(silent.back());
  }
  VendorConnection vendor = vendor_of(1, connect());
  vendor.provision(hang_deadline());
  vendor.enable({1, 2}, hang_deadline());
  serving.join();
  EXPECT_EQ(failure, std::nullopt);
  EXPECT_EQ(strangers, silent.size());
}

TEST_F(RemoteChannel, R22_LongFramesAndSlowStrangers) {
  const auto serve = [&](const std::function<void(Fd&)>& stranger, ErrorCode code) {
    controller_.begin();
    auto [vendor, device] = connected();
    Serving serving(controller_, std::move(device),
                    {std::chrono::milliseconds(300), std::chrono::milliseconds(300)});
    stranger(vendor);
    serving.end();
    EXPECT_EQ(serving.code(), code);
  };
  const auto send_header = [](const Fd& socket, Type type, std::uint32_t bytes) {
    SecretBytes header = frame(type, {});
    for (unsigned i = 0; i < 4; ++i)
      header[8 + i] = static_cast<std::byte>((bytes >> (8 * i)) & 0xff);
    send(socket.get(), header.data(), header.size(), MSG_NOSIGNAL);
  };
  for (const std::uint32_t bytes : {37U, 0x7fffffffU, 0xffffffffU})
    serve([&](Fd& socket) { send_header(socket, Type::kChallenge, bytes); }, ErrorCode::kProtocol);
  serve([](Fd&) {}, ErrorCode::kTimeout);
  serve([&](Fd& socket) { send_header(socket, Type::kChallenge, 36); }, ErrorCode::kTimeout);
  serve(
      [&](Fd& socket) {  // byte after byte does not stretch the deadline
        const SecretBytes bytes = frame(Type::kChallenge, encode(Challenge{1, {}}));
        for (const std::byte byte : bytes) {
          send(socket.get(), &byte, 1, MSG_NOSIGNAL);
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
      },
      ErrorCode::kTimeout);
  serve([&](Fd& socket) { ask(socket); }, ErrorCode::kTimeout);
  serve([](Fd& socket) { socket.reset(); }, ErrorCode::kPeerDied);
}

TEST_F(RemoteChannel, R23_NoMessageReadsKeysBack) {
  // Before and after provisioning: every number that names no message, and every message that the
  // controller does not expect there.
  for (unsigned type = 0; type < 256; ++type) {
    if (type == static_cast<unsigned>(Type::kChallenge)) continue;
    SecretBytes bytes = frame(Type::kBind, {});
    bytes[5] = static_cast<std::byte>(type);
    if (type == 0 || type > static_cast<unsigned>(Type::kRefused)) {
      expect_refused(Refusal::kMalformed, [&] { parse_frame_header(bytes); });
    }
  }
  controller_.begin();
  auto [vendor, device] = connected();
  Serving serving(controller_, std::move(device));
  VendorConnection connection = vendor_of(1, std::move(vendor));
  connection.provision(hang_deadline());
  // SECRETS once more instead of ENABLE: nothing comes back but the refusal.
  VendorSession asking(policy_, parties_.secrets(1), parties_.image());
  EXPECT_EQ(controller_.kernel.provisioned, 1);
  expect_refused(Refusal::kOrder,
                 [&] { controller_.session->accept_secrets(encode(parties_.secrets(1, 2))); });
  EXPECT_EQ(controller_.kernel.provisioned, 1);
  EXPECT_THROW(connection.enable({1, 2}, hang_deadline()), Error);
  EXPECT_NE(serving.end(), "served");
}

}  // namespace
}  // namespace leat::trusted::remote

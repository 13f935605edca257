// Streams inside TLS: peers with keys or certificates, and strangers with neither.
#include "net/tls.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>

#include "base/key_file.h"
#include "base/system_error.h"
#include "handshake/hello.h"
#include "net/tcp.h"
#include "support/errors.h"
#include "support/fork_at_rest.h"
#include "support/leaks.h"
#include "support/link_pair.h"
#include "support/scale.h"
#include "support/scratch.h"

namespace leat::detail {
namespace {

constexpr const char* kKey = "00112233445566778899aabbccddeeff";
constexpr const char* kOtherKey = "00112233445566778899aabbccddeefe";
const std::string kLongKey = std::string(kKey) + kKey;

class TlsTest : public testing::Test {
 protected:
  Settings with_key(const std::string& key, const std::string& device = "tcp") const {
    Settings settings = link_settings(device);
    settings.tls_psk_file = folder_.write("key-" + key.substr(0, 40), key + "\n");
    return settings;
  }

  ScratchFolder folder_;
};

void expect_bytes_pass(Stream& from, Stream& to, std::size_t count) {
  std::vector<std::byte> sent(count);
  std::mt19937 random(1);
  for (std::byte& byte : sent) byte = static_cast<std::byte>(random());
  std::thread writer([&] { write_all(from, sent, hang_deadline()); });
  std::vector<std::byte> got(count);
  read_all(to, got, hang_deadline());
  writer.join();
  EXPECT_TRUE(got == sent);
}

TEST_F(TlsTest, SameKeyConnects) {
  for (const std::string& key : {std::string(kKey), kLongKey, std::string(512, '7')}) {
    LinkPair pair(with_key(key), with_key(key));
    EXPECT_TRUE(pair.active.get().stream->encrypted());
    EXPECT_TRUE(pair.passive.get().stream->encrypted());
    expect_bytes_pass(*pair.active.get().stream, *pair.passive.get().stream, 1'000'000);
    expect_bytes_pass(*pair.passive.get().stream, *pair.active.get().stream, 1'000'000);
  }
}

// With the key alone, whoever learns it later could read what was recorded before.
TEST_F(TlsTest, AKeyIsUsedWithAnEphemeralExchangeOnly) {
  const auto pair = [] {
    std::array<int, 2> ends{};
    check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()),
          "socketpair");
    return std::pair<Fd, Fd>(ends[0], ends[1]);
  };
  auto [clients, before] = pair();
  auto [listeners, behind] = pair();
  const Settings settings = with_key(kLongKey);
  TlsStream client(std::move(clients), std::make_unique<TlsContext>(settings, TlsRole::kActive));
  TlsStream listener(std::move(listeners),
                     std::make_unique<TlsContext>(settings, TlsRole::kPassive));
  std::string to_listener, to_client;
  const auto pass = [](const Fd& from, const Fd& to, std::string& recorded) {
    std::array<char, 4096> bytes{};
    const ssize_t got = ::read(from.get(), bytes.data(), bytes.size());
    if (got <= 0) return;
    recorded.append(bytes.data(), static_cast<std::size_t>(got));
    ASSERT_EQ(::write(to.get(), bytes.data(), static_cast<std::size_t>(got)), got);
  };
  for (bool both = false; !both;) {
    const bool client_done = client.try_handshake() == 0;
    pass(before, behind, to_listener);
    both = listener.try_handshake() == 0 && client_done;
    pass(behind, before, to_client);
  }
  // RFC 8446, 4.2.9: psk_key_exchange_modes lists psk_dhe_ke and nothing else.
  EXPECT_NE(to_listener.find(std::string("\x00\x2d\x00\x02\x01\x01", 6)), std::string::npos);
  // 4.2.8: the listener's key_share, X25519.
  EXPECT_NE(to_client.find(std::string("\x00\x33\x00\x24\x00\x1d\x00\x20", 8)), std::string::npos);
}

TEST_F(TlsTest, ShmIsSetUpInsideTls) {
  LinkPair pair(with_key(kKey, "auto"), with_key(kKey, "auto"));
  EXPECT_EQ(pair.active.get().device_name, "shm");
  EXPECT_TRUE(pair.passive.get().stream->encrypted());
}

TEST_F(TlsTest, WrongKeyIsAnAuthenticationErrorOnBothSides) {
  for (const std::string& key : {std::string(kOtherKey), kLongKey}) {
    LinkPair pair(with_key(key), with_key(kKey));
    pair.active.expect_error(ErrorCode::kAuthentication, {"TLS handshake failed", "tls_psk_file"});
    pair.passive.expect_error(ErrorCode::kAuthentication, {"TLS handshake failed", "tls_psk_file"});
  }
}

// An attacker in the middle, without a key: it passes every connection on to `target`.
class Middle {
 public:
  explicit Middle(const Uri& target) {
    uri_.host = "127.0.0.1";
    socket_ = listen_tcp(uri_);
    uri_.port = bound_port(socket_.get());
    thread_ = std::thread([this, target] { lead_to(target); });
  }
  Middle(const Middle&) = delete;
  Middle& operator=(const Middle&) = delete;
  ~Middle() { thread_.join(); }

  const Uri& uri() const { return uri_; }

 private:
  void lead_to(const Uri& target) {
    wait_ready(socket_.get(), POLLIN, hang_deadline(), "nobody came");
    const Fd client(check(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC), "accept4"));
    const Fd listener = raw_connection(target);
    std::array<char, 4096> bytes{};
    for (;;) {
      std::array<pollfd, 2> ready{pollfd{client.get(), POLLIN, 0},
                                  pollfd{listener.get(), POLLIN, 0}};
      if (poll(ready.data(), ready.size(), poll_timeout_ms(hang_deadline())) <= 0) return;
      for (int from = 0; from < 2; ++from) {
        if (ready[static_cast<std::size_t>(from)].revents == 0) continue;
        const ssize_t got =
            recv(ready[static_cast<std::size_t>(from)].fd, bytes.data(), bytes.size(), 0);
        if (got <= 0) return;
        (void)send(ready[static_cast<std::size_t>(1 - from)].fd, bytes.data(),
                   static_cast<std::size_t>(got), MSG_NOSIGNAL);
      }
    }
  }

  Uri uri_;
  Fd socket_;
  std::thread thread_;
};

// The key alone cannot tell: this process has it, on both ends.
TEST_F(TlsTest, ConnectionThatIsLedBackToItsOwnProcessIsRefused) {
  ListeningSide listening(with_key(kKey));
  const Middle middle(listening.uri());
  connect_to(middle.uri(), with_key(kKey))
      .expect_error(ErrorCode::kAuthentication, {"led back", "same process"});
  listening.wait().expect_error(ErrorCode::kAuthentication, {"led back"});
}

TEST_F(TlsTest, ConnectionThatIsLedToAnotherProcessStands) {
  const Settings settings = with_key(kKey);
  std::array<int, 2> ends{};
  check(::pipe(ends.data()), "pipe");
  const pid_t child = check(::fork(), "fork");  // before there are threads
  if (child == 0) {
    Uri uri{.host = "127.0.0.1", .port = 0, .parameters = {}};
    check(static_cast<int>(::read(ends[0], &uri.port, sizeof uri.port)), "read");
    const LinkOutcome outcome = connect_to(uri, settings);
    std::_Exit(outcome.link ? 0 : 1);
  }
  ListeningSide listening(settings);
  const Middle middle(listening.uri());
  check(static_cast<int>(::write(ends[1], &middle.uri().port, sizeof middle.uri().port)), "write");
  for (const int end : ends) ::close(end);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(listening.wait().get().stream->encrypted());
}

TEST_F(TlsTest, ClientInClearIsRefusedAndToldWhy) {
  LinkPair pair(link_settings("tcp"), with_key(kKey));
  pair.active.expect_error(ErrorCode::kAuthentication, {"the listener refused", "asks for TLS"});
  pair.passive.expect_error(ErrorCode::kAuthentication, {"does not speak TLS", "tls_*"});
}

TEST_F(TlsTest, ListenerInClearIsNotTalkedTo) {
  LinkPair pair(with_key(kKey), link_settings("tcp"));
  pair.active.expect_error(ErrorCode::kAuthentication, {"does not speak TLS", "tls_*"});
  pair.passive.expect_error(ErrorCode::kAuthentication, {"the peer speaks TLS"});
}

TEST_F(TlsTest, HttpAndJunkAreRefused) {
  for (const std::string& text : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(5000, 'x')}) {
    ListeningSide listening(with_key(kKey));
    Fd stranger = raw_connection(listening.uri());
    raw_send(stranger.get(), text.data(), text.size());
    raw_receive_all(stranger.get());
    stranger.reset();
    listening.wait().expect_error(ErrorCode::kAuthentication, {"does not speak TLS"});
  }
}

TEST_F(TlsTest, SilenceInTheHandshakeEndsAtTheDeadline) {
  Settings settings = with_key(kKey);
  settings.handshake_timeout = std::chrono::milliseconds(100);
  ListeningSide listening(settings);
  Fd stranger = raw_connection(listening.uri());
  const std::string start("\x16\x03\x01\x02", 4);  // the beginning of a record, as TLS has it
  raw_send(stranger.get(), start.data(), start.size());
  wait_ready(stranger.get(), POLLIN, hang_deadline(), "not disconnected");
  stranger.reset();
  listening.wait().expect_error(ErrorCode::kTimeout, {"TLS handshake"});
}

TEST_F(TlsTest, EndInTheHandshakeIsADeadPeer) {
  ListeningSide listening(with_key(kKey));
  raw_connection(listening.uri()).reset();
  listening.wait().expect_error(ErrorCode::kPeerDied, {"TLS handshake"});
}

TEST_F(TlsTest, FailuresLeaveNothingBehind) {
  const Settings good = with_key(kKey);
  const Settings bad = with_key(kOtherKey);
  const auto all = [&] {
    LinkPair right(good, good);
    EXPECT_TRUE(right.active.link);
    LinkPair wrong(bad, good);
    LinkPair clear(link_settings("tcp"), good);
  };
  all();
  const Holdings before = count_holdings();
  all();
  expect_no_more_than(before, std::size_t{4} << 20);
}

TEST_F(TlsTest, KeyFilesAreChecked) {
  const std::string path = "/some/key";
  const KeyFile key_file{"tls_psk_file", path, 16, 256};
  const auto text_of = [&](const std::string& text) -> std::string {
    try {
      parse_key(text, key_file);
      return "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
  };
  EXPECT_EQ(parse_key(std::string(kKey) + " \r\n", key_file).size(), 16U);
  EXPECT_EQ(parse_key("ABCDEFabcdef00112233445566778899", key_file)[0], 0xab);
  EXPECT_EQ(text_of(std::string(512, 'f')), "accepted");
  EXPECT_NE(text_of("").find("at least 32"), std::string::npos);
  EXPECT_NE(text_of("001122").find("at least 32"), std::string::npos);
  EXPECT_NE(text_of(std::string(kKey) + "0").find("odd"), std::string::npos);
  EXPECT_NE(text_of(std::string(kKey) + "zz").find("hexadecimal"), std::string::npos);
  EXPECT_NE(text_of(std::string(kKey) + "\n" + kKey).find("one line"), std::string::npos);
  EXPECT_NE(text_of(std::string(514, 'f')).find("at most 512"), std::string::npos);
  EXPECT_NE(text_of("zz").find("/some/key"), std::string::npos);
  EXPECT_EQ(text_of(std::string(kKey) + "zz").find(kKey), std::string::npos) << "shows the key";

  Settings missing = link_settings("tcp");
  missing.tls_psk_file = folder_.path() + "/none";
  EXPECT_THROW(check_settings(missing), Error);
  Settings both = with_key(kKey);
  both.tls_ca_file = missing.tls_psk_file;
  EXPECT_THROW(check_settings(both), Error);
}

TEST_F(TlsTest, KeyFileThatOthersCanReadIsRefused) {
  Settings settings = link_settings("tcp");
  settings.tls_psk_file = folder_.write("open.key", kKey, 0644);
  const std::string said =
      detail::error_of(ErrorCode::kInvalidArgument, [&] { check_settings(settings); });
  EXPECT_NE(said.find("tls_psk_file '" + settings.tls_psk_file + "'"), std::string::npos) << said;
  EXPECT_NE(said.find("its mode is 0644"), std::string::npos) << said;
  ASSERT_EQ(chmod(settings.tls_psk_file.c_str(), 0600), 0);
  EXPECT_NO_THROW(check_settings(settings));
}

// --- a stream by itself

struct TlsPair {
  explicit TlsPair(const Settings& settings, int buffer_bytes = 0) {
    Uri uri;
    uri.host = "127.0.0.1";
    const Fd listener = listen_tcp(uri);
    uri.port = bound_port(listener.get());
    Fd client = connect_tcp(uri, hang_deadline(), false);
    if (buffer_bytes != 0) {
      check(setsockopt(client.get(), SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes),
            "setsockopt");
    }
    wait_ready(listener.get(), POLLIN, hang_deadline(), "nobody came");
    Fd newcomer(check(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC), "accept4"));
    active = std::make_unique<TlsStream>(std::move(client),
                                         std::make_unique<TlsContext>(settings, TlsRole::kActive));
    passive = std::make_unique<TlsStream>(
        std::move(newcomer), std::make_unique<TlsContext>(settings, TlsRole::kPassive));
    std::thread other([&] { EXPECT_NO_THROW(passive->handshake(hang_deadline())); });
    EXPECT_NO_THROW(active->handshake(hang_deadline()));
    other.join();
  }

  std::unique_ptr<TlsStream> active;
  std::unique_ptr<TlsStream> passive;
};

TEST_F(TlsTest, BothDirectionsAtOnceFromFourThreads) {
  TlsPair pair(with_key(kKey));
  std::thread one([&] { expect_bytes_pass(*pair.active, *pair.passive, 3'000'000); });
  expect_bytes_pass(*pair.passive, *pair.active, 3'000'000);
  one.join();
}

TEST_F(TlsTest, GoodbyeIsTheEndAndACutIsNot) {
  TlsPair pair(with_key(kKey));
  std::array<std::byte, 8> room{};
  EXPECT_FALSE(pair.passive->try_read(room));
  pair.active.reset();
  wait_ready(pair.passive->fd(), POLLIN, hang_deadline(), "no end");
  EXPECT_EQ(pair.passive->try_read(room), 0U);

  TlsPair cut(with_key(kKey));
  cut.active->abort();  // ends TCP without TLS's goodbye, as an attacker in the middle could
  wait_ready(cut.passive->fd(), POLLIN, hang_deadline(), "no end");
  try {
    cut.passive->try_read(room);
    ADD_FAILURE() << "a cut looks like an end";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeerDied) << error.what();
  }
}

TEST_F(TlsTest, WriteThatFoundNoRoomMustBeRepeated) {
  TlsPair pair(with_key(kKey), 4096);
  std::vector<std::byte> bytes(1 << 16, std::byte{1});
  std::size_t sent = 0;
  while (const auto more = pair.active->try_write(bytes)) sent += *more;
  const std::vector<std::byte> others(1 << 16, std::byte{2});
  EXPECT_THROW(pair.active->try_write(others), Error);
  EXPECT_THROW(pair.active->try_write(std::span(bytes).first(1)), Error);
  // The same bytes, at another place, go on.
  const std::vector<std::byte> again = bytes;
  std::vector<std::byte> got(sent + again.size());
  std::thread reader([&] { read_all(*pair.passive, got, hang_deadline()); });
  write_all(*pair.active, again, hang_deadline());
  reader.join();
  EXPECT_TRUE(std::all_of(got.begin(), got.end(), [](std::byte b) { return b == std::byte{1}; }));
}

TEST_F(TlsTest, WritingToAPeerThatIsGoneIsAnErrorAndNoSignal) {
  TlsPair pair(with_key(kKey));
  pair.passive.reset();
  const std::vector<std::byte> bytes(1000);
  try {
    for (;;) write_all(*pair.active, bytes, hang_deadline());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeerDied) << error.what();
  }
}

// --- certificates

struct Certificate {
  std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key{nullptr, EVP_PKEY_free};
  std::unique_ptr<X509, decltype(&X509_free)> x509{nullptr, X509_free};
};

// Signed by `authority`, or by itself; made out to `hosts`, a list as OpenSSL reads it.
Certificate make_certificate(const std::string& name, const Certificate* authority,
                             const char* hosts = "IP:127.0.0.1") {
  Certificate made;
  made.key.reset(EVP_EC_gen("P-256"));
  made.x509.reset(X509_new());
  X509* x509 = made.x509.get();
  X509_set_version(x509, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(x509),
                   static_cast<long>(std::hash<std::string>()(name) >> 34));
  X509_gmtime_adj(X509_getm_notBefore(x509), -3600);
  X509_gmtime_adj(X509_getm_notAfter(x509), 3600);
  X509_set_pubkey(x509, made.key.get());
  X509_NAME_add_entry_by_txt(X509_get_subject_name(x509), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  const Certificate& issuer = authority != nullptr ? *authority : made;
  X509_set_issuer_name(x509, X509_get_subject_name(issuer.x509.get()));
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer.x509.get(), x509, nullptr, nullptr, 0);
  const auto add = [&](int kind, const char* value) {
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value);
    X509_add_ext(x509, extension, -1);
    X509_EXTENSION_free(extension);
  };
  add(NID_basic_constraints, authority == nullptr ? "critical,CA:TRUE" : "critical,CA:FALSE");
  add(NID_subject_alt_name, hosts);
  EXPECT_GT(X509_sign(x509, issuer.key.get(), EVP_sha256()), 0);
  return made;
}

class CertificateTest : public TlsTest {
 protected:
  // PEM files of a certificate; the authority's certificate is what the peer is checked against.
  Settings with_certificate(const std::string& name, const Certificate& certificate,
                            const Certificate& trusted) const {
    Settings settings = link_settings("tcp");
    settings.tls_cert_file = write_pem(name + ".crt", [&](std::FILE* file) {
      return PEM_write_X509(file, certificate.x509.get());
    });
    settings.tls_key_file = write_pem(name + ".key", [&](std::FILE* file) {
      return PEM_write_PrivateKey(file, certificate.key.get(), nullptr, nullptr, 0, nullptr,
                                  nullptr);
    });
    settings.tls_ca_file = write_pem(
        name + ".ca", [&](std::FILE* file) { return PEM_write_X509(file, trusted.x509.get()); });
    return settings;
  }

  Certificate authority_ = make_certificate("authority", nullptr);
  Certificate other_authority_ = make_certificate("other authority", nullptr);
  Certificate alice_ = make_certificate("alice", &authority_);
  Certificate bob_ = make_certificate("bob", &authority_);
  Certificate mallory_ = make_certificate("mallory", &other_authority_);

  template <typename Write>
  std::string write_pem(const std::string& name, Write write) const {
    const std::string path = folder_.write(name, "");
    std::FILE* file = std::fopen(path.c_str(), "w");
    EXPECT_EQ(write(file), 1);
    std::fclose(file);
    return path;
  }
};

TEST_F(CertificateTest, SameAuthorityConnects) {
  LinkPair pair(with_certificate("alice", alice_, authority_),
                with_certificate("bob", bob_, authority_));
  EXPECT_TRUE(pair.active.get().stream->encrypted());
  expect_bytes_pass(*pair.active.get().stream, *pair.passive.get().stream, 100'000);
}

TEST_F(CertificateTest, ClientOfAnotherAuthorityIsRefused) {
  LinkPair pair(with_certificate("mallory", mallory_, authority_),
                with_certificate("bob", bob_, authority_));
  pair.passive.expect_error(ErrorCode::kAuthentication,
                            {"certificate verify failed", "tls_ca_file"});
  // The client learns it from the alert, after its own half was fine.
  pair.active.expect_error(ErrorCode::kAuthentication, {"alert", "tls_ca_file"});
}

TEST_F(CertificateTest, ListenerOfAnotherAuthorityIsNotTalkedTo) {
  LinkPair pair(with_certificate("alice", alice_, authority_),
                with_certificate("mallory", mallory_, authority_));
  pair.active.expect_error(ErrorCode::kAuthentication,
                           {"certificate verify failed", "local issuer", "tls_ca_file"});
  pair.passive.expect_error(ErrorCode::kAuthentication, {"alert"});
}

TEST_F(CertificateTest, ListenerWithAnotherHostsCertificateIsNotTalkedTo) {
  const Certificate elsewhere =
      make_certificate("elsewhere", &authority_, "DNS:elsewhere.example, IP:127.0.0.3");
  const Settings listener = with_certificate("elsewhere", elsewhere, authority_);
  Settings client = with_certificate("alice", alice_, authority_);
  {
    LinkPair pair(client, listener);
    pair.active.expect_error(ErrorCode::kAuthentication, {"127.0.0.1", "tls_check_names"});
    pair.passive.expect_error(ErrorCode::kAuthentication, {"alert"});
  }
  client.tls_check_names = false;
  LinkPair pair(client, listener);
  EXPECT_TRUE(pair.active.get().stream->encrypted());
}

TEST_F(CertificateTest, TheNameThatWasAskedForCounts) {
  const Certificate named = make_certificate("named", &authority_, "DNS:localhost");
  const Settings client = with_certificate("alice", alice_, authority_);
  const auto connect_by = [&](const std::string& host) {
    ListeningSide listening(with_certificate("named", named, authority_));
    Uri uri = listening.uri();
    uri.host = host;
    LinkOutcome outcome = connect_to(uri, client);
    static_cast<void>(listening.wait());
    return outcome;
  };
  EXPECT_TRUE(connect_by("localhost").get().stream->encrypted());
  connect_by("127.0.0.1").expect_error(ErrorCode::kAuthentication, {"127.0.0.1"});
}

// OpenSSL would ask for the passphrase: at the terminal or, where there is none, at standard input.
TEST_F(CertificateTest, EncryptedKeyFileIsAnErrorAndNoPrompt) {
  Settings settings = with_certificate("alice", alice_, authority_);
  settings.tls_key_file = write_pem("encrypted.key", [&](std::FILE* file) {
    return PEM_write_PrivateKey(file, alice_.key.get(), EVP_aes_128_cbc(), nullptr, 0, nullptr,
                                const_cast<char*>("secret"));
  });
  std::array<int, 2> input{};
  check(::pipe(input.data()), "pipe");
  check(static_cast<int>(::write(input[1], "secret\n", 7)), "write");
  ::close(input[1]);
  const pid_t child = fork_at_rest();
  if (child == 0) {
    ::setsid();
    ::dup2(input[0], STDIN_FILENO);
    try {
      check_settings(settings);
    } catch (const Error& error) {
      const bool named = std::string(error.what()).find("not encrypted") != std::string::npos;
      std::_Exit(error.code() == ErrorCode::kInvalidArgument && named ? 0 : 2);
    }
    std::_Exit(1);
  }
  ::close(input[0]);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(CertificateTest, KeyAndCertificateDoNotMix) {
  LinkPair pair(with_key(kKey), with_certificate("bob", bob_, authority_));
  EXPECT_EQ(pair.active.error->code(), ErrorCode::kAuthentication) << pair.active.text();
  EXPECT_EQ(pair.passive.error->code(), ErrorCode::kAuthentication) << pair.passive.text();
  LinkPair other(with_certificate("alice", alice_, authority_), with_key(kKey));
  EXPECT_EQ(other.active.error->code(), ErrorCode::kAuthentication) << other.active.text();
  EXPECT_EQ(other.passive.error->code(), ErrorCode::kAuthentication) << other.passive.text();
}

TEST_F(CertificateTest, BadFilesAreNamed) {
  const Settings good = with_certificate("alice", alice_, authority_);
  EXPECT_NO_THROW(check_settings(good));
  const auto expect_named = [](const Settings& settings, const char* name) {
    try {
      check_settings(settings);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  };
  Settings settings = good;
  settings.tls_ca_file = "";
  expect_named(settings, "tls_ca_file is missing");
  settings = good;
  settings.tls_key_file = with_certificate("bob", bob_, authority_).tls_key_file;
  expect_named(settings, "tls_key_file");
  settings = good;
  settings.tls_cert_file = settings.tls_key_file;
  expect_named(settings, "tls_cert_file");
  settings = good;
  settings.tls_ca_file = "/nowhere/ca.pem";
  expect_named(settings, "/nowhere/ca.pem");
  ASSERT_EQ(chmod(good.tls_key_file.c_str(), 0644), 0);
  expect_named(good, "chmod 06");
}

}  // namespace
}  // namespace leat::detail

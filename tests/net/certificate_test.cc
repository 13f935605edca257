// Streams inside TLS between peers with certificates.
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

#include "base/system_error.h"
#include "net/bytes_pass.h"
#include "net/tls.h"
#include "support/certificates.h"
#include "support/fork_at_rest.h"
#include "support/link_pair.h"
#include "support/scratch.h"

namespace leat::detail {
namespace {

class CertificateTest : public testing::Test {
 protected:
  Settings with_key() const {
    Settings settings = link_settings("tcp");
    settings.tls_psk_file = folder_.write("key", std::string(32, 'a'));
    return settings;
  }
  // The authority's certificate is what the peer is checked against.
  Settings with_certificate(const std::string& name, const Certificate& certificate,
                            const Certificate& trusted) const {
    const CertificateFiles files = write_files(folder_, name, certificate, trusted);
    Settings settings = link_settings("tcp");
    settings.tls_cert_file = files.certificate;
    settings.tls_key_file = files.key;
    settings.tls_ca_file = files.authority;
    return settings;
  }

  ScratchFolder folder_;
  Certificate authority_ = make_certificate("authority", nullptr);
  Certificate other_authority_ = make_certificate("other authority", nullptr);
  Certificate alice_ = make_certificate("alice", &authority_);
  Certificate bob_ = make_certificate("bob", &authority_);
  Certificate mallory_ = make_certificate("mallory", &other_authority_);
};

TEST_F(CertificateTest, SameAuthorityConnects) {
  LinkPair pair(with_certificate("alice", alice_, authority_),
                with_certificate("bob", bob_, authority_));
  EXPECT_TRUE(pair.active.get().stream->encrypted());
  expect_bytes_pass(*pair.active.get().stream, *pair.passive.get().stream, 100'000);
}

// As with a key: the secrets of transports sealed+X come from here.
TEST_F(CertificateTest, BothEndsExportTheSameBytesAndEachHandshakeItsOwn) {
  std::set<std::array<std::byte, 32>> seen;
  for (int handshake = 0; handshake < 3; ++handshake) {
    LinkPair pair(with_certificate("alice", alice_, authority_),
                  with_certificate("bob", bob_, authority_));
    std::array<std::array<std::byte, 32>, 2> ends{};
    pair.active.get().stream->exported("label", {}, ends[0]);
    pair.passive.get().stream->exported("label", {}, ends[1]);
    EXPECT_EQ(ends[0], ends[1]);
    seen.insert(ends[0]);
  }
  EXPECT_EQ(seen.size(), 3U);
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
  settings.tls_key_file = write_pem(folder_, "encrypted.key", [&](std::FILE* file) {
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
  LinkPair pair(with_key(), with_certificate("bob", bob_, authority_));
  EXPECT_EQ(pair.active.error->code(), ErrorCode::kAuthentication) << pair.active.text();
  EXPECT_EQ(pair.passive.error->code(), ErrorCode::kAuthentication) << pair.passive.text();
  LinkPair other(with_certificate("alice", alice_, authority_), with_key());
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

// The bytes of messages and certificates, and what parsers make of others.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "support/remote_parties.h"
#include "trusted/remote/plan.h"

namespace leat::trusted::remote {
namespace {

// Parses a body and gives the bytes of what was parsed.
struct Codec {
  const char* name;
  SecretBytes body;
  std::function<SecretBytes(View)> again;
};

template <typename Message, typename Parse>
Codec codec(const char* name, const Message& message, Parse parse) {
  const auto bytes = [](const auto& encoded) {
    return SecretBytes(encoded.begin(), encoded.end());
  };
  return {name, bytes(encode(message)), [=](View body) { return bytes(encode(parse(body))); }};
}

std::vector<Codec> all_messages() {
  const Parties parties;
  const Boot boot = parties.boot(1);
  const Nonce nonce = random<Nonce>();
  Secrets secrets = parties.secrets(1, 3);
  secrets.reply_key.resize(kReplyKeyBytes);
  return {
      codec("CHALLENGE", Challenge{1, nonce}, parse_challenge),
      codec("QUOTE", Quote{nonce, boot.device_certificate, boot.boot_certificate, {}}, parse_quote),
      codec("BIND", Bind{nonce}, parse_bind),
      codec("IMAGE", parties.image(), parse_image),
      codec("SECRETS", secrets, parse_secrets),
      codec("READY", Ready{3}, parse_ready),
      codec("DONE", Done{nonce, 3, {}, {}, {}}, parse_done),
      codec("ENABLE", Enable{3, {1, 2}}, parse_enable),
      codec("ENABLED", Enabled{3}, parse_enabled),
      codec("REFUSED", Refusal::kEpoch, parse_refused)};
}

TEST(RemoteMessages, RoundTripAndEveryOtherLengthIsMalformed) {
  for (const Codec& message : all_messages()) {
    SCOPED_TRACE(message.name);
    EXPECT_EQ(message.again(message.body), message.body);
    for (std::size_t bytes = 0; bytes < message.body.size(); ++bytes) {
      const SecretBytes cut(message.body.begin(), message.body.begin() + bytes);
      expect_refused(Refusal::kMalformed, [&] { message.again(cut); });
    }
    SecretBytes longer = message.body;
    longer.push_back(std::byte{0});
    expect_refused(Refusal::kMalformed, [&] { message.again(longer); });
  }
}

TEST(RemoteMessages, R22_FramesAreCheckedBeforeTheirBody) {
  const SecretBytes good = frame(Type::kBind, {});
  EXPECT_EQ(parse_frame_header(good).type, Type::kBind);
  for (const std::size_t place : {0, 3, 4, 5, 6, 7, 11}) {
    SecretBytes bad = good;
    bad[place] ^= std::byte{0x7c};
    expect_refused(Refusal::kMalformed, [&] { parse_frame_header(bad); });
  }
  for (unsigned type = 1; type <= static_cast<unsigned>(Type::kRefused); ++type)
    EXPECT_LE(max_body_bytes(static_cast<Type>(type)), std::size_t{100'000});
}

TEST(RemoteMessages, R22_CertificatesThatAreTooLongOrNestTooDeepOrAreNotDer) {
  const Parties parties;
  const Bytes good = parties.boot(1).boot_certificate;
  EXPECT_NO_THROW(parse_certificate(good, Refusal::kBootSignature));
  const auto refused = [](const Bytes& der) {
    expect_refused(Refusal::kBootSignature,
                   [&] { parse_certificate(der, Refusal::kBootSignature); });
  };
  Bytes nested;
  for (int i = 0; i < 500; ++i) nested.insert(nested.end(), {std::byte{0x30}, std::byte{0x80}});
  refused(nested);
  refused(Bytes(kMaxCertificateBytes + 1, std::byte{0x30}));
  refused({});
  Bytes longer = good;
  longer.push_back(std::byte{0});
  refused(longer);
  refused(Bytes(good.begin(), good.end() - 1));
  Bytes length_lies = good;
  length_lies[2] = std::byte{0xff};
  refused(length_lies);
}

constexpr const char* kPlan = R"({
  "devices": [{"device": 2, "address": "b:1"}, {"device": 1, "address": "a:1"}],
  "sessions": [
    {"id": 7, "kind": "group", "algorithm": "hmac-sha512", "sender": 2, "receivers": [1]},
    {"id": 1, "kind": "pair", "algorithm": "hmac-sha256", "streams": 4, "members": [2, 1]},
    {"id": 9, "kind": "log", "algorithm": "aes256-gmac", "sender": 1}],
  "kernel": {"id": 1, "version": 2, "program": "kernel"}
})";

TEST(RemotePlan, GivesEachDeviceItsPart) {
  const Plan plan = parse_plan(kPlan, "plan");
  const std::vector<Secrets> secrets = make_secrets(plan, 5);
  ASSERT_EQ(secrets.size(), 2U);
  EXPECT_EQ(secrets[0].device, 1U);
  ASSERT_EQ(secrets[0].sessions.size(), 3U);
  ASSERT_EQ(secrets[1].sessions.size(), 2U);
  EXPECT_EQ(secrets[0].sessions[0].streams, 4U);
  EXPECT_EQ(secrets[0].sessions[0].key, secrets[1].sessions[0].key);
  EXPECT_NE(secrets[0].sessions[0].key, secrets[0].sessions[1].key);
  EXPECT_NE(secrets[0].reply_key, secrets[1].reply_key);
  EXPECT_NE(make_secrets(plan, 6)[0].sessions[0].key, secrets[0].sessions[0].key);
}

TEST(RemotePlan, WrongOnesAreNamed) {
  const auto refused = [](const std::string& from, const std::string& to, const char* says) {
    std::string text = kPlan;
    const std::size_t place = text.find(from);
    ASSERT_NE(place, std::string::npos) << from;
    text.replace(place, from.size(), to);
    try {
      parse_plan(text, "plan");
      ADD_FAILURE() << "accepted: " << to;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  };
  refused("{", "", "not JSON");
  refused("\"kernel\"", "\"kernels\"", "unknown member 'kernels'");
  refused("\"id\": 7", "\"id\": 1", "twice");
  refused("\"id\": 7", "\"id\": -7", "not a number");
  refused("\"sender\": 2", "\"sender\": 3", "member 3");
  refused("\"receivers\": [1]", "\"receivers\": []", "number of receivers");
  refused("[2, 1]", "[2, 1, 3]", "list of at most 2");
  refused("[2, 1]", "[2, 2]", "distinct");
  refused("hmac-sha512", "md5", "'md5' is not known");
  refused("\"streams\": 4", "\"streams\": 17", "1 to 16");
  refused("\"device\": 2", "\"device\": 1", "twice");
}

}  // namespace
}  // namespace leat::trusted::remote

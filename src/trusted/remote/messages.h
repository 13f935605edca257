// The messages of remote attestation and their bytes: docs/remote_attestation.md. Pure.
//
// A frame is magic, version, type and length, then the body. Every parser takes a whole body and
// throws Refused(kMalformed) for anything that it would not itself have written. So each value has
// one form, and a hash covers exactly what was meant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trusted/remote/crypto.h"
#include "trusted/remote/refusal.h"

namespace leat::trusted::remote {

enum class Type : std::uint8_t {
  kChallenge = 1,  // vendor to controller, in clear
  kQuote = 2,      // controller to vendor, in clear
  kBind = 3,       // both ways; the first inside TLS, as are all that follow
  kImage = 4,      // vendor to controller
  kSecrets = 5,    // vendor to controller, and controller to kernel
  kReady = 6,      // kernel to controller
  kDone = 7,       // controller to vendor
  kEnable = 8,     // vendor to controller, and controller to kernel
  kEnabled = 9,    // controller to vendor
  kRefused = 10,   // either way; then the connection ends
};

inline constexpr std::size_t kFrameHeaderBytes = 12;
inline constexpr std::size_t kMaxCertificateBytes = 2048;
inline constexpr std::size_t kMaxSessions = 256;
inline constexpr std::size_t kMaxMembers = 64;
inline constexpr std::size_t kMinKeyBytes = 32, kMaxKeyBytes = 64;
inline constexpr std::size_t kReplyKeyBytes = 32;

struct FrameHeader {
  Type type;
  std::uint32_t body_bytes;
};
// No body of that type is longer.
std::size_t max_body_bytes(Type type);
// Throws Refused(kMalformed). Refuses a body above its type's limit here, before any memory is
// spent on it.
FrameHeader parse_frame_header(View bytes);
SecretBytes frame(Type type, View body);

struct Challenge {
  std::uint32_t device = 0;
  Nonce nonce{};
};
Bytes encode(const Challenge& message);
Challenge parse_challenge(View body);

// The signature covers signed_part(): the challenge as well as the certificates.
struct Quote {
  Nonce nonce{};
  Bytes device_certificate;  // DER
  Bytes boot_certificate;
  Signature signature{};
};
Bytes encode(const Quote& message);
Quote parse_quote(View body);
Bytes signed_part(const Challenge& challenge, const Quote& quote);

// The value of this end's exporter. If the ends differ, a third party sits in between.
struct Bind {
  std::array<std::byte, 32> exported{};
};
Bytes encode(const Bind& message);
Bind parse_bind(View body);

// The program that the attestation kernel's process runs; it corresponds to TNIC's bitstream.
struct Image {
  std::uint32_t id = 0;
  std::uint32_t version = 0;
  Digest digest{};
  Signature signature{};  // the vendor's, over signed_part()
};
Bytes encode(const Image& message);
Image parse_image(View body);
Bytes signed_part(const Image& image);

enum class SessionKind : std::uint8_t { kPair = 1, kGroup = 2, kLog = 3 };

// A session as the vendor plans it. Kinds and algorithms have the numbers of attested records.
struct SessionSecret {
  std::uint32_t id = 0;
  SessionKind kind = SessionKind::kPair;
  std::uint8_t algorithm = 1;
  std::uint8_t streams = 1;
  std::uint32_t sender = 0;              // pair: one of the two
  std::vector<std::uint32_t> receivers;  // pair: the other; group: ascending; log: none
  SecretBytes key;
};
struct Secrets {
  std::uint32_t device = 0;
  std::uint64_t epoch = 0;
  std::vector<SessionSecret> sessions;  // by ascending id
  SecretBytes reply_key;                // Ed25519 seed for signed replies to clients
};
SecretBytes encode(const Secrets& message);
// Also refuses, as kSessions, what no device can use: R19, and sessions that do not concern the
// device.
Secrets parse_secrets(View body);

struct Ready {
  std::uint64_t epoch = 0;
};
Bytes encode(const Ready& message);
Ready parse_ready(View body);

struct Done {
  Nonce nonce{};
  std::uint64_t epoch = 0;
  Digest image_message{};    // SHA-384 of the body of IMAGE
  Digest secrets_message{};  // and of SECRETS
  Digest kernel{};           // the measurement of the program that now holds the keys
};
Bytes encode(const Done& message);
Done parse_done(View body);

struct Enable {
  std::uint64_t epoch = 0;
  std::vector<std::uint32_t> members;  // ascending
};
Bytes encode(const Enable& message);
Enable parse_enable(View body);

struct Enabled {
  std::uint64_t epoch = 0;
};
Bytes encode(const Enabled& message);
Enabled parse_enabled(View body);

Bytes encode(Refusal refusal);
Refusal parse_refused(View body);

}  // namespace leat::trusted::remote

#include "trusted/remote/messages.h"

#include <algorithm>
#include <utility>

#include "base/wire.h"

namespace leat::trusted::remote {
namespace {

using leat::detail::WireReader;

constexpr std::uint32_t kMagic = 0x4152544c;  // "LTRA"
constexpr std::uint8_t kVersion = 1;
constexpr std::size_t kSessionFixedBytes = 16;
constexpr std::size_t kMaxSecretsBytes =
    16 + kReplyKeyBytes + kMaxSessions * (kSessionFixedBytes + 4 * kMaxMembers + kMaxKeyBytes);
constexpr std::uint8_t kLastAlgorithm = 4;
constexpr std::uint8_t kMaxStreams = 16;

[[noreturn]] void malformed(const char* what) { throw Refused(Refusal::kMalformed, what); }

// Reads a body from the front; leaving bytes unread is a mistake of the sender too.
class Reader {
 public:
  Reader(View body, const char* what) : rest_(body), what_(what) {}

  template <typename T>
  T number() {
    return WireReader(bytes(sizeof(T))).number<T>();
  }
  View bytes(std::size_t count) {
    if (count > rest_.size()) malformed(what_);
    const View taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }
  template <typename Array>
  Array array() {
    Array value;
    const View taken = bytes(value.size());
    std::copy(taken.begin(), taken.end(), value.begin());
    return value;
  }
  void zeros(std::size_t count) { require(WireReader(bytes(count)).zeros(count)); }
  void require(bool condition) const {
    if (!condition) malformed(what_);
  }
  void end() const { require(rest_.empty()); }

 private:
  View rest_;
  const char* what_;
};

// Appends; `Buffer` is Bytes or SecretBytes.
template <typename Buffer>
class Writer {
 public:
  explicit Writer(std::size_t bytes) { buffer_.reserve(bytes); }

  template <typename T>
  Writer& number(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i)
      buffer_.push_back(static_cast<std::byte>((value >> (8 * i)) & 0xff));
    return *this;
  }
  Writer& bytes(View bytes) {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  Buffer take() { return std::move(buffer_); }

 private:
  Buffer buffer_;
};
using PlainWriter = Writer<Bytes>;

bool ascending(const std::vector<std::uint32_t>& numbers) {
  return std::adjacent_find(numbers.begin(), numbers.end(), std::greater_equal<>()) ==
         numbers.end();
}

SessionSecret parse_session(Reader& reader) {
  SessionSecret session;
  session.id = reader.number<std::uint32_t>();
  const auto kind = reader.number<std::uint8_t>();
  reader.require(kind >= 1 && kind <= 3);
  session.kind = static_cast<SessionKind>(kind);
  session.algorithm = reader.number<std::uint8_t>();
  session.streams = reader.number<std::uint8_t>();
  const auto key_bytes = reader.number<std::uint8_t>();
  session.sender = reader.number<std::uint32_t>();
  const auto receivers = reader.number<std::uint32_t>();
  reader.require(receivers <= kMaxMembers && key_bytes <= kMaxKeyBytes);
  for (std::uint32_t i = 0; i < receivers; ++i)
    session.receivers.push_back(reader.number<std::uint32_t>());
  const View key = reader.bytes(key_bytes);
  session.key.assign(key.begin(), key.end());
  return session;
}

[[noreturn]] void bad_session(const SessionSecret& session, const char* why) {
  throw Refused(Refusal::kSessions, "session " + std::to_string(session.id) + " " + why);
}

void check_session(const SessionSecret& session, std::uint32_t device) {
  const auto& receivers = session.receivers;
  const bool receives = std::find(receivers.begin(), receivers.end(), device) != receivers.end();
  if (session.id == 0) bad_session(session, "has no number");
  if (session.key.size() < kMinKeyBytes) bad_session(session, "has a key that is too short");
  if (session.algorithm == 0 || session.algorithm > kLastAlgorithm)
    bad_session(session, "has an unknown algorithm");
  if (session.streams == 0 || session.streams > kMaxStreams ||
      (session.kind != SessionKind::kPair && session.streams != 1))
    bad_session(session, "has a number of streams that its kind does not allow");
  if (session.sender == 0 || !ascending(receivers) || (!receivers.empty() && receivers[0] == 0) ||
      std::find(receivers.begin(), receivers.end(), session.sender) != receivers.end())
    bad_session(session, "has members that are not distinct devices in ascending order");
  const bool right_count = session.kind == SessionKind::kPair    ? receivers.size() == 1
                           : session.kind == SessionKind::kGroup ? !receivers.empty()
                                                                 : receivers.empty();
  if (!right_count) bad_session(session, "has a number of receivers that its kind does not allow");
  if (session.sender != device && !receives) bad_session(session, "does not concern the device");
}

}  // namespace

std::string_view to_string(Refusal refusal) noexcept {
  switch (refusal) {
    case Refusal::kMalformed:
      return "malformed message";
    case Refusal::kOrder:
      return "message out of order";
    case Refusal::kNonce:
      return "wrong or expired nonce";
    case Refusal::kDeviceChain:
      return "device certificate not accepted";
    case Refusal::kDevice:
      return "another device";
    case Refusal::kBootSignature:
      return "boot certificate not accepted";
    case Refusal::kMeasurement:
      return "measurement not allowed";
    case Refusal::kFirmware:
      return "firmware too old";
    case Refusal::kQuoteSignature:
      return "quote not signed by this boot";
    case Refusal::kChannel:
      return "channel binding differs";
    case Refusal::kImage:
      return "kernel image not accepted";
    case Refusal::kEpoch:
      return "epoch used before";
    case Refusal::kSessions:
      return "sessions not accepted";
    case Refusal::kDone:
      return "done differs from what was sent";
    case Refusal::kMembers:
      return "enable not accepted";
    case Refusal::kKernel:
      return "kernel process failed";
  }
  return "unknown";
}

std::size_t max_body_bytes(Type type) {
  switch (type) {
    case Type::kChallenge:
      return 36;
    case Type::kQuote:
      return 32 + 64 + 4 + 2 * kMaxCertificateBytes;
    case Type::kBind:
      return 32;
    case Type::kImage:
      return 8 + 48 + 64;
    case Type::kSecrets:
      return kMaxSecretsBytes;
    case Type::kReady:
    case Type::kEnabled:
      return 8;
    case Type::kDone:
      return 32 + 8 + 3 * 48;
    case Type::kEnable:
      return 12 + 4 * kMaxMembers;
    case Type::kRefused:
      return 1;
  }
  return 0;
}

FrameHeader parse_frame_header(View bytes) {
  Reader reader(bytes, "not a frame of remote attestation");
  reader.require(reader.number<std::uint32_t>() == kMagic);
  const auto version = reader.number<std::uint8_t>();
  if (version != kVersion) malformed("a frame of another version of remote attestation");
  const auto type = reader.number<std::uint8_t>();
  reader.require(type >= 1 && type <= static_cast<std::uint8_t>(Type::kRefused));
  reader.zeros(2);
  const FrameHeader header{static_cast<Type>(type), reader.number<std::uint32_t>()};
  reader.end();
  if (header.body_bytes > max_body_bytes(header.type)) malformed("a frame that is too long");
  return header;
}

SecretBytes frame(Type type, View body) {
  return Writer<SecretBytes>(kFrameHeaderBytes + body.size())
      .number(kMagic)
      .number(kVersion)
      .number(static_cast<std::uint8_t>(type))
      .number(std::uint16_t{0})
      .number(static_cast<std::uint32_t>(body.size()))
      .bytes(body)
      .take();
}

Bytes encode(const Challenge& message) {
  return PlainWriter(36).number(message.device).bytes(message.nonce).take();
}

Challenge parse_challenge(View body) {
  Reader reader(body, "CHALLENGE");
  Challenge message;
  message.device = reader.number<std::uint32_t>();
  message.nonce = reader.array<Nonce>();
  reader.end();
  return message;
}

Bytes encode(const Quote& message) {
  return PlainWriter(4096)
      .bytes(message.nonce)
      .number(static_cast<std::uint16_t>(message.device_certificate.size()))
      .bytes(message.device_certificate)
      .number(static_cast<std::uint16_t>(message.boot_certificate.size()))
      .bytes(message.boot_certificate)
      .bytes(message.signature)
      .take();
}

Quote parse_quote(View body) {
  Reader reader(body, "QUOTE");
  Quote message;
  message.nonce = reader.array<Nonce>();
  for (Bytes* certificate : {&message.device_certificate, &message.boot_certificate}) {
    const auto bytes = reader.number<std::uint16_t>();
    reader.require(bytes > 0 && bytes <= kMaxCertificateBytes);
    const View der = reader.bytes(bytes);
    certificate->assign(der.begin(), der.end());
  }
  message.signature = reader.array<Signature>();
  reader.end();
  return message;
}

Bytes signed_part(const Challenge& challenge, const Quote& quote) {
  return PlainWriter(256)
      .bytes(as_bytes("TNIC-RA-v1 quote"))
      .bytes(sha384(encode(challenge)))
      .bytes(quote.nonce)
      .bytes(sha384(quote.device_certificate))
      .bytes(sha384(quote.boot_certificate))
      .take();
}

Bytes encode(const Bind& message) { return {message.exported.begin(), message.exported.end()}; }

Bind parse_bind(View body) {
  Reader reader(body, "BIND");
  const Bind message{reader.array<std::array<std::byte, 32>>()};
  reader.end();
  return message;
}

Bytes encode(const Image& message) {
  return PlainWriter(120)
      .number(message.id)
      .number(message.version)
      .bytes(message.digest)
      .bytes(message.signature)
      .take();
}

Image parse_image(View body) {
  Reader reader(body, "IMAGE");
  Image message;
  message.id = reader.number<std::uint32_t>();
  message.version = reader.number<std::uint32_t>();
  message.digest = reader.array<Digest>();
  message.signature = reader.array<Signature>();
  reader.end();
  return message;
}

Bytes signed_part(const Image& image) {
  return PlainWriter(128)
      .bytes(as_bytes("TNIC-RA-v1 image"))
      .number(image.id)
      .number(image.version)
      .bytes(image.digest)
      .take();
}

SecretBytes encode(const Secrets& message) {
  Writer<SecretBytes> writer(kMaxSecretsBytes);
  writer.number(message.device)
      .number(static_cast<std::uint16_t>(message.sessions.size()))
      .number(static_cast<std::uint16_t>(message.reply_key.size()))
      .number(message.epoch)
      .bytes(message.reply_key);
  for (const SessionSecret& session : message.sessions) {
    writer.number(session.id)
        .number(static_cast<std::uint8_t>(session.kind))
        .number(session.algorithm)
        .number(session.streams)
        .number(static_cast<std::uint8_t>(session.key.size()))
        .number(session.sender)
        .number(static_cast<std::uint32_t>(session.receivers.size()));
    for (const std::uint32_t receiver : session.receivers) writer.number(receiver);
    writer.bytes(session.key);
  }
  return writer.take();
}

Secrets parse_secrets(View body) {
  Reader reader(body, "SECRETS");
  Secrets message;
  message.device = reader.number<std::uint32_t>();
  const auto sessions = reader.number<std::uint16_t>();
  const auto reply_key_bytes = reader.number<std::uint16_t>();
  reader.require(sessions <= kMaxSessions);
  reader.require(reply_key_bytes == 0 || reply_key_bytes == kReplyKeyBytes);
  message.epoch = reader.number<std::uint64_t>();
  const View reply_key = reader.bytes(reply_key_bytes);
  message.reply_key.assign(reply_key.begin(), reply_key.end());
  for (unsigned i = 0; i < sessions; ++i) message.sessions.push_back(parse_session(reader));
  reader.end();

  if (message.sessions.empty()) throw Refused(Refusal::kSessions, "there are none");
  for (const SessionSecret& session : message.sessions) check_session(session, message.device);
  for (std::size_t i = 0; i < message.sessions.size(); ++i) {
    const SessionSecret& session = message.sessions[i];
    if (i > 0 && message.sessions[i - 1].id >= session.id)
      bad_session(session, "comes twice or not in order");
    for (std::size_t j = 0; j < i; ++j) {
      if (same(message.sessions[j].key, session.key)) bad_session(session, "has another's key");
    }
  }
  return message;
}

Bytes encode(const Ready& message) { return PlainWriter(8).number(message.epoch).take(); }

Ready parse_ready(View body) {
  Reader reader(body, "READY");
  const Ready message{reader.number<std::uint64_t>()};
  reader.end();
  return message;
}

Bytes encode(const Done& message) {
  return PlainWriter(184)
      .bytes(message.nonce)
      .number(message.epoch)
      .bytes(message.image_message)
      .bytes(message.secrets_message)
      .bytes(message.kernel)
      .take();
}

Done parse_done(View body) {
  Reader reader(body, "DONE");
  Done message;
  message.nonce = reader.array<Nonce>();
  message.epoch = reader.number<std::uint64_t>();
  message.image_message = reader.array<Digest>();
  message.secrets_message = reader.array<Digest>();
  message.kernel = reader.array<Digest>();
  reader.end();
  return message;
}

Bytes encode(const Enable& message) {
  PlainWriter writer(12 + 4 * message.members.size());
  writer.number(message.epoch).number(static_cast<std::uint32_t>(message.members.size()));
  for (const std::uint32_t member : message.members) writer.number(member);
  return writer.take();
}

Enable parse_enable(View body) {
  Reader reader(body, "ENABLE");
  Enable message;
  message.epoch = reader.number<std::uint64_t>();
  const auto members = reader.number<std::uint32_t>();
  reader.require(members > 0 && members <= kMaxMembers);
  for (std::uint32_t i = 0; i < members; ++i)
    message.members.push_back(reader.number<std::uint32_t>());
  reader.require(ascending(message.members));
  reader.end();
  return message;
}

Bytes encode(const Enabled& message) { return PlainWriter(8).number(message.epoch).take(); }

Enabled parse_enabled(View body) {
  Reader reader(body, "ENABLED");
  const Enabled message{reader.number<std::uint64_t>()};
  reader.end();
  return message;
}

Bytes encode(Refusal refusal) {
  return PlainWriter(1).number(static_cast<std::uint8_t>(refusal)).take();
}

Refusal parse_refused(View body) {
  Reader reader(body, "REFUSED");
  const auto refusal = reader.number<std::uint8_t>();
  reader.require(refusal >= 1 && refusal <= static_cast<std::uint8_t>(kLastRefusal));
  reader.end();
  return static_cast<Refusal>(refusal);
}

}  // namespace leat::trusted::remote

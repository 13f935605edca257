#include "trusted/channel_session.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/key_file.h"
#include "base/random.h"
#include "conn/wire.h"
#include "leat/error.h"
#include "trusted/mac.h"

namespace leat::trusted::detail {
namespace {

constexpr std::uint32_t kMagic = 0x3161'746c;  // "lta1"
constexpr std::size_t kNonceBytes = 32;
constexpr std::size_t kZeroBytes = ChannelSession::kOfferBytes - 4 - 1 - kNonceBytes;
constexpr std::uint32_t kActiveDevice = 1, kPassiveDevice = 2;
constexpr std::uint64_t kOnlyEpoch = 1;

struct Wish {
  std::uint32_t magic = 0;
  Algorithm algorithm{};
  std::span<const std::byte> nonce;
  bool padded = false;
};

Wish read(std::span<const std::byte> offer) {
  leat::detail::WireReader reader(offer);
  Wish wish;
  wish.magic = reader.number<std::uint32_t>();
  wish.algorithm = static_cast<Algorithm>(reader.number<std::uint8_t>());
  wish.nonce = reader.bytes(kNonceBytes);
  wish.padded = reader.zeros(kZeroBytes);
  return wish;
}

// The file's key, wiped when it goes.
struct FileKey {
  explicit FileKey(const std::string& path)
      : bytes(leat::detail::read_key_file({"attest_key_file", path, kMinKeyBytes, kMaxKeyBytes})) {}
  FileKey(const FileKey&) = delete;
  FileKey& operator=(const FileKey&) = delete;
  ~FileKey() { explicit_bzero(bytes.data(), bytes.size()); }

  std::vector<unsigned char> bytes;
};

}  // namespace

std::string_view to_string(Algorithm algorithm) noexcept {
  switch (algorithm) {
    case Algorithm::kHmacSha256:
      return "HMAC-SHA-256";
    case Algorithm::kHmacSha384:
      return "HMAC-SHA-384";
    case Algorithm::kHmacSha512:
      return "HMAC-SHA-512";
    case Algorithm::kAes256Gmac:
      return "AES-256-GMAC";
  }
  return "an unknown algorithm";
}

ChannelSession::ChannelSession(const std::string& key_file, Algorithm algorithm, bool active)
    : key_file_(key_file), algorithm_(algorithm), active_(active) {
  if (key_file.empty())
    throw Error(ErrorCode::kInvalidArgument,
                "transports attested+... need the setting attest_key_file",
                "Make a key with: openssl rand -hex 32 > FILE, mode 600, the same on both sides.");
  const FileKey tried(key_file);  // to fail before the peer waits
  std::array<std::uint8_t, kNonceBytes> nonce;
  leat::detail::fill_random(nonce);
  leat::detail::WireWriter writer(offer_);
  writer.number(kMagic);
  writer.number(static_cast<std::uint8_t>(algorithm));
  writer.bytes(std::as_bytes(std::span(nonce)), nonce.size());
}

void ChannelSession::begin(std::span<const std::byte> peer_offer) {
  const Wish ours = read(offer_);
  if (peer_offer.size() != kOfferBytes || !read(peer_offer).padded ||
      read(peer_offer).magic != kMagic)
    throw Error(ErrorCode::kProtocol, "the peer's offer of attestation makes no sense",
                "Use the same release of leat on both sides.");
  const Wish theirs = read(peer_offer);
  if (theirs.algorithm != algorithm_)
    throw Error(ErrorCode::kUnavailable,
                "this side attests with " + std::string(to_string(algorithm_)) +
                    ", the peer with " + std::string(to_string(theirs.algorithm)),
                "Set attest_algorithm alike on both sides.");
  if (std::ranges::equal(theirs.nonce, ours.nonce))
    throw Error(ErrorCode::kAuthentication, "the peer sent our own random number back");

  const FileKey file(key_file_);
  const Wish& first = active_ ? ours : theirs;
  const Wish& second = active_ ? theirs : ours;
  std::vector<std::byte> purpose(2 * kNonceBytes + 12);
  leat::detail::WireWriter writer(purpose);
  writer.text("leat channel", 12);
  writer.bytes(first.nonce, kNonceBytes);
  writer.bytes(second.nonce, kNonceBytes);
  const leat::detail::SecretMemory key(kMinKeyBytes);
  derive_key(std::as_bytes(std::span(file.bytes)), purpose, key.span());

  auto kernel = std::make_unique<LocalKernel>(active_ ? kActiveDevice : kPassiveDevice, kOnlyEpoch);
  const Verdict verdict = kernel->provision({.id = kSession,
                                             .role = Role::kPair,
                                             .algorithm = algorithm_,
                                             .peer = active_ ? kPassiveDevice : kActiveDevice,
                                             .streams = kStreams,
                                             .key = key.span()});
  if (verdict != Verdict::kOk || kernel->enable() != Verdict::kOk)
    throw Error(ErrorCode::kSystem, "the attestation kernel refuses its session: " +
                                        std::string(trusted::to_string(verdict)));
  kernel_ = std::move(kernel);
}

std::string ChannelSession::describe() const { return std::string(to_string(algorithm_)); }

}  // namespace leat::trusted::detail

#include "attest/channel_session.h"

#include <algorithm>
#include <utility>

#include "base/wire.h"
#include "leat/error.h"

namespace leat::trusted::detail {
namespace {

constexpr std::uint32_t kOfferMagic = 0x3261'746c;  // "lta2"
constexpr std::size_t kZeroBytes = ChannelSession::kOfferBytes - 4 - 1 - kNonceBytes - 4;

struct Wish {
  std::uint32_t magic = 0;
  Algorithm algorithm{};
  std::span<const std::byte> nonce;
  std::uint32_t max_payload_bytes = 0;
  bool padded = false;
};

Wish read(std::span<const std::byte> offer) {
  leat::detail::WireReader reader(offer);
  Wish wish;
  wish.magic = reader.number<std::uint32_t>();
  wish.algorithm = static_cast<Algorithm>(reader.number<std::uint8_t>());
  wish.nonce = reader.bytes(kNonceBytes);
  wish.max_payload_bytes = reader.number<std::uint32_t>();
  wish.padded = reader.zeros(kZeroBytes);
  return wish;
}

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

ChannelSession::ChannelSession(std::unique_ptr<ChannelHome> home, Algorithm algorithm, bool active)
    : home_(std::move(home)),
      algorithm_(algorithm),
      active_(active),
      max_payload_bytes_(home_->max_payload_bytes()) {
  leat::detail::WireWriter writer(offer_);
  writer.number(kOfferMagic);
  writer.number(static_cast<std::uint8_t>(algorithm));
  writer.bytes(home_->nonce(), kNonceBytes);
  writer.number(static_cast<std::uint32_t>(max_payload_bytes_));
}

void ChannelSession::begin(std::span<const std::byte> peer_offer) {
  if (peer_offer.size() != kOfferBytes || !read(peer_offer).padded ||
      read(peer_offer).magic != kOfferMagic || read(peer_offer).max_payload_bytes == 0)
    throw Error(ErrorCode::kProtocol, "the peer's offer of attestation makes no sense",
                "Use the same release of leat on both sides.");
  const Wish theirs = read(peer_offer);
  if (theirs.algorithm != algorithm_)
    throw Error(ErrorCode::kUnavailable,
                "this side attests with " + std::string(to_string(algorithm_)) +
                    ", the peer with " + std::string(to_string(theirs.algorithm)),
                "Set attest_algorithm alike on both sides.");
  attestor_ = home_->begin(theirs.nonce.first<kNonceBytes>(), active_);
  max_payload_bytes_ = std::min<std::size_t>(max_payload_bytes_, theirs.max_payload_bytes);
}

std::string ChannelSession::describe() const {
  return std::string(to_string(algorithm_)) + std::string(home_->describe());
}

}  // namespace leat::trusted::detail

#include "transport/sealed/setup.h"

#include <algorithm>
#include <string>

#include "base/wire.h"
#include "leat/error.h"

namespace leat::detail {
namespace {

constexpr std::uint32_t kSealMagic = 0x3173'746c;  // "lts1"
constexpr std::size_t kSealZeroBytes = 10;

}  // namespace

std::array<std::byte, SealOffer::kBytes> encode(const SealOffer& offer) {
  std::array<std::byte, SealOffer::kBytes> bytes{};
  WireWriter writer(bytes);
  writer.number(kSealMagic);
  writer.number(static_cast<std::uint8_t>(offer.wish));
  writer.number(static_cast<std::uint8_t>(offer.has_aes ? 1 : 0));
  writer.number(offer.limits.records);
  writer.number(offer.limits.bytes);
  return bytes;
}

SealOffer decode_seal_offer(std::span<const std::byte> bytes) {
  const auto refuse = [] {
    throw Error(ErrorCode::kProtocol, "the peer's offer of sealing makes no sense",
                "Use the same release of leat on both sides.");
  };
  if (bytes.size() != SealOffer::kBytes) refuse();
  WireReader reader(bytes);
  SealOffer offer;
  const auto magic = reader.number<std::uint32_t>();
  const auto wish = reader.number<std::uint8_t>();
  const auto has_aes = reader.number<std::uint8_t>();
  offer.limits.records = reader.number<std::uint64_t>();
  offer.limits.bytes = reader.number<std::uint64_t>();
  const bool padded = reader.zeros(kSealZeroBytes);
  if (magic != kSealMagic || wish > static_cast<std::uint8_t>(SealCipher::kChaCha20Poly1305) ||
      has_aes > 1 || offer.limits.records == 0 || offer.limits.bytes == 0 || !padded)
    refuse();
  offer.wish = static_cast<SealCipher>(wish);
  offer.has_aes = has_aes == 1;
  return offer;
}

SealChoice agree(const SealOffer& ours, const SealOffer& theirs) {
  SealChoice choice;
  choice.limits = {std::min(ours.limits.records, theirs.limits.records),
                   std::min(ours.limits.bytes, theirs.limits.bytes)};
  if (ours.wish != SealCipher::kAuto && theirs.wish != SealCipher::kAuto &&
      ours.wish != theirs.wish)
    throw Error(ErrorCode::kUnavailable,
                "this side seals with " + std::string(to_string(ours.wish)) + ", the peer with " +
                    std::string(to_string(theirs.wish)),
                "Set sealed_cipher alike on both sides, or leave it at auto on one.");
  if (ours.wish != SealCipher::kAuto)
    choice.cipher = ours.wish;
  else if (theirs.wish != SealCipher::kAuto)
    choice.cipher = theirs.wish;
  else
    choice.cipher =
        ours.has_aes && theirs.has_aes ? SealCipher::kAes256Gcm : SealCipher::kChaCha20Poly1305;
  return choice;
}

}  // namespace leat::detail

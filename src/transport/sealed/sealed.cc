#include "transport/sealed/sealed.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <utility>

#include "leat/error.h"

namespace leat::detail {
namespace {

constexpr std::string_view kExportLabel = "EXPERIMENTAL-leat-sealed";

void append(std::vector<std::byte>& to, std::span<const std::byte> bytes) {
  for (std::size_t i = 0; i < sizeof(std::uint32_t); ++i)
    to.push_back(static_cast<std::byte>(bytes.size() >> (8 * i) & 0xff));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

}  // namespace

std::unique_ptr<Transport> SealedTransport::make(const MakeInner& inner, Endpoint end,
                                                 const Settings& settings) {
  return make_with(KeyLimits{}, inner, std::move(end), settings);
}

std::unique_ptr<Transport> SealedTransport::make_with(const KeyLimits& limits,
                                                      const MakeInner& inner, Endpoint end,
                                                      const Settings& settings) {
  if (end.stream == nullptr || !end.stream->encrypted())
    throw Error(ErrorCode::kUnavailable,
                "a connection without TLS has no keys to seal messages with", kSetAKey);
  Stream& stream = *end.stream;
  const bool active = end.active;
  auto greetings = std::move(end.greetings);
  const Settings of_records = settings_of_records(settings, kMaxSealedBytes, kSealTagBytes);
  const SealOffer offer{
      .wish = settings.sealed_cipher, .has_aes = processor_has_aes(), .limits = limits};
  return std::make_unique<SealedTransport>(inner(std::move(end), of_records), stream,
                                           std::move(greetings), offer, active);
}

SealedTransport::SealedTransport(std::unique_ptr<Transport> inner, Stream& stream,
                                 std::vector<std::byte> greetings, const SealOffer& offer,
                                 bool active)
    : inner_(std::move(inner)),
      stream_(stream),
      greetings_(std::move(greetings)),
      offer_(offer),
      active_(active),
      records_(*inner_, kSealTagBytes) {
  const auto own = encode(offer_);
  setup_.assign(own.begin(), own.end());
  const std::vector<std::byte> inners = inner_->setup();
  setup_.insert(setup_.end(), inners.begin(), inners.end());
}

std::vector<std::byte> SealedTransport::setup() const { return setup_; }

void SealedTransport::start(std::span<const std::byte> peer_setup) {
  const std::size_t offered = std::min(peer_setup.size(), SealOffer::kBytes);
  const SealChoice choice = agree(offer_, decode_seal_offer(peer_setup.first(offered)));
  cipher_ = to_string(choice.cipher);

  // Whatever was said in clear or inside TLS until now, both sides have heard the same, or else
  // have different keys.
  std::vector<std::byte> said;
  append(said, greetings_);
  append(said, active_ ? std::span<const std::byte>(setup_) : peer_setup);
  append(said, active_ ? peer_setup : std::span<const std::byte>(setup_));
  std::array<std::byte, kSealSecretBytes> exported;
  stream_.exported(kExportLabel, said, exported);
  try {
    secrets_.emplace(exported);
  } catch (...) {
    OPENSSL_cleanse(exported.data(), exported.size());
    throw;
  }
  OPENSSL_cleanse(exported.data(), exported.size());
  using Direction = SealSecrets::Direction;
  const Direction ours = active_ ? Direction::kFromActive : Direction::kFromPassive;
  const Direction theirs = active_ ? Direction::kFromPassive : Direction::kFromActive;
  for (Context each = 0; each < kContextCount; ++each) {
    sealers_[each] =
        std::make_unique<Sealer>(choice.cipher, each, choice.limits, secrets_->of(ours, each));
    openers_[each] =
        std::make_unique<Opener>(choice.cipher, each, choice.limits, secrets_->of(theirs, each));
  }
  // Most programs use that context alone. A first message that came late would teach waiters that
  // to spin does not pay.
  sealers_[0]->prepare();
  openers_[0]->prepare();

  inner_->start(peer_setup.subspan(offered));
  facts_ = facts_of_records(inner_->facts(), kSealTagBytes);
  // They would go in clear.
  facts_.reads = nullptr;
  facts_.records = nullptr;
}

std::string SealedTransport::describe() const {
  return "sealed+" + inner_->describe() + ", " + std::string(cipher_);
}

void SealedTransport::add_stats(Stats& stats) const {
  inner_->add_stats(stats);
  stats.refused_records += refused_.get();
}

}  // namespace leat::detail

// A sealed record: bytes from anyone who can write into receive memory. The opener accepts none of
// them. The first byte chooses cipher and kind; what is opened lies in memory of exactly its size.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "fuzz/property.h"
#include "leat/error.h"
#include "transport/sealed/record.h"
#include "transport/sealed/setup.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace leat::detail;
  if (size == 0) return 0;
  constexpr SealCipher kCiphers[] = {SealCipher::kAes256Gcm, SealCipher::kAes128Gcm,
                                     SealCipher::kChaCha20Poly1305};
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  try {
    const SealOffer offer = decode_seal_offer(bytes);
    const auto again = encode(offer);
    require(std::equal(again.begin(), again.end(), bytes.begin()),
            "a setup that is accepted says everything it carries");
    static_cast<void>(agree(offer, SealOffer{}));
  } catch (const leat::Error& error) {
    require(error.code() == leat::ErrorCode::kProtocol, "a setup makes sense or breaks the rules");
  }

  static const SealSecrets& secrets =
      *new SealSecrets(std::array<std::byte, kSealSecretBytes>{std::byte{1}});
  // Each makes its key once: a record that is refused changes nothing.
  static std::array<std::array<Opener*, 2>, 3>& openers = [&]() -> auto& {
    static std::array<std::array<Opener*, 2>, 3> made;
    for (std::size_t i = 0; i < made.size(); ++i)
      for (const Context context : {0U, 1U})
        made[i][context] = new Opener(kCiphers[i], context, KeyLimits{},
                                      secrets.of(SealSecrets::Direction::kFromActive, context));
    return made;
  }
  ();
  const auto kind = static_cast<SealedKind>(data[0] / 3 % 2);
  Opener& opener = *openers[data[0] % 3][data[0] / 6 % 2];
  const std::size_t room = bytes.size() < kSealTagBytes ? 0 : bytes.size() - kSealTagBytes;
  const auto opened = std::make_unique<std::byte[]>(room);
  require(!opener.open(kind, bytes, opened.get()), "nothing opens that nobody sealed");
  return 0;
}

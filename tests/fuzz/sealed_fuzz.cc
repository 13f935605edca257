// Sealed records. Bytes from anyone who can write into receive memory: the opener accepts none of
// them. A record that somebody did seal, and then the input changed: it opens if and only if the
// bytes are still those that were sealed. The first byte chooses cipher, kind and context; what is
// opened lies in memory of exactly its size.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fuzz/input.h"
#include "fuzz/property.h"
#include "leat/error.h"
#include "transport/sealed/record.h"
#include "transport/sealed/setup.h"

namespace leat::detail {
namespace {

constexpr SealCipher kCiphers[] = {SealCipher::kAes256Gcm, SealCipher::kAes128Gcm,
                                   SealCipher::kChaCha20Poly1305};

struct Chosen {
  explicit Chosen(std::uint8_t byte)
      : cipher(byte % 3),
        kind(static_cast<SealedKind>(byte / 3 % 2)),
        context(static_cast<Context>(byte / 6 % 2)) {}

  std::size_t cipher;
  SealedKind kind;
  Context context;
};

void read_setup(std::span<const std::byte> bytes) {
  try {
    const SealOffer offer = decode_seal_offer(bytes);
    const auto again = encode(offer);
    require(std::equal(again.begin(), again.end(), bytes.begin()),
            "a setup that is accepted says everything it carries");
    static_cast<void>(agree(offer, SealOffer{}));
  } catch (const Error& error) {
    require(error.code() == ErrorCode::kProtocol, "a setup makes sense or breaks the rules");
  }
}

// Whether `opener` opens the record, and as `message`.
bool opens(Opener& opener, SealedKind kind, std::span<const std::byte> record,
           std::span<const std::byte> message) {
  const std::size_t room = record.size() < kSealTagBytes ? 0 : record.size() - kSealTagBytes;
  const auto opened = std::make_unique<std::byte[]>(room);
  if (!opener.open(kind, record, opened.get())) return false;
  require(room == message.size() && std::equal(message.begin(), message.end(), opened.get()),
          "what opens is the message that was sealed");
  return true;
}

void open_what_nobody_sealed(const Chosen& chosen, std::span<const std::byte> bytes) {
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
  Opener& opener = *openers[chosen.cipher][chosen.context];
  require(!opens(opener, chosen.kind, bytes, {}), "nothing opens that nobody sealed");
}

// The input: how many records are opened before the one that is changed, how long messages are, how
// many bytes are cut off or put behind, where bytes change, and what each is XORed with.
void open_what_was_changed(const Chosen& chosen, std::span<const std::byte> bytes) {
  Input input(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  const unsigned before = input.next<std::uint8_t>() % 4;
  // An end is empty.
  const std::size_t length =
      input.next<std::uint16_t>() % 300 * (chosen.kind == SealedKind::kMessage ? 1 : 0);
  const auto lengthens = input.next<std::int8_t>();
  const std::size_t offset = input.next<std::uint16_t>();

  std::array<std::byte, kSealSecretBytes> of_sender{std::byte{2}};
  std::array<std::byte, kSealSecretBytes> of_receiver = of_sender;
  // The key changes once.
  const KeyLimits limits{.records = 2};
  Sealer sealer(kCiphers[chosen.cipher], chosen.context, limits, of_sender);
  Opener opener(kCiphers[chosen.cipher], chosen.context, limits, of_receiver);
  const std::vector<std::byte> message(length, std::byte{'m'});
  std::vector<std::byte> sealed(length + kSealTagBytes);
  for (unsigned i = 0; i <= before; ++i) {
    sealer.seal(chosen.kind, message, sealed);
    if (i < before) {
      require(opens(opener, chosen.kind, sealed, message), "what was sealed opens in its turn");
    }
  }

  std::vector<std::byte> changed = sealed;
  const auto size = static_cast<std::ptrdiff_t>(sealed.size()) + lengthens;
  changed.resize(static_cast<std::size_t>(std::max<std::ptrdiff_t>(size, 0)));
  for (std::size_t at = offset; !input.empty() && !changed.empty(); ++at)
    changed[at % changed.size()] ^= input.next<std::byte>();
  if (changed != sealed) {
    require(!opens(opener, chosen.kind, changed, message), "what was changed does not open");
  }
  require(opens(opener, chosen.kind, sealed, message), "what was not changed opens");
}

}  // namespace
}  // namespace leat::detail

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace leat::detail;
  if (size == 0) return 0;
  const Chosen chosen(data[0]);
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  read_setup(bytes);
  open_what_nobody_sealed(chosen, bytes);
  open_what_was_changed(chosen, bytes);
  return 0;
}

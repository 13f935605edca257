#include "trusted/channel_kernel.h"

#include <algorithm>
#include <string>

#include "base/random.h"
#include "base/secret_memory.h"
#include "conn/wire.h"
#include "leat/error.h"
#include "trusted/mac.h"

namespace leat::trusted::detail {

Nonce fresh_nonce() {
  std::array<std::uint8_t, kNonceBytes> random;
  leat::detail::fill_random(random);
  Nonce nonce;
  std::ranges::copy(std::as_bytes(std::span(random)), nonce.begin());
  return nonce;
}

std::unique_ptr<LocalKernel> make_channel_kernel(std::span<const std::byte> key,
                                                 Algorithm algorithm, const Nonce& ours,
                                                 std::span<const std::byte, kNonceBytes> theirs,
                                                 bool active) {
  if (std::ranges::equal(theirs, ours))
    throw Error(ErrorCode::kAuthentication, "the peer sent our own random number back");
  std::array<std::byte, 2 * kNonceBytes + 12> purpose;
  leat::detail::WireWriter writer(purpose);
  writer.text("leat channel", 12);
  writer.bytes(active ? std::span<const std::byte>(ours) : theirs, kNonceBytes);
  writer.bytes(active ? theirs : std::span<const std::byte>(ours), kNonceBytes);
  const leat::detail::SecretMemory session_key(kMinKeyBytes);
  derive_key(key, purpose, session_key.span());

  auto kernel = std::make_unique<LocalKernel>(channel_device(active), kChannelEpoch);
  const Verdict verdict = kernel->provision({.id = kChannelSession,
                                             .role = Role::kPair,
                                             .algorithm = algorithm,
                                             .peer = channel_device(!active),
                                             .streams = kStreams,
                                             .key = session_key.span()});
  if (verdict != Verdict::kOk || kernel->enable() != Verdict::kOk)
    throw Error(ErrorCode::kSystem,
                "the attestation kernel refuses its session: " + std::string(to_string(verdict)));
  return kernel;
}

}  // namespace leat::trusted::detail

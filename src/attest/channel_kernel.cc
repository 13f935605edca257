#include "attest/channel_kernel.h"

#include <algorithm>
#include <string>

#include "attest/mac.h"
#include "base/random.h"
#include "base/secret_memory.h"
#include "base/wire.h"
#include "leat/error.h"

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

  const leat::detail::SecretMemory published_key(kMinKeyBytes);
  derive_key(session_key.span(), std::as_bytes(std::span("leat published")), published_key.span());

  auto kernel = std::make_unique<LocalKernel>(channel_device(active), kChannelEpoch);
  const auto provision = [&](std::uint32_t id, std::uint8_t streams,
                             std::span<const std::byte> with_key) {
    return kernel->provision({.id = id,
                              .role = Role::kPair,
                              .algorithm = algorithm,
                              .peer = channel_device(!active),
                              .streams = streams,
                              .key = with_key});
  };
  Verdict verdict = provision(kChannelSession, kStreams, session_key.span());
  if (verdict == Verdict::kOk) verdict = provision(kPublishedSession, 1, published_key.span());
  if (verdict == Verdict::kOk) verdict = kernel->enable();
  if (verdict != Verdict::kOk)
    throw Error(ErrorCode::kSystem,
                "the attestation kernel refuses its session: " + std::string(to_string(verdict)));
  return kernel;
}

}  // namespace leat::trusted::detail

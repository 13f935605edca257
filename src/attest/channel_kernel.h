// The attestor of one connection. Its session lives as long as the connection, and its key is
// derived from a key that both sides share and a fresh random number of each side. So no counter
// begins twice under one key, whatever the other side does.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "leat/attest/attestation.h"

namespace leat::trusted::detail {

inline constexpr std::size_t kNonceBytes = 32;
using Nonce = std::array<std::byte, kNonceBytes>;

// The session of every connection's attestor; connections differ by the key.
inline constexpr std::uint32_t kChannelSession = 1;
// The session of what each side publishes for the other to read. Published records have no order,
// so their counters are apart from those of messages.
inline constexpr std::uint32_t kPublishedSession = 2;
inline constexpr std::uint64_t kChannelEpoch = 1;
constexpr std::uint32_t channel_device(bool active) { return active ? 1 : 2; }

Nonce fresh_nonce();

// `active`: this side connected. Throws kAuthentication if `theirs` is this side's own number,
// kSystem, kResource.
std::unique_ptr<LocalKernel> make_channel_kernel(std::span<const std::byte> key,
                                                 Algorithm algorithm, const Nonce& ours,
                                                 std::span<const std::byte, kNonceBytes> theirs,
                                                 bool active);

}  // namespace leat::trusted::detail

// The attestation session of one connection: what both sides say of it while they connect, and the
// kernel that attests.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "leat/trusted/attestation.h"

namespace leat::trusted::detail {

// With a key file both sides make a session that lives as long as the connection: its key is
// derived from the file's and a fresh random number of each side, so that no counter begins twice
// under one key whatever the other side does.
class ChannelSession {
 public:
  static constexpr std::size_t kOfferBytes = 64;
  using Offer = std::array<std::byte, kOfferBytes>;

  // Throws kInvalidArgument if the file is missing, unreadable or no key.
  ChannelSession(const std::string& key_file, Algorithm algorithm, bool active);

  // What the peer must know, for its begin().
  const Offer& offer() const { return offer_; }
  // Takes the peer's offer, which may be anything; once, before what follows. Throws kProtocol, and
  // kUnavailable if the sides want different things.
  void begin(std::span<const std::byte> peer_offer);

  AttestationKernel& kernel() { return *kernel_; }
  std::uint32_t id() const { return kSession; }
  std::string describe() const;

 private:
  static constexpr std::uint32_t kSession = 1;

  const std::string key_file_;
  const Algorithm algorithm_;
  const bool active_;
  Offer offer_{};
  std::unique_ptr<LocalKernel> kernel_;
};

std::string_view to_string(Algorithm algorithm) noexcept;

}  // namespace leat::trusted::detail

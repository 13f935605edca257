// The attestation session of one connection: what both sides say of it while they connect, and the
// kernel that attests.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "leat/trusted/attestation.h"
#include "trusted/channel_kernel.h"

namespace leat::trusted::detail {

// Where a connection's key and counters are.
class ChannelHome {
 public:
  virtual ~ChannelHome() = default;
  // Our random number. The same at each call.
  virtual const Nonce& nonce() const = 0;
  // Makes the kernel, with the session kChannelSession. Once. Throws leat::Error.
  virtual std::unique_ptr<AttestationKernel> begin(std::span<const std::byte, kNonceBytes> theirs,
                                                   bool active) = 0;
  virtual std::size_t max_payload_bytes() const = 0;
  // For people: "in leat-attestd", or nothing.
  virtual std::string_view describe() const = 0;
};

// In this process, with the key of a file. Throws kInvalidArgument if the file is missing,
// unreadable or no key.
std::unique_ptr<ChannelHome> make_local_home(const std::string& key_file, Algorithm algorithm);
// In the leat-attestd whose socket is at `path`, with the key of that session of its own, or of its
// key file if `session` is 0. Throws as IsolatedKernel does, and kUnavailable without such a key.
std::unique_ptr<ChannelHome> make_isolated_home(const std::string& path, std::uint32_t session,
                                                Algorithm algorithm,
                                                std::chrono::microseconds spin);

class ChannelSession {
 public:
  static constexpr std::size_t kOfferBytes = 64;
  using Offer = std::array<std::byte, kOfferBytes>;

  ChannelSession(std::unique_ptr<ChannelHome> home, Algorithm algorithm, bool active);

  // What the peer must know, for its begin().
  const Offer& offer() const { return offer_; }
  // Takes the peer's offer, which may be anything; once, before what follows. Throws kProtocol, and
  // kUnavailable if the sides want different things.
  void begin(std::span<const std::byte> peer_offer);

  AttestationKernel& kernel() { return *kernel_; }
  std::uint32_t id() const { return kChannelSession; }
  // Of both sides' kernels the smaller.
  std::size_t max_payload_bytes() const { return max_payload_bytes_; }
  std::string describe() const;

 private:
  std::unique_ptr<ChannelHome> home_;
  const Algorithm algorithm_;
  const bool active_;
  Offer offer_{};
  std::size_t max_payload_bytes_;
  std::unique_ptr<AttestationKernel> kernel_;
};

std::string_view to_string(Algorithm algorithm) noexcept;

}  // namespace leat::trusted::detail

// The attestation session of one connection: what both sides tell each other while they connect,
// and the attestor.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "attest/channel_kernel.h"
#include "attest/kernel_connection.h"
#include "leat/attest/attestation.h"
#include "leat/attest/isolated_kernel.h"

namespace leat::trusted::detail {

// Where a connection's key and counters are.
class ChannelHome {
 public:
  struct Attestor {
    std::unique_ptr<AttestationKernel> kernel;
    IsolatedKernel* isolated = nullptr;  // the same, if it is a leat-attestd's
  };

  virtual ~ChannelHome() = default;
  // This side's random number; the same at each call.
  virtual const Nonce& nonce() const = 0;
  // Makes the attestor, with the session kChannelSession. Call it once. Throws leat::Error.
  virtual Attestor begin(std::span<const std::byte, kNonceBytes> theirs, bool active) = 0;
  virtual std::size_t max_payload_bytes() const = 0;
  // For people: "in leat-attestd", or nothing.
  virtual std::string_view describe() const = 0;
};

// In this process, with the key in a file. Throws kInvalidArgument if the file is missing,
// unreadable or holds no key.
std::unique_ptr<ChannelHome> make_local_home(const std::string& key_file, Algorithm algorithm);
// In that leat-attestd, with the key of its session `session`, or of its key file if that is 0.
// Throws as IsolatedKernel does, and kUnavailable if it has no such key.
std::unique_ptr<ChannelHome> make_isolated_home(const ExpectedDaemon& daemon, std::uint32_t session,
                                                Algorithm algorithm,
                                                std::chrono::microseconds spin);

class ChannelSession {
 public:
  static constexpr std::size_t kOfferBytes = 64;
  using Offer = std::array<std::byte, kOfferBytes>;

  ChannelSession(std::unique_ptr<ChannelHome> home, Algorithm algorithm, bool active);

  // What the peer's begin() needs.
  const Offer& offer() const { return offer_; }
  // Takes the peer's offer, which may be any bytes. Call it once, before the calls below. Throws
  // kProtocol, and kUnavailable if the sides' settings differ.
  void begin(std::span<const std::byte> peer_offer);

  // Its calls block if it is a leat-attestd's.
  AttestationKernel& kernel() const { return *attestor_.kernel; }
  // Null: no call of kernel() blocks.
  IsolatedKernel* isolated() const { return attestor_.isolated; }
  std::uint32_t id() const { return kChannelSession; }
  // The smaller limit of both sides' attestors.
  std::size_t max_payload_bytes() const { return max_payload_bytes_; }
  std::string describe() const;

 private:
  std::unique_ptr<ChannelHome> home_;
  const Algorithm algorithm_;
  const bool active_;
  Offer offer_{};
  std::size_t max_payload_bytes_;
  ChannelHome::Attestor attestor_;
};

std::string_view to_string(Algorithm algorithm) noexcept;

}  // namespace leat::trusted::detail

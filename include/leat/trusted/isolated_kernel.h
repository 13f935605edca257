// The attestation kernel in a process of its own: leat-attestd, which alone holds keys and
// counters.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "leat/export.h"
#include "leat/trusted/attestation.h"
#include "leat/trusted/identity.h"

namespace leat::trusted {

namespace detail {
class IsolatedChannelHome;
class KernelConnection;
}  // namespace detail

// The sessions that were provisioned into the leat-attestd at one socket. Who takes this process
// over can ask for attestations, but neither read a key nor get a counter twice.
//
// Owner and threads: as AttestationKernel says; each thread waits for its own answers, and as many
// as eight are under way at once. Calls spin for `spin` at most, less
// where that has not paid, then sleep. When the daemon has ended or
// does not answer for ten seconds they say kUnavailable, and so for good: make a new one, which a
// daemon that was not provisioned anew refuses. In a child of fork() too.
class LEAT_EXPORT IsolatedKernel final : public AttestationKernel {
 public:
  // `path`: the daemon's socket. Throws leat::Error: kUnavailable if nobody serves there or it has
  // no sessions, kResource if it serves as many as it may, kAuthentication if it serves others
  // only, kVersion, kProtocol.
  explicit IsolatedKernel(const std::string& path,
                          std::chrono::microseconds spin = std::chrono::microseconds(50));
  ~IsolatedKernel() override;

  Verdict attest(const Statement& statement, std::span<const std::byte> payload,
                 Proof& proof) noexcept override;
  Verdict verify(std::span<const std::byte> record, Kind expected) noexcept override;
  Verdict verify_stateless(std::span<const std::byte> record, Kind expected) noexcept override;
  // For clients, who have no key of a session (TNIC, appendix C.1): signs a record that
  // verify_stateless accepts with the reply key that the device was provisioned with, of which
  // leat-provision shows the public half. kRole: it has none.
  Verdict sign(std::span<const std::byte> record, Kind expected, Signature& signature) noexcept;
  void ask(std::span<Question> questions) noexcept override;
  std::optional<Counters> counters(std::uint32_t session, std::uint8_t stream) noexcept override;
  std::optional<Session> session(std::uint32_t id) noexcept override;
  std::uint32_t device() const noexcept override { return device_; }
  std::uint64_t epoch() const noexcept override { return epoch_; }
  std::size_t max_payload_bytes() const noexcept override;  // --max-payload of leat-attestd

 private:
  friend class detail::IsolatedChannelHome;  // makes those of connections
  IsolatedKernel(std::unique_ptr<detail::KernelConnection> connection, std::uint32_t kernel,
                 std::uint32_t device, std::uint64_t epoch);

  const std::unique_ptr<detail::KernelConnection> connection_;
  const std::uint32_t kernel_;  // which of the daemon's
  const std::uint32_t device_;
  const std::uint64_t epoch_;
};

// A client's side: whether the device with that reply key found the record authentic. Whether it
// answers this client's request, and the present one, its payload must say. Throws leat::Error
// kInvalidArgument for a key that is none.
LEAT_EXPORT bool is_signed(const PublicKey& reply_key, std::span<const std::byte> record,
                           std::span<const std::byte> signature);

}  // namespace leat::trusted

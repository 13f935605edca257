// The attestation kernel in a process of its own: leat-attestd, the only holder of keys and
// counters.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "leat/attest/attestation.h"
#include "leat/attest/identity.h"
#include "leat/export.h"

namespace leat::trusted {

namespace detail {
class IsolatedChannelHome;
class KernelConnection;
class OpenQuestions;
}  // namespace detail

// The sessions that were provisioned into the leat-attestd at one socket. An attacker that takes
// over this process can request attestations, but can neither read a key nor obtain a counter
// twice.
//
// Owner and threads: as for AttestationKernel. Each thread waits for its own answers; up to eight
// requests are under way at once. A call spins for at most `spin`, less where spinning has not
// paid, and then sleeps. Once the daemon has ended or has not answered for ten seconds, this and
// every later call returns kUnavailable, as do all calls in a child of fork(). Then construct
// another IsolatedKernel; a daemon that was restarted refuses it until it is provisioned again.
class LEAT_EXPORT IsolatedKernel final : public AttestationKernel {
 public:
  // `path`: the daemon's socket. `spin`: negative: never sleep. `user`: by name or number, the one
  // who may serve there, beside root and this process's own. `key`: the public key that the daemon
  // must prove to be its own, 64 hexadecimal digits as leat-attestd and leat-provision print them;
  // empty: any. Throws leat::Error: kUnavailable if no daemon serves that socket or it has no
  // sessions, kResource if it has as many clients as it may, kAuthentication if another user or key
  // serves there or if it does not serve this user, kInvalidArgument, kVersion, kProtocol.
  explicit IsolatedKernel(const std::string& path,
                          std::chrono::microseconds spin = std::chrono::microseconds(50),
                          const std::string& user = "leat-attestd", const std::string& key = {});
  ~IsolatedKernel() override;

  Verdict attest(const Statement& statement, std::span<const std::byte> payload,
                 Proof& proof) noexcept override;
  Verdict verify(std::span<const std::byte> record, Kind expected) noexcept override;
  Verdict verify_stateless(std::span<const std::byte> record, Kind expected) noexcept override;
  // For clients of a trusted system, which hold no session key (TNIC, appendix C.1): signs a record
  // that verify_stateless() accepts, with the device's reply key, whose public half leat-provision
  // shows. Returns kRole if the device was provisioned without a reply key.
  Verdict sign(std::span<const std::byte> record, Kind expected, Signature& signature) noexcept;
  void ask(std::span<Question> questions) noexcept override;
  std::optional<Counters> counters(std::uint32_t session, std::uint8_t stream) noexcept override;
  std::optional<Session> session(std::uint32_t id) noexcept override;
  std::uint32_t device() const noexcept override { return device_; }
  std::uint64_t epoch() const noexcept override { return epoch_; }
  std::size_t max_payload_bytes() const noexcept override;  // --max-payload of leat-attestd

 private:
  friend class detail::IsolatedChannelHome;  // makes attestors for single connections
  friend class detail::OpenQuestions;        // asks without blocking
  IsolatedKernel(std::unique_ptr<detail::KernelConnection> connection, std::uint32_t kernel,
                 std::uint32_t device, std::uint64_t epoch);
  // Makes each attestation that is not of what was asked for kUnavailable: the daemon is broken.
  void check(std::span<Question> answered) const noexcept;

  const std::unique_ptr<detail::KernelConnection> connection_;
  const std::uint32_t kernel_;  // the daemon's number for it
  const std::uint32_t device_;
  const std::uint64_t epoch_;
};

// The client's check: whether the device with that reply key found the record authentic. The client
// must see from the payload whether it answers the client's present request. Throws leat::Error
// kInvalidArgument if the bytes are not a public key.
LEAT_EXPORT bool is_signed(const PublicKey& reply_key, std::span<const std::byte> record,
                           std::span<const std::byte> signature);

}  // namespace leat::trusted

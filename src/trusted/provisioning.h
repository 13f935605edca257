// How an attestation kernel gets its sessions: a few frames over a socket that only the controller
// holds. There is no frame that asks for a key, and none that takes one back.
//
//   Begin{device, epoch}      the kernel is made; kEpochReused unless the epoch is above all that
//   came before Provision{session, key}   one for each session Enable{epoch}             the
//   barrier: every member of every session is ready. Nothing is attested before it, and no
//                             session comes after it
//
// Each frame is answered by one, with a Verdict. Frames have a fixed size and go over a
// SOCK_SEQPACKET unix socket, so that none is ever read in parts; docs/attestation.md has the
// bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "base/clock.h"
#include "base/fd.h"
#include "leat/trusted/attestation.h"

namespace leat::trusted::detail {

enum class FrameType : std::uint8_t { kBegin = 1, kProvision = 2, kEnable = 3, kAnswer = 4 };

inline constexpr std::size_t kFrameBytes = 96;
using Frame = std::array<std::byte, kFrameBytes>;

// What a frame says; fields that its type does not have stay as they are here. The key of `session`
// lies in the frame.
struct Order {
  FrameType type = FrameType::kBegin;
  std::uint32_t device = 0;
  std::uint64_t epoch = 0;
  Session session;
  Verdict verdict = Verdict::kOk;
};

Frame encode(const Order& order) noexcept;
// No value: not such a frame, or one with bytes set that its type does not use.
std::optional<Order> decode(std::span<const std::byte> frame) noexcept;

// The controller's side. One thread. Every call blocks until the answer or the deadline; throws
// leat::Error kTimeout, kPeerDied if the kernel's process has gone, kProtocol. Frames with keys are
// wiped.
class Provisioner {
 public:
  explicit Provisioner(leat::detail::Fd socket) : socket_(std::move(socket)) {}

  Verdict begin(std::uint32_t device, std::uint64_t epoch, leat::detail::Deadline deadline);
  Verdict provision(const Session& session, leat::detail::Deadline deadline);
  Verdict enable(std::uint64_t epoch, leat::detail::Deadline deadline);

 private:
  Verdict ask(const Order& order, leat::detail::Deadline deadline);

  leat::detail::Fd socket_;
};

// The kernel's side: what is done with each frame. One thread.
class Provisioned {
 public:
  // `remember` must have kept the epoch for good when it returns; it is called before the kernel is
  // made, and if it throws none is.
  Provisioned(std::uint64_t last_epoch, std::function<void(std::uint64_t)> remember)
      : last_epoch_(last_epoch), remember_(std::move(remember)) {}

  // The answer to a frame, which may be anything.
  Frame answer(std::span<const std::byte> frame) noexcept;

  // Null before Begin. Not changed after that: a kernel has one epoch in its life.
  const std::shared_ptr<LocalKernel>& kernel() const { return kernel_; }
  bool enabled() const { return enabled_; }

 private:
  Verdict obey(const Order& order);

  const std::uint64_t last_epoch_;
  const std::function<void(std::uint64_t)> remember_;
  std::shared_ptr<LocalKernel> kernel_;
  bool enabled_ = false;
};

}  // namespace leat::trusted::detail

// A client's end of leat-attestd.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "attest/kernel_ring.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/fork.h"
#include "base/mapped_memory.h"
#include "base/spin_budget.h"
#include "leat/attest/attestation.h"

namespace leat::trusted::detail {

// Owner: the caller that made it. Threads: any; as many requests are under way at once as the ring
// has slots, and further callers wait for one. Once the daemon has ended, has not answered for
// kPatience or has broken the protocol, every call returns kUnavailable: the outcome of an
// unanswered request is unknown, so this connection cannot be used again.
class KernelConnection {
 public:
  static constexpr std::chrono::seconds kPatience{10};

  // `path`: the daemon's socket. `spin`: the longest time to spin before sleeping; negative: never
  // sleep. Throws kUnavailable with the reason, kVersion, kProtocol, kAuthentication, kResource.
  KernelConnection(const std::string& path, std::chrono::microseconds spin);
  ~KernelConnection();
  KernelConnection(const KernelConnection&) = delete;
  KernelConnection& operator=(const KernelConnection&) = delete;

  // Blocks until the daemon has answered; sets `reply` only with kOk. Sets `request.bytes` to the
  // size of `data`, at most max_data_bytes.
  Verdict ask(Request request, std::span<const std::byte> data, Reply& reply) noexcept;
  // The same for several questions, with as many as fit in each request. Sets verdicts, and proofs
  // as the daemon gave them.
  void ask(std::uint32_t kernel, std::span<Question> questions) noexcept;

  const Welcome& welcome() const { return welcome_; }

 private:
  // The turn of requests at a slot; only this process knows whose turn it is.
  struct alignas(64) Turn {
    std::atomic<std::uint64_t> next;
  };

  void receive_welcome(const std::string& path);
  bool fits(const Question& question) const noexcept;
  // How many of them fit into one request; 1 for a question that fits into none.
  std::size_t fitting(std::span<const Question> questions) const noexcept;
  // Makes one request: `fill` writes its data to the slot, `take` reads the daemon's answer there.
  template <typename Fill, typename Take>
  Verdict exchange(Request request, std::size_t bytes, const Fill& fill, const Take& take) noexcept;
  bool wait_for_turn(Turn& turn, std::uint64_t ticket) noexcept;
  bool wait_for_reply(const RingSlot& slot, std::uint32_t sequence) noexcept;
  void wake_daemon() noexcept;
  bool daemon_ended() noexcept;
  template <typename Ready, typename Sleep>
  bool wait(const Ready& ready, const Sleep& sleep) noexcept;

  const std::chrono::microseconds longest_spin_;
  leat::detail::SpinBudget spin_;
  const leat::detail::MadeHere made_here_;
  leat::detail::Fd socket_;
  leat::detail::Fd wake_;
  leat::detail::MappedMemory memory_;
  Welcome welcome_;
  alignas(64) std::atomic<std::uint64_t> tickets_{0};
  std::atomic<bool> dead_{false};
  std::vector<Turn> turns_;
};

}  // namespace leat::trusted::detail

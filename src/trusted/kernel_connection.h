// A client's end of leat-attestd.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/fork.h"
#include "base/mapped_memory.h"
#include "base/spin_budget.h"
#include "leat/trusted/attestation.h"
#include "trusted/kernel_ring.h"

namespace leat::trusted::detail {

// Owner: whoever made it. Threads: any, as many requests at once as the ring has slots; more wait
// for one. Once the daemon has ended, has not answered for kPatience, or has broken the protocol,
// every call says kUnavailable: nothing is known of a request without an answer, so there is no way
// back to this connection.
class KernelConnection {
 public:
  static constexpr std::chrono::seconds kPatience{10};

  // `path`: the daemon's socket. `spin`: how long to wait before sleeping, at most; negative: never
  // sleep.
  // Throws kUnavailable with the reason, kVersion, kProtocol, kAuthentication, kResource.
  KernelConnection(const std::string& path, std::chrono::microseconds spin);
  ~KernelConnection();
  KernelConnection(const KernelConnection&) = delete;
  KernelConnection& operator=(const KernelConnection&) = delete;

  // Blocks until the daemon has answered; `reply` is set only with kOk. `request.bytes` is set to
  // the data's, which may be at most max_data_bytes.
  Verdict ask(Request request, std::span<const std::byte> data, Reply& reply) noexcept;
  // The same for several, as one request for as many as fit into one. Sets verdicts and proofs, the
  // latter as the daemon gave them.
  void ask(std::uint32_t kernel, std::span<Question> questions) noexcept;

  const Welcome& welcome() const { return welcome_; }

 private:
  // Turn and place of a request; whose turn it is is known to this process only.
  struct alignas(64) Turn {
    std::atomic<std::uint64_t> next;
  };

  void receive_welcome(const std::string& path);
  bool fits(const Question& question) const noexcept;
  // How many of them fit into one request; one that fits into none is alone.
  std::size_t fitting(std::span<const Question> questions) const noexcept;
  // One request: `fill` writes its data to the slot, `take` reads what the daemon left there.
  template <typename Fill, typename Take>
  Verdict exchange(Request request, std::size_t bytes, const Fill& fill, const Take& take) noexcept;
  bool wait_for_turn(Turn& turn, std::uint64_t ticket) noexcept;
  bool wait_for_reply(const RingSlot& slot, std::uint32_t sequence) noexcept;
  void wake_daemon() noexcept;
  bool daemon_ended() noexcept;
  template <typename Ready, typename Sleep>
  bool wait(const Ready& ready, const Sleep& sleep) noexcept;

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

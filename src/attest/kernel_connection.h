// A client's end of leat-attestd.
#pragma once

#include <sys/types.h>

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

// Whether a process of user `own` trusts a daemon of user `server`: one of its own or of root's,
// who can do anything to it anyway, or of the one whom `user` names or numbers. Any thread.
bool may_serve(uid_t server, uid_t own, const std::string& user);

// The leat-attestd that a client means.
struct ExpectedDaemon {
  std::string path;       // of its socket
  std::string user = {};  // who may serve there, by name or number, beside root and this process's
  std::string key = {};   // its public key, 64 hexadecimal digits in lower case; empty: any
};

// Owner: the caller that made it. Threads: any; as many requests are under way at once as the ring
// has slots. Once the daemon has ended, has not answered for kPatience or has broken the protocol,
// every question gets kUnavailable: the outcome of an unanswered request is unknown, so this
// connection cannot be used again.
class KernelConnection {
 public:
  static constexpr std::chrono::seconds kPatience{10};

  // A request under way, or nothing. While it is under way it has a slot to itself, into which the
  // daemon may write. Plain value; the thread that asks keeps it.
  struct Ticket {
    static constexpr std::uint32_t kNoSlot = UINT32_MAX;
    std::uint32_t slot = kNoSlot;
    std::uint32_t sequence = 0;
    leat::detail::Clock::time_point asked{};  // as of the first look that found no answer
    leat::detail::Clock::time_point look{};   // when to look whether the daemon lives

    bool under_way() const { return slot != kNoSlot; }
  };

  // `spin`: the longest time to spin before sleeping; negative: never sleep. Throws kUnavailable
  // with the reason, kVersion, kProtocol, kAuthentication, kResource.
  KernelConnection(const ExpectedDaemon& daemon, std::chrono::microseconds spin);
  ~KernelConnection();
  KernelConnection(const KernelConnection&) = delete;
  KernelConnection& operator=(const KernelConnection&) = delete;

  // --- calls that block until the daemon has answered
  // Sets `reply` only with kOk. Sets `request.bytes` to the size of `data`, at most max_data_bytes.
  Verdict ask(Request request, std::span<const std::byte> data, Reply& reply) noexcept;
  // Sets verdicts, and proofs as the daemon gave them.
  void ask(std::uint32_t kernel, std::span<Question> questions) noexcept;

  // --- the same, as a beginning and an end that do not block
  // Begins a request with as many questions, from the first, as fit into one, and returns how many
  // these are; 0: no slot is free now, and nothing was asked. Their bytes are read by this call
  // only. Questions that cannot be asked have their verdict on return; then `ticket`, which must
  // not be under way before, is not under way.
  std::size_t begin(std::uint32_t kernel, std::span<Question> questions, Ticket& ticket) noexcept;
  // False: not answered yet. True: `questions`, the ones that were begun, have verdicts and proofs,
  // and the ticket is not under way any more.
  bool try_finish(Ticket& ticket, std::span<Question> questions) noexcept;
  bool answered(const Ticket& ticket) const noexcept;
  // When questions without an answer get kUnavailable.
  static leat::detail::Deadline patience_ends(const Ticket& ticket) {
    using Time = leat::detail::Clock::time_point;
    return (ticket.asked == Time{} ? leat::detail::Clock::now() : ticket.asked) + kPatience;
  }
  // For a ticket that nobody will finish: its slot is free once the daemon has answered.
  void drop(Ticket& ticket) noexcept;

  // --- for waiters that sleep in poll
  // Readable when a ticket that arm() was called for has its answer, and when the daemon ends.
  int wake_fd() const { return socket_.get(); }
  // The next answer to this ticket wakes. Look for it once more before the sleep.
  void arm(const Ticket& ticket) noexcept;
  // Takes what made wake_fd() readable. Returns whether there was anything, which may have been
  // for another ticket.
  bool take_wakes() noexcept;
  // Whether every further question gets kUnavailable; then wake_fd() may be readable for ever.
  bool dead() const noexcept { return dead_.load(std::memory_order_relaxed); }

  const Welcome& welcome() const { return welcome_; }

 private:
  // Which caller has a slot, which only this process knows: the sequence of its last request, and
  // its state. One word, so that a slot is taken as it was seen. A dropped one is free once it is
  // answered.
  enum State : std::uint64_t { kFree = 0, kTaken = 1, kDropped = 2 };
  struct alignas(64) Owned {
    std::atomic<std::uint64_t> word{kFree};
  };
  static std::uint64_t word_of(std::uint32_t sequence, State state) {
    return std::uint64_t{sequence} << 2 | state;
  }

  void receive_welcome(const std::string& path);
  // That the process which serves has the private half of the key; throws kAuthentication.
  void demand_proof(const ExpectedDaemon& daemon);
  bool fits(const Question& question) const noexcept;
  // How many of them fit into one request; 1 for a question that fits into none.
  std::size_t fitting(std::span<const Question> questions) const noexcept;
  bool usable() const noexcept { return !dead() && made_here_; }
  RingSlot slot_of(const Ticket& ticket) const noexcept;
  bool claim(Ticket& ticket) noexcept;
  // Its data are in the slot.
  void post(const Ticket& ticket, Request request, std::size_t bytes) noexcept;
  // The slot is the ticket's until release().
  Reply reply_of(const Ticket& ticket) noexcept;
  void release(Ticket& ticket) noexcept;
  void wait_for_reply(Ticket& ticket) noexcept;
  // Whether to go on waiting. Looks whether the daemon lives, if it is time.
  bool patient(Ticket& ticket, leat::detail::Clock::time_point now) noexcept;
  void wake_daemon() noexcept;
  bool daemon_ended() noexcept;
  // `ticket`: whose patience counts.
  template <typename Ready, typename Sleep>
  void wait(Ticket& ticket, const Ready& ready, const Sleep& sleep) noexcept;

  const std::chrono::microseconds longest_spin_;
  leat::detail::SpinBudget spin_;
  const leat::detail::MadeHere made_here_;
  leat::detail::Fd socket_;
  leat::detail::Fd wake_;
  leat::detail::MappedMemory memory_;
  Welcome welcome_;
  std::atomic<bool> dead_{false};  // relaxed: it only grows, and orders nothing
  std::vector<Owned> owned_;       // by slot
};

}  // namespace leat::trusted::detail

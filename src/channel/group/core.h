// The implementation of a GroupMaster.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fork.h"
#include "base/settings.h"
#include "base/spin_budget.h"
#include "channel/channel_core.h"
#include "channel/unfinished_sends.h"
#include "leat/group.h"

namespace leat::detail {

// Contract and threads as for GroupMaster.
class GroupCore {
 public:
  static constexpr const char* kWhenEmpty = "this group was moved from";
  // A channel to each worker, in the order of their ranks; at least one.
  GroupCore(std::vector<Channel> channels, const Settings& settings);

  std::size_t broadcast(std::span<const std::byte> message);
  std::size_t resume(std::span<const std::byte> message);
  std::vector<unsigned> unreached() const { return ranks_of(unfinished_); }
  void send(unsigned worker, std::span<const std::byte> message);
  void flush();
  void shutdown();

  std::vector<GroupMessage> gather();
  std::vector<unsigned> unheard() const { return ranks_of(awaited_); }
  GroupMessage receive();
  std::optional<GroupMessage> try_receive();
  const WorkerEnd* next_end();

  void drop(unsigned worker, const std::string& reason);
  void close() noexcept;

  unsigned size() const noexcept { return static_cast<unsigned>(members_.size()); }
  unsigned alive() const noexcept;
  const WorkerEnd* end(unsigned worker) const;
  std::size_t max_message_bytes() const;
  Channel& channel(unsigned worker) { return member(worker).channel; }
  Stats stats() const;
  std::string describe() const;

 private:
  struct Member {
    explicit Member(Channel of) : channel(std::move(of)), core(ChannelCore::of(channel)) {}

    Channel channel;
    ChannelCore& core;
    unsigned rank = 0;

    // Any thread. The WorkerEnd no longer changes: stored with release, loaded with acquire.
    std::atomic<const WorkerEnd*> end{nullptr};
    std::atomic<bool> reported{false};
    // Set by the send side, which sends nothing more to this worker. The receive side may still
    // find messages, and then reports how the worker ended. Release and acquire, because of
    // send_error.
    std::atomic<bool> unsendable{false};
    std::string send_error;

    // Receive side.
    std::optional<Message> early;  // received but not handed out yet
    bool exhausted = false;        // nothing more comes from this worker
  };
  using Members = std::vector<Member*>;

  Member& member(unsigned worker) const;
  static std::vector<unsigned> ranks_of(const Members& members);
  std::string name_of(const Member& member) const;
  void check_open(const char* what) const;
  void check_somebody_left(bool somebody) const;

  // Blocks until `pending` is empty: a member leaves it when `attempt` returns true for it, or when
  // it is lost.
  template <typename Attempt>
  void finish(Side side, const char* what, Members& pending, Attempt&& attempt);
  template <typename Attempt>
  static void attempt_all(Members& pending, Attempt&& attempt);
  // Blocks until `done` returns true. `done` tries all of `pending`, and may remove some of them.
  template <typename Done>
  void wait(Side side, const char* what, const Members& pending, Done&& done);

  // --- send side
  bool may_send_to(Member& member);
  // Calls `call` with the member's core; returns true also if that loses the member.
  template <typename Call>
  bool sent(Member& member, Call&& call);
  void lose_sending(Member& member, const Error& error);
  Members sendable();
  // Forgets the workers that have gone since their broadcast timed out.
  void update_unfinished();

  // --- receive side
  // The next message of that member; false: none now, or it is exhausted.
  // `closely`: looks whether the worker is still there at all, by a system call.
  bool take(Member& member, Message& message, bool closely = false);
  bool take_early(Member& member, bool closely = false);
  void lose_receiving(Member& member, const Error& error);
  // Returns false if there is nothing now; a false arrival with true if nothing can come any more.
  bool look(GroupMessage& arrival);

  // Records the end of a member; only its first end counts.
  void settle(Member& member, bool in_order, ErrorCode code, const std::string& what);

  const MadeHere made_here_;
  const Settings settings_;
  std::vector<std::unique_ptr<Member>> members_;
  std::atomic<bool> closed_{false};
  std::mutex send_mutex_;  // held while sending; close() ends the send sides under it

  // --- send side
  Members unfinished_;         // workers that have not taken all of the broadcast
  UnfinishedSends resumable_;  // the message of that broadcast
  std::size_t reached_ = 0;
  bool end_said_ = false;
  SpinBudget send_spin_;

  // --- receive side
  SpinBudget receive_spin_;
  unsigned next_ = 0;  // the worker whose turn it is
  Members awaited_;    // missing in the last gather, if that timed out

  std::mutex mutex_;  // guards ends_, which only grows
  std::deque<WorkerEnd> ends_;
};

}  // namespace leat::detail

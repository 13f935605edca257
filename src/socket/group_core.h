// What a GroupMaster does.
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
#include "leat/group.h"
#include "socket/channel_core.h"

namespace leat::detail {

// Contract and threads as for GroupMaster.
class GroupCore {
 public:
  // A channel to each worker, in the order of ranks; at least one.
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

    // Any thread. `end` points to what does not change any more: written with release, read with
    // acquire.
    std::atomic<const WorkerEnd*> end{nullptr};
    std::atomic<bool> reported{false};
    // Set by the send side: nothing goes to it any more. The receive side may still find messages,
    // and then says how it ended. Release and acquire, for send_error.
    std::atomic<bool> unsendable{false};
    std::string send_error;

    // Receive side.
    std::optional<Message> early;  // taken, but not handed out yet
    bool exhausted = false;        // nothing more comes from it
  };
  using Members = std::vector<Member*>;

  Member& member(unsigned worker) const;
  static std::vector<unsigned> ranks_of(const Members& members);
  std::string name_of(const Member& member) const;
  void check_open(const char* what) const;
  void check_somebody_left(bool somebody) const;

  // Those members for whom `attempt` returned true, or that are lost, leave `pending`; until it is
  // empty.
  template <typename Attempt>
  void finish(Side side, const char* what, Members& pending, Attempt&& attempt);
  template <typename Attempt>
  static void attempt_all(Members& pending, Attempt&& attempt);
  // Until `done` returns true, which looks after all of `pending` and may take some out.
  template <typename Done>
  void wait(Side side, const char* what, const Members& pending, Done&& done);

  // --- send side
  bool may_send_to(Member& member);
  // Calls `call` with its core; true also if the member is lost by that.
  template <typename Call>
  bool sent(Member& member, Call&& call);
  void lose_sending(Member& member, const Error& error);
  Members sendable();
  // Forgets those of a broadcast that timed out who are gone since.
  void update_unfinished();

  // --- receive side
  // The next message of that member; false: none now, or it is exhausted.
  // `closely`: looks whether the worker is still there at all, by a system call.
  bool take(Member& member, Message& message, bool closely = false);
  bool take_early(Member& member, bool closely = false);
  void lose_receiving(Member& member, const Error& error);
  // False: nothing now. An arrival that is false: nothing ever.
  bool look(GroupMessage& arrival);

  // The first end of a member counts.
  void settle(Member& member, bool in_order, ErrorCode code, const std::string& what);

  const MadeHere made_here_;
  const Settings settings_;
  std::vector<std::unique_ptr<Member>> members_;
  std::atomic<bool> closed_{false};
  std::mutex send_mutex_;  // held while sending; close() ends the send sides under it

  // --- send side
  Members unfinished_;  // of a broadcast: they have not taken it all
  std::size_t unfinished_bytes_ = 0;
  std::size_t reached_ = 0;
  bool end_said_ = false;

  // --- receive side
  unsigned next_ = 0;  // whose turn it is
  Members awaited_;    // by the last gather, if it timed out

  std::mutex mutex_;  // ends_, which grows only
  std::deque<WorkerEnd> ends_;
};

}  // namespace leat::detail

#include "channel/group/core.h"

#include <algorithm>
#include <utility>

#include "channel/any_wait.h"
#include "channel/channel_wait.h"

namespace leat::detail {
namespace {

constexpr std::size_t kMaxNamed = 8;  // workers that one sentence names

Error why_gone(const ChannelCore& core) {
  if (core.peer_spoke())
    return {ErrorCode::kProtocol, std::string("it ") + ChannelCore::kPeerSpoke};
  return {ErrorCode::kPeerDied, "it went away without a word"};
}

}  // namespace

GroupCore::GroupCore(std::vector<Channel> channels, const Settings& settings)
    : settings_(settings) {
  for (Channel& channel : channels) {
    members_.push_back(std::make_unique<Member>(std::move(channel)));
    members_.back()->rank = size() - 1;
  }
}

GroupCore::Member& GroupCore::member(unsigned worker) const {
  if (worker >= members_.size())
    throw Error(ErrorCode::kInvalidArgument,
                "there is no worker " + std::to_string(worker) + " in a group of " +
                    std::to_string(members_.size()),
                "Ranks are counted from 0.");
  return *members_[worker];
}

std::vector<unsigned> GroupCore::ranks_of(const Members& members) {
  std::vector<unsigned> ranks;
  for (const Member* member : members) ranks.push_back(member->rank);
  std::ranges::sort(ranks);
  return ranks;
}

std::string GroupCore::name_of(const Member& member) const {
  return "worker " + std::to_string(member.rank) + " (" + member.core.connection().peer_address +
         ")";
}

void GroupCore::check_open(const char* what) const {
  if (!made_here_)
    throw Error(ErrorCode::kClosed,
                std::string(what) +
                    ": this group belongs to the process that this one was forked "
                    "from",
                "Make groups after fork().");
  // Relaxed: it orders nothing, and the channels refuse too.
  if (closed_.load(std::memory_order_relaxed))
    throw Error(ErrorCode::kClosed, std::string(what) + ": this group was closed");
}

void GroupCore::check_somebody_left(bool somebody) const {
  if (!somebody)
    throw Error(ErrorCode::kPeerDied,
                "no worker is left of a group of " + std::to_string(members_.size()));
}

// --- waiting

template <typename Attempt>
void GroupCore::attempt_all(Members& pending, Attempt&& attempt) {
  for (std::size_t i = pending.size(); i-- > 0;) {
    if (!attempt(*pending[i])) continue;
    pending[i] = pending.back();
    pending.pop_back();
  }
}

template <typename Attempt>
void GroupCore::finish(Side side, const char* what, Members& pending, Attempt&& attempt) {
  std::unique_lock lock(send_mutex_, std::defer_lock);
  if (side == Side::kSend) {
    lock.lock();
    check_open(what);
  }
  attempt_all(pending, attempt);
  if (pending.empty()) return;
  wait(side, what, pending, [&] {
    attempt_all(pending, attempt);
    return pending.empty();
  });
}

template <typename Done>
void GroupCore::wait(Side side, const char* what, const Members& pending, Done&& done) {
  std::vector<Channel*> list;
  std::span<Channel* const> channels;
  const auto update = [&] {
    if (list.size() == pending.size()) return;
    list.clear();
    for (Member* member : pending) list.push_back(&member->channel);
    channels = list;
  };
  const Deadline deadline = deadline_after(settings_.timeout);
  for (;;) {
    update();
    AnyWaiter waiter(channels, {.side = side,
                                .budget = side == Side::kSend ? send_spin_ : receive_spin_,
                                .spin = settings_.spin,
                                .deadline = deadline});
    const auto end = waiter.wait([&] {
      const bool is_done = done();
      update();
      return is_done;
    });
    if (end == AnyWaiter::End::kDone) return;
    check_open(what);
    if (end == AnyWaiter::End::kDeadline) break;
    for (Member* member : pending) {
      if (&member->channel != waiter.gone()) continue;
      const Error why = why_gone(member->core);
      side == Side::kSend ? lose_sending(*member, why) : lose_receiving(*member, why);
    }
    if (done()) return;
  }
  std::string late;
  for (std::size_t i = 0; i < pending.size() && i <= kMaxNamed; ++i)
    late += i == kMaxNamed ? ", ..." : (i == 0 ? "" : ", ") + name_of(*pending[i]);
  throw Error(ErrorCode::kTimeout,
              std::string(what) + " timed out after " + std::to_string(settings_.timeout.count()) +
                  " ms; waiting for " + late,
              "Raise the option timeout_ms, or drop() workers that hang.");
}

// --- send side

bool GroupCore::may_send_to(Member& member) {
  if (member.unsendable.load(std::memory_order_relaxed)) return false;
  const WorkerEnd* end = member.end.load(std::memory_order_acquire);
  if (end == nullptr) return true;
  // A worker that has only shut down its side still receives.
  if (end->in_order && !member.core.lifeline_ended(Side::kSend)) return true;
  member.unsendable.store(true, std::memory_order_release);
  return false;
}

template <typename Call>
bool GroupCore::sent(Member& member, Call&& call) {
  try {
    return call(member.core);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInvalidArgument || error.code() == ErrorCode::kTooLarge) throw;
    lose_sending(member, error);
    return true;
  }
}

void GroupCore::lose_sending(Member& member, const Error& error) {
  check_open("send");
  member.send_error = error.what();
  member.unsendable.store(true, std::memory_order_release);
  // A worker that is gone may have ended in order, as the receive side will see; any other is no
  // longer trusted.
  if (error.code() == ErrorCode::kPeerDied) return;
  settle(member, false, error.code(), error.what());
  member.core.reset();
}

GroupCore::Members GroupCore::sendable() {
  Members all;
  for (const auto& member : members_)
    if (may_send_to(*member)) all.push_back(member.get());
  return all;
}

void GroupCore::update_unfinished() {
  std::erase_if(unfinished_, [&](Member* member) { return !may_send_to(*member); });
}

std::size_t GroupCore::broadcast(std::span<const std::byte> message) {
  check_open("broadcast");
  if (end_said_) throw Error(ErrorCode::kClosed, "broadcast: sending was shut down");
  update_unfinished();
  if (!unfinished_.empty())
    throw Error(ErrorCode::kInvalidArgument,
                "an earlier broadcast has not reached " + name_of(*unfinished_.front()),
                "Call resume() with its message, or drop() the worker.");
  std::size_t most = SIZE_MAX;
  for (const auto& member : members_) {
    if (!may_send_to(*member)) continue;
    unfinished_.push_back(member.get());
    most = std::min(most, member->channel.max_message_bytes());
  }
  check_somebody_left(!unfinished_.empty());
  if (message.size() > most) {
    unfinished_.clear();
    throw Error(ErrorCode::kTooLarge,
                "a broadcast of " + std::to_string(message.size()) +
                    " bytes is above max_message_bytes (" + std::to_string(most) + ")",
                "Send it in parts, or raise max_message_bytes on all sides.");
  }
  reached_ = 0;
  resumable_.remember(message, 0);
  return resume(message);
}

std::size_t GroupCore::resume(std::span<const std::byte> message) {
  check_open("broadcast");
  update_unfinished();
  if (!unfinished_.empty() && !resumable_.continues(message, 0))
    throw Error(ErrorCode::kInvalidArgument,
                "a broadcast is resumed with another message, of " +
                    std::to_string(message.size()) + " bytes",
                "Call resume() with the message of the broadcast.");
  finish(Side::kSend, "broadcast", unfinished_, [&](Member& member) {
    if (!may_send_to(member)) return true;
    if (!sent(member, [&](ChannelCore& core) { return core.try_send_unwatched(message); }))
      return false;
    if (!member.unsendable.load(std::memory_order_relaxed)) ++reached_;
    return true;
  });
  return reached_;
}

void GroupCore::send(unsigned worker, std::span<const std::byte> message) {
  check_open("send");
  Member& to = member(worker);
  if (std::ranges::find(unfinished_, &to) != unfinished_.end() && may_send_to(to))
    throw Error(ErrorCode::kInvalidArgument, "a broadcast has not reached " + name_of(to) + " yet",
                "Call resume() with its message, or drop() the worker.");
  if (end_said_) throw Error(ErrorCode::kClosed, "send: sending was shut down");
  Members pending{&to};
  try {
    finish(Side::kSend, "send", pending, [&](Member& member) {
      return !may_send_to(member) ||
             sent(member, [&](ChannelCore& core) { return core.try_send_unwatched(message); });
    });
  } catch (...) {
    to.core.give_up(0);
    throw;
  }
  if (!to.unsendable.load(std::memory_order_relaxed)) return;
  const WorkerEnd* end = to.end.load(std::memory_order_acquire);
  throw Error(ErrorCode::kPeerDied,
              "send: " + (end != nullptr ? end->reason : name_of(to) + ": " + to.send_error));
}

void GroupCore::flush() {
  check_open("flush");
  Members pending = sendable();
  finish(Side::kSend, "flush", pending, [&](Member& member) {
    return !may_send_to(member) || sent(member, [](ChannelCore& core) { return core.try_flush(); });
  });
}

void GroupCore::shutdown() {
  check_open("shutdown");
  update_unfinished();
  if (!unfinished_.empty())
    throw Error(ErrorCode::kInvalidArgument,
                "shutdown: a broadcast has not reached " + name_of(*unfinished_.front()) + " yet",
                "Call resume() with its message, or drop() the worker.");
  end_said_ = true;
  Members pending = sendable();
  finish(Side::kSend, "shutdown", pending, [&](Member& member) {
    return !may_send_to(member) ||
           sent(member, [](ChannelCore& core) { return core.try_shutdown() && core.try_flush(); });
  });
}

// --- receive side

bool GroupCore::take(Member& member, Message& message, bool closely) {
  if (member.early) {
    message = std::move(*member.early);
    member.early.reset();
    return true;
  }
  if (member.exhausted) return false;
  try {
    // Checked before the look, because messages that came before the end still count.
    const bool gone = (closely || member.unsendable.load(std::memory_order_acquire)) &&
                      member.core.lifeline_ended(Side::kReceive);
    auto taken = member.core.try_receive(0);
    if (!taken && gone)
      found_late([&] { return (taken = member.core.try_receive(0)).has_value(); });
    if (taken && *taken) {
      message = std::move(*taken);
      return true;
    }
    if (taken) {
      member.exhausted = true;
      settle(member, true, ErrorCode::kPeerDied, "ended in order");
    } else if (gone && member.core.lifeline_ended(Side::kReceive)) {
      lose_receiving(member, why_gone(member.core));
    }
  } catch (const Error& error) {
    lose_receiving(member, error);
  }
  return false;
}

bool GroupCore::take_early(Member& member, bool closely) {
  if (member.early) return true;
  Message message;
  if (!take(member, message, closely)) return false;
  member.early.emplace(std::move(message));
  return true;
}

void GroupCore::lose_receiving(Member& member, const Error& error) {
  check_open("receive");
  member.exhausted = true;
  settle(member, false, error.code(), error.what());
  if (error.code() != ErrorCode::kPeerDied) member.core.reset();
}

bool GroupCore::look(GroupMessage& arrival) {
  bool all_over = true;
  for (unsigned i = 0; i < size(); ++i) {
    const unsigned worker = next_ + i < size() ? next_ + i : next_ + i - size();
    Member& member = *members_[worker];
    if (take(member, arrival.message)) {
      arrival.worker = worker;
      next_ = worker + 1 < size() ? worker + 1 : 0;
      return true;
    }
    if (!member.exhausted) {
      all_over = false;
    } else if (!member.reported.load(std::memory_order_relaxed) &&
               !member.reported.exchange(true, std::memory_order_relaxed)) {
      arrival.worker = worker;
      arrival.end = member.end.load(std::memory_order_acquire);
      return true;
    }
  }
  return all_over;
}

std::vector<GroupMessage> GroupCore::gather() {
  check_open("gather");
  awaited_.clear();
  bool somebody = false;
  for (const auto& member : members_) {
    somebody = somebody || member->early || !member->exhausted;
    if (!member->early && !member->exhausted) awaited_.push_back(member.get());
  }
  check_somebody_left(somebody);
  finish(Side::kReceive, "gather", awaited_,
         [this](Member& member) { return take_early(member) || member.exhausted; });
  std::vector<GroupMessage> messages(size());
  for (unsigned worker = 0; worker < size(); ++worker) {
    Member& member = *members_[worker];
    messages[worker].worker = worker;
    if (!take(member, messages[worker].message)) {
      messages[worker].end = member.end.load(std::memory_order_acquire);
      member.reported.store(true, std::memory_order_relaxed);
    }
  }
  return messages;
}

GroupMessage GroupCore::receive() {
  check_open("receive");
  GroupMessage arrival;
  if (look(arrival)) return arrival;
  Members pending;
  const auto update = [&] {
    pending.clear();
    for (const auto& member : members_)
      if (!member->exhausted) pending.push_back(member.get());
  };
  update();
  wait(Side::kReceive, "receive", pending, [&] {
    if (look(arrival)) return true;
    if (std::ranges::any_of(pending, [](const Member* member) { return member->exhausted; }))
      update();
    return false;
  });
  return arrival;
}

std::optional<GroupMessage> GroupCore::try_receive() {
  check_open("receive");
  GroupMessage arrival;
  if (!look(arrival)) return std::nullopt;
  return arrival;
}

const WorkerEnd* GroupCore::next_end() {
  check_open("next_end");
  for (const auto& member : members_) {
    if (member->reported.load(std::memory_order_relaxed)) continue;
    const bool early = take_early(*member, true);
    // Its messages remain for a later receive(); a master that never receives learns of the end
    // all the same.
    if (early && member->unsendable.load(std::memory_order_acquire))
      settle(*member, false, ErrorCode::kPeerDied, member->send_error);
    const WorkerEnd* end = member->end.load(std::memory_order_acquire);
    if (end != nullptr && !member->reported.exchange(true, std::memory_order_relaxed)) return end;
  }
  return nullptr;
}

// --- both

void GroupCore::settle(Member& member, bool in_order, ErrorCode code, const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (member.end.load(std::memory_order_relaxed) != nullptr) return;
  ends_.push_back({member.rank, in_order, code, name_of(member) + ": " + what});
  member.end.store(&ends_.back(), std::memory_order_release);
}

void GroupCore::drop(unsigned worker, const std::string& reason) {
  check_open("drop");
  Member& dropped = member(worker);
  dropped.reported.store(true, std::memory_order_relaxed);
  settle(dropped, false, ErrorCode::kClosed, "dropped: " + reason);
  dropped.core.reset();
}

void GroupCore::close() noexcept {
  if (!made_here_ || closed_.exchange(true, std::memory_order_relaxed)) return;
  for (const auto& member : members_) member->core.interrupt();
  const std::lock_guard lock(send_mutex_);  // until another thread's broadcast has noticed
  for (const auto& member : members_) member->channel.close();
}

unsigned GroupCore::alive() const noexcept {
  return static_cast<unsigned>(std::ranges::count_if(members_, [](const auto& member) {
    return member->end.load(std::memory_order_relaxed) == nullptr &&
           !member->unsendable.load(std::memory_order_relaxed);
  }));
}

const WorkerEnd* GroupCore::end(unsigned worker) const {
  return member(worker).end.load(std::memory_order_acquire);
}

std::size_t GroupCore::max_message_bytes() const {
  std::size_t most = SIZE_MAX;
  for (const auto& member : members_) most = std::min(most, member->channel.max_message_bytes());
  return most;
}

Stats GroupCore::stats() const {
  Stats sum;
  for (const auto& member : members_) sum += member->channel.stats();
  return sum;
}

std::string GroupCore::describe() const {
  std::string text =
      "a group of " + std::to_string(size()) + " workers, " + std::to_string(alive()) + " alive";
  for (const auto& member : members_) {
    const WorkerEnd* end = member->end.load(std::memory_order_acquire);
    text += "\n  " + std::to_string(member->rank) + ": " +
            (end != nullptr ? end->reason : member->channel.description());
  }
  return text;
}

}  // namespace leat::detail

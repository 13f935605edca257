#include "channel/group/meeting.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "channel/any_wait.h"
#include "channel/channel_core.h"
#include "channel/group/hello.h"
#include "leat/error.h"
#include "leat/group.h"

namespace leat::detail {
namespace {

// Newcomers without a hello so far. Each takes a connection's memory; more wait in the listener.
constexpr std::size_t kMaxStrangers = 16;

}  // namespace

GroupMeeting::GroupMeeting(Listener& listener, const Settings& settings, unsigned workers)
    : listener_(listener), settings_(settings), workers_(workers) {}

std::vector<Channel> GroupMeeting::hold() {
  const Deadline deadline = deadline_after(settings_.connect_timeout);
  std::vector<Channel*> all;
  std::span<Channel* const> channels;
  const auto look = [&] {
    take_newcomers();
    std::erase_if(newcomers_, [this](Newcomer& newcomer) { return !hear(newcomer); });
    all.clear();
    for (Newcomer& newcomer : newcomers_) all.push_back(&newcomer.channel);
    channels = all;
  };
  SpinBudget nothing_learnt;  // these waits sleep at once
  for (;;) {
    look();
    if (joined() == workers_) return welcome();
    const Deadline next = std::min(deadline, earliest());
    const bool was_full = full();
    const std::size_t had_come = have_come_;
    AnyWaiter waiter(
        channels,
        {.other_fd = was_full ? -1 : listener_.fd(), .budget = nothing_learnt, .deadline = next});
    const auto end = waiter.wait([&] {
      look();
      // The waiter knows only the channels that were there before.
      return joined() == workers_ || have_come_ != had_come || full() != was_full;
    });
    if (end == AnyWaiter::End::kGone)
      std::erase_if(newcomers_, [&](Newcomer& each) { return &each.channel == waiter.gone(); });
    if (end == AnyWaiter::End::kDeadline && passed(deadline)) time_out();
  }
}

Deadline GroupMeeting::earliest() const {
  Deadline earliest = kNoDeadline;
  for (const Newcomer& newcomer : newcomers_)
    if (!newcomer.joined) earliest = std::min(earliest, newcomer.until);
  return earliest;
}

void GroupMeeting::take_newcomers() {
  while (!full()) {
    std::optional<Channel> channel = listener_.try_accept();
    if (!channel) return;
    newcomers_.push_back({std::move(*channel), deadline_after(settings_.handshake_timeout)});
    ++have_come_;
  }
}

bool GroupMeeting::hear(Newcomer& newcomer) {
  try {
    const auto message = newcomer.channel.try_receive();
    if (!message) {
      if (newcomer.joined || !passed(newcomer.until)) return true;
      turn_away(newcomer, ErrorCode::kTimeout, "it did not say in time which worker it is");
      return false;
    }
    if (!*message) return false;  // it left
    if (!newcomer.joined) return admit(newcomer, *message);
    turn_away(newcomer, ErrorCode::kProtocol, "it spoke before the group was complete");
  } catch (const Error& error) {
    log(LogLevel::kInfo, "a newcomer at " + listener_.address() + " is gone: " + error.what());
  }
  return false;
}

bool GroupMeeting::admit(Newcomer& newcomer, const Message& message) {
  GroupHello hello;
  try {
    hello = decode_group_hello(message.bytes());
  } catch (const Error& error) {
    turn_away(newcomer, error.code(), error.what());
    return false;
  }
  std::string objection;
  if (hello.size != 0 && hello.size != workers_)
    objection = "it expects a group of " + std::to_string(hello.size) + " workers, this one has " +
                std::to_string(workers_);
  else if (hello.rank != kAnyRank && hello.rank >= workers_)
    objection = "it wants to be worker " + std::to_string(hello.rank) + " of " +
                std::to_string(workers_) + ", which are counted from 0";
  else if (hello.rank != kAnyRank && is_taken(hello.rank))
    objection = "there is a worker " + std::to_string(hello.rank) + " already";
  else if (joined() == workers_)
    objection = "the group of " + std::to_string(workers_) + " workers is complete";
  if (!objection.empty()) {
    turn_away(newcomer, ErrorCode::kInvalidArgument, objection);
    return false;
  }
  newcomer.joined = true;
  if (hello.rank != kAnyRank) newcomer.rank = hello.rank;
  return true;
}

// The caller closes the channel by destroying it; the answer arrives before that.
void GroupMeeting::turn_away(Newcomer& newcomer, ErrorCode code, const std::string& why) {
  turned_away_ = newcomer.channel.peer_address() + ": " + why;
  log(LogLevel::kWarn, "the group at " + listener_.address() + " turned away " + turned_away_);
  GroupAnswer answer;
  answer.refused = true;
  answer.code = code;
  answer.text = why;
  // Nothing was sent before, so there is room; what is begun is finished before the end.
  static_cast<void>(newcomer.channel.try_send(encode(answer)));
}

bool GroupMeeting::full() const { return newcomers_.size() - joined() >= kMaxStrangers; }

std::size_t GroupMeeting::joined() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(newcomers_, [](const Newcomer& newcomer) { return newcomer.joined; }));
}

bool GroupMeeting::is_taken(unsigned rank) const {
  return std::ranges::any_of(newcomers_, [&](const Newcomer& newcomer) {
    return newcomer.joined && newcomer.rank == rank;
  });
}

// Gives the ranks that workers asked for; the others get what is left, in order of arrival.
std::vector<Channel> GroupMeeting::welcome() {
  std::vector<std::optional<Channel>> places(workers_);
  for (Newcomer& newcomer : newcomers_)
    if (newcomer.joined && newcomer.rank) places[*newcomer.rank] = std::move(newcomer.channel);
  unsigned next = 0;
  for (Newcomer& newcomer : newcomers_) {
    if (!newcomer.joined) {
      turn_away(newcomer, ErrorCode::kInvalidArgument,
                "the group of " + std::to_string(workers_) + " workers is complete");
    } else if (!newcomer.rank) {
      while (places[next]) ++next;
      places[next] = std::move(newcomer.channel);
    }
  }
  std::vector<Channel> channels;
  for (auto& place : places) {
    GroupAnswer answer;
    answer.rank = static_cast<std::uint32_t>(channels.size());
    answer.size = workers_;
    channels.push_back(std::move(*place));
    // There is room, as above, unless the worker keeps it back: it holds up the others no longer
    // than a silent one does.
    ChannelCore& core = ChannelCore::of(channels.back());
    core.set_send_timeout(settings_.handshake_timeout);
    try {
      core.send(encode(answer), 0);
    } catch (const Error&) {
      // The worker has just died; the first call that uses the channel will find that.
    }
    core.set_send_timeout(settings_.timeout);
  }
  return channels;
}

void GroupMeeting::time_out() const {
  std::string missing;
  const auto anybody = [](const Newcomer& newcomer) { return newcomer.joined && !newcomer.rank; };
  if (std::ranges::none_of(newcomers_, anybody)) {
    for (unsigned rank = 0; rank < workers_; ++rank)
      if (!is_taken(rank)) missing += (missing.empty() ? " " : ", ") + std::to_string(rank);
    missing = "; missing are the ranks" + missing;
  }
  throw Error(
      ErrorCode::kTimeout,
      "only " + std::to_string(joined()) + " of " + std::to_string(workers_) + " workers came to " +
          listener_.address() + " in " + std::to_string(settings_.connect_timeout.count()) + " ms" +
          missing + (turned_away_.empty() ? "" : "; turned away was " + turned_away_),
      "Start all workers, with the same group size, or raise the option connect_timeout_ms.");
}

}  // namespace leat::detail

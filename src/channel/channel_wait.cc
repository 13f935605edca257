#include "channel/channel_wait.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/system_error.h"
#include "base/timer_slack.h"

namespace leat::detail {

// Of the stream; -1 where its end would end each sleep, and tells nothing before an answer.
int ChannelCore::lifeline_fd(Side side) const {
  const bool checking = side == Side::kReceive && transport_.checking();
  return watches_lifeline_ && checking ? -1 : connection_.stream->fd();
}

bool ChannelCore::sleep(Side side, Deadline deadline, std::chrono::microseconds& nap) {
  (side == Side::kSend ? send_sleeps_ : receive_sleeps_).add(1);
  const Outlook outlook = transport_.outlook(side, Look::kBrief);
  const short on_stream = watches_lifeline_ ? POLLIN : outlook.stream_events;
  pollfd fds[] = {{transport_.event_fd(side), POLLIN, 0},
                  {closing_.get(), POLLIN, 0},
                  {lifeline_fd(side), on_stream, 0}};
  sleep_on(fds, outlook.comes, deadline, nap);
  return watches_lifeline_ && fds[2].revents != 0;
}

Outlook::Found ChannelCore::found_since_last_sleep() {
  const Outlook::Found found = transport_.outlook(Side::kReceive, Look::kBrief).found;
  const Outlook::Found before = std::exchange(found_by_looking_, found);
  return {found.messages - before.messages, found.eighths - before.eighths};
}

// `found`: since the last sleep.
bool ChannelCore::takes_nap(const Outlook::Found& found) {
  const bool many = found.messages >= kMessagesPerNap;
  nap_ = many && naps_left_ != 0
             ? std::clamp(found.eighths == 0 ? nap_ * 2 : nap_ / 2, kBriefNap, kLongestBriefNap)
             : kBriefNap;
  if (many) naps_left_ = kNapsWithoutMany;
  if (naps_left_ == 0) return false;
  --naps_left_;
  return true;
}

// Without the transport's events, which are not armed.
void ChannelCore::nap_briefly() {
  receive_sleeps_.add(1);
  pollfd fds[] = {{closing_.get(), POLLIN, 0}, {lifeline_fd(Side::kReceive), POLLIN, 0}};
  std::chrono::microseconds nap = nap_;
  sleep_on(std::span(fds).first(watches_lifeline_ ? 2 : 1), Comes::kSilently, kNoDeadline, nap);
}

void sleep_on(std::span<pollfd> fds, Outlook::Comes comes, Deadline deadline,
              std::chrono::microseconds& nap) {
  int ready = 0;
  if (comes == Outlook::Comes::kWithEvent) {
    ready = poll(fds.data(), fds.size(), poll_timeout_ms(deadline));
  } else {
    const bool silently = comes == Outlook::Comes::kSilently;
    const std::chrono::microseconds longest = silently ? nap : kLongestNap;
    const timespec time{0, std::chrono::nanoseconds(longest).count()};
    const TimerSlack slack(longest / 8);
    ready = ppoll(fds.data(), fds.size(), &time, nullptr);
    if (silently) nap = std::min<std::chrono::microseconds>(nap * 2, kLongestNap);
  }
  if (ready < 0 && errno != EINTR) throw system_error("poll", errno);
}

}  // namespace leat::detail

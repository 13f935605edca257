// How a poller looks at a channel, and arms it.
#include <algorithm>

#include "base/epoll.h"
#include "channel/channel_core.h"
#include "channel/channel_wait.h"
#include "channel/poller_core.h"
#include "leat/error.h"

namespace leat::detail {

Events PollerCore::look(Entry& entry, Look how) {
  ++stats_.looks;
  Events ready = Events::kNone;
  if (has(entry.wanted, Events::kReadable) &&
      (peek(*entry.channel, how) || told_by_lifeline(entry)))
    ready = Events::kReadable;
  if (has(entry.wanted, Events::kRoom)) {
    if (has_room(entry))
      ready |= Events::kRoom;
    else
      make_drowsy(entry);  // until it is armed, if room gives an event
  }
  if (has(ready, Events::kReadable) || (has(ready, Events::kRoom) && !refused(entry)))
    entry.naps = 0;
  return ready;
}

// Whether try_receive() returns a value or throws. A message is taken ahead, because no transport
// says what it has without handing it out. A brief look is at the context that had the last
// message; a thorough one begins behind it, so that no context keeps the others from their turn.
bool PollerCore::peek(ChannelCore& channel, Look how) try {
  Watched& watched = channel.watched_;
  if (watched.ahead || channel.closed() || channel.waiting_sides_.has(Side::kReceive)) return true;
  Transport& transport = channel.transport_;
  bool ended = false;
  const auto found_in = [&](unsigned context) {
    const ReceiveResult result = transport.try_receive(context, watched.delivery);
    if (result == ReceiveResult::kEnd) ended = true;
    if (result != ReceiveResult::kMessage) return false;
    watched.ahead = true;
    watched.context = watched.delivery.context;
    return true;
  };
  const unsigned last = watched.context;
  const auto found_in_others = [&] {
    for (unsigned i = 1; i < kContexts; ++i)
      if (found_in((last + i) % kContexts)) return true;
    return false;
  };
  if (how == Look::kThorough && transport.outlook(Side::kReceive, how).soon && found_in_others())
    return true;
  return found_in(last) || (ended && found_in_others()) || ended;
} catch (const std::exception&) {
  return true;  // try_receive() says it
}

// Once the lifeline has given an event, and a look found nothing.
bool PollerCore::told_by_lifeline(Entry& entry) {
  ChannelCore& channel = *entry.channel;
  if (!channel.watches_lifeline_) return false;
  // Relaxed: this thread sets it.
  if (!entry.lifeline_news && !channel.peer_gone_.load(std::memory_order_relaxed)) return false;
  // Until this is over, which gives an event, the lifeline's end says nothing.
  const auto undecided = [&] {
    return channel.transport_.checking() || channel.transport_.resuming();
  };
  const bool was_undecided = undecided();
  if (channel.lifeline_ended(Side::kReceive)) {
    if (found_late([&] { return peek(channel, Look::kThorough); })) return true;
    if (channel.lifeline_ended(Side::kReceive)) {
      channel.peer_gone_.store(true, std::memory_order_relaxed);  // for try_receive()
      return true;
    }
  }
  entry.lifeline_news = was_undecided || undecided();
  return false;
}

bool PollerCore::refused(const Entry& entry) { return entry.channel->watched_.refused.has_value(); }

// After an event, or a nap.
void PollerCore::let_retry(Entry& entry) {
  if (has(entry.wanted, Events::kRoom)) entry.may_retry = entry.channel->watched_.refusals;
}

bool PollerCore::has_room(const Entry& entry) try {
  ChannelCore& channel = *entry.channel;
  const Watched& watched = channel.watched_;
  if (!watched.refused || channel.closed() || channel.end_said_ || channel.peer_left_) return true;
  if (entry.lifeline_news && channel.lifeline_ended(Side::kSend)) return true;
  const auto [bytes, context] = *watched.refused;
  const Transport& transport = channel.transport_;
  // Where room can be asked for, and the message goes whole. Else an event or a nap is a reason to
  // try again, until that is refused.
  if (transport.facts().reserves_room && !channel.reserved_ && !channel.unfinished_.has(context) &&
      bytes <= transport.max_in_place_bytes(context))
    return channel.has_room(bytes, context);
  return entry.may_retry == watched.refusals;
} catch (const std::exception&) {
  return true;  // try_send() says it
}

void PollerCore::arm(Entry& entry) try {
  ChannelCore& channel = *entry.channel;
  if (has(entry.wanted, Events::kReadable)) channel.transport_.arm(Side::kReceive);
  if (has(entry.wanted, Events::kRoom)) channel.arm_for_room();
} catch (const std::exception&) {
  // The look that follows finds it.
}

// After arm(), and a look that found nothing.
void PollerCore::leave_armed(Entry& entry) {
  const ChannelCore& channel = *entry.channel;
  Outlook outlook;
  if (has(entry.wanted, Events::kReadable))
    outlook = channel.transport_.outlook(Side::kReceive, Look::kBrief);
  if (has(entry.wanted, Events::kRoom)) {
    const Outlook of_room = channel.transport_.outlook(Side::kSend, Look::kBrief);
    outlook.comes = std::max(outlook.comes, of_room.comes);
    outlook.stream_events |= of_room.stream_events;
  }
  // Again each time: what waits there unread, and would give no further edge, gives one.
  if (!channel.watches_lifeline_)
    watch(entry, channel.connection_.stream->fd(),
          static_cast<unsigned>(outlook.stream_events) | EPOLLET, Source::kMessages, EPOLL_CTL_MOD);
  entry.comes = outlook.comes;
  if (entry.comes == Outlook::Comes::kWithEvent)
    wake(entry);
  else
    make_drowsy(entry);
  cool(entry);
}

}  // namespace leat::detail

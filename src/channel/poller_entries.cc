// What a poller watches: adding, changing, removing.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "base/epoll.h"
#include "base/system_error.h"
#include "channel/channel_core.h"
#include "channel/channel_wait.h"
#include "channel/listener_core.h"
#include "channel/poller_core.h"
#include "leat/error.h"

namespace leat::detail {
namespace {

constexpr unsigned kGenerationBits = 24;

template <typename T>
void reserve_for(std::vector<T>& list, std::size_t count) {
  if (list.capacity() < count) list.reserve(2 * count);
}

[[noreturn]] void refuse(const std::string& failure, const char* advice) {
  throw Error(ErrorCode::kInvalidArgument, failure, advice);
}

void check_not_watched(const Watch* watch, const char* what) {
  if (watch != nullptr)
    refuse(std::string("add to a poller: this ") + what + " is in a poller already",
           "Call modify() to wait for something else, or remove() it from the other poller first.");
}

unsigned in_epoll(Events wanted) {
  return (has(wanted, Events::kReadable) ? unsigned{EPOLLIN} : 0) |
         (has(wanted, Events::kRoom) ? unsigned{EPOLLOUT} : 0);
}

}  // namespace

PollerCore::PollerCore() : set_(new_epoll_set()) {}

PollerCore::~PollerCore() {
  if (!made_here_) return;
  for (const auto& entry : entries_) {
    if (entry == nullptr) continue;
    if (entry->channel != nullptr) entry->channel->watched_.watch = nullptr;
    if (entry->channel != nullptr) entry->channel->watched_.room_watch = nullptr;
    if (entry->listener != nullptr) entry->listener->set_watch(nullptr);
  }
}

void PollerCore::check_here(const char* what) const {
  if (!made_here_)
    throw Error(
        ErrorCode::kClosed,
        std::string(what) + ": this poller belongs to the process that this one was forked from",
        "Make pollers after fork().");
}

// --- entries

PollerCore::Entry& PollerCore::make_entry(Events wanted, std::uint64_t token) {
  auto made = std::make_unique<Entry>(*this);
  Entry& entry = *made;
  if (free_.empty()) {
    const std::size_t count = entries_.size() + 1;
    reserve_for(hot_, count);
    reserve_for(drowsy_, count);
    reserve_for(idle_, count);
    reserve_for(free_, count);
    entries_.emplace_back();
    free_.push_back(static_cast<std::uint32_t>(count - 1));
  }
  entry.index = free_.back();
  free_.pop_back();
  entry.generation = ++generation_ & ((1U << kGenerationBits) - 1);
  entry.wanted = wanted;
  entry.token = token;
  entry.turn = turns_;
  entries_[entry.index] = std::move(made);
  return entry;
}

void PollerCore::free_entry(Entry& entry) noexcept {
  const std::uint32_t index = entry.index;
  entries_[index].reset();
  free_.push_back(index);
}

PollerCore::Entry& PollerCore::entry_of(const Watch* watch, const char* what) const {
  const auto* const entry = static_cast<const Entry*>(watch);
  if (entry == nullptr || &entry->poller != this)
    refuse(std::string(what) + ": it is not in this poller", "Call add() first.");
  return *entries_[entry->index];
}

PollerCore::Entry& PollerCore::entry_of(int descriptor, const char* what) const {
  const auto found = descriptors_.find(descriptor);
  if (found == descriptors_.end())
    refuse(
        std::string(what) + ": descriptor " + std::to_string(descriptor) + " is not in this poller",
        "Call add() first.");
  return *found->second;
}

void PollerCore::watch(const Entry& entry, int fd, unsigned events, Source source, int operation) {
  if (fd < 0) return;
  epoll_add(set_, fd, events, operation,
            std::uint64_t{static_cast<std::uint8_t>(source)} << 56 |
                std::uint64_t{entry.generation} << 32 | entry.index);
}

// --- channels

void PollerCore::add(ChannelCore& channel, Events wanted, std::uint64_t token) {
  check_here("add to a poller");
  channel.check_open("add to a poller");
  check_not_watched(channel.watched_.watch, "channel");
  Entry& entry = make_entry(wanted, token);
  entry.channel = &channel;
  try {
    watch_channel(entry);
    want(entry, wanted);
  } catch (...) {
    remove(entry);
    throw;
  }
  channel.watched_.watch = &entry;
}

// Edge-triggered, so that what was reported once costs nothing until arm() has taken it.
void PollerCore::watch_channel(Entry& entry) {
  const ChannelCore& channel = *entry.channel;
  const int stream = channel.connection_.stream->fd();
  watch(entry, channel.transport_.event_fd(Side::kReceive), EPOLLIN | EPOLLET, Source::kMessages);
  watch(entry, channel.closing_.get(), EPOLLIN | EPOLLET, Source::kMessages);
  if (channel.watches_lifeline_)
    watch(entry, stream, EPOLLIN | EPOLLRDHUP | EPOLLET, Source::kLifeline);
  else
    watch(entry, stream, EPOLLIN | EPOLLET, Source::kMessages);
}

void PollerCore::want(Entry& entry, Events wanted) {
  ChannelCore& channel = *entry.channel;
  const bool room = has(wanted, Events::kRoom);
  const int event = channel.transport_.event_fd(Side::kSend);
  if (room && !entry.room_watched && event != channel.transport_.event_fd(Side::kReceive)) {
    watch(entry, event, EPOLLIN | EPOLLET, Source::kRoom);
    entry.room_watched = true;
  }
  entry.wanted = wanted;
  let_retry(entry);
  // The send side may be another thread's as long as nobody waits for room.
  if (room || channel.watched_.room_watch != nullptr)
    channel.watched_.room_watch = room ? &entry : nullptr;
  entry.touch();  // what is here already gives no event
}

void PollerCore::modify(ChannelCore& channel, Events wanted) {
  check_here("modify in a poller");
  want(entry_of(channel.watched_.watch, "modify in a poller"), wanted);
}

void PollerCore::remove(ChannelCore& channel) {
  check_here("remove from a poller");
  remove(entry_of(channel.watched_.watch, "remove from a poller"));
}

// --- listeners and plain descriptors

void PollerCore::add(ListenerCore& listener, std::uint64_t token) {
  check_here("add to a poller");
  check_not_watched(listener.watch(), "listener");
  Entry& entry = make_entry(Events::kReadable, token);
  entry.descriptor = listener.fd();
  try {
    watch_plain(entry, EPOLL_CTL_ADD);
  } catch (...) {
    free_entry(entry);
    throw;
  }
  entry.listener = &listener;
  listener.set_watch(&entry);
}

void PollerCore::add(int descriptor, Events wanted, std::uint64_t token) {
  check_here("add to a poller");
  const std::string name = "descriptor " + std::to_string(descriptor);
  if (descriptors_.contains(descriptor))
    refuse("add to a poller: " + name + " is in this poller already",
           "remove() it before it is closed; modify() changes what is waited for.");
  if (fcntl(descriptor, F_GETFD) < 0)
    refuse("add to a poller: " + name + " is not open", "Add it while it is open.");
  Entry& entry = make_entry(wanted, token);
  entry.descriptor = descriptor;
  try {
    descriptors_[descriptor] = &entry;
    watch_plain(entry, EPOLL_CTL_ADD);
  } catch (const Error& error) {
    descriptors_.erase(descriptor);
    free_entry(entry);
    if (error.system_errno() != EPERM) throw;
    refuse("add to a poller: " + name + " is of a kind that epoll does not take",
           "Regular files and folders are always ready.");
  } catch (...) {
    free_entry(entry);
    throw;
  }
}

void PollerCore::watch_plain(const Entry& entry, int operation) {
  // Nothing wanted: hangup and errors, which the kernel tells all the same, it tells once.
  const bool once = has(entry.wanted, Events::kOneShot) || in_epoll(entry.wanted) == 0;
  watch(entry, entry.descriptor, in_epoll(entry.wanted) | (once ? unsigned{EPOLLONESHOT} : 0),
        Source::kPlain, operation);
}

void PollerCore::modify(int descriptor, Events wanted) {
  check_here("modify in a poller");
  Entry& entry = entry_of(descriptor, "modify in a poller");
  const Events before = std::exchange(entry.wanted, wanted);
  try {
    watch_plain(entry, EPOLL_CTL_MOD);
  } catch (...) {
    entry.wanted = before;
    throw;
  }
}

void PollerCore::remove(ListenerCore& listener) {
  check_here("remove from a poller");
  remove(entry_of(listener.watch(), "remove from a poller"));
}

void PollerCore::remove(int descriptor) {
  check_here("remove from a poller");
  remove(entry_of(descriptor, "remove from a poller"));
}

// --- both

// Also of one that was added in part. A descriptor that was closed has left the set by itself.
void PollerCore::remove(Entry& entry) noexcept {
  const auto leave = [this](int fd) { epoll_ctl(set_.get(), EPOLL_CTL_DEL, fd, nullptr); };
  if (entry.channel != nullptr) {
    ChannelCore& channel = *entry.channel;
    channel.watched_.watch = nullptr;
    if (channel.watched_.room_watch != nullptr) channel.watched_.room_watch = nullptr;
    cool(entry);
    wake(entry);
    leave(channel.transport_.event_fd(Side::kReceive));
    if (entry.room_watched) leave(channel.transport_.event_fd(Side::kSend));
    leave(channel.closing_.get());
    leave(channel.connection_.stream->fd());
  } else {
    if (entry.listener != nullptr) entry.listener->set_watch(nullptr);
    if (entry.listener == nullptr) descriptors_.erase(entry.descriptor);
    leave(entry.descriptor);
  }
  free_entry(entry);
}

void PollerCore::Entry::heat() noexcept {
  poller.heat(*this);
  poller.show_on_fd();
}

void PollerCore::heat(Entry& entry) noexcept {
  if (entry.is_hot()) return;
  entry.set_hot(true);
  entry.turn = turns_;
  entry.place = hot_.size();
  hot_.push_back(&entry);
}

void PollerCore::cool(Entry& entry) noexcept {
  if (!entry.is_hot()) return;
  entry.set_hot(false);
  hot_[entry.place] = hot_.back();
  hot_[entry.place]->place = entry.place;
  hot_.pop_back();
}

// The more naps have passed since something was there, the longer is the next one.
std::chrono::microseconds PollerCore::nap_of(const Entry& entry) {
  constexpr unsigned kMostDoublings = 10;
  return std::min<std::chrono::microseconds>(
      kFirstNap * (1 << std::min(entry.naps, kMostDoublings)), kLongestNap);
}

void PollerCore::make_drowsy(Entry& entry) noexcept {
  if (entry.drowsy) return;
  entry.drowsy = true;
  const auto nap = nap_of(entry);
  if (drowsy_.empty() || nap < nap_) {
    nap_ = nap;
    nap_ends_ = deadline_after(nap_);
  }
  drowsy_.push_back(&entry);
}

void PollerCore::wake(Entry& entry) noexcept {
  if (!std::exchange(entry.drowsy, false)) return;
  std::erase(drowsy_, &entry);
}

}  // namespace leat::detail

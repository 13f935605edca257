// The implementation of a Poller.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/fork.h"
#include "base/spin_budget.h"
#include "channel/watch.h"
#include "leat/poller.h"
#include "transport/transport.h"

namespace leat::detail {

class ChannelCore;
class ListenerCore;

// The kernel's set of epoll has the event descriptors of all channels, edge-triggered, their
// lifelines too. A channel is
// - hot after an event, and after its thread used it: wait() looks at it unarmed, in turn;
// - cold once it was armed and a further look found nothing: only an event makes it hot again.
// What may come without an event (Outlook::Comes) makes it drowsy besides: wait() looks at it after
// naps. Listeners and other descriptors are in the set, level-triggered, and nowhere else.
//
// poller.cc has the loop, poller_entries.cc what is watched, poller_looks.cc the looks at a
// channel. Threads and processes as for Poller.
class PollerCore {
 public:
  static constexpr const char* kWhenEmpty = "this poller was moved from";

  PollerCore();
  PollerCore(const PollerCore&) = delete;
  PollerCore& operator=(const PollerCore&) = delete;
  ~PollerCore();

  void add(ChannelCore& channel, Events wanted, std::uint64_t token);
  void add(ListenerCore& listener, std::uint64_t token);
  void add(int descriptor, Events wanted, std::uint64_t token);
  void modify(ChannelCore& channel, Events wanted);
  void modify(int descriptor, Events wanted);
  void remove(ChannelCore& channel);
  void remove(ListenerCore& listener);
  void remove(int descriptor);

  std::size_t wait(std::span<Event> events, std::chrono::nanoseconds timeout);
  int fd();
  PollerStats stats() const;

 private:
  struct Entry;
  // Of which descriptor an event of the kernel is.
  enum class Source : std::uint8_t { kOwn, kMessages, kRoom, kLifeline, kPlain };

  // --- poller_entries.cc
  void check_here(const char* what) const;
  Entry& make_entry(Events wanted, std::uint64_t token);
  void free_entry(Entry& entry) noexcept;
  Entry& entry_of(const Watch* watch, const char* what) const;
  Entry& entry_of(int descriptor, const char* what) const;
  void watch(const Entry& entry, int fd, unsigned events, Source source,
             int operation = EPOLL_CTL_ADD);
  void watch_channel(Entry& entry);
  void watch_plain(const Entry& entry, int operation);
  void want(Entry& entry, Events wanted);
  void remove(Entry& entry) noexcept;
  void heat(Entry& entry) noexcept;
  void cool(Entry& entry) noexcept;
  static std::chrono::microseconds nap_of(const Entry& entry);
  void make_drowsy(Entry& entry) noexcept;
  void wake(Entry& entry) noexcept;

  // --- poller_looks.cc
  Events look(Entry& entry, Look how);
  static bool peek(ChannelCore& channel, Look how);
  static bool told_by_lifeline(Entry& entry);
  static bool has_room(const Entry& entry);
  static bool refused(const Entry& entry);
  static void let_retry(Entry& entry);
  static void arm(Entry& entry);
  void leave_armed(Entry& entry);

  // --- poller.cc: the functions with `events` store what they find, and return how much
  std::size_t look_once(std::span<Event> events, Deadline now);
  std::size_t look_last(std::span<Event> events);
  std::size_t look_at_hot(std::span<Event> events);
  std::size_t look_at_set(std::span<Event> events, int timeout_ms);
  void look_at_drowsy();
  void arm_all(const std::vector<Entry*>& entries);
  std::size_t spin(std::span<Event> events, Deadline deadline);
  std::size_t sleep(std::span<Event> events, Deadline deadline);
  std::size_t nap(std::span<Event> events);
  bool takes_brief_nap();
  std::size_t nap_briefly(std::span<Event> events);
  Event report(Entry& entry, Events ready);
  void show_on_fd();

  const MadeHere made_here_;
  const Fd set_;
  // For fd(), from its first call on: an event that is set while a channel is hot, and a timer for
  // naps.
  Fd hot_event_;
  Fd nap_timer_;
  bool shown_hot_ = false;
  bool shown_nap_ = false;

  std::vector<std::unique_ptr<Entry>> entries_;  // by index; null: free
  std::vector<std::uint32_t> free_;              // indexes of entries_
  std::uint32_t generation_ = 0;
  std::unordered_map<int, Entry*> descriptors_;

  // These have room for all entries, so that nothing is lost for lack of memory.
  std::vector<Entry*> hot_;
  std::vector<Entry*> drowsy_;
  std::vector<Entry*> idle_;  // scratch: hot ones that are to be armed
  std::size_t next_ = 0;      // whose turn it is in hot_

  std::uint64_t turns_ = 0;  // rounds through hot_ that found something
  std::uint64_t vain_calls_ = 0;
  SpinBudget spin_budget_;
  Deadline next_set_look_{};
  std::chrono::nanoseconds set_interval_{0};  // between two looks at the set
  bool set_comes_first_ = false;              // hot channels alone have filled the caller's array
  std::chrono::microseconds nap_{0};
  Deadline nap_ends_{};
  std::size_t found_since_sleep_ = 0;  // events of hot channels
  unsigned brief_naps_left_ = 0;
  std::chrono::microseconds brief_nap_{0};

  PollerStats stats_;
};

// What is watched. Lives until it is removed.
struct PollerCore::Entry final : Watch {
  explicit Entry(PollerCore& its_poller) : poller(its_poller) {}
  void heat() noexcept override;
  void leave() noexcept override { poller.remove(*this); }
  bool is_hot() const { return hot_; }
  void set_hot(bool hot) { hot_ = hot; }

  PollerCore& poller;
  ChannelCore* channel = nullptr;    // one of these,
  ListenerCore* listener = nullptr;  // or none: a plain descriptor
  int descriptor = -1;               // of a listener, or a plain one

  std::uint32_t index = 0;       // in entries_
  std::uint32_t generation = 0;  // tells it from others that had the index
  std::uint64_t token = 0;
  Events wanted = Events::kNone;

  // Of a channel.
  std::size_t place = 0;  // in hot_
  bool drowsy = false;
  bool room_watched = false;  // its event for room is in the set
  bool lifeline_news = false;
  Outlook::Comes comes = Outlook::Comes::kWithEvent;  // when it was last armed
  unsigned looks = 0;
  std::uint64_t turn = 0;       // of turns_, when it last had something
  std::uint64_t may_retry = 0;  // the refusal since which there may be room
  unsigned naps = 0;            // since something was there
};

}  // namespace leat::detail

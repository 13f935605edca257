// The clients at a listener whose handshake has not begun; most of them have not said hello yet.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/settings.h"
#include "handshake/greeting.h"

namespace leat::detail {

// How long a handshake may last while others wait for its place: half of handshake_timeout.
std::chrono::milliseconds patience(const Settings& settings);

// At most kMost. When all places are taken, the next newcomer replaces another: of the source with
// the most silent newcomers, the oldest that has not said hello. So a source that fills the places
// only loses its own, and a client that speaks as soon as it is connected is safe.
//
// A source with more than kShare of the places is a crowd, and only its own newcomers are replaced:
// silent ones, then the oldest of those that have said hello, if there is a free place for the
// handshake of another source and they have waited for a tenth of handshake_timeout. Until then
// they keep their place, because the clients of one host may be many for good reasons; others wait
// meanwhile in the kernel's queue.
//
// Used by one thread.
class Newcomers {
 public:
  static constexpr std::size_t kMost = 128;
  static constexpr std::size_t kShare = kMost * 3 / 4;  // two sources cannot both have more

  // `settings` and the listener's address, for the log, must outlive this object.
  Newcomers(const Settings& settings, const std::string& address);

  // Whether another newcomer may come, possibly in place of one.
  bool has_room() const;
  void admit(Fd socket);
  // Drops a newcomer as described above; returns false if none may be dropped.
  bool drop_one();
  // Says whether a handshake could begin now, if only of a source that has few.
  void set_places_free(bool free) { places_free_ = free; }

  // Appends one entry for each newcomer, in the order in which serve() expects them.
  void watch(std::vector<pollfd>& polled) const;
  void serve(std::span<const pollfd> polled);
  // When serve() is due, or has_room() may have become true, even if nothing has happened.
  Deadline next_deadline() const;

  // Returns the newcomer whose handshake is to begin next: it has said hello, and its source has
  // the fewest handshakes under way (`under_way` counts them), fewer than `most`. Null if there is
  // none. It stays until take().
  Greeting* next(const std::function<std::size_t(const std::string& source)>& under_way,
                 std::size_t most) const;
  std::size_t count_heard() const;
  Heard take(Greeting& greeting);

 private:
  using Places = std::list<std::unique_ptr<Greeting>>;

  Places::iterator advance(Places::iterator place);
  Places::const_iterator who_goes() const;
  // When a newcomer that has said hello may be replaced, if its source is a crowd.
  Deadline kept_until(const Greeting& heard) const { return heard.heard_at() + kept_for_; }

  const Settings& settings_;
  const std::string& address_;
  const std::chrono::milliseconds kept_for_;
  Places places_;  // in order of arrival
  bool places_free_ = true;
  bool told_of_silent_ = false;
  bool told_of_crowd_ = false;
};

}  // namespace leat::detail

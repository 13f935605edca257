// The clients at a listener whose handshake has not begun; most of them have not said hello yet.
#pragma once

#include <poll.h>

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

// At most kMost. When all places are taken, the next newcomer replaces a silent one: of the source
// with the most newcomers, the oldest that has not said hello. So a source that fills the places
// only loses its own, and a client that speaks as soon as it is connected is safe. Used by one
// thread.
class Newcomers {
 public:
  static constexpr std::size_t kMost = 128;

  // `settings` and the listener's address, for the log, must outlive this object.
  Newcomers(const Settings& settings, const std::string& address)
      : settings_(settings), address_(address) {}

  // Whether another newcomer may come, possibly in place of a silent one.
  bool has_room() const;
  void admit(Fd socket);
  // Drops a newcomer as described above; returns false if all have said hello.
  bool drop_one();

  // Appends one entry for each newcomer, in the order in which serve() expects them.
  void watch(std::vector<pollfd>& polled) const;
  void serve(std::span<const pollfd> polled);
  // When serve() is due even if nothing has happened.
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

  const Settings& settings_;
  const std::string& address_;
  Places places_;  // in order of arrival
  bool told_ = false;
};

}  // namespace leat::detail

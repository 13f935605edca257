#include "channel/newcomers.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/log.h"

namespace leat::detail {

using State = Greeting::State;

std::chrono::milliseconds patience(const Settings& settings) {
  constexpr std::chrono::milliseconds kWithoutLimit{5'000};
  const bool limited = settings.handshake_timeout >= std::chrono::milliseconds::zero();
  return (limited ? settings.handshake_timeout : kWithoutLimit) / 2;
}

Newcomers::Newcomers(const Settings& settings, const std::string& address)
    : settings_(settings), address_(address), kept_for_(patience(settings) / 5) {}

bool Newcomers::has_room() const { return places_.size() < kMost || who_goes() != places_.end(); }

void Newcomers::admit(Fd socket) {
  if (places_.size() >= kMost && !drop_one()) return;
  try {
    places_.push_back(std::make_unique<Greeting>(std::move(socket), settings_));
  } catch (const Error& error) {
    log(LogLevel::kWarn, {"listener at ", address_, ": ", error.what()});
    return;
  }
  advance(std::prev(places_.end()));  // its hello has often arrived already
}

bool Newcomers::drop_one() {
  const auto place = who_goes();
  if (place == places_.end()) return false;
  Greeting& one = **place;
  if (one.state() == State::kHeard) {
    one.turn_away(ErrorCode::kResource,
                  "too many clients of this host have waited for too long at the listener");
    const auto error = one.take_error();
    if (error && !std::exchange(told_of_crowd_, true))
      log(LogLevel::kWarn, {"listener at ", address_, ": ", error->what(),
                            "; the oldest are ended to make room for those of other hosts"});
  } else if (one.state() != State::kLeaving && !std::exchange(told_of_silent_, true)) {
    log(LogLevel::kWarn, {"more clients connect at ", address_,
                          " than say hello: the oldest silent ones are ended to make room"});
  }
  places_.erase(place);
  return true;
}

// Newcomers that are leaving go first, then silent ones, then those that have said hello.
Newcomers::Places::const_iterator Newcomers::who_goes() const {
  std::map<std::string_view, std::size_t> all;
  std::map<std::string_view, std::size_t> silent;
  for (const auto& one : places_) {
    ++all[one->source()];
    if (one->state() != State::kHeard) ++silent[one->source()];
  }
  const auto crowd =
      std::ranges::find_if(all, [](const auto& each) { return each.second > kShare; });
  const auto may_go = [&](const Greeting& one) {
    if (one.state() == State::kLeaving) return true;
    if (crowd != all.end() && crowd->first != one.source()) return false;
    if (one.state() != State::kHeard) return true;
    return crowd != all.end() && places_free_ && passed(kept_until(one));
  };
  const auto rank = [&](const Greeting& one) {
    return std::tuple(one.state() == State::kLeaving, one.state() != State::kHeard,
                      silent[one.source()], !one.spoke());
  };
  auto found = places_.end();
  for (auto place = places_.begin(); place != places_.end(); ++place) {
    if (may_go(**place) && (found == places_.end() || rank(**place) > rank(**found))) found = place;
  }
  return found;
}

void Newcomers::watch(std::vector<pollfd>& polled) const {
  for (const auto& one : places_) polled.push_back({one->fd(), one->events(), 0});
}

void Newcomers::serve(std::span<const pollfd> polled) {
  auto place = places_.begin();
  for (const pollfd& entry : polled) {
    const bool due = entry.revents != 0 || passed((*place)->deadline());
    place = due ? advance(place) : std::next(place);
  }
}

// Returns the place after it.
Newcomers::Places::iterator Newcomers::advance(Places::iterator place) {
  Greeting& one = **place;
  one.advance();
  if (const auto error = one.take_error())
    log(LogLevel::kWarn, {"listener at ", address_, ": ", error->what()});
  return one.state() == State::kOver ? places_.erase(place) : std::next(place);
}

Deadline Newcomers::next_deadline() const {
  Deadline next = kNoDeadline;
  for (const auto& one : places_) {
    next = std::min(next, one->deadline());
    // Then there may be room again.
    if (places_.size() >= kMost && one->state() == State::kHeard && !passed(kept_until(*one)))
      next = std::min(next, kept_until(*one));
  }
  return next;
}

Greeting* Newcomers::next(const std::function<std::size_t(const std::string&)>& under_way,
                          std::size_t most) const {
  Greeting* found = nullptr;
  for (const auto& one : places_) {
    if (one->state() != State::kHeard) continue;
    const std::size_t count = under_way(one->source());
    if (count >= most) continue;
    most = count;  // later ones must have fewer
    found = one.get();
  }
  return found;
}

std::size_t Newcomers::count_heard() const {
  return static_cast<std::size_t>(std::ranges::count_if(
      places_, [](const auto& one) { return one->state() == State::kHeard; }));
}

Heard Newcomers::take(Greeting& greeting) {
  Heard heard = greeting.take_heard();
  places_.remove_if([&](const auto& one) { return one.get() == &greeting; });
  return heard;
}

}  // namespace leat::detail

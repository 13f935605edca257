// How the workers of a group come together at its master's listener.
#pragma once

#include <list>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/settings.h"
#include "leat/channel.h"
#include "leat/listener.h"

namespace leat::detail {

class GroupMeeting {
 public:
  // `settings`: the listener's.
  GroupMeeting(Listener& listener, const Settings& settings, unsigned workers);

  // A channel to each worker, in the order of ranks; all were told their places. Throws as
  // GroupMaster::accept.
  std::vector<Channel> hold();

 private:
  struct Newcomer {
    Channel channel;
    Deadline until;                // to say who it is
    bool joined = false;           // it said so, and has a place
    std::optional<unsigned> rank;  // that it asked for
  };

  void take_newcomers();
  // Takes in what it says. False: it is no more among them.
  bool hear(Newcomer& newcomer);
  bool admit(Newcomer& newcomer, const Message& message);
  void turn_away(Newcomer& newcomer, ErrorCode code, const std::string& why);
  std::size_t joined() const;
  bool is_taken(unsigned rank) const;
  bool full() const;
  // When the first of those that have said nothing is turned away.
  Deadline earliest() const;
  std::vector<Channel> welcome();
  [[noreturn]] void time_out() const;

  Listener& listener_;
  const Settings& settings_;
  const unsigned workers_;
  std::list<Newcomer> newcomers_;  // stays where it is
  std::size_t have_come_ = 0;      // ever
  std::string turned_away_;        // the last one, and why
};

}  // namespace leat::detail

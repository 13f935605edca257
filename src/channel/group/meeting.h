// Brings the workers of a group together at its master's listener.
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
  // `settings` are the listener's.
  GroupMeeting(Listener& listener, const Settings& settings, unsigned workers);

  // Returns a channel to each worker, in the order of their ranks, after telling each its place.
  // Throws as GroupMaster::accept().
  std::vector<Channel> hold();

 private:
  struct Newcomer {
    Channel channel;
    Deadline until;                // until it must have sent its hello
    bool joined = false;           // it has sent its hello, and has a place
    std::optional<unsigned> rank;  // the rank that it asked for
  };

  void take_newcomers();
  // Takes in what it sent. Returns false if it leaves or is turned away.
  bool hear(Newcomer& newcomer);
  bool admit(Newcomer& newcomer, const Message& message);
  void turn_away(Newcomer& newcomer, ErrorCode code, const std::string& why);
  std::size_t joined() const;
  bool is_taken(unsigned rank) const;
  bool full() const;
  // When the first of the silent newcomers will be turned away.
  Deadline earliest() const;
  std::vector<Channel> welcome();
  [[noreturn]] void time_out() const;

  Listener& listener_;
  const Settings& settings_;
  const unsigned workers_;
  std::list<Newcomer> newcomers_;  // elements do not move
  std::size_t have_come_ = 0;      // since the beginning
  std::string turned_away_;        // the last one turned away, and why
};

}  // namespace leat::detail

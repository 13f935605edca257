// One connection of a node or client. Messages that cannot be sent at once wait, up to a limit.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <utility>

#include "leat/channel.h"
#include "leat/error.h"
#include "trusted/parts/messages.h"

namespace leat::trusted::detail {

// A link that is not alive() stays so; its owner drops it. Nothing that the peer does makes it
// throw.
class Link {
 public:
  Link(Channel channel, PartyId party, std::size_t max_backlog_bytes)
      : channel_(std::move(channel)), party_(party), max_backlog_bytes_(max_backlog_bytes) {}

  Channel& channel() { return channel_; }
  PartyId party() const { return party_; }
  void set_party(PartyId party) { party_ = party; }
  // Of a node: whether it has said how far it has received this node's messages.
  bool resumed() const { return resumed_; }
  void set_resumed() { resumed_ = true; }
  bool alive() const { return alive_; }
  void end() { alive_ = false; }
  bool has_backlog() const { return !backlog_.empty(); }

  void send(View message) {
    flush();
    if (!alive_ || (backlog_.empty() && try_send(message))) return;
    backlog_bytes_ += message.size();
    if (backlog_bytes_ > max_backlog_bytes_) return end();
    backlog_.emplace_back(message.begin(), message.end());
  }

  void flush() {
    while (alive_ && !backlog_.empty() && try_send(backlog_.front())) {
      backlog_bytes_ -= backlog_.front().size();
      backlog_.pop_front();
    }
  }

  // Passes up to `most` messages to `handle`, each as a copy that the peer cannot change. Returns
  // how many.
  template <typename Handle>
  std::size_t receive(std::size_t most, Bytes& copy, Handle&& handle) {
    std::size_t count = 0;
    for (; alive_ && count < most; ++count) {
      if (!take(copy)) break;
      handle(View(copy));
    }
    return count;
  }

 private:
  bool try_send(View message) {
    try {
      return channel_.try_send(message);
    } catch (const Error&) {
      alive_ = false;
      return true;
    }
  }
  bool take(Bytes& copy) {
    try {
      const auto message = channel_.try_receive();
      if (!message) return false;
      if (!*message) alive_ = false;  // its orderly end
      copy.assign(message->bytes().begin(), message->bytes().end());
    } catch (const Error&) {
      alive_ = false;
    }
    return alive_;
  }

  Channel channel_;
  PartyId party_;
  const std::size_t max_backlog_bytes_;
  std::size_t backlog_bytes_ = 0;
  std::deque<Bytes> backlog_;
  bool alive_ = true;
  bool resumed_ = false;
};

}  // namespace leat::trusted::detail

// One connection of a node or client: its introduction, and then its messages, each vouched for.
// Those that cannot be sent at once wait, up to a limit.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "leat/channel.h"
#include "leat/error.h"
#include "trusted/parts/introduction.h"

namespace leat::trusted::detail {

// A link that is not alive() stays so; its owner drops it. Nothing that the peer does makes it
// throw.
class Link {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `party`: who was connected to; 0 for a connection that was accepted. It ends unless the peer
  // has introduced itself until `deadline`.
  Link(Channel channel, const Self& self, PartyId party, std::size_t max_backlog_bytes,
       Time deadline)
      : channel_(std::move(channel)),
        party_(party),
        max_backlog_bytes_(max_backlog_bytes),
        deadline_(deadline),
        introduction_(std::in_place, self, party) {
    if (const auto opening = introduction_->opening()) put(*opening);
  }

  Channel& channel() { return channel_; }
  PartyId party() const { return party_; }  // 0: not known yet
  // Whether both sides have proved who they are.
  bool introduced() const { return !introduction_; }
  // At its deadline a peer that has not introduced itself is cut off.
  void check_deadline(Time now) {
    if (!introduced() && now >= deadline_) end();
  }
  // Of a node: whether it has said how far it has received this node's messages.
  bool resumed() const { return resumed_; }
  void set_resumed() { resumed_ = true; }
  bool alive() const { return alive_; }
  void end() { alive_ = false; }
  bool has_backlog() const { return !backlog_.empty(); }

  void send(View message) {
    Bytes sealed(message.begin(), message.end());
    if (introduced()) {
      seal_and_put(std::move(sealed));
    } else if (hold(sealed.size())) {
      early_.push_back(std::move(sealed));
    }
  }

  void flush() {
    while (alive_ && !backlog_.empty() && try_send(backlog_.front())) {
      backlog_bytes_ -= backlog_.front().size();
      backlog_.pop_front();
    }
  }

  // Passes up to `most` messages to `handle`, each as a copy that the peer cannot change. Returns
  // how many came. Stops behind the introduction, so that the owner sees it before anything else.
  template <typename Handle>
  std::size_t receive(std::size_t most, Bytes& copy, Handle&& handle) {
    std::size_t count = 0;
    for (; alive_ && count < most; ++count) {
      if (!take(copy)) break;
      if (!introduced()) {
        introduce(copy);
        if (!introduced()) continue;
        return count + 1;
      }
      if (!taggers_->peers.remove(copy)) {
        end();
        break;
      }
      handle(View(copy));
    }
    return count;
  }

 private:
  void introduce(View message) {
    if (!introduction_->take(message)) return end();
    if (const auto& answer = introduction_->answer()) put(*answer);
    if (!introduction_->is_done()) return;
    party_ = introduction_->peer();
    taggers_.emplace(introduction_->take_taggers());
    introduction_.reset();
    for (; alive_ && !early_.empty(); early_.pop_front()) {
      backlog_bytes_ -= early_.front().size();
      seal_and_put(std::move(early_.front()));
    }
  }

  void seal_and_put(Bytes message) {
    taggers_->mine.append(message);
    put(std::move(message));
  }
  void put(Bytes message) {
    flush();
    if (!alive_ || (backlog_.empty() && try_send(message))) return;
    if (hold(message.size())) backlog_.push_back(std::move(message));
  }
  bool hold(std::size_t bytes) {
    backlog_bytes_ += bytes;
    if (backlog_bytes_ > max_backlog_bytes_) end();
    return alive_;
  }
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
  const Time deadline_;
  std::optional<Introduction> introduction_;      // until it is done,
  std::optional<Introduction::Taggers> taggers_;  // and what came of it
  std::size_t backlog_bytes_ = 0;                 // of both:
  std::deque<Bytes> early_;                       // until the introduction is done
  std::deque<Bytes> backlog_;                     // until there is room
  bool alive_ = true;
  bool resumed_ = false;
};

}  // namespace leat::trusted::detail

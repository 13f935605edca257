// What a transport finds out of its sends: that one failed, and that all of them have arrived.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "transport/parts/requests.h"
#include "transport/parts/sticky_error.h"

namespace leat::detail {

// Takes the completions that `poll` brings, and calls `completed` with the id of each; `error` gets
// the first failure. Throws what is in `error`.
template <typename Poll, typename Completed>
void look_at_sends(const QueuePair& queue_pair, StickyError& error, Poll&& poll,
                   Completed&& completed) {
  std::array<Completion, 16> completions;
  while (error.empty()) {
    const std::size_t count = poll(std::span(completions));
    for (std::size_t i = 0; i < count && error.empty(); ++i) {
      if (completions[i].status == CompletionStatus::kSuccess)
        completed(completions[i].id);
      else
        error.set(ErrorCode::kPeerDied, failure("sending", completions[i].status, queue_pair));
    }
    if (count < completions.size()) break;
  }
  error.check();
}

// Sends complete in order, so one more that asks for its completion tells about all before it.
class Flush {
 public:
  static constexpr std::uint64_t kId = 1;  // of that request

  // True once the first `sent` messages are in the peer's memory. `post` posts a request and says
  // whether there was room; `look` takes completions, and calls completed() for that of kId.
  template <typename Post, typename Look>
  bool attempt(std::uint64_t sent, const RemoteRegion& peer, Post&& post, Look&& look) {
    if (!posted_) {
      if (flushed_ == sent) return true;
      SendRequest request;
      request.id = kId;
      request.opcode = Opcode::kWrite;
      request.inlined = true;
      request.remote_address = peer.address;
      request.remote_key = peer.key;
      posted_ = post(request);
      if (posted_) wanted_ = sent;
    }
    look();
    return !posted_ && flushed_ == sent;
  }
  void completed() {
    posted_ = false;
    flushed_ = wanted_;
  }

 private:
  std::uint64_t wanted_ = 0;   // messages that the posted request comes after
  std::uint64_t flushed_ = 0;  // and those that are known to have arrived
  bool posted_ = false;
};

}  // namespace leat::detail

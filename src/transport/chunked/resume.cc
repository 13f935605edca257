// What a chunked transport does when its queue pair has been replaced: it goes on from the last
// confirmed chunk. resumption.cc replaces the queue pair, and calls these.
#include <algorithm>
#include <cstring>
#include <new>

#include "transport/chunked/chunked.h"

namespace leat::detail {

void ChunkedTransport::resumed(std::uint64_t peer_arrivals) {
  // The peer has as many receives as ever, beyond those that it has taken.
  if (!credits_.take(peer_arrivals) || !works_.resume(peer_arrivals))
    throw Error(ErrorCode::kProtocol, "the peer says that it took more than was sent");
  if (works_.dropped_kept() != 0) static_cast<void>(stage_.take_back(works_.dropped_kept()));
  window_.lost();
  std::size_t headers = works_.place_headers([](ChunkWork&, std::size_t) {});
  if (headers != 0) {
    headers_again_ = device_->allocate(headers * sizeof(ChunkHeader), kLocalOnly);
    works_.place_headers([&](ChunkWork& work, std::size_t i) {
      work.local = headers_again_->memory().data() + i * sizeof(ChunkHeader);
      work.local_key = headers_again_->local_key();
      std::memcpy(work.local, &work.header, sizeof work.header);
    });
  }

  // Our own receives too; and what we said of them and of room may have been lost.
  returns_.begin_again();
  retry_credits();
}

bool ChunkedTransport::send_again() {
  while (!works_.caught_up()) {
    ChunkWork& work = works_.again();
    if (window_.allowance(work.bytes, false, Clock::now()) < work.bytes || !post_request(work))
      return false;
    works_.posted_again();
  }
  return true;
}

void ChunkedTransport::lost(ErrorCode code, std::initializer_list<std::string_view> why) noexcept {
  std::string what;
  try {
    for (const std::string_view part : why) what += part;
    what += " (" + progress() + ")";
  } catch (const std::bad_alloc&) {
    // What there is of it will do.
    if (what.empty()) what = "out of memory";  // short enough to need none
  }
  send_error_.set(code, what);
  if (!ended_) receive_error_.set(code, what);  // after its end the peer may go
}

std::string ChunkedTransport::progress() const {
  std::uint64_t whole = 0;
  std::string text;
  for (Context context = 0; context < kContextCount; ++context) {
    whole += flows_[context].transfers;
    const Outgoing& out = flows_[context].transfer;
    const std::size_t unconfirmed = works_.unconfirmed(context);
    if (!out.active && unconfirmed == 0) continue;
    text += "; context " + std::to_string(context) + ": ";
    if (out.active) {
      text += std::to_string(out.posted - std::min(out.posted, unconfirmed)) + " of " +
              std::to_string(out.total) + " bytes of message " +
              std::to_string(flows_[context].transfers) + " are confirmed";
    } else {
      text += std::to_string(unconfirmed) + " bytes of the last messages are not confirmed";
    }
  }
  return std::to_string(whole) + " messages were sent whole" + text;
}

}  // namespace leat::detail

// The hot path of the ib device: posting and polling. ib_queue_pair_state.cc has its life.
#include "verbs/ib/queue_pair.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <mutex>
#include <utility>

namespace leat::detail {
namespace {

constexpr std::size_t kPollBatch = 16;

// No region has this key, so a request that names it fails in its turn, as a request must that the
// device cannot even express.
constexpr std::uint32_t kNoKey = std::numeric_limits<std::uint32_t>::max();

ibv_wr_opcode verbs_opcode(Opcode opcode) {
  switch (opcode) {
    case Opcode::kWrite:
      break;
    case Opcode::kWriteWithImmediate:
      return IBV_WR_RDMA_WRITE_WITH_IMM;
    case Opcode::kRead:
      return IBV_WR_RDMA_READ;
  }
  return IBV_WR_RDMA_WRITE;
}

CompletionStatus status_of(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_SUCCESS:
      return CompletionStatus::kSuccess;
    case IBV_WC_REM_ACCESS_ERR:
      return CompletionStatus::kRemoteAccess;
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
      return CompletionStatus::kLocalAccess;
    case IBV_WC_LOC_LEN_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
      return CompletionStatus::kLength;
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
      return CompletionStatus::kPeerGone;
    case IBV_WC_WR_FLUSH_ERR:
      return CompletionStatus::kFlushed;
    default:
      return CompletionStatus::kOther;
  }
}

// rxe names an unknown local key otherwise than hardware does.
CompletionStatus status_of_send(ibv_wc_status status) {
  return status == IBV_WC_LOC_QP_OP_ERR ? CompletionStatus::kLocalAccess : status_of(status);
}

}  // namespace

bool IbQueuePair::IdleCheck::due() {
  constexpr unsigned kPollsPerClock = 16;
  constexpr std::chrono::milliseconds kPeriod{1};
  if (++empty_polls_ % kPollsPerClock != 0) return false;
  const auto now = Clock::now();
  if (now < next_) return false;
  next_ = now + kPeriod;
  return true;
}

// --- send side

std::size_t IbQueuePair::send_room() const {
  return send_depth_ - (posted_ - done_) - (kept_end_ - kept_begin_);
}

std::size_t IbQueuePair::post_send(std::span<const SendRequest> requests) {
  const std::lock_guard lock(send_lock_);
  if (send_room() < requests.size()) keep_finished_sends();
  requests = requests.first(std::min(requests.size(), send_room()));
  if (requests.empty()) return 0;
  const std::size_t taken = sends_abandoned_ ? 0 : post_to_device(requests);
  if (taken < requests.size()) abandon_sends(requests.subspan(taken));
  return requests.size();
}

void IbQueuePair::build(const SendRequest& request, std::uint64_t sequence, ibv_send_wr& work,
                        ibv_sge& part) {
  const bool inlined = request.inlined && request.opcode != Opcode::kRead;
  const bool fits = request.bytes <=
                    (inlined ? domain_.limits.max_inline_bytes : domain_.limits.max_request_bytes);
  // The device reports in order, so one report in a while frees the slots of all before it.
  const bool reported =
      request.signaled || ++unsignaled_ >= std::max<std::size_t>(1, send_depth_ / 4);
  if (reported) unsignaled_ = 0;

  slot(sequence) = {request.id, static_cast<std::uint32_t>(request.bytes), request.signaled,
                    fits ? CompletionStatus::kSuccess : CompletionStatus::kLength};
  work.wr_id = sequence;
  work.next = &work + 1;
  work.sg_list = &part;
  work.num_sge = request.bytes == 0 ? 0 : 1;
  work.opcode = verbs_opcode(request.opcode);
  work.send_flags = 0;
  if (reported) work.send_flags |= IBV_SEND_SIGNALED;
  if (request.fenced) work.send_flags |= IBV_SEND_FENCE;
  work.imm_data = htonl(request.immediate);
  work.wr.rdma.remote_addr = request.remote_address;
  work.wr.rdma.rkey = request.remote_key;
  part.addr = reinterpret_cast<std::uintptr_t>(request.local);
  part.length = static_cast<std::uint32_t>(request.bytes);
  part.lkey = request.local_key;
  if (inlined && fits && request.bytes != 0) {
    if (request.bytes <= inline_bytes_) {
      work.send_flags |= IBV_SEND_INLINE;
    } else {
      std::byte* place =
          inline_memory_.data() + (sequence & send_mask_) * domain_.limits.max_inline_bytes;
      std::memcpy(place, request.local, request.bytes);
      part.addr = reinterpret_cast<std::uintptr_t>(place);
      part.lkey = inline_region_->lkey;
    }
  }
  if (!fits) {
    part.length = 1;
    part.lkey = kNoKey;
  }
}

// How many the device took.
std::size_t IbQueuePair::post_to_device(std::span<const SendRequest> requests) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    build(requests[i], posted_ + i, send_work_[i], send_parts_[i]);
  }
  send_work_[requests.size() - 1].next = nullptr;
  ibv_send_wr* refused = nullptr;
  if (ibv_post_send(queue_pair_.get(), send_work_.data(), &refused) == 0) {
    posted_ += requests.size();
    return requests.size();
  }
  const auto taken = refused == nullptr ? 0 : static_cast<std::size_t>(refused - send_work_.data());
  posted_ += taken;
  return taken;
}

// Nothing says whether unsignaled requests that the device holds have succeeded, and it takes none
// that could; so once it refuses one, everything completes here.
void IbQueuePair::abandon_sends(std::span<const SendRequest> refused) {
  if (!sends_abandoned_) {
    fail();
    keep_finished_sends();
    sends_abandoned_ = true;
  }
  for (const SendRequest& request : refused) {
    slot(posted_++) = {request.id, 0, true, CompletionStatus::kOther};
  }
}

void IbQueuePair::keep_finished_sends() {
  if (sends_abandoned_) return;
  std::array<Completion, kPollBatch> batch;
  for (bool more = true; more;) {
    const std::size_t count = finished_sends(batch, more);
    for (std::size_t i = 0; i < count; ++i) kept_[kept_end_++ & send_mask_] = batch[i];
  }
}

// Polls the device once; there may be more. It may free slots without a completion for the user.
std::size_t IbQueuePair::finished_sends(std::span<Completion> completions, bool& more) {
  std::array<ibv_wc, kPollBatch> works;
  const auto wanted = static_cast<int>(std::min(completions.size(), works.size()));
  const int found = ibv_poll_cq(sends_.queue.get(), wanted, works.data());
  if (found < 0) [[unlikely]] {  // it says nothing any more
    fail();
    sends_abandoned_ = true;
    more = false;
    return 0;
  }
  std::size_t stored = 0;
  for (int i = 0; i < found; ++i) {
    if (finish_send(works[static_cast<std::size_t>(i)], completions[stored])) ++stored;
  }
  more = found == wanted;
  return stored;
}

// Whether it is a completion for the user.
bool IbQueuePair::finish_send(const ibv_wc& work, Completion& completion) {
  const Slot& finished = slot(work.wr_id);
  done_ = work.wr_id + 1;
  if (work.status == IBV_WC_SUCCESS && !finished.signaled) return false;
  completion = {};
  completion.id = finished.id;
  if (work.status == IBV_WC_SUCCESS) {
    completion.bytes = finished.bytes;
  } else {
    completion.status = failure_of(finished, status_of_send(work.status));
    fail();
  }
  return true;
}

// What to tell the user of a failure that was `seen`: the first one gets its reason.
CompletionStatus IbQueuePair::failure_of(const Slot& slot, CompletionStatus seen) {
  if (send_failure_told_) return seen;
  send_failure_told_ = true;
  if (seen == CompletionStatus::kFlushed && peer_gone_.load(std::memory_order_acquire)) {
    return CompletionStatus::kPeerGone;
  }
  return slot.reason != CompletionStatus::kSuccess ? slot.reason : seen;
}

// After abandon_sends: the completions of what the device holds or refused.
std::size_t IbQueuePair::flush_sends(std::span<Completion> completions) {
  std::size_t stored = 0;
  while (stored < completions.size() && done_ < posted_) {
    const Slot& flushed = slot(done_++);
    if (!flushed.signaled) continue;
    Completion& completion = completions[stored++];
    completion = {};
    completion.id = flushed.id;
    completion.status = failure_of(flushed, CompletionStatus::kFlushed);
  }
  return stored;
}

std::size_t IbQueuePair::poll_sends(std::span<Completion> completions) {
  std::size_t stored = 0;
  {
    const std::lock_guard lock(send_lock_);
    while (stored < completions.size() && kept_begin_ != kept_end_) {
      completions[stored++] = kept_[kept_begin_++ & send_mask_];
    }
    for (bool more = !sends_abandoned_; more && stored < completions.size();) {
      stored += finished_sends(completions.subspan(stored), more);
    }
    if (stored == 0 && is_lost()) sends_abandoned_ = true;
    if (sends_abandoned_) stored += flush_sends(completions.subspan(stored));
  }
  if (stored == 0 && sends_.idle.due()) look_for_disconnect();
  return stored;
}

// --- receive side

std::size_t IbQueuePair::post_receives(std::size_t count) {
  count = std::min(count, receive_depth_ - receives_posted_);
  if (count == 0) return 0;
  // Behind others that the device refused they would overtake these.
  if (receives_on_device_ == receives_posted_ && !receives_abandoned_) {
    ibv_recv_wr* const next = std::exchange(receive_work_[count - 1].next, nullptr);
    ibv_recv_wr* refused = nullptr;
    if (ibv_post_recv(queue_pair_.get(), receive_work_.data(), &refused) == 0) {
      receives_on_device_ += count;
    } else {
      if (refused != nullptr)
        receives_on_device_ += static_cast<std::size_t>(refused - receive_work_.data());
      fail();
    }
    receive_work_[count - 1].next = next;
  }
  receives_posted_ += count;
  return count;
}

Completion IbQueuePair::finish_receive(const ibv_wc& work) {
  Completion completion;
  completion.kind = CompletionKind::kImmediate;
  if (work.status == IBV_WC_SUCCESS) {
    completion.bytes = work.byte_len;
    if (work.opcode == IBV_WC_RECV_RDMA_WITH_IMM)
      completion.immediate = ntohl(work.imm_data);
    else
      completion.kind = CompletionKind::kStray;
  } else {
    completion.status = status_of(work.status);
    fail();
  }
  return completion;
}

void IbQueuePair::abandon_receives() {
  receives_abandoned_ = true;
  receives_on_device_ = 0;
}

std::size_t IbQueuePair::flush_receives(std::span<Completion> completions) {
  std::size_t stored = 0;
  for (; stored < completions.size() && receives_posted_ != 0; --receives_posted_) {
    completions[stored++] = {.status = CompletionStatus::kFlushed,
                             .kind = CompletionKind::kImmediate};
  }
  return stored;
}

std::size_t IbQueuePair::poll_receives(std::span<Completion> completions) {
  std::array<ibv_wc, kPollBatch> works;
  std::size_t stored = 0;
  while (stored < completions.size() && !receives_abandoned_) {
    const auto wanted = static_cast<int>(std::min(completions.size() - stored, works.size()));
    const int found = ibv_poll_cq(receives_.queue.get(), wanted, works.data());
    if (found < 0) [[unlikely]] {  // it says nothing any more
      fail();
      abandon_receives();
      break;
    }
    for (int i = 0; i < found; ++i) {
      completions[stored++] = finish_receive(works[static_cast<std::size_t>(i)]);
      --receives_on_device_;
      --receives_posted_;
    }
    if (found < wanted) break;
  }
  if (stored == 0 && is_lost()) abandon_receives();
  if (stored == 0 && failed_.load(std::memory_order_relaxed)) {
    // rxe looks at receives that were posted in the error state only when notified again.
    if (receives_on_device_ != 0) {
      move_to_error();
    } else {
      return flush_receives(completions);
    }
  }
  if (stored == 0 && receives_.idle.due()) look_for_disconnect();
  return stored;
}

}  // namespace leat::detail

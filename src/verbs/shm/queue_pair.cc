#include "verbs/shm/queue_pair.h"

#include <sys/epoll.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "base/asymmetric_barrier.h"
#include "base/epoll.h"
#include "base/log.h"
#include "base/system_error.h"
#include "verbs/shared_copy.h"

namespace leat::detail::shm {
namespace {

// How many polls without result, or requests, pass between two looks at the socket, each a system
// call. So a spinning thread notices a dead peer within microseconds; a sleeper gets an event.
constexpr std::uint32_t kPollsPerService = 4096;
constexpr std::uint32_t kSendsPerService = 1024;

Fd wait_on(int event, int socket) {
  Fd set = new_epoll_set();
  epoll_add(set, event);
  epoll_add(set, socket,
            EPOLLRDHUP);  // not EPOLLIN: notices of regions can wait until they are needed
  return set;
}

}  // namespace

ShmQueuePair::ShmQueuePair(Endpoint endpoint, std::shared_ptr<OwnRegions> own_regions)
    : socket_(std::move(endpoint.socket)),
      memory_(std::move(endpoint.memory)),
      outgoing_(endpoint.outgoing),
      incoming_(endpoint.incoming),
      own_events_{std::move(endpoint.own_events[0]), std::move(endpoint.own_events[1])},
      peer_events_{std::move(endpoint.peer_events[0]), std::move(endpoint.peer_events[1])},
      asymmetric_(endpoint.asymmetric_barriers),
      own_regions_(std::move(own_regions)),
      done_(std::bit_ceil(endpoint.send_depth)),
      arrivals_(outgoing_, incoming_, peer_events_[index(Side::kReceive)].get(), asymmetric_) {
  for (const Side side : {Side::kSend, Side::kReceive})
    waits_[index(side)] = wait_on(own_events_[index(side)].get(), socket_.get());
  own_regions_->add_observer(this);
}

ShmQueuePair::~ShmQueuePair() {
  own_regions_->remove_observer(this);
  enter_error();  // tells a spinning peer; closing the socket tells a sleeping one
}

std::size_t ShmQueuePair::post_send(std::span<const SendRequest> requests) {
  std::size_t accepted = 0;
  bool arrived = false;
  for (const SendRequest& request : requests) {
    const Ran ran = run(request);
    if (ran == Ran::kNoRoom) break;
    ++accepted;
    arrived |= request.opcode == Opcode::kWriteWithImmediate;
  }
  if (arrived) arrivals_.sender.announce();
  return accepted;
}

ShmQueuePair::Ran ShmQueuePair::run(const SendRequest& request) {
  // The receiving thread may be here too, with unsignaled inlined writes: they touch no state of
  // the send side.
  if (arrivals_.failed.load(std::memory_order_relaxed))
    return fail(request, CompletionStatus::kFlushed);
  if (request.signaled) {
    look_at_peer();
    if (!room_for_completion()) return Ran::kNoRoom;
  }
  if (peer_closed()) [[unlikely]]
    return fail(request, CompletionStatus::kPeerGone);
  auto* local = static_cast<std::byte*>(request.local);
  switch (request.opcode) {
    case Opcode::kWrite: {
      if (request.bytes == 0) break;
      const PeerRegion* region =
          find(request.remote_address, request.remote_key, request.bytes, kRemoteWrite);
      if (region == nullptr) return fail(request, CompletionStatus::kRemoteAccess);
      std::byte* target = region->at(request.remote_address);
      if (target == local) break;  // filled in place
      if (!local_access(request)) return fail(request, CompletionStatus::kLocalAccess);
      // Release: such a word may give back memory that was read before.
      std::atomic_thread_fence(std::memory_order_release);
      copy_bytes(target, local, request.bytes);
      break;
    }
    case Opcode::kRead: {
      if (request.bytes == 0) break;
      const PeerRegion* region =
          find(request.remote_address, request.remote_key, request.bytes, kRemoteRead);
      if (region == nullptr) return fail(request, CompletionStatus::kRemoteAccess);
      if (!own_regions_->holds(request.local_key, local, request.bytes))
        return fail(request, CompletionStatus::kLocalAccess);
      // Release: a thread that sees what the read brought also sees what was written before it.
      // Acquire: later reads here return nothing older than this one.
      std::atomic_thread_fence(std::memory_order_release);
      copy_bytes(local, region->at(request.remote_address), request.bytes);
      std::atomic_thread_fence(std::memory_order_acquire);
      break;
    }
    case Opcode::kWriteWithImmediate: {
      const Ran ran = run_arrival(request);
      if (ran != Ran::kDone) return ran;
      break;
    }
  }
  if (request.signaled) {
    Completion& completion = done_[done_tail_++ & (done_.size() - 1)];
    completion = {
        request.id, CompletionStatus::kSuccess, CompletionKind::kSendDone, 0, request.bytes,
        nullptr};
  }
  return Ran::kDone;
}

ShmQueuePair::Ran ShmQueuePair::run_arrival(const SendRequest& request) {
  if (!request.signaled) look_at_peer();
  if (!receive_is_posted()) return Ran::kNoRoom;
  auto* local = static_cast<const std::byte*>(request.local);
  if (request.bytes != 0) {
    const PeerRegion* region =
        find(request.remote_address, request.remote_key, request.bytes, kRemoteWrite);
    if (region == nullptr) return fail(request, CompletionStatus::kRemoteAccess);
    std::byte* target = region->at(request.remote_address);
    if (target != local) {
      if (!local_access(request)) return fail(request, CompletionStatus::kLocalAccess);
      if (request.bytes >= LargeCopy::kLeastBytes)
        large_copy_.copy(target, local, request.bytes);
      else
        copy_bytes(target, local, request.bytes);
    }
  }
  arrivals_.sender.publish(local, request.bytes, request.immediate);
  return Ran::kDone;
}

// The memory of a dead peer still takes writes; only its socket tells. Send side.
void ShmQueuePair::look_at_peer() {
  if (++sends_since_service_ < kSendsPerService) [[likely]]
    return;
  sends_since_service_ = 0;
  service_socket();
}

bool ShmQueuePair::receive_is_posted() {
  if (arrivals_.sender.has_receive()) return true;
  rnr_retries_.add(1);
  return false;
}

const PeerRegion* ShmQueuePair::find(std::uint64_t address, std::uint32_t key, std::size_t bytes,
                                     unsigned access) {
  const PeerRegion* region = peer_regions_[slot_of(key)].load(std::memory_order_acquire);
  if (region == nullptr || region->remote.key != key) [[unlikely]] {
    service_socket();  // the notice was sent before the peer could pass on the key
    region = peer_regions_[slot_of(key)].load(std::memory_order_acquire);
    if (region == nullptr || region->remote.key != key) return nullptr;
  }
  const std::uint64_t offset = address - region->remote.address;
  const bool inside = offset <= region->remote.bytes && bytes <= region->remote.bytes - offset;
  if (!inside || (region->access & access) != access || !region->alive()) return nullptr;
  return region;
}

bool ShmQueuePair::local_access(const SendRequest& request) const {
  return request.inlined || own_regions_->holds(request.local_key, request.local, request.bytes);
}

std::byte* ShmQueuePair::peer_memory(const RemoteRegion& part) {
  const PeerRegion* region = find(part.address, part.key, part.bytes, kRemoteWrite);
  return region == nullptr ? nullptr : region->at(part.address);
}

std::size_t ShmQueuePair::post_receives(std::size_t count) {
  count = std::min(count, arrivals_.receiver.room());
  if (count == 0) return 0;
  arrivals_.receiver.post(count);
  wake_sender();
  return count;
}

// Either the sender that armed itself sees what was stored before, or this side sees that it has
// armed.
void ShmQueuePair::wake_sender() {
  light_barrier(asymmetric_);
  wake_if_armed(incoming_.flow->sender_armed, peer_events_[index(Side::kSend)].get());
}

std::size_t ShmQueuePair::poll_sends(std::span<Completion> completions) {
  std::size_t count = 0;
  while (count < completions.size() && done_head_ != done_tail_)
    completions[count++] = done_[done_head_++ & (done_.size() - 1)];
  if (count == completions.size()) return count;
  // Acquire pairs with push_failure. The mutex guards the queue itself.
  if (has_failures_.load(std::memory_order_acquire)) {
    const std::lock_guard lock(mutex_);
    while (count < completions.size() && !failures_.empty()) {
      completions[count++] = failures_.front();
      failures_.pop_front();
    }
    has_failures_.store(!failures_.empty(), std::memory_order_relaxed);
  }
  if (count == 0) look_at_peer();
  return count;
}

// Returns one completion for each call: looking for a second one would wait for a cache line that,
// unless the peer is ahead, is still being written.
std::size_t ShmQueuePair::poll_receives(std::span<Completion> completions) {
  if (completions.empty()) return 0;
  if (arrivals_.receiver.peek(completions[0])) {
    arrivals_.receiver.take();
    return 1;
  }
  if (arrivals_.receiver.in_vain(kPollsPerService)) service_socket();
  return arrivals_.ended() ? flush_receives(completions) : 0;
}

// Everything that arrived was taken; the receives that are still posted will not be used any more.
std::size_t ShmQueuePair::flush_receives(std::span<Completion> completions) {
  // Looks once more after having seen the end: what the peer published before it went still counts.
  if (arrivals_.receiver.waits()) return 0;
  arrivals_.failed.store(true, std::memory_order_relaxed);
  std::size_t count = 0;
  for (; count < completions.size() && arrivals_.receiver.receives() != 0;
       arrivals_.receiver.take())
    completions[count++] = {0,      CompletionStatus::kFlushed, CompletionKind::kImmediate, 0, 0,
                            nullptr};
  return count;
}

void ShmQueuePair::arm(Side side) {
  const std::size_t i = index(side);
  eventfd_t events = 0;
  eventfd_read(own_events_[i].get(), &events);  // non-blocking; nothing there is fine
  service_socket();
  auto& armed = side == Side::kSend ? outgoing_.flow->sender_armed : incoming_.flow->receiver_armed;
  // Only the waker clears the flag: a poll that finds something must not, because its caller may
  // have armed for later arrivals. If it is still set, the barrier of that arm() still holds, and
  // the peer has published nothing since, or it would have cleared the flag.
  if (armed.load(std::memory_order_relaxed) != 0) return;
  armed.store(1, std::memory_order_relaxed);
  heavy_barrier(asymmetric_);  // pairs with light_barrier of the peer's post_send, wake_sender
}

ShmQueuePair::Ran ShmQueuePair::fail(const SendRequest& request, CompletionStatus status) {
  if (status != CompletionStatus::kFlushed) enter_error();
  push_failure({request.id, status, CompletionKind::kSendDone, 0, 0, nullptr});
  return Ran::kFailed;
}

void ShmQueuePair::push_failure(const Completion& completion) {
  const std::lock_guard lock(mutex_);
  // For a caller that goes on posting into a dead queue pair without polling, keeps only as many
  // completions as the queue would have held.
  if (failures_.size() < done_.size()) failures_.push_back(completion);
  has_failures_.store(true, std::memory_order_release);
}

bool ShmQueuePair::room_for_completion() const { return done_tail_ - done_head_ < done_.size(); }

bool ShmQueuePair::peer_closed() const {
  // Acquire pairs with enter_error: what the peer published before is visible after this.
  return incoming_.flow->closed.load(std::memory_order_acquire) != 0;
}

void ShmQueuePair::enter_error() noexcept {
  arrivals_.failed.store(true, std::memory_order_relaxed);
  outgoing_.flow->closed.store(1, std::memory_order_release);
  // A sleeping peer must see it too.
  eventfd_write(peer_events_[0].get(), 1);
  eventfd_write(peer_events_[1].get(), 1);
}

// Takes in the notices of regions that wait in the socket, and checks whether the peer lives.
void ShmQueuePair::service_socket() noexcept {
  const std::lock_guard lock(mutex_);
  try {
    std::vector<Fd> fds;
    for (;;) {
      RegionNotice notice;
      const auto bytes = std::as_writable_bytes(std::span(&notice, 1));
      const ReceiveMessage result = receive_message(socket_.get(), bytes, 1, fds);
      if (result == ReceiveMessage::kNothing) return;
      if (result == ReceiveMessage::kPeerGone) break;
      auto& slot = peer_regions_[slot_of(notice.key)];
      if (notice.removed != 0) {
        const PeerRegion* region = slot.load(std::memory_order_relaxed);
        if (region != nullptr && region->remote.key == notice.key)
          slot.store(nullptr, std::memory_order_relaxed);
      } else if (fds.size() == 1) {
        mapped_.push_back(PeerRegion::map(notice, fds[0].get()));
        slot.store(mapped_.back().get(), std::memory_order_release);  // pairs with find
      }
    }
  } catch (const std::bad_alloc&) {
    log(LogLevel::kError,
        "device shm: a connection ends, because there was no memory to note a region of its peer. "
        "Free memory, or raise the limit of this process (ulimit -v), and connect again.");
  } catch (const std::exception& error) {
    log(LogLevel::kError,
        {"device shm: a connection ends, because a region of its peer cannot be mapped: ",
         error.what()});
  }
  // The peer is gone, or not leat; or its memory cannot be had.
  incoming_.flow->closed.store(1, std::memory_order_release);
}

void ShmQueuePair::region_changed(const RegionNotice& notice, int fd) noexcept {
  try {
    const std::span<const int> fds(&fd, fd >= 0 ? 1 : 0);
    if (send_message(socket_.get(), std::as_bytes(std::span(&notice, 1)), fds)) return;
    log(LogLevel::kError, "device shm: the peer does not take notice of our memory regions");
  } catch (const std::exception&) {
    return;  // the peer is gone; every later request reports that
  }
  enter_error();
}

std::string ShmQueuePair::describe() const {
  return "shm" + std::string(peer_closed() ? " (peer gone)" : "");
}

}  // namespace leat::detail::shm

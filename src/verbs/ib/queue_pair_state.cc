// The life of an ib queue pair: made, connected, asleep, in error, gone.
#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <mutex>
#include <utility>

#include "base/epoll.h"
#include "base/system_error.h"
#include "verbs/ib/call.h"
#include "verbs/ib/probe.h"
#include "verbs/ib/queue_pair.h"

namespace leat::detail {
namespace {

// 0.64 ms. rdma_cm would leave 0, which means 655 ms.
constexpr std::uint8_t kMinRnrTimer = 12;
constexpr std::uint32_t kFewestRequests = 16;

const char* state_text(ibv_qp_state state) {
  switch (state) {
    case IBV_QPS_RESET:
      return "RESET";
    case IBV_QPS_INIT:
      return "INIT";
    case IBV_QPS_RTR:
      return "RTR";
    case IBV_QPS_RTS:
      return "RTS";
    case IBV_QPS_SQD:
      return "SQD";
    case IBV_QPS_SQE:
      return "SQE";
    case IBV_QPS_ERR:
      return "ERR";
    default:
      return "unknown";
  }
}

}  // namespace

IbQueuePair::CompletionSide::CompletionSide(const IbDomain& domain, std::size_t depth,
                                            IbEventTarget& target)
    : channel(ib_pointer(ibv_create_comp_channel(domain.context), "ibv_create_comp_channel",
                         domain.where)),
      queue(ib_pointer(
          ibv_create_cq(domain.context, static_cast<int>(depth), &target, channel.get(), 0),
          "ibv_create_cq(" + std::to_string(depth) + ")", domain.where)),
      sleep(new_epoll_set()) {
  check(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK), "fcntl(O_NONBLOCK)");
  epoll_add(sleep, channel->fd);
  domain.events->watch_in(sleep);
}

IbQueuePair::IbQueuePair(const IbDomain& domain, const QueueDepths& depths)
    : domain_(domain),
      rnr_counter_(domain.verbs_name, domain.port),
      send_depth_(
          std::clamp<std::size_t>(depths.send_requests, 1, domain.limits.max_send_requests)),
      receive_depth_(
          std::clamp<std::size_t>(depths.receive_requests, 1, domain.limits.max_receive_requests)),
      sends_(domain, send_depth_, *this),
      receives_(domain, receive_depth_, *this) {
  create_queue_pair();
  prepare_queues();
}

void IbQueuePair::create_queue_pair() {
  const std::size_t wanted_depth = send_depth_;
  auto inline_bytes = static_cast<std::uint32_t>(domain_.limits.max_inline_bytes);
  for (;;) {
    ibv_qp_init_attr wanted{};
    wanted.send_cq = sends_.queue.get();
    wanted.recv_cq = receives_.queue.get();
    wanted.cap = {static_cast<std::uint32_t>(send_depth_),
                  static_cast<std::uint32_t>(receive_depth_), 1, 1, inline_bytes};
    wanted.qp_context = static_cast<IbEventTarget*>(this);
    wanted.qp_type = IBV_QPT_RC;
    queue_pair_.reset(ibv_create_qp(domain_.pd, &wanted));
    if (queue_pair_ != nullptr) {
      inline_bytes_ = wanted.cap.max_inline_data;  // which may be less
      return;
    }
    // The depth that a device lists need not go together with inline data; a shorter queue works
    // as well, with more waiting.
    const bool too_much = errno == EINVAL || errno == ENOMEM;
    if (too_much && send_depth_ <= kFewestRequests && inline_bytes != 0) {
      inline_bytes = 0;
      send_depth_ = wanted_depth;
      continue;
    }
    if (!too_much || send_depth_ <= kFewestRequests) {
      throw ib_error("ibv_create_qp(" + std::to_string(send_depth_) + " sends, " +
                         std::to_string(receive_depth_) + " receives)",
                     domain_.where, errno);
    }
    send_depth_ = std::max<std::size_t>(send_depth_ / 2, kFewestRequests);
  }
}

void IbQueuePair::prepare_queues() {
  const std::size_t slots = std::bit_ceil(send_depth_);
  send_mask_ = slots - 1;
  slots_.resize(slots);
  kept_.resize(slots);
  send_work_.resize(send_depth_);
  send_parts_.resize(send_depth_);
  if (inline_bytes_ < domain_.limits.max_inline_bytes) {
    inline_memory_ = MappedMemory::anonymous(slots * domain_.limits.max_inline_bytes);
    inline_region_.reset(
        ib_pointer(ibv_reg_mr(domain_.pd, inline_memory_.data(), inline_memory_.size(), 0),
                   "ibv_reg_mr(" + size_text(inline_memory_.size()) + ")", domain_.where));
  }

  receive_work_.resize(receive_depth_);
  for (std::size_t i = 1; i < receive_depth_; ++i) receive_work_[i - 1].next = &receive_work_[i];
}

// The states in between are set here and not by librdmacm, because only so the RNR timer is right
// before the peer may send.
void IbQueuePair::make_ready(rdma_cm_id* id, ibv_mtu peer_mtu) {
  // A kernel bug sets bits that mean RoCE addresses also for InfiniBand; librdmacm masks them too.
  constexpr int kRoceBits = 0xe00000;
  ibv_port_attr port{};
  ib_status(ibv_query_port(domain_.context, id->port_num, &port), "ibv_query_port", domain_.where);

  ibv_mtu path_mtu = peer_mtu;
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    ibv_qp_attr attributes{};
    int mask = 0;
    attributes.qp_state = state;
    ib_count(rdma_init_qp_attr(id, &attributes, &mask), "rdma_init_qp_attr", domain_.where);
    if (state == IBV_QPS_RTR) {
      if (port.link_layer == IBV_LINK_LAYER_INFINIBAND) mask &= ~kRoceBits;
      attributes.min_rnr_timer = kMinRnrTimer;
      attributes.path_mtu = path_mtu = std::min({attributes.path_mtu, port.active_mtu, peer_mtu});
      // On the passive side these are still the peer's wishes, which may be beyond this device.
      attributes.max_dest_rd_atomic = std::min(attributes.max_dest_rd_atomic, domain_.reads);
    } else if (state == IBV_QPS_RTS) {
      attributes.timeout = domain_.ack_timeout;
      attributes.max_rd_atomic = std::min(attributes.max_rd_atomic, domain_.reads);
      attributes.retry_cnt = kRetries;
      attributes.rnr_retry = kRnrRetries;
    }
    ib_status(ibv_modify_qp(queue_pair_.get(), &attributes, mask),
              std::string("ibv_modify_qp(") + state_text(state) + ")", domain_.where);
  }

  const rdma_addr& address = id->route.addr;
  description_ = "ib:" + domain_.verbs_name + ":" + std::to_string(id->port_num) + " " +
                 link_layer_text(port.link_layer) + ", MTU " + std::to_string(mtu_bytes(path_mtu)) +
                 ", " + IbAddress(&address.src_addr).text_with_port() + " to " +
                 IbAddress(&address.dst_addr).text_with_port() + ", GID " +
                 gid_text(address.addr.ibaddr.sgid) + " to " + gid_text(address.addr.ibaddr.dgid);
}

void IbQueuePair::connected(CmChannel channel, CmId id) {
  epoll_add(sends_.sleep, channel.fd());
  epoll_add(receives_.sleep, channel.fd());
  cm_channel_.emplace(std::move(channel));
  cm_id_ = std::move(id);
}

IbQueuePair::~IbQueuePair() {
  if (!made_here_) return;  // the connection is the parent's
  move_to_error();
  if (cm_id_ != nullptr) rdma_disconnect(cm_id_.get());  // says it to the peer, waits for nothing
  // Before the epoll sets are closed, which an event may still use.
  queue_pair_.reset();
  receives_.queue.reset();
  sends_.queue.reset();
}

void IbQueuePair::fail() noexcept {
  if (!failed_.exchange(true)) move_to_error();
}

void IbQueuePair::move_to_error() noexcept {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  // Refused only where there is nothing left to flush.
  static_cast<void>(ibv_modify_qp(queue_pair_.get(), &attributes, IBV_QP_STATE));
}

void IbQueuePair::look_for_disconnect() {
  if (!cm_lock_.try_lock()) return;  // the other side looks
  const std::lock_guard lock(cm_lock_, std::adopt_lock);
  domain_.events->look();
  // Relaxed: the polls take nothing but the flag from it.
  if (domain_.events->device_failed()) lost_.store(true, std::memory_order_relaxed);
  if (lost_.load(std::memory_order_relaxed)) fail();
  if (!cm_channel_) return;
  while (const std::optional<CmEvent> event = cm_channel_->try_next()) {
    if (event->type != RDMA_CM_EVENT_DISCONNECTED && event->type != RDMA_CM_EVENT_DEVICE_REMOVAL) {
      continue;
    }
    peer_gone_.store(true, std::memory_order_release);
    fail();
    rdma_disconnect(cm_id_.get());  // answers, so that the peer's side need not wait
  }
}

// Wakes sleepers of both sides for good: the thread that takes the event may be one of another
// connection, and they look only when they wake.
void IbQueuePair::lost() noexcept {
  lost_.store(true, std::memory_order_relaxed);  // the system calls publish it to sleepers
  for (const CompletionSide* side : {&sends_, &receives_}) {
    epoll_event readable{};
    readable.events = EPOLLIN;
    epoll_ctl(side->sleep.get(), EPOLL_CTL_ADD, domain_.events->always_readable(), &readable);
  }
}

bool IbQueuePair::is_lost() noexcept {
  if (!lost_.load(std::memory_order_relaxed)) [[likely]]
    return false;
  fail();
  return true;
}

void IbQueuePair::arm(Side which) {
  look_for_disconnect();
  CompletionSide& armed = side(which);
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  unsigned events = 0;
  while (ibv_get_cq_event(armed.channel.get(), &queue, &context) == 0) ++events;
  if (events != 0) ibv_ack_cq_events(armed.queue.get(), events);
  ib_status(ibv_req_notify_cq(armed.queue.get(), 0), "ibv_req_notify_cq", domain_.where);
}

int IbQueuePair::event_fd(Side which) const {
  return (which == Side::kSend ? sends_ : receives_).sleep.get();
}

std::byte* IbQueuePair::peer_memory(const RemoteRegion&) { return nullptr; }

std::string IbQueuePair::describe() const {
  const std::string number = ", queue pair " + std::to_string(queue_pair_->qp_num) +
                             (domain_.events->device_failed()         ? ", the device has failed"
                              : lost_.load(std::memory_order_relaxed) ? ", its queues have failed"
                                                                      : "");
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  constexpr int kWanted = IBV_QP_STATE | IBV_QP_DEST_QPN | IBV_QP_MIN_RNR_TIMER | IBV_QP_TIMEOUT |
                          IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC;
  if (ibv_query_qp(queue_pair_.get(), &attributes, kWanted, &init) != 0) {
    return description_ + number + ", state unknown";
  }
  return description_ + number + " to " + std::to_string(attributes.dest_qp_num) + ", reads " +
         std::to_string(attributes.max_rd_atomic) + " and " +
         std::to_string(attributes.max_dest_rd_atomic) + ", RNR timer " +
         std::to_string(attributes.min_rnr_timer) + ", timeout " +
         std::to_string(attributes.timeout) + ", state " + state_text(attributes.qp_state);
}

}  // namespace leat::detail

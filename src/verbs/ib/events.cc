#include "verbs/ib/events.h"

#include <fcntl.h>
#include <poll.h>

#include <map>
#include <mutex>

#include "base/epoll.h"
#include "base/log.h"
#include "base/system_error.h"

namespace leat::detail {

std::shared_ptr<IbEvents> IbEvents::of(ibv_context* context) {
  static std::mutex mutex;
  // Never destroyed: a thread may connect as the program ends.
  static auto& all = *new std::map<ibv_context*, std::weak_ptr<IbEvents>>;
  const std::lock_guard lock(mutex);
  std::weak_ptr<IbEvents>& known = all[context];
  auto events = known.lock();
  if (events == nullptr) known = events = std::make_shared<IbEvents>(context);
  return events;
}

IbEvents::IbEvents(ibv_context* context)
    : context_(context),
      name_(ibv_get_device_name(context->device)),
      failure_(new_event()),
      always_(new_event(1)) {
  const int fd = context->async_fd;
  check(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), "fcntl(O_NONBLOCK)");
}

void IbEvents::watch_in(const Fd& epoll) const {
  epoll_add(epoll, context_->async_fd);
  epoll_add(epoll, failure_.get());
}

void IbEvents::look() noexcept {
  if (!lock_.try_lock()) return;  // another one looks
  const std::lock_guard lock(lock_, std::adopt_lock);
  pollfd ready{context_->async_fd, POLLIN, 0};
  while (poll(&ready, 1, 0) == 1 && (ready.revents & POLLIN) != 0) {
    ibv_async_event event{};
    if (ibv_get_async_event(context_, &event) != 0) return;
    take(event);
    ibv_ack_async_event(&event);
  }
}

// Other events of a queue pair, as that a peer asked for what it may not have, are followed by
// completions that say it.
void IbEvents::take(const ibv_async_event& event) noexcept {
  const auto port = [&] { return std::to_string(event.element.port_num); };  // allocates nothing
  switch (event.event_type) {
    case IBV_EVENT_DEVICE_FATAL:
      log(LogLevel::kError,
          {"ib:", name_, " has failed or was removed: its connections have ended"});
      // Release: every thread that this wakes sees it.
      failed_.store(true, std::memory_order_release);
      eventfd_write(failure_.get(), 1);
      break;
    case IBV_EVENT_PORT_ERR:
      log(LogLevel::kWarn,
          {"ib:", name_, ": port ", port(),
           " is down; what is on its way goes again for ib_peer_timeout_ms, and up ",
           "to four times as long, then its connection ends"});
      break;
    case IBV_EVENT_PORT_ACTIVE:
      log(LogLevel::kInfo, {"ib:", name_, ": port ", port(), " is up"});
      break;
    case IBV_EVENT_CQ_ERR:
      log(LogLevel::kError, {"ib:", name_, ": a completion queue has failed: its connection ends"});
      static_cast<IbEventTarget*>(event.element.cq->cq_context)->lost();
      break;
    case IBV_EVENT_QP_FATAL:
      log(LogLevel::kError, {"ib:", name_, ": a queue pair has failed: its connection ends"});
      static_cast<IbEventTarget*>(event.element.qp->qp_context)->lost();
      break;
    default:
      break;
  }
}

}  // namespace leat::detail

#include "verbs/ib/cm.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <system_error>

#include "base/system_error.h"
#include "verbs/ib/call.h"

namespace leat::detail {
namespace {

constexpr const char* kRouteAdvice =
    "Check that an RDMA device serves that address (ip route get, ip address, rdma link).";

Error event_error(const CmEvent& event, const std::string& what) {
  const std::string failure =
      what + " failed: " + rdma_event_str(event.type) +
      (event.status < 0 ? ", " + std::error_code(-event.status, std::generic_category()).message()
                        : ", reason " + std::to_string(event.status));
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
      return {ErrorCode::kAddress, failure, kRouteAdvice};
    case RDMA_CM_EVENT_UNREACHABLE:
      return {ErrorCode::kAddress, failure,
              "The peer's RDMA device does not answer: check its port and open UDP port 4791."};
    case RDMA_CM_EVENT_REJECTED:
      return {ErrorCode::kRefused, failure, "The peer has withdrawn its offer."};
    case RDMA_CM_EVENT_DISCONNECTED:
      return {ErrorCode::kPeerDied, failure};
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return {ErrorCode::kUnavailable, failure};
    default:
      return {ErrorCode::kSystem, failure};
  }
}

}  // namespace

void throw_if_over(Deadline deadline, int lifeline, const std::string& what) {
  if (passed(deadline)) throw Error(ErrorCode::kTimeout, what + ": the deadline passed");
  pollfd wait{lifeline, POLLIN, 0};
  if (poll(&wait, 1, 0) == 1) throw Error(ErrorCode::kPeerDied, what + ": the peer went away");
}

CmChannel::CmChannel(const std::string& where)
    : channel_(ib_pointer(rdma_create_event_channel(), "rdma_create_event_channel", where)) {
  check(fcntl(fd(), F_SETFL, fcntl(fd(), F_GETFL) | O_NONBLOCK), "fcntl(O_NONBLOCK)");
}

CmId CmChannel::make_id(const std::string& where) {
  rdma_cm_id* id = nullptr;
  ib_count(rdma_create_id(channel_.get(), &id, nullptr, RDMA_PS_TCP), "rdma_create_id", where);
  return CmId(id);
}

std::optional<CmEvent> CmChannel::try_next() {
  pollfd ready{fd(), POLLIN, 0};
  if (poll(&ready, 1, 0) != 1) return std::nullopt;
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(channel_.get(), &event) != 0) return std::nullopt;
  CmEvent result;
  result.type = event->event;
  result.status = event->status;
  result.id = event->id;
  const rdma_conn_param& connection = event->param.conn;
  result.queue_pair = connection.qp_num;
  result.responder_resources = connection.responder_resources;
  result.initiator_depth = connection.initiator_depth;
  if (connection.private_data != nullptr) {
    std::memcpy(result.private_data.data(), connection.private_data,
                std::min<std::size_t>(connection.private_data_len, result.private_data.size()));
  }
  rdma_ack_cm_event(event);
  return result;
}

CmEvent CmChannel::next(Deadline deadline, int lifeline, const std::string& what) {
  for (;;) {
    if (const std::optional<CmEvent> event = try_next()) return *event;
    throw_if_over(deadline, lifeline, what);
    std::array<pollfd, 2> waits{pollfd{fd(), POLLIN, 0}, pollfd{lifeline, POLLIN, 0}};
    if (poll(waits.data(), waits.size(), poll_timeout_ms(deadline)) < 0 && errno != EINTR) {
      throw system_error("poll", errno);
    }
  }
}

CmEvent CmChannel::expect(rdma_cm_event_type type, Deadline deadline, const std::string& what) {
  const CmEvent event = next(deadline, -1, what);
  if (event.type != type) throw event_error(event, what);
  return event;
}

std::string cm_device_name(const rdma_cm_id& id) {
  return id.verbs == nullptr ? "" : ibv_get_device_name(id.verbs->device);
}

void require_route(int result, const std::string& call, const std::string& where) {
  if (result == 0) return;
  const int error = errno;
  throw Error(ErrorCode::kAddress,
              call + " on " + where +
                  " failed: " + std::error_code(error, std::generic_category()).message(),
              kRouteAdvice, error);
}

int cm_timeout_ms(Deadline deadline) {
  // rdma_cm takes neither "now" nor "never".
  constexpr int kLongestMs = 60'000;
  const int left = poll_timeout_ms(deadline);
  return left < 0 ? kLongestMs : std::max(left, 1);
}

CmId resolve_address(CmChannel& channel, IbAddress from, IbAddress to, Deadline deadline,
                     const std::string& where) {
  // The kernel asks the neighbor for its hardware address, but may miss the answer until its
  // timeout; a call after that finds it at once.
  constexpr std::chrono::milliseconds kPatience{250};
  const std::string call =
      "rdma_resolve_addr(" + (from.is_empty() ? "" : from.text() + " to ") + to.text() + ")";
  const std::string what = call + " on " + where;
  for (;;) {
    CmId id = channel.make_id(where);
    require_route(rdma_resolve_addr(id.get(), from.is_empty() ? nullptr : from.get(), to.get(),
                                    cm_timeout_ms(std::min(deadline, deadline_after(kPatience)))),
                  call, where);
    const CmEvent event = channel.next(deadline, -1, what);
    if (event.type == RDMA_CM_EVENT_ADDR_RESOLVED) return id;
    const bool slow = event.type == RDMA_CM_EVENT_ADDR_ERROR && event.status == -ETIMEDOUT;
    if (!slow || passed(deadline)) throw event_error(event, what);
  }
}

}  // namespace leat::detail

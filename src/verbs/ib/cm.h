// rdma_cm without unlimited waits: a non-blocking event channel whose events are values, with
// deadlines and a lifeline.
#pragma once

#include <rdma/rdma_cma.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "verbs/ib/address.h"
#include "verbs/ib/handle.h"

namespace leat::detail {

// An event of rdma_cm. Plain value; the event was acknowledged, so that destroying an id never
// waits for it.
struct CmEvent {
  static constexpr std::size_t kPrivateBytes = 32;

  rdma_cm_event_type type = RDMA_CM_EVENT_ADDR_ERROR;
  int status = 0;  // negative errno, or the reason of a rejection
  rdma_cm_id* id =
      nullptr;  // a connection request brings a new id, which the receiver of this event owns
  std::array<std::byte, kPrivateBytes> private_data{};  // the first bytes; zeros if fewer came
  std::uint32_t queue_pair = 0;                         // the peer's number
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
};

// Throws kTimeout after the deadline, kPeerDied if `lifeline` (or -1) is readable or hung up.
void throw_if_over(Deadline deadline, int lifeline, const std::string& what);

// Owns the event channel. Ids made here must be destroyed before it.
class CmChannel {
 public:
  // `where` names the device in errors.
  explicit CmChannel(const std::string& where);

  int fd() const noexcept { return channel_->fd; }
  CmId make_id(const std::string& where);

  // Returns the next event, or no value if there is none now; then it has allocated nothing.
  std::optional<CmEvent> try_next();
  // Blocks for the next event; throws as throw_if_over(). An event that is there takes precedence,
  // because the peer may connect and then write on the lifeline. `what` names the wait in errors.
  CmEvent next(Deadline deadline, int lifeline, const std::string& what);
  // Blocks for an event of this type. Any other event that comes first is thrown as a failure.
  CmEvent expect(rdma_cm_event_type type, Deadline deadline, const std::string& what);

 private:
  CmChannelHandle channel_;
};

// Resolves `to`, so that the id gets a device: from the address `from` or, if that is empty, from
// the one that the routing table chooses. Blocks; throws kAddress without a route, kTimeout.
CmId resolve_address(CmChannel& channel, IbAddress from, IbAddress to, Deadline deadline,
                     const std::string& where);

// "mlx5_0": the device that the id's address or route selected; empty if none was.
std::string cm_device_name(const rdma_cm_id& id);

// Throws if rdma_bind_addr, rdma_resolve_addr or rdma_resolve_route failed: no device serves it.
void require_route(int result, const std::string& call, const std::string& where);

// The time until the deadline in milliseconds, for rdma_cm's own timeouts.
int cm_timeout_ms(Deadline deadline);

}  // namespace leat::detail

// rdma_cm without waiting forever: a non-blocking event channel whose events come as values, with
// deadlines and a lifeline.
#pragma once

#include <rdma/rdma_cma.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "verbs/ib_address.h"
#include "verbs/ib_handle.h"

namespace leat::detail {

// An event of rdma_cm. Plain value; the event itself is acknowledged by then, so that destroying an
// id never waits for it.
struct CmEvent {
  static constexpr std::size_t kSecretBytes = 16;

  rdma_cm_event_type type = RDMA_CM_EVENT_ADDR_ERROR;
  int status = 0;            // negative errno, or the reason of a rejection
  rdma_cm_id* id = nullptr;  // a connection request brings a new one, which the receiver owns
  std::array<std::byte, kSecretBytes> private_data{};  // its first bytes, zeros if there are fewer
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

  // The next event, if there is one now. Allocates nothing if there is none.
  std::optional<CmEvent> try_next();
  // Blocks; throws as throw_if_over. An event that is there comes before that: the peer may connect
  // and then say something on the lifeline. `what` names the wait in errors.
  CmEvent next(Deadline deadline, int lifeline, const std::string& what);
  // Blocks for an event of this type; any other that comes first is a failure and thrown.
  CmEvent expect(rdma_cm_event_type type, Deadline deadline, const std::string& what);

 private:
  CmChannelHandle channel_;
};

// `to` resolved, so that the id has a device, from `from` or, if that is empty, from the address
// that the routing table chooses. Blocks; throws kAddress if there is no route, kTimeout.
CmId resolve_address(CmChannel& channel, IbAddress from, IbAddress to, Deadline deadline,
                     const std::string& where);

// "mlx5_0": the device that the id's address or route has chosen; empty if none yet.
std::string cm_device_name(const rdma_cm_id& id);

// Throws for a failed rdma_bind_addr, rdma_resolve_addr or rdma_resolve_route: no device serves it.
void require_route(int result, const std::string& call, const std::string& where);

// The milliseconds that rdma_cm's own timeouts take.
int cm_timeout_ms(Deadline deadline);

}  // namespace leat::detail

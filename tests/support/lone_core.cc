#include "support/lone_core.h"

#include <sys/socket.h>

#include <array>
#include <utility>

#include "base/epoll.h"
#include "base/system_error.h"
#include "support/scale.h"

namespace leat::detail {

LoneCore::LoneCore(std::unique_ptr<Transport> transport, Settings settings) {
  std::array<int, 2> ends{};
  check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), "socketpair");
  peer = Fd(ends[1]);
  Connection connection;
  connection.stream = plain_stream(Fd(ends[0]));
  connection.transport = std::move(transport);
  connection.transport_name = "silent";
  connection.closing = new_event();
  connection.peer_address = kPeerAddress;
  settings.timeout = hang_limit();
  core = std::make_unique<ChannelCore>(std::move(connection), settings);
}

}  // namespace leat::detail

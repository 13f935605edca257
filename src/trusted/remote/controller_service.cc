#include "trusted/remote/controller_service.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "base/system_error.h"

namespace leat::trusted::remote {

void serve_until_enabled(int listener, const ControllerService& service) {
  for (;;) {
    leat::detail::wait_ready(listener, POLLIN, leat::detail::kNoDeadline, "nobody came");
    leat::detail::Fd socket(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket) {
      // The newcomer may have gone already.
      if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) continue;
      throw leat::detail::system_error("accept4", errno);
    }
    ControllerSession session(service.boot, service.vendor_key, service.record, service.save,
                              service.kernel);
    try {
      serve_vendor(std::move(socket), session, service.boot, service.limits);
      return;
    } catch (const Error& error) {
      if (session.authenticated()) throw;
      if (service.on_stranger) service.on_stranger(error.what());
    }
  }
}

}  // namespace leat::trusted::remote

#include "trusted/kernel_daemon.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "attestd/sandbox.h"

namespace leat::bench {

ScratchFolder::ScratchFolder() : path_("/tmp/leat-bench-XXXXXX") {
  if (mkdtemp(path_.data()) == nullptr)
    throw std::system_error(errno, std::generic_category(), "mkdtemp");
}

ScratchFolder::~ScratchFolder() { rmdir(path_.c_str()); }

void serve_kernel(const attestd::ServerOptions& options, const attestd::Holdings& holdings,
                  const ForkedPeer::Tell& tell) {
  const attestd::AccessRules rules;
  const leat::detail::Fd never(eventfd(0, EFD_CLOEXEC));
  attestd::Server server(options, holdings, rules);
  attestd::restrict_system_calls();
  tell("ready");
  server.run(never.get());
}

}  // namespace leat::bench

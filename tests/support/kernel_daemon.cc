#include "support/kernel_daemon.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <utility>
#include <vector>

#include "trusted/remote/crypto.h"
#include "trusted/remote/kernel_process.h"

namespace leat::trusted::remote {

KernelDaemon::KernelDaemon(const Secrets& secrets, const std::string& socket) {
  const std::string program = LEAT_BUILD_FOLDER "/src/attestd/leat-attestd";
  std::vector<std::string> command{program, "--controller", "--socket", socket};
  if (geteuid() == 0) command.insert(command.end(), {"--user", "root"});
  KernelProcess process(command);
  process.start(sha384_of_file(program));
  pid_ = process.pid();
  process.provision(secrets);
  std::vector<std::uint32_t> members;
  for (const SessionSecret& session : secrets.sessions) members.push_back(session.sender);
  process.enable({secrets.epoch, members});
}

KernelDaemon::~KernelDaemon() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

SessionSecret group_session(std::uint32_t id, std::uint32_t sender, std::uint32_t devices,
                            SecretBytes key) {
  SessionSecret session{.id = id,
                        .kind = SessionKind::kGroup,
                        .sender = sender,
                        .receivers = {},
                        .key = std::move(key)};
  for (std::uint32_t device = 1; device <= devices; ++device)
    if (device != sender) session.receivers.push_back(device);
  return session;
}

}  // namespace leat::trusted::remote

#include "attest_home.h"

#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <system_error>

#include "attestd/sandbox.h"
#include "attestd/server.h"

namespace leat::bench {
namespace {

constexpr std::chrono::microseconds kNeverSleep{-1};

// As leat-attestd, but for the user, who stays the same.
void serve(const std::string& socket, const std::string& key_file, const ForkedPeer::Tell& tell) {
  attestd::hide_memory();
  attestd::Holdings holdings;
  holdings.take_key_file(key_file);
  const attestd::AccessRules rules;
  const detail::Fd never(eventfd(0, EFD_CLOEXEC));
  attestd::Server server({.path = socket}, holdings, rules);
  attestd::restrict_system_calls();
  tell("ready");
  server.run(never.get());
}

}  // namespace

AttestHome::AttestHome(bool isolated, const std::optional<CorePair>& cores) {
  std::string folder = "/tmp/leat-bench-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr)
    throw std::system_error(errno, std::generic_category(), "mkdtemp");
  folder_ = folder;
  key_file_ = folder_ + "/key";
  std::ofstream(key_file_) << std::string(2 * trusted::kMinKeyBytes, 'a') << '\n';
  chmod(key_file_.c_str(), S_IRUSR | S_IWUSR);
  if (!isolated) return;
  socket_ = folder_ + "/socket";
  daemon_ = std::make_unique<ForkedPeer>([&](const ForkedPeer::Tell& tell) {
    if (cores) pin_to_core((*cores)[1]);
    serve(socket_, key_file_, tell);
  });
  daemon_->listen();
}

AttestHome::~AttestHome() {
  daemon_.reset();
  for (const std::string& file : {key_file_, socket_}) unlink(file.c_str());
  rmdir(folder_.c_str());
}

Options AttestHome::options() const {
  Options options;
  if (daemon_) {
    options.attest_kernel = socket_;
  } else {
    options.attest_key_file = key_file_;
  }
  return options;
}

trusted::detail::ChannelSession AttestHome::session(trusted::Algorithm algorithm,
                                                    bool active) const {
  return {daemon_ ? trusted::detail::make_isolated_home(socket_, 0, algorithm, kNeverSleep)
                  : trusted::detail::make_local_home(key_file_, algorithm),
          algorithm, active};
}

}  // namespace leat::bench

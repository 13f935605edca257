#include "trusted/attest_home.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "attestd/sandbox.h"

namespace leat::bench {
AttestHome::AttestHome(bool isolated, const std::optional<CorePair>& cores) {
  key_file_ = folder_.path() + "/key";
  std::ofstream(key_file_) << std::string(2 * trusted::kMinKeyBytes, 'a') << '\n';
  chmod(key_file_.c_str(), S_IRUSR | S_IWUSR);
  if (!isolated) return;
  socket_ = folder_.path() + "/socket";
  daemon_ = std::make_unique<ForkedPeer>([&](const ForkedPeer::Tell& tell) {
    if (cores) pin_to_core((*cores)[1]);
    attestd::hide_memory();
    attestd::Holdings holdings;
    holdings.take_key_file(key_file_);
    serve_kernel({.path = socket_}, holdings, tell);
  });
  daemon_->listen();
}

AttestHome::~AttestHome() {
  daemon_.reset();
  for (const std::string& file : {key_file_, socket_}) unlink(file.c_str());
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
  return {daemon_ ? trusted::detail::make_isolated_home({socket_}, 0, algorithm, kNeverSleep)
                  : trusted::detail::make_local_home(key_file_, algorithm),
          algorithm, active};
}

}  // namespace leat::bench

// Where leat-bench attest has its kernels: in this process, or in a leat-attestd that it starts.
#pragma once

#include <memory>
#include <string>

#include "attest/channel_session.h"
#include "forked_peer.h"
#include "leat/attest/attestation.h"
#include "leat/options.h"
#include "machine.h"
#include "trusted/kernel_daemon.h"

namespace leat::bench {

class AttestHome {
 public:
  // Forks if it is isolated, so make it before any thread exists. The daemon is tied to the second
  // of the cores.
  AttestHome(bool isolated, const std::optional<CorePair>& cores);
  ~AttestHome();
  AttestHome(const AttestHome&) = delete;
  AttestHome& operator=(const AttestHome&) = delete;

  // Of a channel whose kernel is here.
  Options options() const;
  // One side of a session; what the other offers is to be its begin().
  trusted::detail::ChannelSession session(trusted::Algorithm algorithm, bool active) const;

 private:
  const ScratchFolder folder_;
  std::string key_file_;
  std::string socket_;  // empty: in process
  std::unique_ptr<ForkedPeer> daemon_;
};

}  // namespace leat::bench

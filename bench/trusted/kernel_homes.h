// Where the parties of leat-bench trusted have their kernels: each in its own process, or in a
// leat-attestd of its own beside it.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "forked_peer.h"
#include "leat/attest/attestation.h"
#include "trusted/kernel_daemon.h"

namespace leat::bench {

class KernelHomes {
 public:
  // Gives the sessions of device `id`, keys included.
  using Take = std::function<void(const trusted::Session&)>;
  using Provision = std::function<void(std::uint32_t id, const Take& take)>;

  // Kernels of devices 1 to `count`. Forks if isolated, so make it before any thread exists. With
  // `core` the daemons are tied to it and never sleep, nor do their clients: for one alone.
  KernelHomes(bool isolated, std::uint32_t count, Provision provision,
              std::optional<int> core = {});
  ~KernelHomes();
  KernelHomes(const KernelHomes&) = delete;
  KernelHomes& operator=(const KernelHomes&) = delete;

  // In the process of that party.
  std::unique_ptr<trusted::AttestationKernel> open(std::uint32_t id) const;

 private:
  void serve(std::uint32_t id, const ForkedPeer::Tell& tell) const;
  std::string socket(std::uint32_t id) const;

  const Provision provision_;
  const std::optional<int> core_;
  std::optional<ScratchFolder> folder_;  // none: in process
  std::map<std::uint32_t, std::unique_ptr<ForkedPeer>> daemons_;
};

}  // namespace leat::bench

#include "trusted/kernel_homes.h"

#include <unistd.h>

#include <utility>

#include "attestd/sandbox.h"
#include "leat/attest/isolated_kernel.h"
#include "machine.h"
#include "trusted/load.h"

namespace leat::bench {
namespace {

// A record has all requests that have come since the last.
constexpr std::uint32_t kMaxPayloadBytes = 8 << 20;

}  // namespace

KernelHomes::KernelHomes(bool isolated, std::uint32_t count, Provision provision,
                         std::optional<int> core)
    : provision_(std::move(provision)), core_(core) {
  if (!isolated) return;
  folder_.emplace();
  for (std::uint32_t id = 1; id <= count; ++id)
    daemons_[id] =
        std::make_unique<ForkedPeer>([this, id](const ForkedPeer::Tell& tell) { serve(id, tell); });
  for (const auto& [id, daemon] : daemons_) daemon->listen();
}

KernelHomes::~KernelHomes() {
  for (auto& [id, daemon] : daemons_) {
    daemon.reset();
    unlink(socket(id).c_str());
  }
}

std::string KernelHomes::socket(std::uint32_t id) const {
  return folder_->path() + "/" + std::to_string(id);
}

std::unique_ptr<trusted::AttestationKernel> KernelHomes::open(std::uint32_t id) const {
  if (folder_) {
    // More processes than cores: sleep at once.
    const auto spin = core_ ? kNeverSleep : std::chrono::microseconds(0);
    return std::make_unique<trusted::IsolatedKernel>(socket(id), spin);
  }
  auto kernel = std::make_unique<trusted::LocalKernel>(id, kEpoch);
  provision_(id, [&](const trusted::Session& session) { kernel->provision(session); });
  kernel->enable();
  return kernel;
}

void KernelHomes::serve(std::uint32_t id, const ForkedPeer::Tell& tell) const {
  if (core_) pin_to_core(*core_);
  attestd::hide_memory();
  attestd::Holdings holdings;
  holdings.begin(id, kEpoch);
  provision_(id, [&](const trusted::Session& session) { holdings.provision(session); });
  holdings.enable();
  serve_kernel({.path = socket(id),
                .shape = {.max_payload_bytes = kMaxPayloadBytes},
                .spin = core_ ? kNeverSleep : std::chrono::microseconds(0)},
               holdings, tell);
}

}  // namespace leat::bench

// The ib device: memory, and one protection domain for each connection.
#include "verbs/ib/row.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/mapped_memory.h"
#include "base/setting_values.h"
#include "verbs/ib/call.h"
#include "verbs/ib/connect.h"
#include "verbs/ib/handle.h"
#include "verbs/ib/probe.h"

namespace leat::detail {
namespace {

class IbRegion final : public MemoryRegion {
 public:
  IbRegion(MappedMemory memory, IbRegionHandle handle)
      : memory_(std::move(memory)), handle_(std::move(handle)) {}

  std::span<std::byte> memory() const override { return memory_.span(); }
  std::uint32_t local_key() const override { return handle_->lkey; }
  RemoteRegion remote() const override {
    return {reinterpret_cast<std::uintptr_t>(memory_.data()), memory().size(), handle_->rkey};
  }

 private:
  MappedMemory memory_;  // declared first: unmapped only when no longer registered
  IbRegionHandle handle_;
};

class IbDevice final : public Device {
 public:
  IbDevice(IbContext context, IbProbe probe, bool only_this_port)
      : context_(std::move(context)), info_(std::move(probe.info)) {
    domain_.verbs_name = ibv_get_device_name(context_->device);
    domain_.where = domain_.verbs_name + ":" + std::to_string(probe.port);
    domain_.port = probe.port;
    domain_.only_this_port = only_this_port;
    domain_.context = context_.get();
    domain_.limits = probe.limits;
    domain_.mtu = probe.mtu;
    domain_.reads = probe.reads;
    domain_.events = IbEvents::of(context_.get());
    domain_handle_.reset(ib_pointer(ibv_alloc_pd(context_.get()), "ibv_alloc_pd", domain_.where));
    domain_.pd = domain_handle_.get();
  }

  const DeviceInfo& info() const override { return info_; }
  Limits limits() const override { return domain_.limits; }

  std::unique_ptr<MemoryRegion> allocate(std::size_t bytes, unsigned access) override {
    constexpr std::size_t kPageBytes = 4096;
    MappedMemory memory = MappedMemory::anonymous(bytes == 0 ? kPageBytes : bytes);
    unsigned verbs_access = IBV_ACCESS_LOCAL_WRITE;
    if ((access & kRemoteRead) != 0) verbs_access |= IBV_ACCESS_REMOTE_READ;
    if ((access & kRemoteWrite) != 0) verbs_access |= IBV_ACCESS_REMOTE_WRITE;
    IbRegionHandle handle = enroll(memory.span(), verbs_access);
    return std::make_unique<IbRegion>(std::move(memory), std::move(handle));
  }

  // Tried seven times in all, and a device may wait up to four times as long as it says.
  void set_peer_timeout(std::chrono::milliseconds timeout) override {
    constexpr std::uint8_t kShortest = 12, kLongest = 31;  // 17 ms: longer than a round trip
    constexpr std::int64_t kTries = IbQueuePair::kRetries + 1;
    using Microseconds = std::chrono::microseconds;
    const auto reached = [&] {
      return timeout >= std::chrono::milliseconds::zero() &&
             Microseconds(kTries * (4096LL << domain_.ack_timeout) / 1000) >= timeout;
    };
    domain_.ack_timeout = kShortest;
    while (domain_.ack_timeout < kLongest && !reached()) ++domain_.ack_timeout;
  }

  std::unique_ptr<Offer> offer(const QueueDepths& depths,
                               const std::string& local_address) override {
    return ib_offer(domain_, depths, local_address);
  }

  std::unique_ptr<QueuePair> connect(std::span<const std::byte> blob, const QueueDepths& depths,
                                     Deadline deadline) override {
    return ib_connect(domain_, blob, depths, deadline);
  }

 private:
  IbRegionHandle enroll(std::span<std::byte> memory, unsigned access) const {
    return IbRegionHandle(
        ib_pointer(ibv_reg_mr(domain_.pd, memory.data(), memory.size(), static_cast<int>(access)),
                   "ibv_reg_mr(" + size_text(memory.size()) + ")", domain_.where));
  }

  IbContext context_;
  DeviceInfo info_;
  IbDomainHandle domain_handle_;
  IbDomain domain_;
};

}  // namespace

std::unique_ptr<Device> open_ib_device(const std::string& name, const std::string& peer_host) {
  if (name == "ib") {
    const RoutedDevice routed = find_ib_device({{}, peer_host});
    if (routed.name.empty()) throw Error(ErrorCode::kUnavailable, "device ib: " + routed.why_not);
    return open_ib_device(routed.name, peer_host);
  }
  const std::string verbs_name = name.substr(name.find(':') + 1);
  const std::size_t colon = std::min(verbs_name.find(':'), verbs_name.size());
  const bool has_port = colon != verbs_name.size();
  const auto port = has_port ? parse_number(std::string_view(verbs_name).substr(colon + 1)) : 0;
  IbContext context;
  IbProbe probe = probe_ib(verbs_name.substr(0, colon), context, port ? *port : UINT64_MAX);
  if (!probe.info.usable) {
    throw Error(ErrorCode::kUnavailable, "device " + name + ": " + probe.info.why_not);
  }
  return std::make_unique<IbDevice>(std::move(context), std::move(probe), has_port);
}

}  // namespace leat::detail

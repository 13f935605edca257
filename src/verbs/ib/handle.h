// Owners of the objects of libibverbs and librdmacm.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <memory>
#include <string>

#include "base/fork.h"

namespace leat::detail {

// Destroys the object, except in a child of the process that made it, because both reach the same
// object of the kernel, which is the parent's. Results are ignored: the kernel does not refuse once
// everything that depends on the object is gone, and no caller here could react.
template <auto kDestroy>
class IbDestroy {
 public:
  template <class T>
  void operator()(T* object) const noexcept {
    if (made_here_) static_cast<void>(kDestroy(object));
  }

 private:
  MadeHere made_here_;
};

using IbDeviceList = std::unique_ptr<ibv_device*, IbDestroy<ibv_free_device_list>>;
using IbDomainHandle = std::unique_ptr<ibv_pd, IbDestroy<ibv_dealloc_pd>>;
using IbRegionHandle = std::unique_ptr<ibv_mr, IbDestroy<ibv_dereg_mr>>;
using IbChannelHandle = std::unique_ptr<ibv_comp_channel, IbDestroy<ibv_destroy_comp_channel>>;
using IbQueueHandle = std::unique_ptr<ibv_cq, IbDestroy<ibv_destroy_cq>>;
using IbQueuePairHandle = std::unique_ptr<ibv_qp, IbDestroy<ibv_destroy_qp>>;
using CmId = std::unique_ptr<rdma_cm_id, IbDestroy<rdma_destroy_id>>;
using CmChannelHandle = std::unique_ptr<rdma_event_channel, IbDestroy<rdma_destroy_event_channel>>;

// An opened device. The whole process shares one, because opening is slow; a child opens its own,
// because the kernel refuses some calls on its parent's. For the same reason librdmacm's contexts,
// which a child inherits, are not used. Opening first sets up fork support, where the kernel needs
// it, and throws if it fails.
using IbContext = std::shared_ptr<ibv_context>;
IbContext open_ib_context(ibv_device* device);

}  // namespace leat::detail

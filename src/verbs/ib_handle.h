// Owners of what libibverbs and librdmacm hand out.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <memory>
#include <string>

#include "base/fork.h"

namespace leat::detail {

// Destroys, but not in a child of the process that made the object: both reach the same object of
// the kernel, which is the parent's. Destroying cannot be refused once what depends on the object
// is gone, and nobody could do anything about it here, so results are dropped.
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

// An opened device. All of the process share one, as opening is slow; a child opens its own, as the
// kernel refuses some calls on its parent's. That is also why not librdmacm's contexts are used,
// which a child inherits. Sets up fork support first, where the kernel needs it. Throws if the
// device cannot be opened.
using IbContext = std::shared_ptr<ibv_context>;
IbContext open_ib_context(ibv_device* device);

}  // namespace leat::detail

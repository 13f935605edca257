#include "verbs/ib/handle.h"

#include <map>
#include <mutex>

#include "verbs/ib/call.h"

namespace leat::detail {
namespace {

// ibv_is_fork_initialized knows whether the kernel copies pinned pages at a fork by itself. Must
// come before the first registration of the process.
void initialize_fork_support() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (ibv_is_fork_initialized() == IBV_FORK_DISABLED) ibv_fork_init();
  });
}

}  // namespace

IbContext open_ib_context(ibv_device* device) {
  struct Opened {
    MadeHere made_here;
    std::weak_ptr<ibv_context> context;
  };
  static std::mutex mutex;
  // Never destroyed: a thread may connect as the program ends.
  static auto& all = *new std::map<std::string, Opened>;

  initialize_fork_support();
  const std::string name = ibv_get_device_name(device);
  const std::lock_guard lock(mutex);
  Opened& opened = all[name];
  if (opened.made_here) {
    if (IbContext context = opened.context.lock(); context != nullptr) return context;
  }
  IbContext context(
      ib_pointer(ibv_open_device(device),
                 std::string("ibv_open_device(/dev/infiniband/") + device->dev_name + ")", name),
      IbDestroy<ibv_close_device>());
  opened = {{}, context};
  return context;
}

}  // namespace leat::detail

#include "support/scripted_device.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "leat/error.h"

namespace leat::detail {
namespace {

class ScriptedRegion final : public MemoryRegion {
 public:
  explicit ScriptedRegion(std::size_t bytes)
      : memory_(static_cast<std::byte*>(std::calloc(bytes, 1)), std::free), bytes_(bytes) {
    if (memory_ == nullptr) throw std::bad_alloc();
  }
  std::span<std::byte> memory() const override { return {memory_.get(), bytes_}; }
  std::uint32_t local_key() const override { return 1; }
  RemoteRegion remote() const override {
    return {reinterpret_cast<std::uint64_t>(memory_.get()), bytes_, 1};
  }

 private:
  std::unique_ptr<std::byte, decltype(&std::free)> memory_;
  std::size_t bytes_;
};

class ScriptedQueuePair final : public QueuePair {
 public:
  explicit ScriptedQueuePair(Script& script) : script_(script) {}
  std::size_t post_send(std::span<const SendRequest> requests) override {
    for (const SendRequest& request : requests) {
      script_.posted(request);
      if (request.signaled) script_.done.push_back({.id = request.id, .bytes = request.bytes});
    }
    return requests.size();
  }
  std::size_t post_receives(std::size_t count) override {
    if (script_.shared != nullptr) script_.shared->receiver.post(count);
    return count;
  }
  std::size_t poll_sends(std::span<Completion> completions) override {
    return take(script_.done, completions);
  }
  std::size_t poll_receives(std::span<Completion> completions) override {
    if (script_.shared == nullptr) return take(script_.arrivals, completions);
    if (!script_.shared->receiver.peek(completions[0])) return 0;
    script_.shared->receiver.take();
    return 1;
  }
  Arrivals* arrivals() override { return script_.shared; }
  void arm(Side) override {}
  int event_fd(Side) const override { return -1; }
  std::byte* peer_memory(const RemoteRegion& part) override {
    return script_.shared == nullptr ? nullptr : reinterpret_cast<std::byte*>(part.address);
  }
  std::uint64_t rnr_retries() const override { return 0; }
  std::string describe() const override { return "scripted"; }

 private:
  static std::size_t take(std::deque<Completion>& from, std::span<Completion> to) {
    const std::size_t count = std::min(from.size(), to.size());
    std::copy_n(from.begin(), count, to.begin());
    from.erase(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }
  Script& script_;
};

class ScriptedDevice final : public Device {
 public:
  explicit ScriptedDevice(Script& script) : script_(script) {}
  const DeviceInfo& info() const override { return info_; }
  Limits limits() const override { return script_.limits; }
  std::unique_ptr<MemoryRegion> allocate(std::size_t bytes, unsigned) override {
    return std::make_unique<ScriptedRegion>(bytes);
  }
  std::unique_ptr<Offer> offer(const QueueDepths&, const std::string&) override {
    throw Error(ErrorCode::kUnavailable, "a scripted device makes no offer");
  }
  std::unique_ptr<QueuePair> connect(std::span<const std::byte> blob, const QueueDepths&,
                                     Deadline) override {
    script_.connecting(blob);
    return scripted_queue_pair(script_);
  }

 private:
  Script& script_;
  const DeviceInfo info_{.name = "scripted", .usable = true};
};

}  // namespace

std::unique_ptr<Device> scripted_device(Script& script) {
  return std::make_unique<ScriptedDevice>(script);
}

std::unique_ptr<QueuePair> scripted_queue_pair(Script& script) {
  return std::make_unique<ScriptedQueuePair>(script);
}

}  // namespace leat::detail

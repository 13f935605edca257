#include "leat/remote_memory.h"

#include <chrono>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "channel/channel_wait.h"
#include "channel/verified_memory.h"
#include "leat/error.h"

namespace leat::trusted {

using leat::detail::AttestedTransport;
using leat::detail::ChannelCore;
using leat::detail::found_late;
using leat::detail::Side;
using leat::detail::VerifiedMemory;

namespace {

// A record that changes while it is read does not verify; a later look sees it whole, and soon,
// unless the publisher was interrupted.
constexpr int kLooksAtOnce = 16;
constexpr auto kNapBetweenLooks = std::chrono::microseconds(100);
constexpr auto kPatience = std::chrono::milliseconds(100);

AttestedTransport& attested(Channel& channel) {
  AttestedTransport* transport = ChannelCore::of(channel).connection().transport->facts().records;
  if (transport == nullptr)
    throw Error(
        ErrorCode::kInvalidArgument,
        "remote memory needs a transport attested+..., this channel's is " + channel.transport(),
        "Set transport=attested+ring on both sides.");
  return *transport;
}

unsigned usable(Channel& channel, unsigned context) {
  ChannelCore::of(channel).check_usable("remote memory", context);
  return context;
}

}  // namespace

struct RemoteMemory::State {
  static constexpr const char* kWhenEmpty = "this remote memory was moved from";
  State(Channel its_channel, const RemoteMemoryOptions& options)
      : channel(std::move(its_channel)),
        core(ChannelCore::of(channel)),
        memory(attested(channel), usable(channel, options.context), options) {
    until(Side::kSend, "telling of memory", [&] { return memory.try_describe(); });
    until(Side::kReceive, "waiting for the peer's memory",
          [&] { return memory.try_take_description(); });
  }

  template <typename Try>
  void until(Side side, const char* what, Try&& try_once) {
    if (!core.ask(what, try_once)) core.wait(side, what, try_once);
  }

  Channel channel;
  ChannelCore& core;
  VerifiedMemory memory;
};

RemoteMemory::RemoteMemory(Channel channel, const RemoteMemoryOptions& options)
    : state_(std::make_unique<State>(std::move(channel), options)) {}
RemoteMemory::RemoteMemory(RemoteMemory&&) noexcept = default;
RemoteMemory& RemoteMemory::operator=(RemoteMemory&&) noexcept = default;
RemoteMemory::~RemoteMemory() = default;

bool RemoteMemory::try_write(std::uint64_t offset, std::span<const std::byte> bytes) {
  state_->core.check_sending();
  return state_->core.ask("write", [&] { return state_->memory.try_write(offset, bytes); });
}

void RemoteMemory::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  const auto try_once = [&] { return try_write(offset, bytes); };
  if (!try_once()) state_->core.wait_to_send("write", state_->memory.context(), try_once);
}

std::optional<std::span<const std::byte>> RemoteMemory::poll() {
  ChannelCore& core = state_->core;
  core.check_open("poll");
  std::span<const std::byte> changed;
  const auto look = [&] { return state_->memory.take(changed); };
  auto taken = core.ask("poll", look);
  if (taken == VerifiedMemory::Taken::kNothing && core.may_be_gone()) {
    const auto found = [&] { return (taken = look()) != VerifiedMemory::Taken::kNothing; };
    if (!core.ask("poll", [&] { return found_late(found); })) core.check_not_gone("poll");
  }
  if (taken != VerifiedMemory::Taken::kWrite) return std::nullopt;
  return changed;
}

std::optional<std::span<const std::byte>> RemoteMemory::wait() {
  state_->core.check_open("wait");
  std::span<const std::byte> changed;
  auto taken = VerifiedMemory::Taken::kNothing;
  state_->until(Side::kReceive, "wait", [&] {
    taken = state_->memory.take(changed);
    return taken != VerifiedMemory::Taken::kNothing;
  });
  if (taken == VerifiedMemory::Taken::kEnd) return std::nullopt;
  return changed;
}

std::span<const std::byte> RemoteMemory::memory() const { return state_->memory.memory(); }

std::uint64_t RemoteMemory::publish(std::uint64_t offset, std::span<const std::byte> bytes) {
  state_->core.check_open("publish");
  return state_->memory.publish(offset, bytes);
}

Verdict RemoteMemory::read(std::uint64_t offset, std::span<std::byte> bytes, std::uint64_t& floor) {
  State& state = *state_;
  VerifiedMemory& memory = state.memory;
  state.core.check_open("read");
  state.until(Side::kSend, "read", [&] { return memory.try_prepare_read(offset, bytes.size()); });
  const auto deadline = leat::detail::deadline_after(kPatience);
  for (int look = 1;; ++look) {
    state.until(Side::kSend, "read", [&] { return memory.try_read(); });
    state.until(Side::kSend, "read", [&] { return memory.try_finish_read(); });
    const Verdict verdict = memory.judge(bytes, floor);
    if (verdict != Verdict::kMac || leat::detail::passed(deadline)) return verdict;
    if (look >= kLooksAtOnce) std::this_thread::sleep_for(kNapBetweenLooks);
  }
}

std::uint64_t RemoteMemory::peer_memory_bytes() const { return state_->memory.peer_memory_bytes(); }
std::uint64_t RemoteMemory::peer_published_bytes() const {
  return state_->memory.peer_published_bytes();
}
Channel& RemoteMemory::channel() { return state_->channel; }

}  // namespace leat::trusted

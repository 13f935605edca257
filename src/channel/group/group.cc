#include "leat/group.h"

#include <utility>

#include "base/clock.h"
#include "base/settings.h"
#include "base/uri.h"
#include "channel/channel_core.h"
#include "channel/group/core.h"
#include "channel/group/hello.h"
#include "channel/group/meeting.h"
#include "handshake/device_list.h"
#include "transport/slots/header.h"
#include "transport/slots/slots.h"

namespace leat {

using detail::ChannelCore;

namespace {

void check_workers(unsigned workers) {
  if (workers == 0 || workers > kMaxWorkers)
    throw Error(ErrorCode::kInvalidArgument, "a group of " + std::to_string(workers) + " workers",
                "It has 1 to " + std::to_string(kMaxWorkers) + ".");
}

std::size_t slot_memory(std::size_t slot_bytes, unsigned slots) {
  // The larger of both transports' headers.
  return detail::SlotLayout(slot_bytes, slots, sizeof(detail::SlotFront)).bytes();
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Receives the master's answer to this worker's hello, within what is left of the time for
// connecting.
detail::GroupAnswer await_answer(Channel& channel, const std::string& where,
                                 std::chrono::milliseconds connect_timeout,
                                 detail::Deadline deadline) {
  ChannelCore& core = ChannelCore::of(channel);
  if (deadline != detail::kNoDeadline)
    core.set_receive_timeout(std::max(
        std::chrono::milliseconds(1),
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - detail::Clock::now())));
  else
    core.set_receive_timeout(std::chrono::milliseconds(-1));
  Message message;
  try {
    message = channel.receive();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout) throw;
    throw Error(ErrorCode::kTimeout,
                "the group at " + where + " was not complete within " +
                    std::to_string(connect_timeout.count()) + " ms",
                "Start all workers, or raise the option connect_timeout_ms.");
  }
  core.set_receive_timeout(core.settings().timeout);
  if (!message)
    throw Error(ErrorCode::kPeerDied,
                "the master at " + where + " ended before the group was complete",
                "See what it says, perhaps that workers were missing.");
  return detail::decode_group_answer(message.bytes());
}

}  // namespace

Options with_slot_memory(std::size_t bytes, unsigned workers, const Options& options) {
  check_workers(workers);
  const detail::Settings settings = detail::resolve_settings(options, {});
  const std::size_t copies = detail::DeviceList(settings.device).shares_memory() ? 1 : 2;
  const std::size_t share = bytes / workers / copies;
  const auto wanted = static_cast<unsigned>(settings.slot_count);
  // Prefers smaller slots to less than a bitmap word of them.
  const unsigned enough = std::min(wanted, detail::kWordSlots);
  std::size_t slot_bytes = settings.slot_bytes;
  while (slot_memory(slot_bytes, enough) > share && slot_bytes > detail::kMinSlotBytes)
    slot_bytes = std::max(detail::kMinSlotBytes, slot_bytes / 2);
  unsigned slots = wanted;
  while (slot_memory(slot_bytes, slots) > share && slots > detail::kMinSlots) --slots;
  if (const std::size_t least = slot_memory(slot_bytes, slots); least > share)
    throw Error(ErrorCode::kInvalidArgument,
                std::to_string(bytes) + " bytes are too few for the slots of " +
                    std::to_string(workers) + " workers",
                "They need at least " + std::to_string(least * copies * workers) + ".");
  Options result = options;
  result.slot_bytes = slot_bytes;
  result.slot_count = slots;
  return result;
}

// --- GroupMaster

GroupMaster GroupMaster::accept(Listener& listener, unsigned workers) {
  check_workers(workers);
  const detail::Settings& settings = listener.settings();
  return GroupMaster(std::make_unique<detail::GroupCore>(
      detail::GroupMeeting(listener, settings, workers).hold(), settings));
}

GroupMaster::GroupMaster(std::unique_ptr<detail::GroupCore> core) noexcept
    : core_(std::move(core)) {}
GroupMaster::GroupMaster(GroupMaster&&) noexcept = default;
GroupMaster& GroupMaster::operator=(GroupMaster&&) noexcept = default;
GroupMaster::~GroupMaster() = default;

std::size_t GroupMaster::broadcast(std::span<const std::byte> message) {
  return core_->broadcast(message);
}
std::size_t GroupMaster::broadcast(std::string_view message) {
  return core_->broadcast(bytes_of(message));
}
std::size_t GroupMaster::resume(std::span<const std::byte> message) {
  return core_->resume(message);
}
std::vector<unsigned> GroupMaster::unreached() const { return core_->unreached(); }
void GroupMaster::send(unsigned worker, std::span<const std::byte> message) {
  core_->send(worker, message);
}
void GroupMaster::send(unsigned worker, std::string_view message) {
  core_->send(worker, bytes_of(message));
}
void GroupMaster::flush() { core_->flush(); }
void GroupMaster::shutdown() { core_->shutdown(); }

std::vector<GroupMessage> GroupMaster::gather() { return core_->gather(); }
std::vector<unsigned> GroupMaster::unheard() const { return core_->unheard(); }
GroupMessage GroupMaster::receive() { return core_->receive(); }
std::optional<GroupMessage> GroupMaster::try_receive() { return core_->try_receive(); }
const WorkerEnd* GroupMaster::next_end() { return core_->next_end(); }

void GroupMaster::drop(unsigned worker, const std::string& reason) { core_->drop(worker, reason); }
void GroupMaster::close() noexcept {
  if (core_ != nullptr) core_->close();
}

unsigned GroupMaster::size() const { return core_->size(); }
unsigned GroupMaster::alive() const { return core_->alive(); }
const WorkerEnd* GroupMaster::end(unsigned worker) const { return core_->end(worker); }
std::size_t GroupMaster::max_message_bytes() const { return core_->max_message_bytes(); }
Channel& GroupMaster::channel(unsigned worker) { return core_->channel(worker); }
Stats GroupMaster::stats() const { return core_->stats(); }
std::string GroupMaster::describe() const { return core_->describe(); }

// --- GroupWorker

GroupWorker GroupWorker::connect(const std::string& address, const GroupWorkerOptions& options) {
  if (options.size) check_workers(*options.size);
  const unsigned size = options.size.value_or(kMaxWorkers);
  if (options.rank && *options.rank >= size)
    throw Error(ErrorCode::kInvalidArgument,
                "worker " + std::to_string(*options.rank) + " of " + std::to_string(size),
                "Ranks are counted from 0.");
  Options channel_options = options.options;
  channel_options.connect_retry = true;
  const auto connect_timeout =
      detail::resolve_settings(channel_options, detail::parse_uri(address).parameters)
          .connect_timeout;
  const detail::Deadline deadline = detail::deadline_after(connect_timeout);
  Channel channel = Channel::connect(address, channel_options);
  const std::string where = channel.peer_address();
  detail::GroupHello hello;
  hello.rank = options.rank.value_or(detail::kAnyRank);
  hello.size = options.size.value_or(0);
  channel.send(encode(hello));
  const detail::GroupAnswer answer = await_answer(channel, where, connect_timeout, deadline);
  if (answer.refused)
    throw Error(answer.code, "the master at " + where + " turned this worker away: " + answer.text);
  if ((options.rank && answer.rank != *options.rank) ||
      (options.size && answer.size != *options.size))
    throw Error(ErrorCode::kProtocol,
                "the master at " + where + " gave a place that was not asked for");
  return {std::move(channel), answer.rank, answer.size};
}

}  // namespace leat

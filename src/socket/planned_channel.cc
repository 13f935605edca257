#include "leat/planned.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "socket/channel_wait.h"
#include "transport/planned.h"

namespace leat {

using detail::ChannelCore;
using detail::PlannedTransport;
using detail::Side;

PlannedChannel::PlannedChannel(Channel channel)
    : channel_(std::move(channel)),
      transport_(dynamic_cast<PlannedTransport*>(channel_.core_->connection().transport.get())) {
  if (transport_ == nullptr)
    throw Error(ErrorCode::kInvalidArgument,
                "message arrays need transport planned, this channel's is " + channel_.transport(),
                "Set transport=planned on both sides.");
}

void PlannedChannel::open(unsigned context, const MessageArray& array) {
  ChannelCore& core = *channel_.core_;
  core.check_open("open");
  transport_->open(context, array);
  if (!transport_->try_tell(context))
    core.wait(Side::kSend, "open", [&] { return transport_->try_tell(context); });
}

void PlannedChannel::close(unsigned context) {
  ChannelCore& core = *channel_.core_;
  core.check_open("close");
  transport_->arrays().check_open(context);
  if (reserved_.context == context) reserved_ = {};
  const auto complete = [&] {
    return transport_->try_post() && transport_->arrays().missing(context) == 0;
  };
  if (!complete()) {
    core.wait(Side::kReceive, "close of a message array", [&] {
      while (!complete()) {
        if (transport_->try_progress()) continue;
        transport_->check_not_ended();
        return false;
      }
      return true;
    });
  }
  transport_->close(context);
}

bool PlannedChannel::is_open(unsigned context) const {
  return transport_->arrays().is_open(context);
}

// --- sending

std::span<std::byte> PlannedChannel::outgoing(unsigned context, std::uint64_t index,
                                              std::uint64_t count) {
  ChannelCore& core = *channel_.core_;
  core.check_usable(context);
  transport_->arrays().place(context, index, count);  // throws before it waits
  if (!transport_->peer_is_open(context)) [[unlikely]]
    core.wait(Side::kSend, "send", [&] { return transport_->peer_is_open(context); });
  return transport_->outgoing(context, index, count);
}

void PlannedChannel::append(unsigned context, std::uint64_t index, std::uint64_t count) {
  if (transport_->try_append(context, index, count)) [[likely]]
    return;
  channel_.core_->wait(Side::kSend, "send",
                       [&] { return transport_->try_append(context, index, count); });
}

void PlannedChannel::send(unsigned context, std::uint64_t index, std::span<const std::byte> bytes) {
  std::uint64_t count = transport_->arrays().count_of(context, bytes.size());
  std::byte* to = outgoing(context, index, count).data();
  if (count == 1) {
    std::memcpy(to, bytes.data(), bytes.size());
    append(context, index, 1);
    return;
  }
  // As many as go into one write at a time, so that the first are on their way while we copy.
  const std::size_t each = bytes.size() / count;
  const std::uint64_t limit = transport_->batch_limit(context);
  const std::byte* from = bytes.data();
  while (count != 0) {
    const std::uint64_t part = std::min(count, limit);
    std::memcpy(to, from, part * each);
    append(context, index, part);
    to += part * each;
    from += part * each;
    index += part;
    count -= part;
  }
}

std::span<std::byte> PlannedChannel::reserve(unsigned context, std::uint64_t index,
                                             std::uint64_t count) {
  const std::span<std::byte> memory = outgoing(context, index, count);
  reserved_ = {context, index, count};
  return memory;
}

void PlannedChannel::commit() {
  auto [context, index, count] = std::exchange(reserved_, {});
  if (count == 0) throw Error(ErrorCode::kInvalidArgument, "commit without a reservation");
  channel_.core_->check_usable(context);
  const std::uint64_t limit = transport_->batch_limit(context);
  while (count != 0) {
    const std::uint64_t part = std::min(count, limit);
    append(context, index, part);
    index += part;
    count -= part;
  }
}

void PlannedChannel::flush() {
  ChannelCore& core = *channel_.core_;
  core.check_open("flush");
  if (!transport_->try_post())
    core.wait(Side::kSend, "flush", [&] { return transport_->try_post(); });
}

// --- receiving

std::span<const std::byte> PlannedChannel::receive(unsigned context, std::uint64_t index,
                                                   std::uint64_t count) {
  ChannelCore& core = *channel_.core_;
  core.check_open("receive");
  const std::span<const std::byte> bytes = transport_->incoming(context, index, count);
  std::uint64_t missing = index;
  const auto try_once = [&] { return look(context, missing, index + count); };
  if (!try_once()) core.wait(Side::kReceive, "receive", try_once);
  return bytes;
}

std::span<const std::byte> PlannedChannel::try_receive(unsigned context, std::uint64_t index,
                                                       std::uint64_t count) {
  channel_.core_->check_open("receive");
  const std::span<const std::byte> bytes = transport_->incoming(context, index, count);
  std::uint64_t missing = index;
  return look(context, missing, index + count) ? bytes : std::span<const std::byte>();
}

// Whether all of [missing, end) has arrived; `missing` becomes the first that has not.
bool PlannedChannel::look(unsigned context, std::uint64_t& missing, std::uint64_t end) {
  transport_->try_post();
  for (;;) {
    missing = transport_->arrays().first_missing(context, missing, end);
    if (missing == end) return true;
    if (!transport_->try_progress()) break;
  }
  transport_->check_not_ended();
  return false;
}

std::uint64_t PlannedChannel::region_bytes() const { return transport_->arrays().region_bytes(); }

}  // namespace leat

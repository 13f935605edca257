#include "leat/planned.h"

#include <algorithm>
#include <utility>

#include "channel/channel_wait.h"
#include "transport/planned/planned.h"

namespace leat {

using detail::ChannelCore;
using detail::found_late;
using detail::PlannedTransport;
using detail::Side;

namespace {

// Where the bytes of outgoing messages belong, once the peer has opened the array.
std::span<std::byte> outgoing(ChannelCore& core, PlannedTransport& transport, unsigned context,
                              std::uint64_t index, std::uint64_t count) {
  core.check_sending();
  transport.arrays().place(context, index, count);  // throws before it waits
  if (!transport.peer_is_open(context)) [[unlikely]]
    core.wait(Side::kSend, "send", [&] { return transport.peer_is_open(context); });
  return transport.outgoing(context, index, count);
}

void append(ChannelCore& core, PlannedTransport& transport, unsigned context, std::uint64_t index,
            std::uint64_t count) {
  const auto try_once = [&] { return transport.try_append(context, index, count); };
  if (!core.ask("send", try_once)) [[unlikely]]
    core.wait(Side::kSend, "send", try_once);
}

// Whether all of [missing, end) has arrived. Sets `missing` to the first that has not.
bool look(PlannedTransport& transport, unsigned context, std::uint64_t& missing,
          std::uint64_t end) {
  transport.try_post();
  for (;;) {
    missing = transport.arrays().first_missing(context, missing, end);
    if (missing == end) return true;
    if (!transport.try_progress()) break;
  }
  transport.check_not_ended();
  return false;
}

}  // namespace

PlannedChannel::PlannedChannel(Channel channel)
    : channel_(std::move(channel)),
      transport_(channel_.core_->connection().transport->facts().arrays) {
  if (transport_ == nullptr && channel_.transport().ends_with("+planned"))
    throw Error(ErrorCode::kInvalidArgument,
                "message arrays would go beside the records of " + channel_.transport(),
                "Send messages, or set transport=planned and, in a network that you trust, "
                "confidential=off on both sides.");
  if (transport_ == nullptr)
    throw Error(ErrorCode::kInvalidArgument,
                "message arrays need transport planned, this channel's is " + channel_.transport(),
                "Set transport=planned on both sides.");
}

void PlannedChannel::open(unsigned context, const MessageArray& array) {
  ChannelCore& core = *channel_.core_;
  core.check_open("open");
  transport_->open(context, array);
  const auto try_once = [&] { return transport_->try_tell(context); };
  try {
    if (!core.ask("open", try_once)) core.wait(Side::kSend, "open", try_once);
  } catch (...) {
    transport_->cancel(context);  // or what comes next would be told of an array too many
    throw;
  }
}

void PlannedChannel::close(unsigned context) {
  ChannelCore& core = *channel_.core_;
  core.check_open("close");
  transport_->arrays().check_open(context);
  if (reserved_.context == context) reserved_ = {};
  const auto complete = [&] {
    return transport_->try_post() && transport_->arrays().missing(context) == 0;
  };
  if (!core.ask("close", complete)) {
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

std::uint64_t PlannedChannel::try_send(unsigned context, std::uint64_t index,
                                       std::span<const std::byte> bytes) {
  PlannedTransport& transport = *transport_;
  channel_.core_->check_sending();
  const std::uint64_t count = transport.arrays().count_of(context, bytes.size());
  transport.arrays().place(context, index, count);  // throws before anything is done
  if (!transport.peer_is_open(context)) [[unlikely]]
    return 0;
  std::byte* to = transport.outgoing(context, index, count).data();
  const std::byte* from = bytes.data();
  const std::size_t each = bytes.size() / count;
  const std::uint64_t limit = transport.batch_limit(context);
  for (std::uint64_t taken = 0; taken < count;) {
    const std::uint64_t part = std::min(count - taken, limit);
    const bool took = channel_.core_->ask("send", [&] {
      // Before copying the bytes, which would be copied again at each try.
      if (!transport.try_make_way(context, index + taken, part)) [[unlikely]]
        return false;
      transport.fill(to + taken * each, from + taken * each, part * each);
      transport.try_append(context, index + taken, part);
      return true;
    });
    if (!took) return taken;
    taken += part;
  }
  return count;
}

void PlannedChannel::send(unsigned context, std::uint64_t index, std::span<const std::byte> bytes) {
  ChannelCore& core = *channel_.core_;
  PlannedTransport& transport = *transport_;
  const std::uint64_t count = transport.arrays().count_of(context, bytes.size());
  if (count == 1) {
    std::byte* to = outgoing(core, transport, context, index, 1).data();
    transport.fill(to, bytes.data(), bytes.size());
    append(core, transport, context, index, 1);
    return;
  }
  const std::size_t each = bytes.size() / count;
  const auto sent = [&] {
    const std::uint64_t taken = try_send(context, index, bytes);
    index += taken;
    bytes = bytes.subspan(taken * each);
    return bytes.empty();
  };
  if (!sent()) core.wait(Side::kSend, "send", sent);
}

std::span<std::byte> PlannedChannel::try_reserve(unsigned context, std::uint64_t index,
                                                 std::uint64_t count) {
  channel_.core_->check_sending();
  transport_->arrays().place(context, index, count);
  if (!transport_->peer_is_open(context)) return {};
  reserved_ = {context, index, count};
  return transport_->outgoing(context, index, count);
}

std::span<std::byte> PlannedChannel::reserve(unsigned context, std::uint64_t index,
                                             std::uint64_t count) {
  const std::span<std::byte> memory = outgoing(*channel_.core_, *transport_, context, index, count);
  reserved_ = {context, index, count};
  return memory;
}

bool PlannedChannel::try_commit() {
  Reservation& left = reserved_;
  if (left.count == 0) throw Error(ErrorCode::kInvalidArgument, "commit without a reservation");
  channel_.core_->check_sending();
  const std::uint64_t limit = transport_->batch_limit(left.context);
  while (left.count != 0) {
    const std::uint64_t part = std::min(left.count, limit);
    if (!channel_.core_->ask(
            "commit", [&] { return transport_->try_append(left.context, left.index, part); }))
      return false;
    left.index += part;
    left.count -= part;
  }
  return true;
}

void PlannedChannel::commit() {
  if (!try_commit()) channel_.core_->wait(Side::kSend, "commit", [&] { return try_commit(); });
}

bool PlannedChannel::try_flush() {
  channel_.core_->check_open("flush");
  return channel_.core_->ask("flush", [&] { return transport_->try_post(); });
}

void PlannedChannel::flush() {
  if (!try_flush()) channel_.core_->wait(Side::kSend, "flush", [&] { return try_flush(); });
}

// --- receiving

std::span<const std::byte> PlannedChannel::receive(unsigned context, std::uint64_t index,
                                                   std::uint64_t count) {
  ChannelCore& core = *channel_.core_;
  core.check_open("receive");
  const std::span<const std::byte> bytes = transport_->incoming(context, index, count);
  std::uint64_t missing = index;
  const auto try_once = [&] { return look(*transport_, context, missing, index + count); };
  if (!core.ask("receive", try_once)) core.wait(Side::kReceive, "receive", try_once);
  return bytes;
}

std::span<const std::byte> PlannedChannel::try_receive(unsigned context, std::uint64_t index,
                                                       std::uint64_t count) {
  ChannelCore& core = *channel_.core_;
  core.check_open("receive");
  const std::span<const std::byte> bytes = transport_->incoming(context, index, count);
  std::uint64_t missing = index;
  const auto try_once = [&] { return look(*transport_, context, missing, index + count); };
  if (core.ask("receive", try_once)) return bytes;
  if (core.may_be_gone()) {
    if (core.ask("receive", [&] { return found_late(try_once); })) return bytes;
    core.check_not_gone("receive");
  }
  return {};
}

std::uint64_t PlannedChannel::missing(unsigned context) const {
  transport_->arrays().check_open(context);
  return transport_->arrays().missing(context);
}

std::uint64_t PlannedChannel::region_bytes() const { return transport_->arrays().region_bytes(); }

std::uint64_t PlannedChannel::max_message_bytes() const {
  return transport_->max_array_message_bytes();
}

}  // namespace leat

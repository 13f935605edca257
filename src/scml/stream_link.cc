#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "leat/error.h"
#include "scml/inbox.h"
#include "scml/mesh_link.h"

namespace leat::scml::detail {
namespace {

// Messages up to this size, if the channel takes that, go together with their header, as one;
// larger ones follow it, so that they are copied once less.
constexpr std::size_t kTogetherBytes = 4096;

// Messages in streams, the contexts of the channel. An array of context 1 to 15 has the stream of
// that number for itself, unless all are unified. The others share stream 0, and it with the words:
// what it brings must be sorted.
class StreamLink final : public Link {
 public:
  StreamLink(Channel channel, Carrier carrier, std::uint64_t region_bytes)
      : channel_(std::move(channel)),
        unified_(carrier == Carrier::kUnified),
        keeps_(carrier == Carrier::kContexts),
        memory_(region_bytes),
        together_bytes_(std::min(kTogetherBytes,
                                 channel_.max_message_bytes() -
                                     std::min(channel_.max_message_bytes(), sizeof(LinkHeader)))) {}

  Channel& channel() override { return channel_; }
  std::uint64_t max_message_bytes() override { return channel_.max_message_bytes(); }
  void open(unsigned context, const leat::MessageArray& array) override;
  void close(unsigned context) override { inboxes_[context].close(); }
  std::uint64_t missing(unsigned context) const override { return inboxes_[context].missing(); }

  std::uint64_t try_send(unsigned context, std::uint64_t index,
                         std::span<const std::byte> bytes) override;
  std::span<std::byte> try_reserve(unsigned context, std::uint64_t index,
                                   std::uint64_t count) override;
  bool try_commit() override;

  bool arrived(unsigned context, std::uint64_t index, std::uint64_t count) override {
    inboxes_[context].check(context, index, count);
    return inboxes_[context].arrived(index, count);
  }
  std::span<const std::byte> view(unsigned context, std::uint64_t index,
                                  std::uint64_t count) override {
    return inboxes_[context].view(index, count, memory_.data());
  }
  void progress() override;
  bool try_post() override { return true; }
  bool try_flush() override { return channel_.leaves_by_itself() || channel_.try_flush(); }

 private:
  struct Early {
    LinkHeader header;
    std::vector<std::byte> bytes;
  };
  struct Reservation {
    unsigned context = 0;
    std::uint64_t index = 0;
    std::vector<std::byte> bytes;
    std::size_t sent_bytes = 0;
  };

  bool put(const LinkHeader& header, std::span<const std::byte> bytes);
  bool wanted(unsigned stream) const;
  void take_in(unsigned stream);
  void deliver(unsigned stream, const LinkHeader& header, std::span<const std::byte> bytes,
               Message* message);

  unsigned stream_of(unsigned context) const {
    return unified_ || context >= leat::kContexts ? 0 : context;
  }

  Channel channel_;
  const bool unified_;
  const bool keeps_;
  LandingMemory memory_;
  const std::size_t together_bytes_;  // with their header, as one message
  std::array<Inbox, kContextLimit> inboxes_;
  // By stream: a header whose messages follow, on the way out and in.
  std::array<bool, leat::kContexts> header_sent_{};
  std::array<std::optional<LinkHeader>, leat::kContexts> header_received_;
  // What came in stream 0 before its array was open, by context.
  std::map<unsigned, std::deque<Early>> early_;
  std::uint64_t early_bytes_ = 0;
  Reservation reserved_;
};

void StreamLink::open(unsigned context, const leat::MessageArray& array) {
  Inbox& inbox = inboxes_[context];
  inbox.open(array);
  const auto found = early_.find(context);
  if (found == early_.end()) return;
  std::deque<Early>& early = found->second;
  // Then for an open after this one.
  while (!early.empty() && early.front().header.epoch == inbox.epoch()) {
    deliver(0, early.front().header, early.front().bytes, nullptr);
    early_bytes_ -= early.front().bytes.size();
    early.pop_front();
  }
  if (early.empty()) early_.erase(found);
}

// --- sending

std::uint64_t StreamLink::try_send(unsigned context, std::uint64_t index,
                                   std::span<const std::byte> bytes) {
  const Inbox& inbox = inboxes_[context];
  const std::uint64_t count = inbox.count_of(context, bytes.size());
  inbox.check(context, index, count);
  const std::uint64_t each = inbox.array().message_bytes;
  const std::uint64_t limit =
      std::max<std::uint64_t>(1, channel_.max_in_place_bytes(stream_of(context)) / each);
  for (std::uint64_t taken = 0; taken < count;) {
    const std::uint64_t part = std::min(count - taken, limit);
    const LinkHeader header{index + taken, inbox.epoch(), context};
    if (!put(header, bytes.subspan(taken * each, part * each))) return taken;
    taken += part;
  }
  return count;
}

bool StreamLink::put(const LinkHeader& header, std::span<const std::byte> bytes) {
  const unsigned stream = stream_of(header.context);
  if (bytes.size() <= together_bytes_) {
    std::array<std::byte, kTogetherBytes + sizeof header> together;
    std::memcpy(together.data(), &header, sizeof header);
    std::memcpy(together.data() + sizeof header, bytes.data(), bytes.size());
    return channel_.try_send(std::span(together).first(sizeof header + bytes.size()), stream);
  }
  if (!header_sent_[stream])
    header_sent_[stream] = channel_.try_send(std::as_bytes(std::span(&header, 1)), stream);
  if (!header_sent_[stream] || !channel_.try_send(bytes, stream)) return false;
  header_sent_[stream] = false;
  return true;
}

std::span<std::byte> StreamLink::try_reserve(unsigned context, std::uint64_t index,
                                             std::uint64_t count) {
  inboxes_[context].check(context, index, count);
  reserved_.context = context;
  reserved_.index = index;
  reserved_.sent_bytes = 0;
  reserved_.bytes.resize(count * inboxes_[context].array().message_bytes);
  return reserved_.bytes;
}

bool StreamLink::try_commit() {
  const std::uint64_t each = inboxes_[reserved_.context].array().message_bytes;
  const std::span<const std::byte> rest =
      std::span<const std::byte>(reserved_.bytes).subspan(reserved_.sent_bytes);
  reserved_.sent_bytes +=
      each * try_send(reserved_.context, reserved_.index + reserved_.sent_bytes / each, rest);
  return reserved_.sent_bytes == reserved_.bytes.size();
}

// --- receiving

void StreamLink::progress() {
  // Words last said, first seen: once the end is among them, the streams hold all that there is.
  take_in(0);
  if (unified_) return;
  for (unsigned stream = 1; stream < leat::kContexts; ++stream)
    if (inboxes_[stream].is_open()) take_in(stream);
}

bool StreamLink::wanted(unsigned stream) const {
  if (stream != 0) return inboxes_[stream].missing() != 0;
  // The stream waits, as a full ring does, if it brings more than there is memory for.
  return !ended_ && early_bytes_ <= memory_.bytes();
}

void StreamLink::take_in(unsigned stream) {
  std::optional<LinkHeader>& before = header_received_[stream];
  while (wanted(stream)) {
    auto message = channel_.try_receive(stream);
    if (!message) return;
    if (!*message) {
      ended_ = ended_ || stream == 0;
      return;
    }
    if (before) {
      const LinkHeader header = *std::exchange(before, std::nullopt);
      deliver(stream, header, message->bytes(), &*message);
      continue;
    }
    LinkHeader header;
    if (message->size() >= sizeof header) std::memcpy(&header, message->data(), sizeof header);
    if (message->size() < sizeof header || header.context >= kContextLimit ||
        stream_of(header.context) != stream)
      throw Error(ErrorCode::kProtocol, "the peer sent something that is not a message of a mesh");
    if (header.context == 0)
      hear(*message);
    else if (message->size() == sizeof header)
      before = header;
    else
      deliver(stream, header, message->bytes().subspan(sizeof header), nullptr);
  }
}

// `message`: `bytes` are all of it, and it may be kept.
void StreamLink::deliver(unsigned stream, const LinkHeader& header,
                         std::span<const std::byte> bytes, Message* message) {
  Inbox& inbox = inboxes_[header.context];
  const std::uint32_t epoch = inbox.epoch() + (inbox.is_open() ? 0 : 1);  // the one that is due
  if (stream == 0 && (header.epoch > epoch || (header.epoch == epoch && !inbox.is_open()))) {
    if (bytes.empty()) throw Error(ErrorCode::kProtocol, "the peer sent messages without bytes");
    early_[header.context].push_back({header, {bytes.begin(), bytes.end()}});
    early_bytes_ += bytes.size();
    return;
  }
  if (header.epoch != epoch)
    throw Error(ErrorCode::kProtocol,
                "messages of context " + std::to_string(header.context) + " arrived for its " +
                    std::to_string(header.epoch) + ". array, in its " + std::to_string(epoch) + ".",
                "All parties must open the same arrays and send each message once.");
  const bool may_keep =
      keeps_ && stream != 0 && bytes.size() <= channel_.max_in_place_bytes(stream);
  // Half of the ring; the rest may be lost where it goes round, or not be given back yet.
  const std::uint64_t ring_bytes = 2 * channel_.max_in_place_bytes(stream);
  inbox.arrive(header.index, bytes, may_keep ? message : nullptr, ring_bytes, memory_.data());
}

}  // namespace

std::unique_ptr<Link> make_stream_link(Channel channel, Carrier carrier,
                                       std::uint64_t region_bytes) {
  return std::make_unique<StreamLink>(std::move(channel), carrier, region_bytes);
}

}  // namespace leat::scml::detail

#include "transport/tcp/tcp.h"

#include <poll.h>

#include <algorithm>
#include <cstring>

#include "base/epoll.h"
#include "base/system_error.h"
#include "transport/parts/refusals.h"
#include "transport/parts/setup.h"

namespace leat::detail {
namespace {

constexpr std::size_t kMaxFrameBytes = std::size_t{256} << 10;
constexpr std::uint64_t kWindowBytes = std::uint64_t{4} << 20;  // per context and direction
constexpr std::uint64_t kReturnBytes = kWindowBytes / 8;
constexpr std::size_t kFrameCost =
    64;  // in the window, beside the payload: so empty ones count too
constexpr std::size_t kDirectBytes = std::size_t{16} << 10;    // larger payloads are not copied
constexpr std::size_t kInputBytes = std::size_t{16} << 10;     // read at once
constexpr std::size_t kMaxOutputBytes = std::size_t{1} << 20;  // credits a stuck peer may pile up

struct Setup {
  std::uint64_t max_message_bytes;
};

std::size_t cost(std::size_t bytes) { return bytes + kFrameCost; }

}  // namespace

TcpTransport::TcpTransport(Stream& stream, std::size_t max_message_bytes)
    : Transport(max_message_bytes), stream_(stream) {
  for (Fd& event : events_) event = new_event();
}

std::vector<std::byte> TcpTransport::setup() const {
  return encode_setup(Setup{max_message_bytes()});
}

void TcpTransport::start(std::span<const std::byte> peer_setup) {
  Setup peer;
  const auto refuse = [](const std::string& what) {
    throw Error(ErrorCode::kProtocol, "the peer sent " + what);
  };
  if (!decode_setup(peer_setup, peer)) refuse(kSetupOfTheWrongSize);
  if (peer.max_message_bytes == 0) refuse(kSetupThatContradictsItself);
  agree_with(peer.max_message_bytes);
  set_in_place(kMaxFrameBytes, kMaxFrameBytes);
  facts_.stream = StreamUse::kMessages;
  facts_.send_event_fd = events_[index(Side::kSend)].get();
  facts_.receive_event_fd = events_[index(Side::kReceive)].get();
  facts_.events_stay = true;
}

// --- send side

SendResult TcpTransport::try_send(std::span<const std::byte> message, Context context) {
  const std::lock_guard lock(mutex_);
  heed(Side::kSend);
  error_.check();
  reservation_.check_send(context);
  Pieces& pieces = contexts_[context].pieces;
  const auto announce = [&](std::uint64_t bytes) {
    return send_data(Kind::kAnnounce, context, {}, bytes);
  };
  if (!pieces.try_take_back(announce)) return SendResult::kUnderWay;
  if (!pieces.under_way()) {
    if (message.size() > max_message_bytes()) refuse_too_large(message.size(), max_message_bytes());
    if (message.size() <= kMaxFrameBytes)
      return whole_or_not(send_data(Kind::kMessage, context, message, 0));
  }
  return pieces.try_send(message, announce, [&](std::span<const std::byte> rest) {
    const auto piece = rest.first(std::min(kMaxFrameBytes, rest.size()));
    return send_data(Kind::kMessage, context, piece, 0) ? piece.size() : 0;
  });
}

void TcpTransport::abandon(Context context) noexcept {
  const std::lock_guard lock(mutex_);
  reservation_.abandon(context);
  contexts_[context].pieces.abandon();
}

// A frame that counts against the window.
bool TcpTransport::send_data(Kind kind, Context context, std::span<const std::byte> payload,
                             std::uint64_t value) {
  ContextState& state = contexts_[context];
  if (state.sent + cost(payload.size()) - state.peer_took > kWindowBytes) {
    pump_input(Side::kSend);  // the credit may be in the socket already
    error_.check();
    if (state.sent + cost(payload.size()) - state.peer_took > kWindowBytes) {
      // Also a peer that ended in order gives no more credit once its stream has ended.
      if (peer_closed_) fail(ErrorCode::kPeerDied, "the peer went away");
      credit_waits_.add(1);
      return false;
    }
  }
  if (!send_frame(kind, context, payload, value)) return false;
  state.sent += cost(payload.size());
  return true;
}

// False: earlier output is still waiting. Else the frame is taken whole, by the kernel or by
// output_.
bool TcpTransport::send_frame(Kind kind, Context context, std::span<const std::byte> payload,
                              std::uint64_t value) {
  if (!output_is_out()) return false;
  FrameHeader header;
  header.value = value;
  header.bytes = static_cast<std::uint32_t>(payload.size());
  header.kind = kind;
  header.context = static_cast<std::uint8_t>(context);
  queue_output(std::as_bytes(std::span(&header, 1)));
  if (payload.size() >= kDirectBytes) {
    push_output(Side::kSend);
    if (output_.empty()) payload = push_payload(payload);
  }
  // Header and payload of a small message leave together, in one packet.
  queue_output(payload);
  push_output(Side::kSend);
  return true;
}

// Past output_, without a copy. Returns what the kernel did not take.
std::span<const std::byte> TcpTransport::push_payload(std::span<const std::byte> payload) {
  try {
    while (!payload.empty()) {
      const auto written = stream_.try_write(payload);
      if (!written) break;
      payload = payload.subspan(*written);
    }
  } catch (const Error& error) {
    fail(error.code(), error.what());
  }
  return payload;
}

void TcpTransport::queue_output(std::span<const std::byte> bytes) {
  output_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

void TcpTransport::push_output(Side by) {
  try {
    while (output_done_ < output_.size()) {
      const auto written =
          stream_.try_write(std::as_bytes(std::span(output_)).subspan(output_done_));
      if (!written) {
        // The caller may not come again soon. The other side, if it sleeps, goes on with it.
        const Side other = by == Side::kSend ? Side::kReceive : Side::kSend;
        if (!waits_for_output_[index(other)] && !notified_[index(other)]) notify(other);
        return;
      }
      output_done_ += *written;
    }
  } catch (const Error& error) {
    output_.clear();
    output_done_ = 0;
    // The peer is gone, but what it had sent before, its end perhaps, is still to be read: also
    // what came since a read found the socket empty.
    input_drained_ = false;
    pump_input(Side::kSend);
    fail(error.code(), error.what());
  }
  output_.clear();
  output_done_ = 0;
  waits_for_output_[0] = waits_for_output_[1] = false;
}

// False: the kernel takes no more now, because the peer's does not. The peer may be in the same
// place, and its output goes on only if we take it in.
bool TcpTransport::output_is_out() {
  push_output(Side::kSend);
  if (output_.empty()) return true;
  pump_input(Side::kSend);
  error_.check();
  return false;
}

std::span<std::byte> TcpTransport::try_reserve(std::size_t bytes, Context context) {
  const std::lock_guard lock(mutex_);
  heed(Side::kSend);
  error_.check();
  if (bytes > max_in_place_bytes(context))
    refuse_reservation(bytes, max_in_place_bytes(context), "Use send().");
  Pieces& pieces = contexts_[context].pieces;
  if (!pieces.try_take_back(
          [&](std::uint64_t total) { return send_data(Kind::kAnnounce, context, {}, total); }))
    return {};
  reservation_.check_reserve(context, pieces.under_way());
  reserved_memory_.resize(std::max<std::size_t>(bytes, 1));
  reservation_.open(std::span(reserved_memory_).first(bytes), context);
  return reservation_.memory();
}

SendResult TcpTransport::try_commit(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  heed(Side::kSend);
  error_.check();
  const auto message = reservation_.check_commit(bytes);
  if (!send_data(Kind::kMessage, reservation_.context(), message, 0)) return SendResult::kNoRoom;
  reservation_.close();
  return SendResult::kSent;
}

bool TcpTransport::try_end() {
  const std::lock_guard lock(mutex_);
  heed(Side::kSend);
  error_.check();
  if (!end_sent_) end_sent_ = send_frame(Kind::kEnd, 0, {}, 0);
  return end_sent_;
}

bool TcpTransport::try_flush() {
  const std::lock_guard lock(mutex_);
  heed(Side::kSend);
  error_.check();
  return output_is_out();
}

// --- receive side

ReceiveResult TcpTransport::try_receive(Context context, Delivery& delivery) {
  const std::lock_guard lock(mutex_);
  heed(Side::kReceive);
  ContextState& state = contexts_[context];
  if (error_.empty()) {
    try {
      push_output(Side::kReceive);  // nothing stays behind because its sender went on to receive
    } catch (const Error&) {
      // Kept in error_: said below, after what has come.
    }
    if (error_.empty() && state.waiting.empty() && !state.large.ready()) pump_input(Side::kReceive);
  }
  for (;;) {
    if (error_.is_protocol()) error_.check();
    if (state.large.ready()) {
      reassembled_.add(1);
      state.large.take(delivery);
      delivery.context = context;
      return ReceiveResult::kMessage;
    }
    if (state.waiting.empty()) break;
    Frame frame = std::move(state.waiting.front());
    state.waiting.pop_front();
    if (!frame.announces && !state.large.active()) {
      delivery.context = context;
      delivery.bytes = frame.bytes;
      delivery.data = frame.payload.get();
      delivery.heap = std::move(frame.payload);
      delivery.ticket = cost(frame.bytes);
      delivery.must_release = true;
      return ReceiveResult::kMessage;
    }
    if (frame.announces) {
      bool sound = false;
      try {
        sound = state.large.announced(frame.announced, kMaxFrameBytes, max_message_bytes());
      } catch (const Error& error) {
        fail(error.code(), error.what());
      }
      if (!sound)
        fail(ErrorCode::kProtocol,
             "the peer announced a message of " + std::to_string(frame.announced) + " bytes");
    } else if (!state.large.add({frame.payload.get(), frame.bytes})) {
      fail(ErrorCode::kProtocol, "the peer sent more bytes than it announced");
    }
    try {
      take_back(context, cost(frame.bytes));
    } catch (const Error&) {
      // The peer may have ended and gone; as above.
    }
    const bool wants_more = state.waiting.empty() && !state.large.ready();
    if (wants_more && error_.empty()) pump_input(Side::kReceive);
  }
  if (ended_) {
    state.large.check();
    state.large.drop();  // its sender has given it up
    return ReceiveResult::kEnd;
  }
  error_.check();
  return ReceiveResult::kNothing;
}

Outlook TcpTransport::outlook(Side side, Look look) const {
  const std::lock_guard lock(mutex_);
  Outlook outlook;
  // After the end the stream is readable for good; what is left to wait for is room.
  if (!peer_closed_) outlook.stream_events = POLLIN;
  if (!output_.empty()) outlook.stream_events |= POLLOUT;
  // The kernel announces room: to spin for it does not pay.
  if (side == Side::kReceive && look == Look::kThorough)
    outlook.soon = std::ranges::any_of(contexts_, [](const ContextState& state) {
      return !state.waiting.empty() || state.large.ready();
    });
  return outlook;
}

void TcpTransport::release(Delivery& delivery) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (error_.empty()) take_back(delivery.context, delivery.ticket);
  } catch (const std::exception&) {
    // error_ has it, for the next call; without memory the next release gives this room back.
  }
}

void TcpTransport::take_back(Context context, std::size_t window_bytes) {
  ContextState& state = contexts_[context];
  state.took += window_bytes;
  if (state.took - state.returned < kReturnBytes || peer_closed_) return;
  if (output_.size() > kMaxOutputBytes)
    fail(ErrorCode::kProtocol, "the peer sends but does not read the answers");
  FrameHeader header;
  header.kind = Kind::kCredit;
  header.context = static_cast<std::uint8_t>(context);
  header.value = state.took;
  queue_output(std::as_bytes(std::span(&header, 1)));
  state.returned = state.took;
  credit_returns_.add(1);
  push_output(Side::kReceive);
}

// Reads what the kernel has, up to the windows' size, and sorts it.
void TcpTransport::pump_input(Side by) {
  News news;
  try {
    do {
      sort_input(news);
    } while (!peer_closed_ && read_more());
    if (peer_closed_ && !ended_) fail(ErrorCode::kPeerDied, "the peer went away");
  } catch (const Error& error) {
    error_.set(error.code(), error.what());
    news = {true, true};
  }
  input_drained_ = false;
  if (news.data && by == Side::kSend) notify(Side::kReceive);
  if (news.credit && by == Side::kReceive) notify(Side::kSend);
}

// False: the kernel has no more now. The long rest of a payload goes to its place at once, all else
// through the buffer, many frames with one system call.
bool TcpTransport::read_more() {
  if (input_drained_) return false;
  const std::size_t rest = header_have_ == sizeof header_ ? frame_.bytes - frame_have_ : 0;
  const bool direct = rest >= kInputBytes;
  if (!direct && input_ == nullptr)
    input_ = std::make_unique_for_overwrite<std::byte[]>(kInputBytes);
  const auto room =
      direct ? std::span(frame_.target + frame_have_, rest) : std::span(input_.get(), kInputBytes);
  const auto got = stream_.try_read(room);
  if (!got) return false;
  if (*got == 0) {
    peer_closed_ = true;
    return false;
  }
  // A socket that gave less than it was asked for is empty; TLS gives one record at a time.
  input_drained_ = *got < room.size() && !stream_.encrypted();
  if (direct)
    frame_have_ += *got;
  else
    unsorted_ = room.first(*got);
  return true;
}

// Up to `bytes` from what was read.
std::span<const std::byte> TcpTransport::take_input(std::size_t bytes) {
  const auto taken = unsorted_.first(std::min(bytes, unsorted_.size()));
  unsorted_ = unsorted_.subspan(taken.size());
  return taken;
}

// Makes frames of what was read.
void TcpTransport::sort_input(News& news) {
  for (;;) {
    if (header_have_ < sizeof header_) {
      const auto part = take_input(sizeof header_ - header_have_);
      if (part.empty()) return;
      std::memcpy(reinterpret_cast<std::byte*>(&header_) + header_have_, part.data(), part.size());
      header_have_ += part.size();
      if (header_have_ < sizeof header_) return;
      begin_frame();
    }
    const auto part = take_input(frame_.bytes - frame_have_);
    if (!part.empty()) std::memcpy(frame_.target + frame_have_, part.data(), part.size());
    frame_have_ += part.size();
    if (frame_have_ < frame_.bytes) return;
    header_have_ = 0;
    (header_.kind == Kind::kCredit ? news.credit : news.data) = true;
    frame_arrived();
  }
}

void TcpTransport::begin_frame() {
  // After its end the peer goes on reading, and so giving credit.
  const bool late = ended_ && header_.kind != Kind::kCredit;
  const std::size_t most = std::min(kMaxFrameBytes, max_message_bytes());
  if (header_.bytes > most || header_.context >= kContextCount || late)
    fail(ErrorCode::kProtocol, "the peer sent a frame that leat's tcp transport never sends");
  ContextState& state = contexts_[header_.context];
  if (header_.kind == Kind::kMessage || header_.kind == Kind::kAnnounce) {
    state.arrived += cost(header_.bytes);
    if (state.arrived - state.took > kWindowBytes)
      fail(ErrorCode::kProtocol, "the peer sent more than it had been given room for");
  }
  frame_ = {};
  frame_have_ = 0;
  frame_.bytes = header_.bytes;
  if (header_.bytes != 0) choose_target();
}

// A piece of the large message that the reader waits for goes straight to its place.
void TcpTransport::choose_target() {
  ContextState& state = contexts_[header_.context];
  if (header_.kind == Kind::kMessage && state.large.active() && !state.large.complete() &&
      state.waiting.empty()) {
    frame_.target = state.large.room(frame_.bytes);
    if (frame_.target == nullptr)
      fail(ErrorCode::kProtocol, "the peer sent more bytes than it announced");
    return;
  }
  frame_.payload.reset(new (std::nothrow) std::byte[frame_.bytes]);
  if (frame_.payload == nullptr) fail(ErrorCode::kResource, "out of memory for a message");
  frame_.target = frame_.payload.get();
}

void TcpTransport::frame_arrived() {
  ContextState& state = contexts_[header_.context];
  switch (header_.kind) {
    case Kind::kMessage:
      if (frame_.target != nullptr && frame_.payload == nullptr) {
        state.large.added(frame_.bytes);
        take_back(header_.context, cost(frame_.bytes));
        return;
      }
      state.waiting.push_back(std::move(frame_));
      break;
    case Kind::kAnnounce:
      if (frame_.bytes != 0) fail(ErrorCode::kProtocol, "the peer sent an odd announcement");
      frame_.announces = true;
      frame_.announced = header_.value;
      state.waiting.push_back(std::move(frame_));
      break;
    case Kind::kCredit:
      if (header_.value - state.peer_took > state.sent - state.peer_took)
        fail(ErrorCode::kProtocol, "the peer took more than it was sent");
      state.peer_took = header_.value;
      return;
    case Kind::kEnd:
      ended_ = true;
      return;
    default:
      fail(ErrorCode::kProtocol, "the peer sent a frame of an unknown kind");
  }
}

// --- both

void TcpTransport::arm(Side side) {
  const std::lock_guard lock(mutex_);
  waits_for_output_[index(side)] = !output_.empty();
}

// The side looks for itself at what it was notified of.
void TcpTransport::heed(Side side) {
  eventfd_t events = 0;
  if (std::exchange(notified_[index(side)], false))
    eventfd_read(events_[index(side)].get(), &events);
}

}  // namespace leat::detail

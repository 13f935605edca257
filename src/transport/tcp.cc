#include "transport/tcp.h"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/system_error.h"
#include "transport/refusals.h"

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

static_assert(std::endian::native == std::endian::little);
struct Setup {
  std::uint64_t max_message_bytes;
};

std::size_t cost(std::size_t bytes) { return bytes + kFrameCost; }

}  // namespace

TcpTransport::TcpTransport(Stream& stream, std::size_t max_message_bytes)
    : stream_(stream), max_message_bytes_(max_message_bytes) {
  for (const int i : {0, 1}) {
    events_[i] = Fd(check(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd"));
    waits_[i] = Fd(check(epoll_create1(EPOLL_CLOEXEC), "epoll_create1"));
    epoll_event wanted{};
    wanted.events = EPOLLIN;
    check(epoll_ctl(waits_[i].get(), EPOLL_CTL_ADD, events_[i].get(), &wanted), "epoll_ctl");
    check(epoll_ctl(waits_[i].get(), EPOLL_CTL_ADD, stream_.fd(), &wanted), "epoll_ctl");
  }
}

std::vector<std::byte> TcpTransport::setup() const {
  const Setup setup{max_message_bytes_};
  const auto bytes = std::as_bytes(std::span(&setup, 1));
  return {bytes.begin(), bytes.end()};
}

void TcpTransport::start(std::span<const std::byte> peer_setup) {
  Setup peer;
  if (peer_setup.size() != sizeof peer)
    throw Error(ErrorCode::kProtocol, "the peer sent a setup of the wrong size");
  std::memcpy(&peer, peer_setup.data(), sizeof peer);
  if (peer.max_message_bytes == 0)
    throw Error(ErrorCode::kProtocol, "the peer sent a setup that contradicts itself");
  max_message_bytes_ = std::min<std::uint64_t>(max_message_bytes_, peer.max_message_bytes);
}

// --- send side

bool TcpTransport::try_send(std::span<const std::byte> message, Context context) {
  const std::lock_guard lock(mutex_);
  throw_if_failed();
  if (reservation_.open && reservation_.context == context) refuse_while_reserved(context);
  ContextState& state = contexts_[context];
  if (message.size() <= kMaxFrameBytes && state.large_total == 0)
    return send_data(Kind::kMessage, context, message, 0);

  if (state.large_total == 0) {
    if (message.size() > max_message_bytes_) refuse_too_large(message.size(), max_message_bytes_);
    if (!send_data(Kind::kAnnounce, context, {}, message.size())) return false;
    state.large_total = message.size();
    state.large_sent = 0;
  } else if (state.large_total != message.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                "context " + std::to_string(context) + " is in the middle of a message of " +
                    std::to_string(state.large_total) + " bytes",
                "After try_send returned false for a large message, go on with the same message.");
  }
  while (state.large_sent < state.large_total) {
    const auto piece = message.subspan(
        state.large_sent, std::min(kMaxFrameBytes, state.large_total - state.large_sent));
    if (!send_data(Kind::kMessage, context, piece, 0)) return false;
    state.large_sent += piece.size();
  }
  state.large_total = 0;
  return true;
}

// A frame that counts against the window.
bool TcpTransport::send_data(Kind kind, Context context, std::span<const std::byte> payload,
                             std::uint64_t value) {
  ContextState& state = contexts_[context];
  if (state.sent + cost(payload.size()) - state.peer_took > kWindowBytes) {
    pump_input(Side::kSend);  // the credit may be in the socket already
    throw_if_failed();
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
    push_output();
    if (output_.empty()) payload = push_payload(payload);
  }
  // Header and payload of a small message leave together, in one packet.
  queue_output(payload);
  push_output();
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

void TcpTransport::push_output() {
  try {
    while (output_done_ < output_.size()) {
      const auto written =
          stream_.try_write(std::as_bytes(std::span(output_)).subspan(output_done_));
      if (!written) return;
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
}

// False: the kernel takes no more now, because the peer's does not. The peer may be in the same
// place, and its output goes on only if we take it in.
bool TcpTransport::output_is_out() {
  push_output();
  if (output_.empty()) return true;
  pump_input(Side::kSend);
  throw_if_failed();
  return false;
}

std::span<std::byte> TcpTransport::try_reserve(std::size_t bytes, Context context) {
  const std::lock_guard lock(mutex_);
  throw_if_failed();
  if (bytes > kMaxFrameBytes)
    throw Error(ErrorCode::kTooLarge, "cannot reserve " + std::to_string(bytes) +
                                          " bytes: at most " + std::to_string(kMaxFrameBytes) +
                                          " fit in place");
  if (reservation_.open || contexts_[context].large_total != 0)
    throw Error(ErrorCode::kInvalidArgument, "reserve: an earlier send or reservation of context " +
                                                 std::to_string(context) + " is not finished");
  reservation_.memory.resize(std::max<std::size_t>(bytes, 1));
  reservation_.context = context;
  reservation_.open = true;
  return std::span(reservation_.memory).first(bytes);
}

bool TcpTransport::try_commit(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  throw_if_failed();
  if (!reservation_.open || bytes > reservation_.memory.size())
    throw Error(ErrorCode::kInvalidArgument,
                "commit of " + std::to_string(bytes) + " bytes without a reservation of that size");
  const auto message = std::span<const std::byte>(reservation_.memory).first(bytes);
  if (!send_data(Kind::kMessage, reservation_.context, message, 0)) return false;
  reservation_.open = false;
  return true;
}

bool TcpTransport::try_end() {
  const std::lock_guard lock(mutex_);
  throw_if_failed();
  if (!end_sent_) end_sent_ = send_frame(Kind::kEnd, 0, {}, 0);
  return end_sent_;
}

bool TcpTransport::try_flush() {
  const std::lock_guard lock(mutex_);
  throw_if_failed();
  return output_is_out();
}

bool TcpTransport::try_drain() {
  if (!try_flush()) return false;
  // Bytes that the peer's kernel has not acknowledged would be lost by closing with unread input.
  int unacknowledged = 0;
  if (ioctl(stream_.fd(), SIOCOUTQ, &unacknowledged) != 0 || unacknowledged == 0) return true;
  // After a reset they stay unacknowledged for good.
  pollfd socket{stream_.fd(), 0, 0};
  return poll(&socket, 1, 0) > 0 && (socket.revents & (POLLHUP | POLLERR)) != 0;
}

// --- receive side

ReceiveResult TcpTransport::try_receive(Context context, Delivery& delivery) {
  const std::lock_guard lock(mutex_);
  ContextState& state = contexts_[context];
  if (error_.empty()) {
    try {
      push_output();  // nothing stays behind because its sender went on to receive
    } catch (const Error&) {
      // Kept in error_: said below, after what has come.
    }
    if (error_.empty() && state.waiting.empty() && !state.large.ready()) pump_input(Side::kReceive);
  }
  for (;;) {
    if (state.large.ready()) {
      reassembled_.add(1);
      state.large.take(delivery);
      delivery.context = context;
      return ReceiveResult::kMessage;
    }
    if (state.waiting.empty()) break;
    Frame frame = std::move(state.waiting.front());
    state.waiting.pop_front();
    if (frame.announced == 0 && !state.large.active()) {
      delivery.context = context;
      delivery.bytes = frame.bytes;
      delivery.data = frame.payload.get();
      delivery.heap = std::move(frame.payload);
      delivery.ticket = cost(frame.bytes);
      delivery.must_release = true;
      return ReceiveResult::kMessage;
    }
    if (frame.announced != 0) {
      if (state.large.active() || frame.announced > max_message_bytes_)
        fail(ErrorCode::kProtocol,
             "the peer announced a message of " + std::to_string(frame.announced) + " bytes");
      try {
        state.large.begin(frame.announced);
      } catch (const Error& error) {
        fail(error.code(), error.what());
      }
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
  if (ended_ && !state.large.active()) return ReceiveResult::kEnd;
  throw_if_failed();
  return ReceiveResult::kNothing;
}

bool TcpTransport::pending() const {
  const std::lock_guard lock(mutex_);
  return std::any_of(contexts_.begin(), contexts_.end(), [](const ContextState& state) {
    return !state.waiting.empty() || state.large.ready();
  });
}

void TcpTransport::release(Delivery& delivery) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (error_.empty()) take_back(delivery.context, delivery.ticket);
  } catch (const Error&) {
    // Kept in error_; the next call says it.
  }
}

void TcpTransport::take_back(Context context, std::size_t window_bytes) {
  ContextState& state = contexts_[context];
  state.took += window_bytes;
  if (state.took - state.returned < kReturnBytes || peer_closed_) return;
  if (output_.size() > kMaxOutputBytes)
    fail(ErrorCode::kProtocol, "the peer sends but does not read what it is answered");
  state.returned = state.took;
  credit_returns_.add(1);
  FrameHeader header;
  header.kind = Kind::kCredit;
  header.context = static_cast<std::uint8_t>(context);
  header.value = state.took;
  queue_output(std::as_bytes(std::span(&header, 1)));
  push_output();
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
    if (error_.empty()) {
      error_code_ = error.code();
      error_ = error.what();
    }
    news = {true, true};
  }
  input_drained_ = false;
  if (news.data && by == Side::kSend) eventfd_write(events_[1].get(), 1);
  if (news.credit && by == Side::kReceive) eventfd_write(events_[0].get(), 1);
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
  if (header_.bytes > kMaxFrameBytes || header_.context >= kContextCount || late)
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
      if (frame_.bytes != 0 || header_.value <= kMaxFrameBytes)
        fail(ErrorCode::kProtocol, "the peer sent an odd announcement");
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
  const int i = side == Side::kSend ? 0 : 1;
  eventfd_t events = 0;
  eventfd_read(events_[i].get(), &events);
  epoll_event wanted{};
  // After the end the stream is readable for good; what is left to wait for is room.
  wanted.events = peer_closed_ ? 0U : EPOLLIN;
  if (!output_.empty()) wanted.events |= EPOLLOUT;
  check(epoll_ctl(waits_[i].get(), EPOLL_CTL_MOD, stream_.fd(), &wanted), "epoll_ctl");
}

void TcpTransport::fail(ErrorCode code, const std::string& what) {
  if (error_.empty()) {
    error_code_ = code;
    error_ = what;
  }
  throw Error(code, what);
}

void TcpTransport::throw_if_failed() const {
  if (!error_.empty()) throw Error(error_code_, error_);
}

std::size_t TcpTransport::max_in_place_bytes(Context) const { return kMaxFrameBytes; }

std::string TcpTransport::describe() const {
  return stream_.encrypted() ? "tcp inside TLS" : "tcp in clear";
}

void TcpTransport::add_stats(Stats& stats) const {
  stats.credit_waits += credit_waits_.get();
  stats.credit_returns += credit_returns_.get();
  stats.reassembled_messages += reassembled_.get();
}

}  // namespace leat::detail

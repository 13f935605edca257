#include "channel/channel_core.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <thread>

#include "base/asymmetric_barrier.h"
#include "base/epoll.h"
#include "base/log.h"
#include "base/system_error.h"
#include "channel/channel_wait.h"
#include "channel/lingerer.h"
#include "transport/attested/attested.h"

namespace leat::detail {
namespace {

const bool asymmetric_barriers = register_for_heavy_barriers();

// Messages between two looks at the coarse clock.
constexpr unsigned kMostSendsUnlooked = 15;

}  // namespace

// Exists during each call of the send side, so that close() in another thread can wait for its end.
// Sets sending_ first and then reads closed_; close() does it the other way round.
class ChannelCore::Sending {
 public:
  explicit Sending(ChannelCore& core) : core_(core) {
    core.check_alone(Side::kSend);
    core.sending_.store(true, std::memory_order_relaxed);
    light_barrier(asymmetric_barriers);
  }
  // Release: a thread that sees it also sees what the call did.
  ~Sending() { core_.sending_.store(false, std::memory_order_release); }
  Sending(const Sending&) = delete;
  Sending& operator=(const Sending&) = delete;

 private:
  ChannelCore& core_;
};

ChannelCore::ChannelCore(Connection connection, const Settings& settings)
    : settings_(settings),
      connection_(std::move(connection)),
      transport_(*connection_.transport),
      watches_lifeline_(transport_.facts().stream != StreamUse::kMessages),
      closing_(std::move(connection_.closing)),
      send_timeout_(settings.timeout),
      receive_timeout_(settings.timeout) {}

ChannelCore::~ChannelCore() = default;

// --- send side

void ChannelCore::send(std::span<const std::byte> message, unsigned context) {
  const Sending sending(*this);
  check_sending("send", context);
  if (unfinished_.has(context)) [[unlikely]]
    abandon_send(context);
  if (!ask("send", [&] { return sent(transport_.try_send(message, context)); })) [[unlikely]]
    wait_to_send(message, context);
  count_sent(message.size());
}

void ChannelCore::wait_to_send(std::span<const std::byte> message, unsigned context) {
  wait_to_send("send", context, [&] { return sent(transport_.try_send(message, context)); });
}

bool ChannelCore::try_send(std::span<const std::byte> message, unsigned context) {
  const Sending sending(*this);
  check_sending("send", context);
  if (unfinished_.has(context) && !unfinished_.continues(message, context)) abandon_send(context);
  const SendResult result = ask("send", [&] { return transport_.try_send(message, context); });
  if (sent(result)) {
    watched_.forget_refusal();
    unfinished_.forget(context);
    count_sent(message.size());
    return true;
  }
  watched_.refuse(message.size(), context);
  if (result == SendResult::kUnderWay) unfinished_.remember(message, context);
  if (watches_lifeline_ && lifeline_ended(Side::kSend)) throw_gone("send");
  return false;
}

bool ChannelCore::try_send_unwatched(std::span<const std::byte> message) {
  const Sending sending(*this);
  check_sending();
  if (!ask("send", [&] { return sent(transport_.try_send(message, 0)); })) return false;
  count_sent(message.size());
  return true;
}

void ChannelCore::give_up(unsigned context) {
  const Sending sending(*this);
  if (context >= kContexts) check_usable("send", context);
  if (!closed() && reserved_ != context) abandon_send(context);
}

void ChannelCore::abandon_send(unsigned context) noexcept {
  watched_.forget_refusal();
  unfinished_.forget(context);
  transport_.abandon(context);
}

std::span<std::byte> ChannelCore::reserve(std::size_t bytes, unsigned context) {
  const Sending sending(*this);
  check_sending("reserve", context);
  if (unfinished_.has(context)) abandon_send(context);
  std::span<std::byte> memory;
  const auto try_once = [&] {
    memory = transport_.try_reserve(bytes, context);
    return memory.data() != nullptr;
  };
  if (!ask("reserve", try_once)) wait(Side::kSend, "reserve", try_once);
  reserved_ = context;
  return memory;
}

void ChannelCore::commit(std::size_t bytes) {
  const Sending sending(*this);
  check_usable("commit", 0);
  const auto try_once = [&] { return sent(transport_.try_commit(bytes)); };
  if (!ask("commit", try_once)) wait(Side::kSend, "commit", try_once);
  reserved_.reset();
  count_sent(bytes);
}

void ChannelCore::abandon() {
  const Sending sending(*this);
  if (!closed() && reserved_) transport_.abandon(*reserved_);
  reserved_.reset();
}

bool ChannelCore::has_room(std::size_t bytes, unsigned context) {
  const Sending sending(*this);
  check_usable("send", context);
  const auto try_once = [&] { return transport_.try_reserve(bytes, context).data() != nullptr; };
  if (!ask("reserve", try_once)) return false;
  transport_.abandon(context);
  return true;
}

void ChannelCore::flush() {
  const Sending sending(*this);
  wait_for_flush();
}

void ChannelCore::wait_for_flush() {
  check_open("flush");
  flushes_.add(1);
  const auto try_once = [&] { return transport_.try_flush(); };
  if (!ask("flush", try_once)) wait(Side::kSend, "flush", try_once);
}

void ChannelCore::arm_for_room() {
  const Sending sending(*this);
  if (!closed()) transport_.arm(Side::kSend);
}

bool ChannelCore::try_flush() {
  const Sending sending(*this);
  check_open("flush");
  return ask("flush", [&] { return transport_.try_flush(); });
}

void ChannelCore::shutdown() {
  const Sending sending(*this);
  if (!closed() && end_said_) return;
  check_usable("shutdown", 0);
  try {
    const auto try_once = [&] { return transport_.try_end(); };
    if (!ask("shutdown", try_once)) wait(Side::kSend, "shutdown", try_once);
    end_said_ = true;
    wait_for_flush();
  } catch (const Error& error) {
    // A peer that has ended too and is gone by now needs no notice from this side. receive() tells
    // whether it went in order.
    if (error.code() != ErrorCode::kPeerDied) throw;
    end_said_ = true;
  }
}

bool ChannelCore::try_shutdown() {
  const Sending sending(*this);
  check_open("shutdown");
  if (!end_said_) end_said_ = ask("shutdown", [&] { return transport_.try_end(); });
  return end_said_;
}

inline void ChannelCore::count_sent(std::size_t bytes) {
  sent_messages_.add(1);
  sent_bytes_.add(bytes);
  // Relaxed: it says that the peer was there a message ago, and is a number for people.
  if (received_last_.load(std::memory_order_relaxed)) {
    received_last_.store(false, std::memory_order_relaxed);
    rounds_.add(1);
  } else if (sends_unlooked_ != 0) {
    --sends_unlooked_;
  } else {
    look_after_peer();
  }
}

// While there is room, only the lifeline tells of a peer that has closed. As with TCP, the message
// after which that shows was sent, and the next one is refused. A look at the lifeline is a system
// call, so it is made once in a tick of the coarse clock. That clock costs a tenth of a small
// message, so it is looked at less and less while it stands still: between two looks go at most as
// many messages as went in that tick before. What was received since the last message says as much
// as a look.
void ChannelCore::look_after_peer() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  if (now.tv_nsec == looked_after_peer_) {
    most_unlooked_ = std::min(2 * most_unlooked_ + 1, kMostSendsUnlooked);
    sends_unlooked_ = most_unlooked_;
    return;
  }
  looked_after_peer_ = now.tv_nsec;
  most_unlooked_ = 0;
  peer_left_ = watches_lifeline_ && lifeline_ended(Side::kSend);
}

void ChannelCore::refuse_sending(const char* what, unsigned context) const {
  check_usable(what, context);
  throw_gone(what);
}

// --- receive side

Message ChannelCore::receive(unsigned context) {
  if (context >= kContexts || closed()) check_usable("receive", context);
  check_alone(Side::kReceive);
  Message message;
  ReceiveResult result = look(context, message.delivery_);
  if (result == ReceiveResult::kNothing) [[unlikely]]
    result = wait_to_receive(context, message);
  if (result == ReceiveResult::kMessage) [[likely]]
    adopt(message);
  return message;
}

ReceiveResult ChannelCore::wait_to_receive(unsigned context, Message& message) {
  ReceiveResult result = ReceiveResult::kNothing;
  wait(Side::kReceive, "receive", [&] {
    result = transport_.try_receive(context, message.delivery_);
    return result != ReceiveResult::kNothing;
  });
  return result;
}

std::optional<Message> ChannelCore::try_receive(unsigned context) {
  if (context >= kContexts || closed()) check_usable("receive", context);
  check_alone(Side::kReceive);
  std::optional<Message> message(std::in_place);
  Delivery& delivery = message->delivery_;
  ReceiveResult result = look(context, delivery);
  if (result == ReceiveResult::kNothing && poll_fd_) result = prepare_poll(context, delivery);
  if (result == ReceiveResult::kNothing && may_be_gone())
    result = receive_the_rest(context, delivery);
  if (result == ReceiveResult::kMessage)
    adopt(*message);
  else if (result == ReceiveResult::kNothing)
    message.reset();
  return message;
}

std::optional<Message> ChannelCore::glance(unsigned context) {
  check_open("receive");
  check_alone(Side::kReceive);
  std::optional<Message> message(std::in_place);
  const ReceiveResult result = look(context, message->delivery_);
  if (result == ReceiveResult::kMessage)
    adopt(*message);
  else if (result == ReceiveResult::kNothing)
    message.reset();
  return message;
}

[[gnu::always_inline]] inline ReceiveResult ChannelCore::look(unsigned context,
                                                              Delivery& delivery) {
  if (watched_.in_use() && watched_.take_ahead(context, delivery)) [[unlikely]]
    return ReceiveResult::kMessage;
  return ask("receive", [&] { return transport_.try_receive(context, delivery); });
}

bool ChannelCore::may_be_gone() {
  // Relaxed: set once; what came before the end is in memory already.
  if (peer_gone_.load(std::memory_order_relaxed)) return true;
  if (!watches_lifeline_ || ++fruitless_looks_ % kTriesPerClock != 0) return false;
  const Deadline now = Clock::now();
  if (now < next_lifeline_look_) return false;
  next_lifeline_look_ = now + kLifelineInterval;
  return lifeline_ended(Side::kReceive);
}

void ChannelCore::check_not_gone(const char* what) {
  if (!lifeline_ended(Side::kReceive)) return;
  peer_gone_.store(true, std::memory_order_relaxed);
  throw_gone(what);
}

void ChannelCore::kick() noexcept {
  if (!kick_) return;
  kicked_ = true;
  eventfd_write(kick_.get(), 1);
}

void ChannelCore::poll_on_stream(short events) {
  if (std::exchange(polled_on_stream_, events) == events) return;
  epoll_change(poll_fd_, connection_.stream->fd(), static_cast<unsigned>(events));
}

bool ChannelCore::receives_silently() const {
  return transport_.outlook(Side::kReceive, Look::kBrief).comes == Comes::kSilently;
}

// Nothing is there now: makes sure that fd() reports the next message, or finds it after all.
ReceiveResult ChannelCore::prepare_poll(unsigned context, Delivery& delivery) {
  transport_.arm(Side::kReceive);
  ReceiveResult result = look(context, delivery);
  if (result == ReceiveResult::kNothing && watches_lifeline_ && lifeline_ended(Side::kReceive))
    result = receive_the_rest(context, delivery);
  // Messages that were taken off the queue for other contexts give no further event, nor does room
  // for what the peer waits for.
  eventfd_t kicks = 0;
  const Outlook outlook = transport_.outlook(Side::kReceive, Look::kThorough);
  if (outlook.soon || outlook.comes == Comes::kSilently) {
    kick();
  } else if (std::exchange(kicked_, false)) {
    eventfd_read(kick_.get(), &kicks);
  }
  if (!watches_lifeline_) poll_on_stream(outlook.stream_events);
  return result;
}

// The lifeline has ended, but messages that came before still count.
ReceiveResult ChannelCore::receive_the_rest(unsigned context, Delivery& delivery) {
  ReceiveResult result = ReceiveResult::kNothing;
  const auto found = [&] {
    result = look(context, delivery);
    return result != ReceiveResult::kNothing;
  };
  if (!found_late(found)) check_not_gone("receive");
  return result;
}

// A message becomes true when its delivery is filled.
inline void ChannelCore::adopt(Message& message) {
  count_received(message.delivery_.bytes);
  message.core_ = this;
  if (message.delivery_.must_release) ++messages_out_;
}

std::span<const std::byte> ChannelCore::record_of(const Message& message) {
  // A message that holds no memory may have outlived its core; one with a record holds the core's
  // memory.
  if (message.core_ == nullptr || !message.delivery_.must_release ||
      message.core_->transport_.facts().records == nullptr)
    return {};
  return AttestedTransport::record_around(message.bytes());
}

void ChannelCore::release(Delivery& delivery) noexcept {
  if (!made_here_) return;
  transport_.release(delivery);
  if (--messages_out_ == 0 && orphaned_) Lingerer::free(this);
}

void ChannelCore::orphan(ChannelCore* core) noexcept {
  // A child of the connecting process frees nothing: destroying any part of the connection, down to
  // the queue pair, would end it and tell the peer.
  if (core == nullptr || !core->made_here_) return;
  if (core->watched_.watch != nullptr) core->watched_.watch->leave();
  core->close();
  core->orphaned_ = true;
  if (core->messages_out_ == 0) Lingerer::free(core);
}

inline void ChannelCore::count_received(std::size_t bytes) {
  received_messages_.add(1);
  received_bytes_.add(bytes);
  if (!received_last_.load(std::memory_order_relaxed))
    received_last_.store(true, std::memory_order_relaxed);
}

bool ChannelCore::lifeline_ended(Side side) const noexcept {
  if (side == Side::kReceive && transport_.checking()) return false;
  if (transport_.facts().stream != StreamUse::kLifeline)
    return connection_.stream->peer_closed() && !transport_.resuming();
  return connection_.stream->look_as_lifeline() != Lifeline::kSilent;
}

bool ChannelCore::peer_spoke() const noexcept {
  return transport_.facts().stream == StreamUse::kLifeline &&
         connection_.stream->look_as_lifeline() == Lifeline::kSpoke;
}

// --- both

void ChannelCore::close() noexcept {
  // Relaxed: a second caller does nothing.
  if (!made_here_ || close_begun_.exchange(true, std::memory_order_relaxed)) return;
  say_closed();
  wait_for_sender();
  Lingerer::finish(*this);
}

void ChannelCore::interrupt() noexcept {
  if (made_here_) say_closed();
}

// The stream stays open, because bytes already sent may still need it, both ways.
void ChannelCore::say_closed() noexcept {
  closed_.store(true, std::memory_order_relaxed);  // the system call publishes it to sleepers
  eventfd_write(closing_.get(), 1);
}

// Waits until a thread inside a call of the send side has noticed that the channel is closed.
void ChannelCore::wait_for_sender() noexcept {
  heavy_barrier(asymmetric_barriers);  // a sender that comes after this sees closed_
  // Acquire: the effects of its call are complete.
  while (sending_.load(std::memory_order_acquire)) std::this_thread::yield();
}

void ChannelCore::reset() noexcept {
  if (!made_here_) return;
  close_begun_.store(true, std::memory_order_relaxed);  // nothing is left to send
  say_closed();
  const sockaddr nobody{AF_UNSPEC, {}};
  // If that fails, the peer sees an end instead of a reset; no other way exists to tell it.
  static_cast<void>(::connect(connection_.stream->fd(), &nobody, sizeof nobody));
  connection_.stream->abort();
}

int ChannelCore::fd() {
  if (!made_here_) throw_closed("fd");
  if (!poll_fd_) {
    poll_fd_ = new_epoll_set();
    epoll_add(poll_fd_, transport_.event_fd(Side::kReceive));
    epoll_add(poll_fd_, connection_.stream->fd());
    polled_on_stream_ = POLLIN;
    epoll_add(poll_fd_, closing_.get());
    // Readable until the first try_receive without result: something may be here already.
    kick_ = new_event(1);
    kicked_ = true;
    epoll_add(poll_fd_, kick_.get());
  }
  return poll_fd_.get();
}

Stats ChannelCore::stats() const {
  Stats stats;
  stats.sent_bytes = sent_bytes_.get();
  stats.sent_messages = sent_messages_.get();
  stats.received_bytes = received_bytes_.get();
  stats.received_messages = received_messages_.get();
  stats.rounds = rounds_.get();
  stats.flushes = flushes_.get();
  stats.sleeps = send_sleeps_.get() + receive_sleeps_.get();
  stats.fallbacks = connection_.fallbacks;
  transport_.add_stats(stats);
  return stats;
}

}  // namespace leat::detail

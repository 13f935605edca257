#include "socket/channel_core.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "base/asymmetric_barrier.h"
#include "base/log.h"
#include "base/system_error.h"
#include "socket/channel_wait.h"
#include "socket/lingerer.h"
#include "transport/attested.h"

namespace leat::detail {
namespace {

const bool asymmetric_barriers = register_for_heavy_barriers();

constexpr const char* kAfterDeath = "See how the peer ended, and connect again.";

// An error that says with whom it happened.
class ToldError : public Error {
 public:
  using Error::Error;
};

const char* advice_after(ErrorCode code) {
  switch (code) {
    case ErrorCode::kPeerDied:
      return kAfterDeath;
    case ErrorCode::kProtocol:
      return "Its memory or ours was overwritten, or it is not leat: connect again.";
    default:
      return "";
  }
}

}  // namespace

// In each call of the send side, so that close() in another thread can wait until it is over. Marks
// first and looks at closed_ then; close() does it the other way round.
class ChannelCore::Sending {
 public:
  explicit Sending(ChannelCore& core) : core_(core) {
    core.sending_.store(true, std::memory_order_relaxed);
    light_barrier(asymmetric_barriers);
  }
  // Release: who sees it sees what the call did.
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
      watches_lifeline_(connection_.transport_name != "tcp"),
      closing_(check(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")),
      send_timeout_(settings.timeout),
      receive_timeout_(settings.timeout) {}

ChannelCore::~ChannelCore() = default;

// --- send side

void ChannelCore::send(std::span<const std::byte> message, unsigned context) {
  const Sending sending(*this);
  if (closed() || context >= kContexts || end_said_) [[unlikely]]
    check_usable(context);
  const auto try_once = [&] { return transport_.try_send(message, context); };
  if (!ask("send", try_once)) [[unlikely]]
    wait(Side::kSend, "send", try_once);
  count_sent(message.size());
}

bool ChannelCore::try_send(std::span<const std::byte> message, unsigned context) {
  const Sending sending(*this);
  check_usable(context);
  if (ask("send", [&] { return transport_.try_send(message, context); })) {
    count_sent(message.size());
    return true;
  }
  if (watches_lifeline_ && lifeline_ended()) throw_gone("send");
  return false;
}

bool ChannelCore::offer(std::span<const std::byte> message) {
  const Sending sending(*this);
  check_sending();
  if (!ask("send", [&] { return transport_.try_send(message, 0); })) return false;
  count_sent(message.size());
  return true;
}

std::span<std::byte> ChannelCore::reserve(std::size_t bytes, unsigned context) {
  const Sending sending(*this);
  check_usable(context);
  std::span<std::byte> memory;
  const auto try_once = [&] {
    memory = transport_.try_reserve(bytes, context);
    return memory.data() != nullptr;
  };
  if (!ask("reserve", try_once)) wait(Side::kSend, "reserve", try_once);
  return memory;
}

void ChannelCore::commit(std::size_t bytes) {
  const Sending sending(*this);
  check_usable(0);
  const auto try_once = [&] { return transport_.try_commit(bytes); };
  if (!ask("commit", try_once)) wait(Side::kSend, "commit", try_once);
  count_sent(bytes);
}

void ChannelCore::abandon() {
  const Sending sending(*this);
  if (!closed()) transport_.abandon();
}

bool ChannelCore::has_room(std::size_t bytes) {
  const Sending sending(*this);
  check_usable(0);
  const auto try_once = [&] { return transport_.try_reserve(bytes, 0).data() != nullptr; };
  if (!ask("reserve", try_once)) return false;
  transport_.abandon();
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
  check_usable(0);
  try {
    const auto try_once = [&] { return transport_.try_end(); };
    if (!ask("shutdown", try_once)) wait(Side::kSend, "shutdown", try_once);
    end_said_ = true;
    wait_for_flush();
  } catch (const Error& error) {
    // A peer that has ended too and is gone by now needs no word from us. Whether it went in order
    // is what receive() says.
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

void ChannelCore::count_sent(std::size_t bytes) {
  sent_messages_.add(1);
  sent_bytes_.add(bytes);
  // Relaxed: a number for people.
  if (received_last_.load(std::memory_order_relaxed)) {
    received_last_.store(false, std::memory_order_relaxed);
    rounds_.add(1);
  }
}

// --- receive side

Message ChannelCore::receive(unsigned context) {
  if (context >= kContexts || closed()) check_usable(context);
  Delivery delivery;
  ReceiveResult result = ReceiveResult::kNothing;
  const auto try_once = [&] {
    result = transport_.try_receive(context, delivery);
    return result != ReceiveResult::kNothing;
  };
  if (!ask("receive", try_once)) wait(Side::kReceive, "receive", try_once);
  if (result == ReceiveResult::kEnd) return {};
  return adopt(delivery);
}

std::optional<Message> ChannelCore::try_receive(unsigned context) {
  if (context >= kContexts || closed()) check_usable(context);
  Delivery delivery;
  ReceiveResult result = look(context, delivery);
  if (result == ReceiveResult::kNothing && poll_fd_) result = prepare_poll(context, delivery);
  if (result == ReceiveResult::kNothing && may_be_gone())
    result = receive_the_rest(context, delivery);
  if (result == ReceiveResult::kNothing) return std::nullopt;
  if (result == ReceiveResult::kEnd) return Message();
  return adopt(delivery);
}

std::optional<Message> ChannelCore::glance(unsigned context) {
  check_open("receive");
  Delivery delivery;
  const ReceiveResult result = look(context, delivery);
  if (result == ReceiveResult::kNothing) return std::nullopt;
  if (result == ReceiveResult::kEnd) return Message();
  return adopt(delivery);
}

ReceiveResult ChannelCore::look(unsigned context, Delivery& delivery) {
  return ask("receive", [&] { return transport_.try_receive(context, delivery); });
}

bool ChannelCore::may_be_gone() {
  // Relaxed: set once; what came before the end is in memory already.
  if (peer_gone_.load(std::memory_order_relaxed)) return true;
  if (!watches_lifeline_ || ++fruitless_looks_ % kTriesPerClock != 0) return false;
  const Deadline now = Clock::now();
  if (now < next_lifeline_look_) return false;
  next_lifeline_look_ = now + kLifelineInterval;
  return lifeline_ended();
}

void ChannelCore::check_not_gone(const char* what) {
  if (!lifeline_ended()) return;
  peer_gone_.store(true, std::memory_order_relaxed);
  throw_gone(what);
}

void ChannelCore::kick() noexcept {
  if (!kick_) return;
  kicked_ = true;
  eventfd_write(kick_.get(), 1);
}

// Nothing is there now: sees to it that fd() tells about the next message, or finds it after all.
ReceiveResult ChannelCore::prepare_poll(unsigned context, Delivery& delivery) {
  transport_.arm(Side::kReceive);
  ReceiveResult result = look(context, delivery);
  if (result == ReceiveResult::kNothing && watches_lifeline_ && lifeline_ended())
    result = receive_the_rest(context, delivery);
  // What was taken off the queue for other contexts gives no further event, nor does room for what
  // the peer waits for.
  eventfd_t kicks = 0;
  if (transport_.pending() || transport_.receiving_waits_for_room()) {
    kick();
  } else if (std::exchange(kicked_, false)) {
    eventfd_read(kick_.get(), &kicks);
  }
  return result;
}

// The lifeline has ended: what came before still counts.
ReceiveResult ChannelCore::receive_the_rest(unsigned context, Delivery& delivery) {
  const ReceiveResult result = look(context, delivery);
  if (result == ReceiveResult::kNothing) check_not_gone("receive");
  return result;
}

Message ChannelCore::adopt(Delivery& delivery) {
  count_received(delivery.bytes);
  Message message;
  message.core_ = this;
  message.size_ = delivery.bytes;
  message.context_ = delivery.context;
  message.data_ = delivery.data;
  if (delivery.must_release) {
    ++messages_out_;
    message.must_release_ = true;
    message.ticket_ = delivery.ticket;
  }
  if (delivery.heap != nullptr) {
    message.on_heap_ = true;
    message.data_ = delivery.heap.release();
  } else if (delivery.data == nullptr) {
    message.small_ = delivery.small;
  }
  return message;
}

std::span<const std::byte> ChannelCore::record_of(const Message& message) {
  // One that holds nothing may have outlived its core; those with a record hold its memory.
  if (message.core_ == nullptr || !message.must_release_ ||
      dynamic_cast<const AttestedTransport*>(&message.core_->transport_) == nullptr)
    return {};
  return AttestedTransport::record_around(message.bytes());
}

void ChannelCore::release(const Message& message) noexcept {
  if (!made_here_) return;
  Delivery delivery;
  delivery.ticket = message.ticket_;
  delivery.context = message.context_;
  delivery.bytes = message.size_;
  delivery.must_release = true;
  transport_.release(delivery);
  if (--messages_out_ == 0 && orphaned_) Lingerer::free(this);
}

void ChannelCore::orphan(ChannelCore* core) noexcept {
  // In a child of the process that connected nothing is freed: what the connection is made of, down
  // to the queue pair, would take that for its end and tell the peer.
  if (core == nullptr || !core->made_here_) return;
  core->close();
  core->orphaned_ = true;
  if (core->messages_out_ == 0) Lingerer::free(core);
}

void ChannelCore::count_received(std::size_t bytes) {
  received_messages_.add(1);
  received_bytes_.add(bytes);
  if (!received_last_.load(std::memory_order_relaxed))
    received_last_.store(true, std::memory_order_relaxed);
}

bool ChannelCore::lifeline_ended() const noexcept {
  return connection_.stream->peer_closed() && !transport_.resuming();
}

// --- both

void ChannelCore::rethrow(const char* what, const Error& error) const {
  if (closed()) throw_closed(what);
  if (dynamic_cast<const ToldError*>(&error) != nullptr) throw;  // by a call within another
  switch (error.code()) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kTooLarge:
    case ErrorCode::kClosed:
    case ErrorCode::kResource:
      throw;
    default:
      throw ToldError(
          error.code(),
          "the connection with " + connection_.peer_address + " has ended: " + error.what(),
          advice_after(error.code()), error.system_errno());
  }
}

void ChannelCore::throw_gone(const char* what) const {
  throw ToldError(ErrorCode::kPeerDied, std::string(what) + ": " + where() + " went away",
                  kAfterDeath);
}

void ChannelCore::throw_closed(const char* what) const {
  if (!made_here_)
    throw Error(ErrorCode::kClosed,
                std::string(what) + ": this channel to " + connection_.peer_address +
                    " belongs to the process that this one was forked from",
                "Connect after fork().");
  throw Error(ErrorCode::kClosed,
              std::string(what) + ": this channel to " + where() + " was closed");
}

void ChannelCore::check_usable(unsigned context) const {
  if (context >= kContexts)
    throw Error(ErrorCode::kInvalidArgument,
                "there is no protocol context " + std::to_string(context), "Contexts are 0 to 15.");
  check_open("use");
  if (end_said_) throw Error(ErrorCode::kClosed, "sending to " + where() + " was shut down");
}

void ChannelCore::close() noexcept {
  // Relaxed: who comes second does nothing.
  if (!made_here_ || close_begun_.exchange(true, std::memory_order_relaxed)) return;
  say_closed();
  wait_for_sender();
  Lingerer::finish(*this);
}

void ChannelCore::interrupt() noexcept {
  if (made_here_) say_closed();
}

// The stream stays open: what was sent may still need it, both ways.
void ChannelCore::say_closed() noexcept {
  closed_.store(true, std::memory_order_relaxed);  // the system call publishes it to who sleeps
  eventfd_write(closing_.get(), 1);
}

// Until a thread that is inside of a call of the send side has noticed that the channel is closed.
void ChannelCore::wait_for_sender() noexcept {
  heavy_barrier(asymmetric_barriers);  // a sender that comes after this sees closed_
  // Acquire: what it did is done.
  while (sending_.load(std::memory_order_acquire)) std::this_thread::yield();
}

void ChannelCore::reset() noexcept {
  if (!made_here_) return;
  close_begun_.store(true, std::memory_order_relaxed);  // nothing is left to be said
  say_closed();
  const sockaddr nobody{AF_UNSPEC, {}};
  // If that fails the peer sees an end instead of a reset: there is no other way to tell it.
  static_cast<void>(::connect(connection_.stream->fd(), &nobody, sizeof nobody));
  connection_.stream->abort();
}

int ChannelCore::fd() {
  if (!poll_fd_) {
    poll_fd_ = Fd(check(epoll_create1(EPOLL_CLOEXEC), "epoll_create1"));
    epoll_event wanted{};
    wanted.events = EPOLLIN;
    check(epoll_ctl(poll_fd_.get(), EPOLL_CTL_ADD, transport_.event_fd(Side::kReceive), &wanted),
          "epoll_ctl");
    if (watches_lifeline_)
      check(epoll_ctl(poll_fd_.get(), EPOLL_CTL_ADD, connection_.stream->fd(), &wanted),
            "epoll_ctl");
    check(epoll_ctl(poll_fd_.get(), EPOLL_CTL_ADD, closing_.get(), &wanted), "epoll_ctl");
    // Readable until the first try_receive without result: something may be here already.
    kick_ = Fd(check(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd"));
    kicked_ = true;
    check(epoll_ctl(poll_fd_.get(), EPOLL_CTL_ADD, kick_.get(), &wanted), "epoll_ctl");
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

std::string ChannelCore::where() const {
  return connection_.peer_address + " (" + transport_.describe() + ")";
}

}  // namespace leat::detail

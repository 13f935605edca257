#include "handshake/greeting.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <span>
#include <utility>

#include "base/system_error.h"
#include "handshake/hello.h"
#include "handshake/negotiate.h"
#include "net/tcp.h"
#include "net/tls.h"

namespace leat::detail {
namespace {

// How long one that was turned away may take to hear why, and how much it may say meanwhile.
constexpr std::chrono::milliseconds kFarewell{500};
constexpr std::size_t kMostDrained = 64 * 1024;

}  // namespace

Greeting::Greeting(Fd socket, const Settings& settings)
    : settings_(settings),
      socket_(std::move(socket)),
      stays_(std::in_place, socket_.get()),
      fd_(socket_.get()),
      peer_(peer_address(fd_)),
      source_(source_of(fd_)),
      events_(POLLIN),
      deadline_(deadline_after(settings.handshake_timeout)) {}

Greeting::State Greeting::advance() noexcept {
  if (state_ == State::kLeaving) {
    drain();
    return state_;
  }
  try {
    if (state_ == State::kWaiting && listen()) {
      state_ = State::kHeard;
      events_ = POLLRDHUP;
      deadline_ = kNoDeadline;
      heard_at_ = Clock::now();
    } else if (state_ == State::kHeard && socket_peer_closed(fd_)) {
      throw Error(ErrorCode::kPeerDied, "the client gave up before there was a place for it");
    } else if (state_ == State::kWaiting && passed(deadline_)) {
      throw Error(ErrorCode::kTimeout,
                  what_is_missing() + (got_ == 0 ? "nothing" : "too little") + " came in time");
    }
  } catch (const Error& error) {
    turn_away(error.code(), error.what(), error.system_errno());
  } catch (const std::exception& error) {
    turn_away(ErrorCode::kResource, error.what());
  }
  return state_;
}

std::string Greeting::what_is_missing() const {
  const bool in_tls = tls_ != nullptr || (stream_ == nullptr && tls_wanted(settings_));
  return in_tls ? "no TLS handshake: " : "no hello: ";
}

Error Greeting::ended() const {
  return {ErrorCode::kPeerDied, what_is_missing() + "the peer ended the connection"};
}

// True once the hello is whole.
bool Greeting::listen() {
  if (stream_ == nullptr && !start_speaking()) return false;
  if (tls_ != nullptr) {
    events_ = tls_->try_handshake();
    if (events_ != 0) return false;
    tls_ = nullptr;
  }
  return read_hello();
}

// False: it has said nothing yet, and nothing is made for it.
bool Greeting::start_speaking() {
  std::byte first{};
  const ssize_t got = recv(fd_, &first, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got == 0) throw ended();
  if (got < 0) {
    if (errno == EAGAIN || errno == EINTR) return false;
    throw system_error("recv from the peer", errno);
  }
  stays_.reset();  // the stream has its own
  if (tls_wanted(settings_)) {
    auto stream = std::make_unique<TlsStream>(
        std::move(socket_), std::make_unique<TlsContext>(settings_, TlsRole::kPassive));
    tls_ = stream.get();
    stream_ = std::move(stream);
  } else {
    stream_ = plain_stream(std::move(socket_));
  }
  hello_.resize(kHelloBytes);
  return true;
}

bool Greeting::read_hello() {
  const std::span<std::byte> frame(hello_);
  while (got_ < frame.size()) {
    const bool in_header = got_ < kFrameHeaderBytes;
    const auto read =
        stream_->try_read((in_header ? frame.first(kFrameHeaderBytes) : frame).subspan(got_));
    events_ = POLLIN;
    if (!read) return false;
    if (*read == 0) throw ended();
    got_ += *read;
    if (in_header && got_ == kFrameHeaderBytes)
      check_header(frame.first(kFrameHeaderBytes), FrameKind::kHello);
  }
  return true;
}

void Greeting::turn_away(ErrorCode code, const char* why, int system_errno) noexcept {
  state_ = State::kOver;
  try {
    error_ = Error(code, "handshake with " + peer_ + ": " + why, {}, system_errno);
    const bool is_gone = code == ErrorCode::kTimeout || code == ErrorCode::kPeerDied;
    if (stream_ != nullptr && !is_gone) tell(Error(code, why));
  } catch (const std::exception&) {
    // It hears nothing, and only ends.
  }
}

// What crosses here is short, and the socket's buffer empty: it is taken at once, or not missed.
void Greeting::tell(const Error& why) {
  if (tls_ != nullptr && tls_->peer_in_clear()) {
    const auto bytes = refusal(
        Error(ErrorCode::kAuthentication, "this listener asks for TLS", "Set tls_* settings."));
    ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  } else if (tls_ == nullptr) {
    // Strangers with another protocol get no answer, but those that speak some leat, or TLS, get
    // one.
    if (why.code() == ErrorCode::kProtocol) return;
    stream_->try_write(refusal(why));
  }  // else OpenSSL has sent an alert
  ::shutdown(fd_, SHUT_WR);
  state_ = State::kLeaving;
  events_ = POLLIN;
  deadline_ = deadline_after(kFarewell);
}

// Closing with unread bytes would be a reset, which takes our last words back. Past TLS, if there
// is any: the content does not matter.
void Greeting::drain() {
  std::array<char, 4096> scrap{};
  while (drained_ < kMostDrained && !passed(deadline_)) {
    const ssize_t got = recv(fd_, scrap.data(), scrap.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) break;
    drained_ += static_cast<std::size_t>(got);
  }
  state_ = State::kOver;
}

Heard Greeting::take_heard() { return {std::move(stream_), std::move(hello_)}; }

}  // namespace leat::detail

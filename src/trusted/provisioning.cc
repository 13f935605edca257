#include "trusted/provisioning.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/system_error.h"
#include "conn/wire.h"
#include "leat/error.h"

namespace leat::trusted::detail {
namespace {

constexpr std::uint32_t kMagic = 0x7061'746c;  // "ltap"
constexpr std::uint8_t kVersion = 1;
constexpr std::size_t kHeadBytes = 8;
constexpr auto kLastVerdict = static_cast<std::uint8_t>(Verdict::kUnavailable);

// Bytes of a body; what follows is zero.
std::size_t body_bytes(FrameType type) {
  switch (type) {
    case FrameType::kBegin:
      return 4 + 8;
    case FrameType::kProvision:
      return 4 + 4 + 4 + kMaxKeyBytes;
    case FrameType::kEnable:
      return 8;
    case FrameType::kAnswer:
      return 1;
  }
  return 0;
}

}  // namespace

Frame encode(const Order& order) noexcept {
  Frame frame{};
  leat::detail::WireWriter writer(frame);
  writer.number(kMagic);
  writer.number(kVersion);
  writer.number(static_cast<std::uint8_t>(order.type));
  writer.number(std::uint16_t{0});
  const Session& session = order.session;
  // A key that is too long does not fit, and is refused as none.
  const auto key = session.key.first(session.key.size() <= kMaxKeyBytes ? session.key.size() : 0);
  switch (order.type) {
    case FrameType::kBegin:
      writer.number(order.device);
      writer.number(order.epoch);
      break;
    case FrameType::kProvision:
      writer.number(session.id);
      writer.number(static_cast<std::uint8_t>(session.role));
      writer.number(static_cast<std::uint8_t>(session.algorithm));
      writer.number(session.streams);
      writer.number(static_cast<std::uint8_t>(key.size()));
      writer.number(session.peer);
      writer.bytes(key, kMaxKeyBytes);
      break;
    case FrameType::kEnable:
      writer.number(order.epoch);
      break;
    case FrameType::kAnswer:
      writer.number(static_cast<std::uint8_t>(order.verdict));
      break;
  }
  return frame;
}

std::optional<Order> decode(std::span<const std::byte> frame) noexcept {
  if (frame.size() != kFrameBytes) return std::nullopt;
  leat::detail::WireReader reader(frame);
  if (reader.number<std::uint32_t>() != kMagic || reader.number<std::uint8_t>() != kVersion)
    return std::nullopt;
  Order order;
  order.type = static_cast<FrameType>(reader.number<std::uint8_t>());
  if (reader.number<std::uint16_t>() != 0) return std::nullopt;
  Session& session = order.session;
  switch (order.type) {
    case FrameType::kBegin:
      order.device = reader.number<std::uint32_t>();
      order.epoch = reader.number<std::uint64_t>();
      break;
    case FrameType::kProvision: {
      session.id = reader.number<std::uint32_t>();
      session.role = static_cast<Role>(reader.number<std::uint8_t>());
      session.algorithm = static_cast<Algorithm>(reader.number<std::uint8_t>());
      session.streams = reader.number<std::uint8_t>();
      const std::size_t key_bytes = reader.number<std::uint8_t>();
      session.peer = reader.number<std::uint32_t>();
      if (key_bytes > kMaxKeyBytes) return std::nullopt;
      session.key = reader.bytes(key_bytes);
      if (!reader.zeros(kMaxKeyBytes - key_bytes)) return std::nullopt;
      break;
    }
    case FrameType::kEnable:
      order.epoch = reader.number<std::uint64_t>();
      break;
    case FrameType::kAnswer: {
      const auto verdict = reader.number<std::uint8_t>();
      if (verdict > kLastVerdict) return std::nullopt;
      order.verdict = static_cast<Verdict>(verdict);
      break;
    }
    default:
      return std::nullopt;
  }
  if (!reader.zeros(kFrameBytes - kHeadBytes - body_bytes(order.type))) return std::nullopt;
  return order;
}

// --- the controller's side

Verdict Provisioner::begin(std::uint32_t device, std::uint64_t epoch,
                           leat::detail::Deadline deadline) {
  return ask({.type = FrameType::kBegin, .device = device, .epoch = epoch}, deadline);
}

Verdict Provisioner::provision(const Session& session, leat::detail::Deadline deadline) {
  return ask({.type = FrameType::kProvision, .session = session}, deadline);
}

Verdict Provisioner::enable(std::uint64_t epoch, leat::detail::Deadline deadline) {
  return ask({.type = FrameType::kEnable, .epoch = epoch}, deadline);
}

Verdict Provisioner::ask(const Order& order, leat::detail::Deadline deadline) {
  const auto wait_for = [&](short events) {
    pollfd waited{socket_.get(), events, 0};
    for (;;) {
      const int ready = poll(&waited, 1, leat::detail::poll_timeout_ms(deadline));
      if (ready > 0) return;
      if (ready < 0 && errno != EINTR) throw leat::detail::system_error("poll", errno);
      if (leat::detail::passed(deadline))
        throw Error(ErrorCode::kTimeout, "the attestation kernel does not answer");
    }
  };
  Frame frame = encode(order);
  wait_for(POLLOUT);
  const ssize_t sent = send(socket_.get(), frame.data(), frame.size(), MSG_NOSIGNAL);
  const int send_errno = errno;
  explicit_bzero(frame.data(), frame.size());
  if (sent != static_cast<ssize_t>(kFrameBytes))
    throw leat::detail::system_error("send to the attestation kernel", send_errno);
  wait_for(POLLIN);
  const ssize_t got = leat::detail::check(
      static_cast<int>(recv(socket_.get(), frame.data(), frame.size(), MSG_TRUNC)), "recv");
  if (got == 0) throw Error(ErrorCode::kPeerDied, "the attestation kernel has ended");
  const auto answer = static_cast<std::size_t>(got) == frame.size() ? decode(frame) : std::nullopt;
  if (!answer || answer->type != FrameType::kAnswer)
    throw Error(ErrorCode::kProtocol, "the attestation kernel's answer makes no sense");
  return answer->verdict;
}

// --- the kernel's side

Frame Provisioned::answer(std::span<const std::byte> frame) noexcept {
  Verdict verdict = Verdict::kFormat;
  try {
    if (const auto order = decode(frame)) verdict = obey(*order);
  } catch (const std::exception&) {
    verdict = Verdict::kUnavailable;
  }
  return encode({.type = FrameType::kAnswer, .verdict = verdict});
}

Verdict Provisioned::obey(const Order& order) {
  switch (order.type) {
    case FrameType::kBegin:
      if (kernel_) return Verdict::kSealed;
      if (order.device == 0) return Verdict::kBadSession;
      if (order.epoch <= last_epoch_) return Verdict::kEpochReused;
      remember_(order.epoch);
      kernel_ = std::make_shared<LocalKernel>(order.device, order.epoch, last_epoch_);
      return Verdict::kOk;
    case FrameType::kProvision:
      return kernel_ ? kernel_->provision(order.session) : Verdict::kNotEnabled;
    case FrameType::kEnable: {
      if (!kernel_) return Verdict::kNotEnabled;
      if (order.epoch != kernel_->epoch()) return Verdict::kEpoch;
      const Verdict verdict = kernel_->enable();
      enabled_ = enabled_ || verdict == Verdict::kOk;
      return verdict;
    }
    case FrameType::kAnswer:
      break;
  }
  return Verdict::kFormat;
}

}  // namespace leat::trusted::detail

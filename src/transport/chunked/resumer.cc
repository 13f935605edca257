#include "transport/chunked/resumer.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <thread>

#include "leat/error.h"
#include "net/tcp.h"

namespace leat::detail {
namespace {

// One attempt to connect; the next one follows, until the deadline.
constexpr std::chrono::seconds kAttempt{4};
constexpr std::chrono::milliseconds kPause{50};

enum Kind : std::uint32_t { kResume = 1, kOffer, kResult };

}  // namespace

// As it crosses the stream. Every attempt has the same frames in the same order on both sides:
// both say kResume, the listener kOffer, both kResult. So both always know where the other is.
struct Resumer::Frame {
  static constexpr std::uint32_t kMagic = 0x6d736572;  // "resm"

  std::uint32_t magic = kMagic;
  std::uint32_t kind = kResume;
  std::uint32_t attempt = 0;
  std::uint32_t failed = 0;    // kOffer, kResult: this side has no queue pair
  std::uint64_t arrivals = 0;  // kResume
  std::uint32_t bytes = 0;     // kOffer: of the blob
  std::uint32_t reserved = 0;
  std::array<std::byte, kMaxOfferBytes> blob{};
};
static_assert(std::endian::native == std::endian::little);

bool Resumer::wanted() const noexcept {
  std::byte one{};
  return ::recv(stream_.fd(), &one, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

void Resumer::send(const Frame& frame, Deadline deadline) {
  write_all(stream_, std::as_bytes(std::span(&frame, 1)), deadline);
}

Resumer::Frame Resumer::receive(std::uint32_t kind, Deadline deadline) {
  Frame frame;
  read_all(stream_, std::as_writable_bytes(std::span(&frame, 1)), deadline);
  if (frame.magic != Frame::kMagic || frame.kind != kind || frame.attempt != attempt_ ||
      frame.failed > 1 || frame.bytes > frame.blob.size())
    throw Error(ErrorCode::kProtocol, "the peer said nonsense while resuming");
  return frame;
}

std::unique_ptr<QueuePair> Resumer::offer(Device& device, Deadline deadline, std::string& why_not) {
  std::unique_ptr<Offer> offer;
  Frame frame;
  frame.kind = kOffer;
  frame.attempt = attempt_;
  try {
    offer = device.offer(depths_, local_host(stream_.fd()));
    const std::vector<std::byte> blob = offer->blob();
    frame.bytes = static_cast<std::uint32_t>(blob.size());
    std::copy(blob.begin(), blob.end(), frame.blob.begin());
  } catch (const Error& error) {
    why_not = error.what();
    frame.failed = 1;
  }
  send(frame, deadline);
  if (!offer) return nullptr;
  try {
    // The peer's word that it could not come ends the wait.
    return offer->accept(std::min(deadline, deadline_after(kAttempt)), stream_.fd());
  } catch (const Error& error) {
    why_not = error.what();
    return nullptr;
  }
}

std::unique_ptr<QueuePair> Resumer::connect(Device& device, Deadline deadline,
                                            std::string& why_not) {
  const Frame frame = receive(kOffer, deadline);
  if (frame.failed != 0) return nullptr;
  try {
    return device.connect(std::span(frame.blob).first(frame.bytes), depths_,
                          std::min(deadline, deadline_after(kAttempt)));
  } catch (const Error& error) {
    why_not = error.what();
    return nullptr;
  }
}

Resumer::Outcome Resumer::run(Device& device, std::uint64_t arrivals, std::size_t receives,
                              Deadline deadline) {
  std::string why_not = "no answer";
  try {
    for (;;) {
      ++attempt_;
      Frame resume;
      resume.attempt = attempt_;
      resume.arrivals = arrivals;
      send(resume, deadline);
      const Frame peers = receive(kResume, deadline);
      Outcome outcome;
      outcome.peer_arrivals = peers.arrivals;
      outcome.queue_pair =
          active_ ? connect(device, deadline, why_not) : offer(device, deadline, why_not);
      // Before our result: only after that the peer sends.
      if (outcome.queue_pair != nullptr &&
          outcome.queue_pair->post_receives(receives) != receives) {
        why_not = "its receives cannot be posted";
        outcome.queue_pair.reset();
      }
      Frame result;
      result.kind = kResult;
      result.attempt = attempt_;
      result.failed = outcome.queue_pair == nullptr ? 1 : 0;
      // A failure at once, as the listener waits for us; else when the listener has come to its
      // end, because a word on the stream would end its wait.
      if (!active_ || result.failed != 0) send(result, deadline);
      const Frame peers_result = receive(kResult, deadline);
      if (active_ && result.failed == 0) send(result, deadline);
      if (result.failed == 0 && peers_result.failed == 0) return outcome;
      outcome.queue_pair.reset();
      if (passed(deadline)) throw Error(ErrorCode::kTimeout, "the deadline has passed");
      std::this_thread::sleep_for(kPause);
    }
  } catch (const Error& error) {
    throw Error(error.code(), std::string(error.what()) + " (the last attempt: " + why_not + ")",
                {}, error.system_errno());
  }
}

}  // namespace leat::detail

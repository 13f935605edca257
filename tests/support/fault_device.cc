#include "support/fault_device.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <mutex>
#include <ostream>
#include <random>
#include <vector>

#include "support/device_event.h"

namespace leat::detail {
namespace {

constexpr std::size_t kHardwareInlineBytes = 64;
constexpr std::size_t kPayloadBytes = 64;
constexpr unsigned kMaxRefusals = 3;  // in a row

// Completions on their way from the inner queue pair to the user.
class Delayed {
 public:
  struct Held {
    Completion completion;
    unsigned polls_left;
    std::array<std::byte, kPayloadBytes> payload;
  };

  bool empty() const { return held_.empty(); }
  void push(const Completion& completion, unsigned polls) {
    Held& held = held_.emplace_back(Held{completion, polls, {}});
    if (completion.payload == nullptr) return;
    std::memcpy(held.payload.data(), completion.payload,
                std::min(completion.bytes, held.payload.size()));
    if (completion.bytes > held.payload.size()) held.completion.payload = nullptr;
  }
  // One poll: hands out the oldest if its time has come.
  std::size_t pop(std::span<Completion> completions) {
    if (held_.empty() || completions.empty()) return 0;
    if (held_.front().polls_left != 0) {
      --held_.front().polls_left;
      return 0;
    }
    out_ = held_.front();
    held_.pop_front();
    completions[0] = out_.completion;
    if (completions[0].payload != nullptr) completions[0].payload = out_.payload.data();
    return 1;
  }

 private:
  std::deque<Held> held_;
  Held out_{};  // keeps the payload until the next poll
};

// One lock around everything: a test device may hide races, the devices themselves are tested bare.
class FaultQueuePair final : public QueuePair {
 public:
  FaultQueuePair(std::unique_ptr<QueuePair> inner, const FaultProfile& profile)
      : inner_(std::move(inner)), profile_(profile), random_(profile.seed) {
    for (const Side side : {Side::kSend, Side::kReceive}) {
      event(side).add(inner_->event_fd(side));
    }
  }

  std::size_t post_send(std::span<const SendRequest> requests) override {
    const std::lock_guard lock(mutex_);
    if (inner_ != nullptr && refuse()) return 0;
    std::size_t accepted = 0;
    while (accepted < requests.size() && post_one(requests[accepted])) ++accepted;
    return accepted;
  }

  std::size_t post_receives(std::size_t count) override {
    const std::lock_guard lock(mutex_);
    const std::size_t accepted = inner_ == nullptr ? count : inner_->post_receives(count);
    receives_ += accepted;
    if (inner_ == nullptr) flush_receives();
    return accepted;
  }

  std::size_t poll_sends(std::span<Completion> completions) override {
    const std::lock_guard lock(mutex_);
    take_send_completions();
    return hand_out(Side::kSend, done_sends_, completions);
  }

  std::size_t poll_receives(std::span<Completion> completions) override {
    const std::lock_guard lock(mutex_);
    Completion completion;
    while (inner_ != nullptr && inner_->poll_receives({&completion, 1}) == 1) {
      if (profile_.like_hardware) completion.payload = nullptr;
      if (++receives_done_ == profile_.flushed_receive) {
        break_down();
        break;
      }
      --receives_;
      done_receives_.push(completion, delay());
    }
    return hand_out(Side::kReceive, done_receives_, completions);
  }

  void arm(Side side) override {
    const std::lock_guard lock(mutex_);
    event(side).lower();
    const Delayed& done = side == Side::kSend ? done_sends_ : done_receives_;
    if (!done.empty() || refusals_ != 0 || inner_ == nullptr) event(side).raise();
    if (inner_ != nullptr) inner_->arm(side);
  }
  int event_fd(Side side) const override { return events_[side == Side::kSend ? 0 : 1].fd(); }

  std::byte* peer_memory(const RemoteRegion& part) override {
    const std::lock_guard lock(mutex_);
    // What the inner queue pair maps goes with it when this one breaks down.
    const bool will_break = profile_.failing_request != 0 || profile_.flushed_receive != 0;
    if (inner_ == nullptr || will_break || profile_.like_hardware) return nullptr;
    return inner_->peer_memory(part);
  }

  std::uint64_t rnr_retries() const override {
    return inner_ == nullptr ? 0 : inner_->rnr_retries();
  }
  std::string describe() const override { return "a device with faults"; }

 private:
  struct Sent {
    std::uint64_t id;
    bool signaled;
  };

  DeviceEvent& event(Side side) { return events_[side == Side::kSend ? 0 : 1]; }
  unsigned delay() {
    return profile_.max_delay_polls == 0
               ? 0
               : static_cast<unsigned>(random_() % (profile_.max_delay_polls + 1));
  }
  // Whether to take nothing although there is room.
  bool refuse() {
    if (!profile_.short_acceptance || refusals_ == kMaxRefusals || random_() % 2 == 0) {
      refusals_ = 0;
      return false;
    }
    ++refusals_;
    return true;
  }

  bool post_one(const SendRequest& request) {
    if (inner_ == nullptr) {
      done_sends_.push({.id = request.id, .status = CompletionStatus::kFlushed}, 0);
      return true;
    }
    if (profile_.failing_request != 0 && requests_posted_ + 1 == profile_.failing_request) {
      ++requests_posted_;
      sends_.push_back({request.id, true});
      break_down();
      return true;
    }
    const std::uint64_t number = requests_posted_ + 1;
    const bool flip =
        profile_.flipped_request != 0 && number >= profile_.flipped_request && request.bytes != 0;
    if (!(flip ? post_flipped(request) : inner_->post_send({&request, 1}) == 1)) return false;
    ++requests_posted_;
    sends_.push_back({request.id, request.signaled});
    if (profile_.replayed_request != 0 && number >= profile_.replayed_request) replay(request);
    return true;
  }

  bool post_flipped(SendRequest request) {
    std::vector<std::byte> copy;
    auto* payload = static_cast<std::byte*>(request.local);
    if (request.inlined) {
      copy.assign(payload, payload + request.bytes);
      request.local = payload = copy.data();
    }
    payload[random_() % request.bytes] ^= static_cast<std::byte>(1u << random_() % 8);
    if (inner_->post_send({&request, 1}) == 0) return false;
    profile_.flipped_request = 0;
    return true;
  }

  void replay(SendRequest request) {
    request.signaled = false;
    if (inner_->post_send({&request, 1}) == 1) profile_.replayed_request = 0;
  }

  // Completions come in post order; unsignaled requests before this one are done as well.
  void forget_sends_up_to(std::uint64_t id) {
    while (!sends_.empty()) {
      const Sent sent = sends_.front();
      sends_.pop_front();
      if (sent.signaled && sent.id == id) return;
    }
  }

  // The peer sees our end vanish. What is not known to be done fails, the first with the reason; it
  // may have run nevertheless, as when only its acknowledgement is lost.
  void break_down() {
    take_send_completions();
    inner_.reset();
    CompletionStatus status = profile_.failure;
    for (const Sent& sent : sends_) {
      done_sends_.push({.id = sent.id, .status = status}, delay());
      status = CompletionStatus::kFlushed;
    }
    sends_.clear();
    flush_receives();
    for (DeviceEvent& each : events_) each.raise();
  }

  void take_send_completions() {
    Completion completion;
    while (inner_ != nullptr && inner_->poll_sends({&completion, 1}) == 1) {
      forget_sends_up_to(completion.id);
      done_sends_.push(completion, delay());
    }
  }

  void flush_receives() {
    for (; receives_ != 0; --receives_)
      done_receives_.push(
          {.status = CompletionStatus::kFlushed, .kind = CompletionKind::kImmediate}, 0);
  }

  std::size_t hand_out(Side side, Delayed& done, std::span<Completion> completions) {
    const std::size_t count = done.pop(completions);
    if (!done.empty()) event(side).raise();  // its user may be about to sleep
    return count;
  }

  std::mutex mutex_;
  std::unique_ptr<QueuePair> inner_;  // null: broken down
  FaultProfile profile_;
  std::mt19937_64 random_;
  std::array<DeviceEvent, 2> events_;
  Delayed done_sends_;
  Delayed done_receives_;
  std::deque<Sent> sends_;
  std::size_t receives_ = 0;
  std::uint64_t requests_posted_ = 0;
  std::uint64_t receives_done_ = 0;
  unsigned refusals_ = 0;
};

class FaultOffer final : public Offer {
 public:
  FaultOffer(std::unique_ptr<Offer> inner, const FaultProfile& profile)
      : inner_(std::move(inner)), profile_(profile) {}

  std::vector<std::byte> blob() const override { return inner_->blob(); }
  std::unique_ptr<QueuePair> accept(Deadline deadline, int lifeline) override {
    return std::make_unique<FaultQueuePair>(inner_->accept(deadline, lifeline), profile_);
  }

 private:
  std::unique_ptr<Offer> inner_;
  FaultProfile profile_;
};

class FaultDevice final : public Device {
 public:
  FaultDevice(std::unique_ptr<Device> inner, const FaultProfile& profile)
      : inner_(std::move(inner)), profile_(profile) {}

  const DeviceInfo& info() const override { return inner_->info(); }
  Limits limits() const override {
    Limits limits = inner_->limits();
    limits.shares_memory = false;  // what is done by no request cannot go wrong
    if (profile_.like_hardware) {
      limits.max_inline_bytes = std::min(limits.max_inline_bytes, kHardwareInlineBytes);
    }
    return limits;
  }
  std::unique_ptr<MemoryRegion> allocate(std::size_t bytes, unsigned access) override {
    return inner_->allocate(bytes, access);
  }
  std::unique_ptr<Offer> offer(const QueueDepths& depths,
                               const std::string& local_address) override {
    return std::make_unique<FaultOffer>(inner_->offer(depths, local_address), profile_);
  }
  std::unique_ptr<QueuePair> connect(std::span<const std::byte> blob, const QueueDepths& depths,
                                     Deadline deadline) override {
    return std::make_unique<FaultQueuePair>(inner_->connect(blob, depths, deadline), profile_);
  }

 private:
  std::unique_ptr<Device> inner_;
  FaultProfile profile_;
};

}  // namespace

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

std::unique_ptr<Device> make_fault_device(std::unique_ptr<Device> device,
                                          const FaultProfile& profile) {
  return std::make_unique<FaultDevice>(std::move(device), profile);
}

}  // namespace leat::detail

#include "support/late_device.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "support/device_event.h"
#include "support/late_order.h"

namespace leat::detail {
namespace {

constexpr std::size_t kMostPieces = 64;
constexpr std::size_t kScratchBytes = std::size_t{64} << 10;

// Which memory of this device requests may name.
class LocalRegions {
 public:
  void add(std::uint32_t key, std::span<std::byte> memory) {
    const std::lock_guard lock(mutex_);
    regions_[key] = memory;
  }
  void remove(std::uint32_t key) {
    const std::lock_guard lock(mutex_);
    regions_.erase(key);
  }
  bool holds(const SendRequest& request) const {
    const std::lock_guard lock(mutex_);
    const auto found = regions_.find(request.local_key);
    if (found == regions_.end()) return false;
    const auto* local = static_cast<const std::byte*>(request.local);
    const auto offset = static_cast<std::size_t>(local - found->second.data());
    return offset <= found->second.size() && request.bytes <= found->second.size() - offset;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::uint32_t, std::span<std::byte>> regions_;
};

class LateRegion final : public MemoryRegion {
 public:
  LateRegion(std::unique_ptr<MemoryRegion> inner, std::shared_ptr<LocalRegions> regions)
      : inner_(std::move(inner)), regions_(std::move(regions)) {
    regions_->add(inner_->local_key(), inner_->memory());
  }
  ~LateRegion() override { regions_->remove(inner_->local_key()); }
  LateRegion(const LateRegion&) = delete;
  LateRegion& operator=(const LateRegion&) = delete;

  std::span<std::byte> memory() const override { return inner_->memory(); }
  std::uint32_t local_key() const override { return inner_->local_key(); }
  RemoteRegion remote() const override { return inner_->remote(); }
  void prepare(std::size_t offset, std::size_t bytes) noexcept override {
    inner_->prepare(offset, bytes);
  }

 private:
  std::unique_ptr<MemoryRegion> inner_;
  std::shared_ptr<LocalRegions> regions_;
};

// The send side is behind one lock: its thread and those of its user. The receive side is the inner
// queue pair's.
class LateQueuePair final : public QueuePair, private LateOrder::Effects {
 public:
  LateQueuePair(std::unique_ptr<QueuePair> inner, std::unique_ptr<MemoryRegion> scratch,
                std::shared_ptr<LocalRegions> regions, const LateProfile& profile,
                std::size_t depth)
      : inner_(std::move(inner)),
        scratch_(std::move(scratch)),
        regions_(std::move(regions)),
        max_inline_bytes_(profile.max_inline_bytes),
        immediates_(profile.immediates),
        depth_(depth),
        random_(profile.seed),
        order_(profile.seed + 1, *this, {.completes_early = false, .most_pieces = kMostPieces}) {
    event_.add(inner_->event_fd(Side::kSend));
    thread_ = std::thread([this] { go_on(); });
  }
  ~LateQueuePair() override {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  LateQueuePair(const LateQueuePair&) = delete;
  LateQueuePair& operator=(const LateQueuePair&) = delete;

  std::size_t post_send(std::span<const SendRequest> requests) override {
    const std::lock_guard lock(mutex_);
    std::size_t accepted = 0;
    for (const SendRequest& request : requests) {
      if (failed_) {
        done_.push_back({.id = request.id, .status = CompletionStatus::kFlushed});
        event_.raise();
      } else {
        if (order_.uncompleted() + done_.size() >= depth_) break;
        if (request.inlined && request.bytes > max_inline_bytes_)
          throw std::logic_error("more bytes inlined than max_inline_bytes");
        if (request.opcode == Opcode::kWriteWithImmediate && !immediates_)
          throw std::logic_error("an immediate on a device that has none");
        order_.post(request, is_good(request));
      }
      ++accepted;
    }
    step(random_() % 4);
    wake_.notify_all();
    return accepted;
  }

  std::size_t poll_sends(std::span<Completion> completions) override {
    const std::lock_guard lock(mutex_);
    step(random_() % 8);
    look_at_inner();
    std::size_t count = 0;
    for (; count < completions.size() && !done_.empty() && random_() % 3 != 0; ++count) {
      completions[count] = done_.front();
      done_.pop_front();
    }
    if (!done_.empty()) event_.raise();
    return count;
  }

  std::size_t post_receives(std::size_t count) override { return inner_->post_receives(count); }
  std::size_t poll_receives(std::span<Completion> completions) override {
    const std::size_t count = inner_->poll_receives(completions);
    for (Completion& completion : completions.first(count)) completion.payload = nullptr;
    return count;
  }

  void arm(Side side) override {
    if (side == Side::kReceive) return inner_->arm(side);
    const std::lock_guard lock(mutex_);
    event_.lower();
    inner_->arm(side);
    if (!done_.empty()) event_.raise();
  }
  int event_fd(Side side) const override {
    return side == Side::kSend ? event_.fd() : inner_->event_fd(side);
  }
  std::byte* peer_memory(const RemoteRegion&) override { return nullptr; }
  std::uint64_t rnr_retries() const override { return inner_->rnr_retries(); }
  std::string describe() const override { return "a late device on " + inner_->describe(); }

 private:
  // One that is not is left to the inner queue pair to refuse, as a whole: it may touch nothing.
  bool is_good(const SendRequest& request) {
    if (request.bytes == 0) return request.opcode == Opcode::kWriteWithImmediate;
    if (!(request.inlined && request.opcode != Opcode::kRead) && !regions_->holds(request))
      return false;
    return request.opcode == Opcode::kRead || at_peer(request) != nullptr;
  }
  std::byte* at_peer(const SendRequest& request) {
    return inner_->peer_memory({request.remote_address, request.bytes, request.remote_key});
  }

  // --- the thread
  void go_on() {
    std::unique_lock lock(mutex_);
    while (!stopped_) {
      if (order_.idle()) {
        wake_.wait(lock);
        continue;
      }
      step(1 + random_() % 64);
      const auto nap = std::chrono::microseconds(random_() % 8 == 0 ? random_() % 200 : 0);
      lock.unlock();
      if (nap.count() != 0) {
        std::this_thread::sleep_for(nap);
      } else {
        std::this_thread::yield();
      }
      lock.lock();
    }
  }

  // --- under the lock
  void step(std::size_t count) {
    for (; count != 0 && !failed_; --count) {
      order_.step();
      if (failure_ != CompletionStatus::kSuccess) break_down();
    }
  }

  void break_down() {
    failed_ = true;
    for (const SendRequest& request : order_.break_down(true)) {
      done_.push_back({.id = request.id, .status = failure_});
      failure_ = CompletionStatus::kFlushed;
    }
    event_.raise();
  }

  // The peer's end shows there too.
  void look_at_inner() {
    Completion completion;
    while (inner_->poll_sends({&completion, 1}) == 1) {
    }
  }

  // True: it was accepted; it has run by then.
  bool run(LateWork& work, SendRequest request) {
    request.signaled = true;
    if (inner_->post_send({&request, 1}) == 0) return false;
    Completion completion;
    while (inner_->poll_sends({&completion, 1}) == 0) {
    }
    if (completion.status != CompletionStatus::kSuccess) {
      work.failed = true;
      if (failure_ == CompletionStatus::kSuccess) failure_ = completion.status;
    }
    return true;
  }

  void run_surely(LateWork& work, const SendRequest& request) {
    while (!run(work, request)) std::this_thread::yield();
  }

  // --- LateOrder::Effects
  void write(LateWork& work, const LateWork::Piece& piece) override {
    if (failure_ != CompletionStatus::kSuccess) return;
    SendRequest request = work.request;
    request.opcode = Opcode::kWrite;
    request.local = const_cast<std::byte*>(work.source()) + piece.at;
    request.bytes = piece.bytes;
    request.remote_address += piece.at;
    run_surely(work, request);
  }

  void take(LateWork& work, const LateWork::Piece& piece) override {
    if (failure_ != CompletionStatus::kSuccess) return;
    if (!work.in_pieces) return run_surely(work, work.request);
    const std::span<std::byte> scratch = scratch_->memory();
    for (std::size_t done = 0; done < piece.bytes && !work.failed;) {
      SendRequest request = work.request;
      request.local = scratch.data();
      request.local_key = scratch_->local_key();
      request.bytes = std::min(piece.bytes - done, scratch.size());
      request.remote_address += piece.at + done;
      run_surely(work, request);
      std::memcpy(work.bytes.data() + piece.at + done, scratch.data(), request.bytes);
      done += request.bytes;
    }
  }

  bool announce(LateWork& work) override {
    if (failure_ != CompletionStatus::kSuccess) return false;
    SendRequest request = work.request;
    if (request.opcode == Opcode::kWriteWithImmediate && work.in_pieces && request.bytes != 0) {
      // Its bytes are there.
      request.local = at_peer(request);
      request.inlined = true;
      if (request.local == nullptr) {
        work.failed = true;
        failure_ = CompletionStatus::kRemoteAccess;
        return true;
      }
    } else {
      request.local = const_cast<std::byte*>(work.source());
    }
    return run(work, request);
  }

  void complete(LateWork& work) override {
    if (work.request.signaled)
      done_.push_back({.id = work.request.id, .bytes = work.request.bytes});
    event_.raise();  // for its room too
  }

  const std::unique_ptr<QueuePair> inner_;
  const std::unique_ptr<MemoryRegion> scratch_;  // for what reads take
  const std::shared_ptr<LocalRegions> regions_;
  const std::size_t max_inline_bytes_;
  const bool immediates_;
  const std::size_t depth_;
  DeviceEvent event_;  // of the send side

  std::mutex mutex_;
  std::condition_variable wake_;
  std::mt19937_64 random_;
  LateOrder order_;
  std::deque<Completion> done_;
  CompletionStatus failure_ = CompletionStatus::kSuccess;
  bool failed_ = false;
  bool stopped_ = false;
  std::thread thread_;
};

class LateDevice final : public Device {
 public:
  LateDevice(std::unique_ptr<Device> inner, const LateProfile& profile)
      : inner_(std::move(inner)), profile_(profile) {}

  const DeviceInfo& info() const override { return inner_->info(); }
  Limits limits() const override {
    Limits limits = inner_->limits();
    limits.shares_memory = false;
    limits.immediates = profile_.immediates;
    limits.max_inline_bytes = std::min(limits.max_inline_bytes, profile_.max_inline_bytes);
    limits.max_send_requests = std::min(limits.max_send_requests, profile_.max_send_requests);
    limits.max_receive_requests =
        std::min(limits.max_receive_requests, profile_.max_receive_requests);
    return limits;
  }
  std::unique_ptr<MemoryRegion> allocate(std::size_t bytes, unsigned access) override {
    return std::make_unique<LateRegion>(inner_->allocate(bytes, access), regions_);
  }
  std::unique_ptr<MemoryRegion> register_local(std::span<std::byte> memory) override {
    return std::make_unique<LateRegion>(inner_->register_local(memory), regions_);
  }
  std::unique_ptr<Offer> offer(const QueueDepths& depths,
                               const std::string& local_address) override {
    return std::make_unique<LateOffer>(*this, inner_->offer(fitting(depths), local_address),
                                       fitting(depths));
  }
  std::unique_ptr<QueuePair> connect(std::span<const std::byte> blob, const QueueDepths& depths,
                                     Deadline deadline) override {
    return wrap(inner_->connect(blob, fitting(depths), deadline), fitting(depths));
  }

 private:
  class LateOffer final : public Offer {
   public:
    LateOffer(LateDevice& device, std::unique_ptr<Offer> inner, const QueueDepths& depths)
        : device_(device), inner_(std::move(inner)), depths_(depths) {}
    std::vector<std::byte> blob() const override { return inner_->blob(); }
    std::unique_ptr<QueuePair> accept(Deadline deadline, int lifeline) override {
      return device_.wrap(inner_->accept(deadline, lifeline), depths_);
    }

   private:
    LateDevice& device_;
    std::unique_ptr<Offer> inner_;
    QueueDepths depths_;
  };

  QueueDepths fitting(const QueueDepths& depths) const {
    const Limits most = limits();
    return {std::clamp<std::size_t>(depths.send_requests, 1, most.max_send_requests),
            std::clamp<std::size_t>(depths.receive_requests, 1, most.max_receive_requests)};
  }
  std::unique_ptr<QueuePair> wrap(std::unique_ptr<QueuePair> inner, const QueueDepths& depths) {
    LateProfile profile = profile_;
    profile.seed += 100 * ++queue_pairs_;
    return std::make_unique<LateQueuePair>(std::move(inner),
                                           inner_->allocate(kScratchBytes, kLocalOnly), regions_,
                                           profile, depths.send_requests);
  }

  std::unique_ptr<Device> inner_;
  const LateProfile profile_;
  std::shared_ptr<LocalRegions> regions_ = std::make_shared<LocalRegions>();
  std::uint64_t queue_pairs_ = 0;
};

}  // namespace

std::unique_ptr<Device> make_late_device(std::unique_ptr<Device> device,
                                         const LateProfile& profile) {
  return std::make_unique<LateDevice>(std::move(device), profile);
}

}  // namespace leat::detail

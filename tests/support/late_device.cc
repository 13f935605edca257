#include "support/late_device.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "support/device_event.h"
#include "support/late_order.h"
#include "verbs/shared_copy.h"

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
    return use(request, [] {});
  }
  // While `call` runs it does not go. False: it has gone.
  bool use(const SendRequest& request, const std::function<void()>& call) const {
    const std::lock_guard lock(mutex_);
    if (!is_held(request)) return false;
    call();
    return true;
  }

 private:
  bool is_held(const SendRequest& request) const {
    const auto found = regions_.find(request.local_key);
    if (found == regions_.end()) return false;
    const auto* local = static_cast<const std::byte*>(request.local);
    const auto offset = static_cast<std::size_t>(local - found->second.data());
    return offset <= found->second.size() && request.bytes <= found->second.size() - offset;
  }

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

// Hands out some of them, and perhaps none yet.
std::size_t hand_out(std::deque<Completion>& from, std::span<Completion> to,
                     std::mt19937_64& random) {
  std::size_t count = 0;
  for (; count < to.size() && !from.empty() && random() % 3 != 0; ++count) {
    to[count] = from.front();
    from.pop_front();
  }
  return count;
}

// Each side is behind a lock: of the send side for its thread and those of its user, of the receive
// side for both threads of a channel, as transport confirm-each polls in both.
class LateQueuePair final : public QueuePair, private LateOrder::Effects {
 public:
  LateQueuePair(std::unique_ptr<QueuePair> inner, std::unique_ptr<MemoryRegion> scratch,
                std::shared_ptr<LocalRegions> regions, const LateProfile& profile,
                const QueueDepths& depths)
      : inner_(std::move(inner)),
        scratch_(std::move(scratch)),
        regions_(std::move(regions)),
        max_inline_bytes_(profile.max_inline_bytes),
        immediates_(profile.immediates),
        depths_(depths),
        random_(profile.seed),
        order_(profile.seed + 1, *this,
               {.completes_early = profile.completes_early, .most_pieces = kMostPieces}),
        receive_random_(profile.seed + 2) {
    event_.add(inner_->event_fd(Side::kSend));
    receive_event_.add(inner_->event_fd(Side::kReceive));
    thread_ = std::thread([this] { go_on(); });
  }
  ~LateQueuePair() override {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    wake_.notify_all();
    thread_.join();
    // What has completed lands before this queue pair is gone. The rest is lost.
    static_cast<void>(order_.break_down(false));
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
        if (order_.uncompleted() + done_.size() >= depths_.send_requests) break;
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
    const std::size_t count = hand_out(done_, completions, random_);
    if (!done_.empty()) event_.raise();
    return count;
  }

  std::size_t post_receives(std::size_t count) override {
    const std::lock_guard lock(receive_mutex_);
    const std::size_t posted =
        inner_->post_receives(std::min(count, depths_.receive_requests - receives_));
    receives_ += posted;
    return posted;
  }
  std::size_t poll_receives(std::span<Completion> completions) override {
    const std::lock_guard lock(receive_mutex_);
    Completion completion;
    while (inner_->poll_receives({&completion, 1}) == 1) {
      completion.payload = nullptr;
      arrived_.push_back(completion);
    }
    const std::size_t count = hand_out(arrived_, completions, receive_random_);
    receives_ -= count;
    if (!arrived_.empty()) receive_event_.raise();
    return count;
  }

  void arm(Side side) override {
    if (side == Side::kSend) {
      const std::lock_guard lock(mutex_);
      arm(side, event_, !done_.empty());
    } else {
      const std::lock_guard lock(receive_mutex_);
      arm(side, receive_event_, !arrived_.empty());
    }
  }
  int event_fd(Side side) const override {
    return side == Side::kSend ? event_.fd() : receive_event_.fd();
  }
  std::byte* peer_memory(const RemoteRegion&) override { return nullptr; }
  std::uint64_t rnr_retries() const override { return inner_->rnr_retries(); }
  std::string describe() const override { return "a late device on " + inner_->describe(); }

 private:
  void arm(Side side, DeviceEvent& event, bool more) {
    event.lower();
    inner_->arm(side);
    if (more) event.raise();
  }

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
      // Without cause, which is allowed.
      if (random_() % 32 == 0) event_.raise();
      if (random_() % 32 == 0) receive_event_.raise();
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
    if (completion.status != CompletionStatus::kSuccess) fail(work, completion.status);
    return true;
  }
  void fail(LateWork& work, CompletionStatus status) {
    work.failed = true;
    if (failure_ == CompletionStatus::kSuccess) failure_ = status;
  }

  void run_surely(LateWork& work, const SendRequest& request) {
    while (!run(work, request)) std::this_thread::yield();
  }

  // --- LateOrder::Effects
  void write(LateWork& work, const LateWork::Piece& piece) override {
    if (work.completed) return land(work, piece);
    if (failure_ != CompletionStatus::kSuccess) return;
    SendRequest request = work.request;
    request.opcode = Opcode::kWrite;
    request.local = const_cast<std::byte*>(work.source()) + piece.at;
    request.bytes = piece.bytes;
    request.remote_address += piece.at;
    if (piece.bytes == 0 || !work.bytes.empty()) return run_surely(work, request);
    // Its memory may go, but not while the inner queue pair looks at it. If it has gone, or never
    // was memory of this device, the inner one refuses a request that names none, and fails as it
    // should.
    if (use_local(work, [&] { run_surely(work, request); })) return;
    request.local = nullptr;
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

  // Its bytes are at the peer, although they did not show: whether the queue pair fails now, or the
  // peer has destroyed its own, does not matter any more.
  void land(const LateWork& work, const LateWork::Piece& piece) {
    std::byte* target = at_peer(work.request);
    if (target != nullptr)  // else the region has gone
      copy_bytes(target + piece.at, work.source() + piece.at, piece.bytes);
  }

  bool use_local(const LateWork& work, const std::function<void()>& copy) override {
    return regions_->use(work.request, copy);
  }

  // The inner queue pair cannot take one before the immediate comes.
  bool take_receive(LateWork& /*work*/) override { return false; }

  bool announce(LateWork& work) override {
    if (failure_ != CompletionStatus::kSuccess) return false;
    SendRequest request = work.request;
    if (request.opcode == Opcode::kWriteWithImmediate && work.in_pieces && request.bytes != 0) {
      // Its bytes are there.
      request.local = at_peer(request);
      request.inlined = true;
      if (request.local == nullptr) {
        fail(work, CompletionStatus::kRemoteAccess);
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
  const QueueDepths depths_;
  DeviceEvent event_;  // of the send side
  DeviceEvent receive_event_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::mt19937_64 random_;
  LateOrder order_;
  std::deque<Completion> done_;
  CompletionStatus failure_ = CompletionStatus::kSuccess;
  bool failed_ = false;
  bool stopped_ = false;

  std::mutex receive_mutex_;
  std::mt19937_64 receive_random_;
  std::deque<Completion> arrived_;  // and not handed out
  std::size_t receives_ = 0;        // posted, and not handed out

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
    return std::make_unique<LateQueuePair>(
        std::move(inner), inner_->allocate(kScratchBytes, kLocalOnly), regions_, profile, depths);
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

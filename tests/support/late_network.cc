#include "support/late_network.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <new>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "leat/error.h"
#include "support/late_order.h"

namespace leat::detail {
namespace {

constexpr std::size_t kMaxInlineBytes = 64;
constexpr unsigned kKey = 1;  // of every region

// The memory that there is.
using Regions = std::vector<std::span<std::byte>>;

// One end, with what is on its way to the other one.
class End final : public LateOrder::Effects {
 public:
  End(std::uint64_t seed, End* peer, const Regions& regions)
      : order(seed, *this, {}), peer_(peer), regions_(regions) {}
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  void write(LateWork& work, const LateWork::Piece& piece) override {
    // What goes to memory that has gone is lost.
    if (there_is(work)) std::memcpy(remote(work) + piece.at, work.source() + piece.at, piece.bytes);
  }
  void take(LateWork& work, const LateWork::Piece& piece) override {
    if (there_is(work))
      std::memcpy(work.bytes.data() + piece.at, remote(work) + piece.at, piece.bytes);
  }
  bool take_receive(LateWork& /*work*/) override {
    if (peer_->receives == 0) return false;
    --peer_->receives;
    return true;
  }
  bool announce(LateWork& work) override {
    if (!work.has_receive && !take_receive(work)) return false;
    peer_->coming.push_back({.kind = CompletionKind::kImmediate,
                             .immediate = work.request.immediate,
                             .bytes = work.request.bytes});
    return true;
  }
  void complete(LateWork& work) override {
    if (work.request.signaled) done.push_back({.id = work.request.id, .bytes = work.request.bytes});
  }

  void fail(const SendRequest& request, CompletionStatus status) {
    done.push_back({.id = request.id, .status = status});
  }
  void break_down() {
    CompletionStatus status = CompletionStatus::kPeerGone;
    for (const SendRequest& request : order.break_down(false))
      fail(request, std::exchange(status, CompletionStatus::kFlushed));
  }
  // Of what has come, the first.
  void arrive() {
    arrivals.push_back(coming.front());
    coming.pop_front();
  }
  void flush_receives() {
    while (!coming.empty()) arrive();
    for (; receives != 0; --receives)
      arrivals.push_back(
          {.status = CompletionStatus::kFlushed, .kind = CompletionKind::kImmediate});
  }

  bool quiet() const { return order.idle() && coming.empty(); }

  LateOrder order;
  std::deque<Completion> done;
  std::deque<Completion> coming;    // has the bytes here, but does not show yet
  std::deque<Completion> arrivals;  // to be polled
  std::size_t receives = 0;

 private:
  static std::byte* remote(const LateWork& work) {
    return reinterpret_cast<std::byte*>(work.request.remote_address);
  }

  bool there_is(const LateWork& work) const {
    return std::ranges::any_of(regions_, [&](const std::span<std::byte>& region) {
      const auto offset = static_cast<std::size_t>(remote(work) - region.data());
      return offset <= region.size() && work.request.bytes <= region.size() - offset;
    });
  }

  End* peer_;
  const Regions& regions_;
};

}  // namespace

class LateNetwork::State {
 public:
  State(std::uint64_t seed, std::size_t send_depth)
      : random(seed),
        ends{{seed + 1, &ends[1], regions}, {seed + 2, &ends[0], regions}},
        send_depth_(send_depth) {}

  std::size_t post_send(unsigned end, std::span<const SendRequest> requests) {
    End& from = ends[end];
    std::size_t accepted = 0;
    for (const SendRequest& request : requests) {
      if (broken) {
        from.fail(request, CompletionStatus::kFlushed);
      } else {
        if (from.order.uncompleted() == send_depth_) break;
        from.order.post(request);
      }
      ++accepted;
    }
    return accepted;
  }

  void step() {
    End& end = ends[random() & 1];
    if (!end.coming.empty() && !held && chance(3)) return end.arrive();
    end.order.step();
  }
  bool quiet() const { return std::ranges::all_of(ends, &End::quiet); }
  bool wakes(unsigned end) { return !ends[end].arrivals.empty() || (!quiet() && chance(16)); }

  void break_down() {
    if (std::exchange(broken, true)) return;
    for (End& end : ends) end.break_down();
    for (End& end : ends) end.flush_receives();
  }

  bool chance(unsigned one_in) { return random() % one_in == 0; }

  std::mt19937_64 random;
  Regions regions;
  End ends[2];
  bool broken = false;
  bool held = false;  // arrivals

 private:
  const std::size_t send_depth_;
};

class LateNetwork::LateRegion final : public MemoryRegion {
 public:
  LateRegion(State& state, std::size_t bytes)
      : state_(state),
        memory_(static_cast<std::byte*>(std::calloc(bytes, 1)), std::free),
        bytes_(bytes) {
    if (memory_ == nullptr) throw std::bad_alloc();
    state_.regions.push_back(memory());
  }
  ~LateRegion() override {
    std::erase_if(state_.regions, [&](const auto& one) { return one.data() == memory_.get(); });
  }
  LateRegion(const LateRegion&) = delete;
  LateRegion& operator=(const LateRegion&) = delete;
  std::span<std::byte> memory() const override { return {memory_.get(), bytes_}; }
  std::uint32_t local_key() const override { return kKey; }
  RemoteRegion remote() const override {
    return {reinterpret_cast<std::uint64_t>(memory_.get()), bytes_, kKey};
  }

 private:
  State& state_;
  std::unique_ptr<std::byte, decltype(&std::free)> memory_;
  std::size_t bytes_;
};

class LateNetwork::LateQueuePair final : public QueuePair {
 public:
  LateQueuePair(State& state, unsigned end) : state_(state), end_(end) {}
  ~LateQueuePair() override { state_.break_down(); }
  LateQueuePair(const LateQueuePair&) = delete;
  LateQueuePair& operator=(const LateQueuePair&) = delete;

  std::size_t post_send(std::span<const SendRequest> requests) override {
    return state_.post_send(end_, requests);
  }
  std::size_t post_receives(std::size_t count) override {
    End& end = state_.ends[end_];
    end.receives += count;
    if (state_.broken) end.flush_receives();
    return count;
  }
  std::size_t poll_sends(std::span<Completion> completions) override {
    return hand_out(state_.ends[end_].done, completions);
  }
  std::size_t poll_receives(std::span<Completion> completions) override {
    return hand_out(state_.ends[end_].arrivals, completions);
  }
  void arm(Side) override {}
  int event_fd(Side) const override { return -1; }
  std::byte* peer_memory(const RemoteRegion&) override { return nullptr; }
  std::uint64_t rnr_retries() const override { return 0; }
  std::string describe() const override { return "a late network"; }

 private:
  // Some of them, and perhaps none yet.
  std::size_t hand_out(std::deque<Completion>& from, std::span<Completion> to) {
    if (state_.chance(4)) state_.step();
    if (from.empty() || to.empty() || state_.chance(3)) return 0;
    std::size_t count = 0;
    do {
      to[count++] = from.front();
      from.pop_front();
    } while (count < to.size() && !from.empty() && !state_.chance(3));
    return count;
  }

  State& state_;
  const unsigned end_;
};

class LateNetwork::LateDevice final : public Device {
 public:
  explicit LateDevice(State& state) : state_(state) {}
  const DeviceInfo& info() const override { return info_; }
  Limits limits() const override {
    return {.max_inline_bytes = kMaxInlineBytes,
            .max_send_requests = 256,
            .max_receive_requests = 1024,
            .max_request_bytes = std::size_t{1} << 30};
  }
  std::unique_ptr<MemoryRegion> allocate(std::size_t bytes, unsigned) override {
    return std::make_unique<LateRegion>(state_, bytes);
  }
  std::unique_ptr<Offer> offer(const QueueDepths&, const std::string&) override {
    throw Error(ErrorCode::kUnavailable, "a late network makes no offer");
  }
  std::unique_ptr<QueuePair> connect(std::span<const std::byte>, const QueueDepths&,
                                     Deadline) override {
    throw Error(ErrorCode::kUnavailable, "a late network is connected already");
  }

 private:
  State& state_;
  const DeviceInfo info_{.name = "late", .usable = true};
};

LateNetwork::LateNetwork(std::uint64_t seed, std::size_t send_depth)
    : state_(std::make_unique<State>(seed, send_depth)) {}
LateNetwork::~LateNetwork() = default;

std::unique_ptr<Device> LateNetwork::device() { return std::make_unique<LateDevice>(*state_); }
std::unique_ptr<QueuePair> LateNetwork::queue_pair(unsigned end) {
  return std::make_unique<LateQueuePair>(*state_, end);
}

void LateNetwork::step() { state_->step(); }
bool LateNetwork::quiet() const { return state_->quiet(); }
bool LateNetwork::wakes(unsigned end) { return state_->wakes(end); }
void LateNetwork::hold_arrivals(bool hold) { state_->held = hold; }
void LateNetwork::break_down() { state_->break_down(); }

}  // namespace leat::detail

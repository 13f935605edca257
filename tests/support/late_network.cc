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

namespace leat::detail {
namespace {

constexpr std::size_t kWordBytes = 8;
constexpr std::size_t kMaxInlineBytes = 64;
constexpr unsigned kKey = 1;  // of every region

// A request under way.
struct Work {
  SendRequest request;
  std::vector<std::byte> bytes;   // taken with it, or out of the peer's memory, for a read
  std::vector<std::size_t> left;  // offsets of words that are still to be moved
  bool begun = false;
};

}  // namespace

class LateNetwork::State {
 public:
  State(std::uint64_t seed, std::size_t send_depth) : random(seed), send_depth_(send_depth) {}

  struct End {
    std::deque<Work> requests;  // on their way to the peer, in order
    std::deque<Work> answers;   // on their way back
    std::deque<Completion> done;
    std::deque<Completion> arrivals;
    std::size_t receives = 0;
  };

  std::size_t post_send(unsigned end, std::span<const SendRequest> requests) {
    End& from = ends[end];
    std::size_t accepted = 0;
    for (const SendRequest& request : requests) {
      if (broken) {
        fail(from, request, CompletionStatus::kFlushed);
      } else {
        if (from.requests.size() + from.answers.size() == send_depth_) break;
        Work& work = from.requests.emplace_back(Work{request, {}, {}, false});
        if (request.inlined && request.opcode != Opcode::kRead && request.bytes != 0) {
          const auto* local = static_cast<const std::byte*>(request.local);
          work.bytes.assign(local, local + request.bytes);
        }
      }
      ++accepted;
    }
    return accepted;
  }

  void step() {
    const std::uint64_t choice = random();
    End& from = ends[choice & 1];
    (choice & 2) != 0 ? execute(from, ends[1 - (choice & 1)]) : answer(from);
  }

  void break_down() {
    broken = true;
    for (End& end : ends) {
      CompletionStatus status = CompletionStatus::kPeerGone;
      for (std::deque<Work>* works : {&end.answers, &end.requests}) {
        for (const Work& work : *works)
          fail(end, work.request, std::exchange(status, CompletionStatus::kFlushed));
        works->clear();
      }
      flush_receives(end);
    }
  }

  static void flush_receives(End& end) {
    for (; end.receives != 0; --end.receives)
      end.arrivals.push_back(
          {.status = CompletionStatus::kFlushed, .kind = CompletionKind::kReceived});
  }

  bool chance(unsigned one_in) { return random() % one_in == 0; }

  std::mt19937_64 random;
  std::array<End, 2> ends;
  bool broken = false;

 private:
  static void fail(End& end, const SendRequest& request, CompletionStatus status) {
    end.done.push_back({.id = request.id, .status = status});
  }

  static std::byte* remote(const Work& work) {
    return reinterpret_cast<std::byte*>(work.request.remote_address);
  }

  void begin(Work& work) {
    for (std::size_t at = 0; at < work.request.bytes; at += kWordBytes) work.left.push_back(at);
    // Mostly in order, as it mostly is.
    if (!chance(3)) {
      std::ranges::reverse(work.left);
    } else {
      std::ranges::shuffle(work.left, random);
    }
  }

  // Moves some of the words that are left. True: none is left any more.
  bool move(Work& work, std::byte* to, const std::byte* from) {
    for (std::size_t some = 1 + random() % 16; some != 0 && !work.left.empty(); --some) {
      const std::size_t at = work.left.back();
      work.left.pop_back();
      std::memcpy(to + at, from + at, std::min(kWordBytes, work.request.bytes - at));
    }
    return work.left.empty();
  }

  // At the peer, where requests run one after the other.
  void execute(End& from, End& to) {
    if (from.requests.empty()) return;
    Work& work = from.requests.front();
    const SendRequest& request = work.request;
    const bool reads = request.opcode == Opcode::kRead;
    if (!work.begun) {
      work.begun = true;
      begin(work);
      if (reads) work.bytes.resize(request.bytes);
    }
    const auto* local = static_cast<const std::byte*>(request.local);
    if (reads) {
      if (!move(work, work.bytes.data(), remote(work))) return;
      begin(work);  // they land
    } else {
      if (!move(work, remote(work), request.inlined ? work.bytes.data() : local)) return;
      if (request.opcode == Opcode::kWriteWithImmediate) {
        if (to.receives == 0) return;  // the request waits
        --to.receives;
        to.arrivals.push_back({.kind = CompletionKind::kImmediate,
                               .immediate = request.immediate,
                               .bytes = request.bytes});
      }
    }
    from.answers.push_back(std::move(work));
    from.requests.pop_front();
  }

  // Back at the sender, in order too.
  void answer(End& end) {
    if (end.answers.empty()) return;
    Work& work = end.answers.front();
    const SendRequest& request = work.request;
    if (request.opcode == Opcode::kRead &&
        !move(work, static_cast<std::byte*>(request.local), work.bytes.data()))
      return;
    if (request.signaled) end.done.push_back({.id = request.id, .bytes = request.bytes});
    end.answers.pop_front();
  }

  const std::size_t send_depth_;
};

class LateNetwork::LateRegion final : public MemoryRegion {
 public:
  explicit LateRegion(std::size_t bytes)
      : memory_(static_cast<std::byte*>(std::calloc(bytes, 1)), std::free), bytes_(bytes) {
    if (memory_ == nullptr) throw std::bad_alloc();
  }
  std::span<std::byte> memory() const override { return {memory_.get(), bytes_}; }
  std::uint32_t local_key() const override { return kKey; }
  RemoteRegion remote() const override {
    return {reinterpret_cast<std::uint64_t>(memory_.get()), bytes_, kKey};
  }

 private:
  std::unique_ptr<std::byte, decltype(&std::free)> memory_;
  std::size_t bytes_;
};

class LateNetwork::LateQueuePair final : public QueuePair {
 public:
  LateQueuePair(State& state, unsigned end) : state_(state), end_(end) {}

  std::size_t post_send(std::span<const SendRequest> requests) override {
    return state_.post_send(end_, requests);
  }
  std::size_t post_receive(std::span<const ReceiveRequest> requests) override {
    State::End& end = state_.ends[end_];
    end.receives += requests.size();
    if (state_.broken) State::flush_receives(end);
    return requests.size();
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
  const DeviceInfo& info() const override { return info_; }
  Limits limits() const override {
    return {.max_inline_bytes = kMaxInlineBytes,
            .max_send_requests = 256,
            .max_receive_requests = 1024,
            .max_request_bytes = std::size_t{1} << 30};
  }
  std::unique_ptr<MemoryRegion> allocate(std::size_t bytes, unsigned) override {
    return std::make_unique<LateRegion>(bytes);
  }
  std::unique_ptr<MemoryRegion> register_local(std::span<std::byte>) override {
    throw Error(ErrorCode::kUnavailable, "a late network registers no memory");
  }
  std::unique_ptr<Offer> offer(const QueueDepths&, const std::string&) override {
    throw Error(ErrorCode::kUnavailable, "a late network makes no offer");
  }
  std::unique_ptr<QueuePair> connect(std::span<const std::byte>, const QueueDepths&,
                                     Deadline) override {
    throw Error(ErrorCode::kUnavailable, "a late network is connected already");
  }

 private:
  const DeviceInfo info_{.name = "late", .usable = true};
};

LateNetwork::LateNetwork(std::uint64_t seed, std::size_t send_depth)
    : state_(std::make_unique<State>(seed, send_depth)) {}
LateNetwork::~LateNetwork() = default;

std::unique_ptr<Device> LateNetwork::device() { return std::make_unique<LateDevice>(); }
std::unique_ptr<QueuePair> LateNetwork::queue_pair(unsigned end) {
  return std::make_unique<LateQueuePair>(*state_, end);
}

void LateNetwork::step() { state_->step(); }
bool LateNetwork::quiet() const {
  return std::ranges::all_of(
      state_->ends, [](const auto& end) { return end.requests.empty() && end.answers.empty(); });
}
bool LateNetwork::wakes(unsigned end) const { return !state_->ends[end].arrivals.empty(); }
void LateNetwork::break_down() { state_->break_down(); }

}  // namespace leat::detail

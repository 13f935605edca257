#include "transport/confirm_each/confirm_each.h"

#include <algorithm>
#include <array>
#include <mutex>

#include "leat/error.h"
#include "transport/parts/requests.h"
#include "transport/slots/receiving.h"
#include "transport/slots/sending.h"

namespace leat::detail {
namespace {

// Immediate data: what it is, 2 bits; the first slot, counted over all contexts, 14 bits; how many
// of its kind, messages with the end or slots given back, came before it, modulo 2^16.
constexpr std::uint32_t kWhatShift = 30;
constexpr std::uint32_t kSlotShift = 16;
constexpr std::uint32_t kSlotMask = (1U << (kWhatShift - kSlotShift)) - 1;
enum What : std::uint32_t {
  kMessage = static_cast<std::uint32_t>(SlotKind::kMessage),
  kLargeStart = static_cast<std::uint32_t>(SlotKind::kLargeStart),
  kEnd = static_cast<std::uint32_t>(SlotKind::kEnd),
  kGivenBack,
};

// Receives are replaced so many at a time, and slots given back announced.
constexpr std::size_t kReplaceAt = 32;
constexpr std::size_t kTellAt = 16;

constexpr std::uint32_t immediate_of(What what, unsigned slot, std::uint32_t number) {
  return what << kWhatShift | slot << kSlotShift | (number & 0xffff);
}
constexpr unsigned slot_of(std::uint32_t immediate) { return immediate >> kSlotShift & kSlotMask; }
constexpr bool is_number(std::uint32_t immediate, std::uint32_t number) {
  return ((immediate ^ number) & 0xffff) == 0;
}

}  // namespace

ConfirmEach::ConfirmEach(SlotEnd& end)
    : end_(end),
      receive_count_(
          std::min(end.options().depths.receive_requests, end.limits().max_receive_requests)) {
  // Every slot of ours may have an announcement on its way, every slot of the peer its return; and
  // the end comes.
  if (2 * layout().all_slots() + kReplaceAt > receive_count_)
    throw Error(ErrorCode::kInvalidArgument,
                "transport confirm-each: " + std::to_string(layout().all_slots()) +
                    " slots of all contexts need more receives than the " +
                    std::to_string(receive_count_) + " that can be posted",
                "Lower slot_count.");
  post_all_receives(end_.queue_pair(), receive_count_);
}

void ConfirmEach::started() {
  for (Context context = 0; context < kContextCount; ++context) {
    pools_[context] = SlotPool(layout().slots(context));
    orders_[context] = SlotOrder(layout().slots(context));
  }
  counts_.resize(layout().all_slots());
  const std::size_t slots = layout().all_slots();
  for (auto* list : {&came_back_, &took_}) list->reserve(slots);
  for (auto* list : {&inbox_, &took_in_}) list->reserve(slots + 1);
  untold_.reserve(slots);
  // A few of the smallest set, so that what is not announced yet never holds up the sender.
  tell_at_ = std::min<std::size_t>(kTellAt, layout().slots(1) / 8);
}

// --- send side

SlotRun ConfirmEach::find_run(Context context, unsigned count) {
  auto run = pools_[context].find(count);
  while (!run && take_slots()) run = pools_[context].find(count);
  return run.value_or(SlotRun{});
}

bool ConfirmEach::post(Context context, const SlotRun& run, SlotKind kind, std::size_t bytes) {
  SendRequest request = end_.write_of(context, run, bytes);
  request.opcode = Opcode::kWriteWithImmediate;
  const unsigned slot = layout().first_slot(context) + run.first;
  request.immediate = immediate_of(static_cast<What>(kind), slot, sent_);
  if (post_sends({&request, 1}) == 0) return false;
  ++sent_;
  pools_[context].take(run);
  counts_[slot] = static_cast<std::uint8_t>(run.count);
  return true;
}

bool ConfirmEach::post_end() {
  const SendRequest request = bare_immediate(immediate_of(kEnd, 0, sent_), end_.peer());
  return post_sends({&request, 1}) != 0;
}

std::size_t ConfirmEach::post_sends(std::span<const SendRequest> requests) {
  const std::lock_guard lock(send_lock_);
  return end_.post_sends(requests);
}

void ConfirmEach::poll_send_errors() {
  end_.look_at_sends([this](std::span<Completion> completions) {
    const std::lock_guard lock(send_lock_);
    return end_.poll_sends(completions);
  });
}

// Whether any came back.
bool ConfirmEach::take_slots() {
  {
    const std::lock_guard lock(receive_lock_);
    poll_arrivals();
    took_.swap(came_back_);
  }
  for (const std::uint32_t immediate : took_) {
    const unsigned slot = slot_of(immediate);
    if (!is_number(immediate, came_back_before_++) || slot >= counts_.size() || counts_[slot] == 0)
      end_.fail_sending("a slot given back that it did not have");
    const Context context = layout().context_of(slot);
    const SlotRun run{slot - layout().first_slot(context), counts_[slot]};
    counts_[slot] = 0;
    static_cast<void>(pools_[context].give(run.word(), run.bits()));  // counted, so it is taken
  }
  const bool any = !took_.empty();
  took_.clear();
  return any;
}

// --- both sides, under receive_lock_

bool ConfirmEach::poll_arrivals() {
  std::array<Completion, 16> completions;
  bool any = false;
  while (!flushed_receives_) {
    const std::size_t count = end_.queue_pair().poll_receives(completions);
    if (count == 0) break;
    any = true;
    end_.receive_completions.add(count);
    for (const Completion& completion : std::span(completions).first(count)) {
      if (completion.status != CompletionStatus::kSuccess) {
        flushed_receives_ = true;
        receive_trouble_ = std::string("receiving failed: ") + to_string(completion.status);
        break;
      }
      ++to_replace_;
      // A completion without immediate data is treated as an impossible one.
      const bool sound = completion.kind == CompletionKind::kImmediate;
      const std::uint32_t immediate =
          sound ? completion.immediate : immediate_of(kMessage, kSlotMask, 0);
      // A peer cannot make these lists longer than the receives that are posted.
      if (immediate >> kWhatShift == kGivenBack) {
        came_back_.push_back(immediate);
      } else {
        inbox_.push_back({immediate, static_cast<std::uint32_t>(
                                         std::min<std::size_t>(completion.bytes, UINT32_MAX))});
      }
    }
    if (inbox_.size() + came_back_.size() > receive_count_) break;
    if (to_replace_ >= kReplaceAt) replace_receives();
  }
  return any;
}

void ConfirmEach::replace_receives() {
  const std::size_t posted = end_.queue_pair().post_receives(to_replace_);
  to_replace_ -= posted;
  end_.receive_requests.add(posted);
}

// --- receive side

bool ConfirmEach::look() {
  bool failed = false;
  {
    const std::lock_guard lock(receive_lock_);
    poll_arrivals();
    took_in_.swap(inbox_);
    failed = flushed_receives_;
  }
  const bool any = !took_in_.empty();
  for (const Arrival& arrival : took_in_) arrived(arrival);
  took_in_.clear();
  // After its end the peer may go. The text does not change any more.
  if (failed && !ended_) end_.receive_error.set(ErrorCode::kPeerDied, receive_trouble_);
  if (!any && !untold_.empty()) tell_slots();
  return any;
}

void ConfirmEach::arrived(const Arrival& arrival) {
  const std::uint32_t what = arrival.immediate >> kWhatShift;
  const unsigned slot = slot_of(arrival.immediate);
  if (ended_) end_.nonsense("a message after its end");
  if (!is_number(arrival.immediate, arrived_++)) end_.nonsense("a message out of its turn");
  if (what == kEnd) {
    ended_ = true;
    return;
  }
  if (what > kLargeStart || slot >= layout().all_slots()) end_.nonsense("an odd announcement");
  const Context context = layout().context_of(slot);
  const std::size_t count = layout().slots_of(context, arrival.bytes);
  const SlotRun run{slot - layout().first_slot(context), static_cast<unsigned>(count)};
  if (count > layout().longest_run(context) || run.first % kWordSlots + count > kWordSlots ||
      run.first + count > layout().slots(context) ||
      !orders_[context].put(places_[context]++, {run, arrival.bytes, static_cast<SlotKind>(what)}))
    end_.nonsense("a message of " + std::to_string(arrival.bytes) + " bytes in slot " +
                  std::to_string(slot));
}

void ConfirmEach::give_back(Context context, const SlotRun& run) noexcept {
  const unsigned slot = layout().first_slot(context) + run.first;
  untold_.push_back(bare_immediate(immediate_of(kGivenBack, slot, given_back_++), end_.peer()));
  if (untold_.size() >= tell_at_) tell_slots();
}

void ConfirmEach::tell_slots() noexcept {
  std::size_t accepted = 0;
  {
    const std::lock_guard lock(send_lock_);
    accepted = end_.queue_pair().post_send(untold_);
  }
  end_.side_requests.add(accepted);
  end_.credit_returns.add(accepted);
  untold_.erase(untold_.begin(), untold_.begin() + static_cast<std::ptrdiff_t>(accepted));
}

// --- both

Outlook ConfirmEach::outlook(Side side, Look look) const {
  if (side == Side::kSend) return {.comes = Outlook::Comes::kSilently};
  Outlook outlook;
  if (!untold_.empty()) outlook.comes = Outlook::Comes::kSilently;
  if (look == Look::kBrief) return outlook;
  const std::lock_guard lock(receive_lock_);
  const auto waits = [](const SlotOrder& order) { return order.waiting(); };
  outlook.soon = !inbox_.empty() || std::ranges::any_of(orders_, waits);
  return outlook;
}

// --- making

std::unique_ptr<Transport> make_confirm_each(std::unique_ptr<Device> device,
                                             std::unique_ptr<QueuePair> queue_pair,
                                             const SlotOptions& options) {
  return std::make_unique<SlotTransport<ConfirmEach>>(std::move(device), std::move(queue_pair),
                                                      options);
}

std::unique_ptr<Transport> make_confirm_each(Endpoint end, const Settings& settings) {
  return make_confirm_each(std::move(end.device), std::move(end.queue_pair),
                           SlotOptions::of(settings, end.depths));
}

}  // namespace leat::detail

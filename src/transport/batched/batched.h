// The batched transport (HiPower §3): messages are confirmed, and slots given back, by bitmaps that
// each side reads of the other, many at a time. While messages flow nothing is ever announced to
// the receiver: no immediate data, no sends, no posted receives.
//
// A message is two requests of the sender: the write that fills the slot, and behind it a read of
// that slot's header word `echo` into the sender's own bitmap. A read comes after the writes that
// were posted before it, so its answer says that the write is complete; the answer itself flips the
// bit, whatever the sender's processor does meanwhile. Where both sides share memory (Limits) there
// are no requests: stores fill the slot and flip the bit, loads read the bitmaps.
//
// Small messages share a slot, a bundle, and what is said above happens once for all of them, when
// it is full. Until then the receiver finds them by the sender's number `posted`, and reads them
// itself out of the sender's memory where that is not shared.
// docs/transports/batched.md has the whole.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/spin_lock.h"
#include "transport/batched/doorbell.h"
#include "transport/batched/parts.h"
#include "transport/batched/slot_receiver.h"
#include "transport/slots/slot_transport.h"

namespace leat::detail {

class BatchedTransport final : public SlotTransport {
 public:
  // Allocates the slots: the peer may send once it has setup(). Throws kResource.
  BatchedTransport(std::unique_ptr<Device> device, std::unique_ptr<QueuePair> queue_pair,
                   const SlotOptions& options);
  static std::unique_ptr<Transport> make(Endpoint end, const Settings& settings) {
    return std::make_unique<BatchedTransport>(std::move(end.device), std::move(end.queue_pair),
                                              SlotOptions::of(settings, end.depths));
  }

  SendResult try_send(std::span<const std::byte> message, Context context) override;
  ReceiveResult try_receive(Context context, Delivery& delivery) override;
  void release(Delivery& delivery) noexcept override;
  void arm(Side side) override;
  Outlook outlook(Side side, Look look) const override;
  void add_stats(Stats& stats) const override;

 private:
  friend SlotTransport;  // its templates
  static constexpr bool kBundles = true;

  using Head = BatchedHead;

  // --- SlotTransport
  void started(std::uint64_t peer_key) override;
  std::optional<SlotRun> find_run(Context context, unsigned count) override;
  bool post(Context context, const SlotRun& run, SlotKind kind, std::size_t bytes) override;
  bool post_end() override;
  std::size_t poll_sends(std::span<Completion> completions) override;
  bool prepare_flush() override;
  bool look() override;
  bool waiting(Context context) const override {
    return !unbundling_[context].messages.empty() || receivers_[context].waiting() ||
           open_waits(context);
  }
  SlotOrder::Entry take(Context context) override {
    ++taken_;
    return receivers_[context].take();
  }
  void give_back(Context context, const SlotRun& run) noexcept override;
  void tell_room() noexcept;
  bool ended(Context context) const override;

  // --- send side
  std::size_t post_sends(std::span<const SendRequest> requests) override;
  bool append(std::span<const std::byte> message, Context context);
  bool close_bundle();
  void publish_posted();
  std::optional<SlotRun> find_free(Context context, unsigned count);
  bool post_unit(Context context, const SlotRun& run, SlotKind kind, std::size_t bytes);
  bool post_by_requests(Context context, const SlotRun& run, SlotKind kind, std::size_t bytes);
  SlotHeader next_header(Context context, SlotKind kind, std::size_t bytes) const;
  void fetch_ahead(Context context, const SlotRun& run, std::size_t bytes) const;
  void set_given_threshold(Context context);
  void tell_at_once();
  bool post_rest();
  void look_at_limit();
  SendRequest echo_of(unsigned word);
  void post_echoes();
  void ask_for_room();
  void ring(SendRequest& request);
  void look_at_given(Context context);
  void take_given();

  // --- where requests are posted both poll: those of pulls are the receiver's
  void collect_completions();
  bool is_over(std::uint64_t read);

  // --- receive side
  std::size_t post_from_receiver(const SendRequest& request) noexcept;
  bool hand_out_bundled(Context context, Delivery& delivery);
  void begin_bundle(Context context, const SlotOrder::Entry& entry);
  void bundle_handed_out(Context context);
  bool open_waits(Context context) const {
    return open_.end != 0 && open_.context == context && uses_[open_.slot].taken_bytes < open_.end;
  }
  const std::byte* open_bytes();
  bool see_open(std::uint64_t word);
  void drop_open();
  void pull(const Posted& posted);
  bool take_pulled();
  bool hear();
  void heard(const Completion& completion);
  bool look_at_landed();
  bool look_at_filled();
  bool load_filled();
  bool take_read(bool quick);
  bool take_filled(std::uint64_t posted, bool quick);
  void allow() noexcept;
  void tell_limit() noexcept;
  bool owes() const { return (owed_words_ | holes_) != 0; }  // so a read is needed anyway
  bool may_sleep() const;
  // Whether our side has sent since the last call.
  bool answered();
  void check(const char* why);
  void note_newest(Context context);
  void found_end();

  Head& head() const { return *reinterpret_cast<Head*>(SlotTransport::head()); }
  // The peer's, where memory is shared; else null.
  Head* peer() const { return reinterpret_cast<Head*>(shared_head()); }

  // --- set once
  std::uint64_t peer_header_key_ = 0;
  unsigned words_ = 0;  // of each bitmap
  // Of context 0, of each other one: what a bundle takes, and from which size on none takes it.
  std::array<std::size_t, 2> bundle_room_{};
  std::array<std::size_t, 2> too_long_to_bundle_{};

  // --- both sides post and poll, where requests are posted
  SpinLock send_lock_;
  std::vector<Completion> sender_completions_;
  std::array<bool, kGivenId + 1> reads_over_{};  // by id

  // --- send side
  alignas(64) std::array<ConfirmSender, kContextCount> senders_;
  std::array<std::uint32_t, kContextCount> places_{};  // messages sent in each context
  std::array<unsigned, kContextCount> look_below_{};   // free slots, under which it pays to look
  std::uint32_t sequence_ = 0;                         // units sent in all
  OpenBundle bundle_;
  std::vector<SendRequest> rest_;  // must go before anything else
  DoorbellSender bell_;
  std::uint32_t last_ring_ = 0;  // the last unit's
  std::uint64_t unechoed_ = 0;   // bit i: no read of ours will show the flips of that word
  std::array<unsigned, kMaxSlotWords> last_in_word_{};  // slots that have its latest `echo`
  std::uint64_t limit_word_ = 0;
  std::array<std::uint64_t, kMaxSlotWords> given_seen_{};
  bool reading_given_ = false;
  unsigned skip_looks_ = 0;  // while blocked
  unsigned looks_in_vain_ = 0;
  unsigned probes_ = 0;  // polls of sends, where memory is shared
  Counter rings_;
  Counter given_reads_;

  // --- receive side
  alignas(64) std::array<SlotReceiver, kContextCount> receivers_;
  std::array<Unbundling, kContextCount> unbundling_;
  OpenView open_;
  std::vector<BundleUse> uses_;         // by slot of all contexts
  std::uint64_t unbundled_ = 0;         // messages of bundles handed out ever
  std::uint64_t unbundled_before_ = 0;  // the same at the last read
  bool pulling_ = false;
  Posted pulled_;  // what is or was pulled
  DoorbellReceiver doorbell_;
  std::uint32_t arrived_ = 0;          // units found ever
  std::uint32_t taken_ = 0;            // units handed out ever
  std::uint32_t newest_ = 0;           // the highest sequence number found
  std::uint64_t owed_words_ = 0;       // bit i: that word has slots that wait for a read
  std::uint64_t landed_seen_ = 0;      // the word
  std::uint64_t holes_ = 0;            // bit c: in context c a message is missing between others
  std::uint64_t posted_seen_ = 0;      // the sender's number, at the last read
  std::uint64_t own_posted_ = 0;       // our own number, at the last answered()
  unsigned last_word_ = 0;             // in which a read found something
  unsigned slots_found_ = 0;           // by the last read
  std::uint64_t slots_ever_ = 0;       // by all of them
  std::chrono::nanoseconds pause_{0};  // between two reads
  Clock::time_point next_read_;        // not before, if there is a pause
  Clock::time_point read_begun_;       // the last one
  std::size_t used_receives_ = 0;      // by rings, not replaced yet
  std::array<Completion, 4> heard_;    // scratch of hear, so that no call initialises it
  bool limit_untold_ = false;          // it found no room in the send queue
  bool room_untold_ = false;           // slots were given back since the sender was woken
  bool has_end_ = false;
  std::array<std::uint32_t, kContextCount> end_places_{};
  Counter filled_reads_;
  Counter confirmed_;  // messages found by reads
};

}  // namespace leat::detail

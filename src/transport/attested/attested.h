// Transports attested+X (TNIC, sections 4 to 6): every message goes over the transport X as an
// attested record, and comes out again only after an attestation kernel has verified it in memory
// that no peer can write.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attest/channel_session.h"
#include "attest/open_questions.h"
#include "base/counter.h"
#include "transport/endpoint.h"
#include "transport/parts/kept_buffers.h"
#include "transport/parts/record_sender.h"

namespace leat::detail {

// Each protocol context is a stream of the session, with counters of its own, so that none waits
// for another's reader. What is refused is dropped, counted and logged once. An authentic record
// that comes before its turn proves that the one whose turn it was has been changed or removed on
// its way, as X sends nothing twice: the context ends with kAuthentication.
//
// A message that is under way has its counter, for which the receiver waits, or leat-attestd is
// giving it one: it cannot be taken back. Call again with the same message; another one throws
// kInvalidArgument, also after abandon(), and the stream ends with the one that is under way.
//
// With leat-attestd each side asks one question at a time, by OpenQuestions: a call begins it and
// says that it would block, and the next call of that side that finds the answer goes on. A side's
// event announces the answer. In process no question is left open.
//
// A context may be given to writes into a memory (leat/remote_memory.h): its records are
// then of kind write, with slot and offset, and are delivered as messages are.
class AttestedTransport final : public Transport {
 public:
  AttestedTransport(std::unique_ptr<Transport> inner, trusted::detail::ChannelSession session);
  static MakeDecorator make;

  // The record that was verified, from the bytes of a delivery of ours that is not released yet.
  static std::span<const std::byte> record_around(std::span<const std::byte> payload) {
    return {payload.data() - trusted::kHeaderBytes, payload.size() + trusted::kRecordOverheadBytes};
  }

  // --- for a memory beside the messages
  trusted::detail::ChannelSession& session() { return session_; }
  // From now on `context` is for writes only. Before anything was sent or received there.
  void take_writes(Context context) { kinds_[context] = trusted::Kind::kWrite; }
  // As try_send, for a context of writes.
  SendResult try_write(std::span<const std::byte> bytes, Context context, std::uint32_t slot,
                       std::uint64_t offset);
  // Lives as long as the connection, which may go on when its user has closed it.
  MemoryRegion& keep(std::unique_ptr<MemoryRegion> region);

  std::vector<std::byte> setup() const override;
  void start(std::span<const std::byte> peer_setup) override;

  SendResult try_send(std::span<const std::byte> message, Context context) override;
  std::span<std::byte> try_reserve(std::size_t bytes, Context context) override;
  SendResult try_commit(std::size_t bytes) override;
  void abandon(Context context) noexcept override;
  bool try_end() override;
  bool try_flush() override;
  ReceiveResult try_receive(Context context, Delivery& delivery) override;
  void release(Delivery& delivery) noexcept override;
  void arm(Side side) override;
  Outlook outlook(Side side, Look look) const override;
  std::string describe() const override;
  void add_stats(Stats& stats) const override;

 private:
  // kHeld: leat-attestd is to attest it. Of the record only the payload is there.
  using Records = RecordSender<trusted::Statement>;

  // Whether a message of a context is proven to be missing, and its receiver has been told so.
  enum class Missing : std::uint8_t { kNothing, kUntold, kTold };
  // What leat-attestd is asked to attest: what the contexts from `first` on hold.
  struct Asking {
    Asking(trusted::IsolatedKernel& kernel, int also_wakes) : open(kernel, also_wakes) {}

    trusted::detail::OpenQuestions open;
    std::array<trusted::Question, kContextCount> questions{};
    std::size_t count = 0;  // of questions that are not settled
    Context first = 0;
  };
  // A record that was taken off the inner transport; its bytes are in the buffer of its ticket.
  struct Incoming {
    std::uint64_t ticket = 0;
    std::span<const std::byte> record;
    trusted::RecordHeader header;
  };
  // What leat-attestd is asked to verify.
  struct Checking {
    Checking(trusted::IsolatedKernel& kernel, int also_wakes) : open(kernel, also_wakes) {}

    trusted::detail::OpenQuestions open;
    trusted::Question question{};
    std::optional<Incoming> record;  // not settled; the question may still have to be asked
    bool asked = false;
    // Whether there is `record`. Release: a thread that sees the end of it sees what came of it.
    std::atomic<bool> pending{false};
    // Verified while another context was received.
    std::array<std::optional<Incoming>, kContextCount> verified{};
  };

  trusted::Statement statement(Context context, trusted::Kind kind) const {
    return {.session = session_.id(), .kind = kind, .stream = static_cast<std::uint8_t>(context)};
  }
  void check_kind(Context context, trusted::Kind kind) const;
  SendResult send(std::span<const std::byte> message, const trusted::Statement& statement);
  SendResult send_by_asking(std::span<const std::byte> message,
                            const trusted::Statement& statement);
  void look_for_answer();
  SendResult push(Context context);
  void hold(std::span<const std::byte> message, const trusted::Statement& statement);
  static void check_same(std::span<const std::byte> message, const trusted::Statement& statement,
                         Records::Outgoing& out);
  bool ask_to_attest(Context first, std::size_t count);
  bool ask_to_attest_ends(Context first);
  bool settle_asked();
  std::uint64_t free_ticket();
  std::span<const std::byte> copy_of(Delivery& delivery);
  trusted::Verdict look_at(Incoming& incoming, Context context) const;
  bool settle(const Incoming& incoming, Context context, trusted::Verdict verdict);
  bool settle_checked();
  void refuse(trusted::Verdict why, const Incoming& incoming, Context context);
  void check_whole(Context context);
  static void hand_out(const Incoming& incoming, Delivery& delivery);

  const std::unique_ptr<Transport> inner_;
  trusted::detail::ChannelSession session_;
  std::array<trusted::Kind, kContextCount> kinds_;  // what each context carries, ends apart
  std::vector<std::unique_ptr<MemoryRegion>> kept_;

  // --- send side
  Records records_;
  std::unique_ptr<Asking> asking_;  // null: in process

  // --- receive side
  alignas(64) DeliveryBuffers buffers_;
  std::array<bool, kContextCount> ended_{};
  std::array<std::uint64_t, kContextCount> turns_{};  // counters of the records that come next
  std::array<Missing, kContextCount> missing_{};
  std::unique_ptr<Checking> checking_;  // null: in process
  Counter refused_;
  bool told_ = false;
  bool out_of_memory_ = false;  // a message is lost, so nothing after it is handed out
};

}  // namespace leat::detail

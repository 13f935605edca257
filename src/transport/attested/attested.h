// Transports attested+X (TNIC, sections 4 to 6): every message goes over the transport X as an
// attested record, and comes out again only after an attestation kernel has verified it in memory
// that no peer can write.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attest/channel_session.h"
#include "base/counter.h"
#include "transport/endpoint.h"

namespace leat::detail {

// Each protocol context is a stream of the session, with counters of its own, so that none waits
// for another's reader. What is refused is dropped, counted and logged once; messages after it are
// refused as well until it has come as it was sent.
//
// A message that is under way has its counter, for which the receiver waits: it cannot be taken
// back. Call again with the same message; another one throws kInvalidArgument, also after
// abandon(), and the stream ends with the one that is under way.
//
// A context may be given to writes into a memory (leat/remote_memory.h): its records are
// then of kind write, with slot and offset, and are delivered as messages are.
class AttestedTransport final : public Transport {
 public:
  AttestedTransport(std::unique_ptr<Transport> inner, trusted::detail::ChannelSession session);
  static std::unique_ptr<Transport> make(MakeTransport* inner, Endpoint end,
                                         const Settings& settings);

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
  bool try_flush() override { return inner_->try_flush(); }
  ReceiveResult try_receive(Context context, Delivery& delivery) override;
  void release(Delivery& delivery) noexcept override;
  void arm(Side side) override { inner_->arm(side); }
  Outlook outlook(Side side, Look look) const override { return inner_->outlook(side, look); }
  std::string describe() const override;
  void add_stats(Stats& stats) const override;

 private:
  struct Buffer {
    std::unique_ptr<std::byte[]> memory;
    std::size_t bytes = 0;
    // At least that much, kept for the next use.
    std::span<std::byte> take(std::size_t wanted);
    void shrink() noexcept;
  };
  struct Reservation {
    std::span<std::byte> memory;
    Context context = 0;
  };
  // A record that has its counter, and is not at the peer yet.
  struct Waiting {
    Buffer buffer;
    std::span<const std::byte> record;  // empty: none
    bool abandoned = false;             // what comes next must be seen to be the same, wholly
  };

  SendResult send(std::span<const std::byte> message, const trusted::Statement& statement);
  trusted::Statement statement(Context context, trusted::Kind kind) const {
    return {.session = session_.id(), .kind = kind, .stream = static_cast<std::uint8_t>(context)};
  }
  void check_kind(Context context, trusted::Kind kind) const;
  bool commit_place(std::span<const std::byte> record, Context context);
  bool send_waiting(Context context);
  static void check_same(std::span<const std::byte> message, const trusted::Statement& statement,
                         Waiting& waiting);
  std::uint64_t free_ticket();
  std::span<const std::byte> copy_of(Delivery& delivery, std::uint64_t ticket);
  bool admit(std::span<const std::byte> record, Context context, trusted::RecordHeader& header);
  void refuse(trusted::Verdict why, Context context);

  const std::unique_ptr<Transport> inner_;
  trusted::detail::ChannelSession session_;
  std::array<trusted::Kind, kContextCount> kinds_;  // what each context carries, ends apart
  std::vector<std::unique_ptr<MemoryRegion>> kept_;

  // --- send side
  std::array<Waiting, kContextCount> waiting_;
  Buffer reservation_buffer_;
  Reservation reserved_;
  // Whose record waits in the inner transport's reservation, because a part of it has left.
  std::optional<Context> in_place_;
  unsigned ends_sent_ = 0;  // of contexts, in their order

  // --- receive side
  alignas(64) std::vector<Buffer> buffers_;  // by ticket
  std::vector<std::uint64_t> free_;          // tickets; the last one is used next
  std::array<bool, kContextCount> ended_{};
  Counter refused_;
  bool told_ = false;
  bool out_of_memory_ = false;  // a message is lost, so nothing after it is handed out
};

}  // namespace leat::detail

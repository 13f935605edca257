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

#include "base/counter.h"
#include "transport/transport.h"
#include "trusted/channel_session.h"

namespace leat::detail {

// Each protocol context is a stream of the session, with counters of its own, so that none waits
// for another's reader. What is refused is dropped, counted and logged once; messages after it are
// refused as well until it has come as it was sent.
//
// A message for which try_send returned false may have its counter already: call again with the
// same message, as for a large one; another one throws kInvalidArgument.
class AttestedTransport final : public Transport {
 public:
  AttestedTransport(std::unique_ptr<Transport> inner, trusted::detail::ChannelSession session);

  // The record that was verified, from the bytes of a delivery of ours that is not released yet.
  static std::span<const std::byte> record_around(std::span<const std::byte> payload) {
    return {payload.data() - trusted::kHeaderBytes, payload.size() + trusted::kRecordOverheadBytes};
  }

  std::vector<std::byte> setup() const override;
  void start(std::span<const std::byte> peer_setup) override;

  bool try_send(std::span<const std::byte> message, Context context) override;
  bool took_part() const override { return inner_->took_part(); }
  std::span<std::byte> try_reserve(std::size_t bytes, Context context) override;
  bool try_commit(std::size_t bytes) override;
  void abandon() override { reserved_ = {}; }
  bool try_end() override;
  bool try_flush() override { return inner_->try_flush(); }
  bool try_drain() override { return inner_->try_drain(); }
  ReceiveResult try_receive(Context context, Delivery& delivery) override;
  bool pending() const override { return inner_->pending(); }
  void release(Delivery& delivery) noexcept override;
  void arm(Side side) override { inner_->arm(side); }
  int event_fd(Side side) const override { return inner_->event_fd(side); }
  bool room_comes_silently() const override { return inner_->room_comes_silently(); }
  bool receiving_waits_for_room() const override { return inner_->receiving_waits_for_room(); }
  bool resuming() const override { return inner_->resuming(); }
  std::uint64_t found_by_looking() const override { return inner_->found_by_looking(); }
  std::size_t max_in_place_bytes(Context context) const override;
  std::size_t max_message_bytes() const override;
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
  };

  bool send(std::span<const std::byte> message, Context context, trusted::Kind kind);
  bool commit_place(std::span<const std::byte> record, Context context);
  bool send_waiting(Context context);
  void check_same(std::span<const std::byte> message, const Waiting& waiting) const;
  bool admit(std::span<const std::byte> record, Context context, trusted::RecordHeader& header);
  void refuse(trusted::Verdict why, Context context);

  const std::unique_ptr<Transport> inner_;
  trusted::detail::ChannelSession session_;

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
};

}  // namespace leat::detail

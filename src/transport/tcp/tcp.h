// The tcp transport: framed messages on the connection's TCP (or TLS) stream. The baseline, and
// what two machines without RDMA between them use.
//
// Each context has a window of bytes that may be unread at the peer, so a slow reader of one
// context neither holds up the others nor fills memory; credits for it travel as frames. Here the
// kernel is in every step, so one mutex for both sides costs nothing that counts, and lets a
// blocked sender read the credits it waits for.
#pragma once

#include <sys/eventfd.h>

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/counter.h"
#include "base/fd.h"
#include "net/stream.h"
#include "transport/endpoint.h"
#include "transport/parts/pieces.h"
#include "transport/parts/reassembly.h"
#include "transport/parts/reservation.h"
#include "transport/parts/sticky_error.h"

namespace leat::detail {

class TcpTransport final : public Transport {
 public:
  // `stream` must outlive the transport.
  TcpTransport(Stream& stream, std::size_t max_message_bytes);
  static std::unique_ptr<Transport> make(Endpoint end, const Settings& settings) {
    return std::make_unique<TcpTransport>(*end.stream, settings.max_message_bytes);
  }

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
  std::string describe() const override {
    return stream_.encrypted() ? "tcp inside TLS" : "tcp in clear";
  }
  void add_stats(Stats& stats) const override {
    stats.credit_waits += credit_waits_.get();
    stats.credit_returns += credit_returns_.get();
    stats.reassembled_messages += reassembled_.get();
  }

 private:
  enum class Kind : std::uint8_t { kMessage = 1, kAnnounce, kCredit, kEnd };
  struct FrameHeader {
    std::uint64_t value = 0;  // kAnnounce: as Pieces announces it; kCredit: bytes taken ever
    std::uint32_t bytes = 0;  // of payload that follows
    Kind kind = Kind::kMessage;
    std::uint8_t context = 0;
    std::uint16_t reserved = 0;
  };
  static_assert(sizeof(FrameHeader) == 16);
  struct Frame {
    std::unique_ptr<std::byte[]> payload;
    std::byte* target = nullptr;  // of the bytes: payload, or inside of the reader's large message
    std::size_t bytes = 0;
    bool announces = false;  // that a message of so many bytes follows in pieces:
    std::uint64_t announced = 0;
  };
  struct ContextState {
    std::uint64_t sent = 0;       // window bytes used ever, to the peer
    std::uint64_t peer_took = 0;  // and given back by it
    Pieces pieces;
    std::deque<Frame> waiting;
    Reassembly large;
    std::uint64_t arrived = 0;   // window bytes used ever, by the peer
    std::uint64_t took = 0;      // and that our reader gave back
    std::uint64_t returned = 0;  // as far as the peer was told
  };

  // What came in.
  struct News {
    bool data = false;
    bool credit = false;
  };

  // All with mutex_ held.
  bool send_frame(Kind kind, Context context, std::span<const std::byte> payload,
                  std::uint64_t value);
  bool send_data(Kind kind, Context context, std::span<const std::byte> payload,
                 std::uint64_t value);
  void queue_output(std::span<const std::byte> bytes);
  void push_output(Side by);
  bool output_is_out();
  std::span<const std::byte> push_payload(std::span<const std::byte> payload);
  void pump_input(Side by);
  static int index(Side side) { return side == Side::kSend ? 0 : 1; }
  void notify(Side side) {
    notified_[index(side)] = true;
    eventfd_write(events_[index(side)].get(), 1);  // again too: an edge, if one waits for that
  }
  void heed(Side side);
  bool read_more();
  std::span<const std::byte> take_input(std::size_t bytes);
  void sort_input(News& news);
  void begin_frame();
  void choose_target();
  void frame_arrived();
  void take_back(Context context, std::size_t window_bytes);
  [[noreturn]] void fail(ErrorCode code, const std::string& what) { error_.fail(code, what); }

  Stream& stream_;
  Fd events_[2];  // by Side: the other side left something for it to do

  mutable std::mutex mutex_;  // everything below
  std::array<ContextState, kContextCount> contexts_;
  std::string output_;  // bytes accepted, not yet taken by the kernel
  std::size_t output_done_ = 0;
  bool notified_[2] = {};          // by Side: its event is set
  bool waits_for_output_[2] = {};  // by Side: armed while output was waiting
  std::unique_ptr<std::byte[]> input_;
  std::span<const std::byte> unsorted_;  // of input_
  bool input_drained_ = false;
  FrameHeader header_;
  std::size_t header_have_ = 0;
  Frame frame_;
  std::size_t frame_have_ = 0;
  Reservation<> reservation_;  // send side, of
  std::vector<std::byte> reserved_memory_;
  bool end_sent_ = false;
  bool ended_ = false;
  bool peer_closed_ = false;
  StickyError error_;

  Counter credit_waits_;
  Counter credit_returns_;
  Counter reassembled_;
};

}  // namespace leat::detail

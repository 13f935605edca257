// Transports sealed+X: every message goes over the transport X as an encrypted record, and comes
// out again only after it was opened in memory that no peer can write.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/counter.h"
#include "transport/endpoint.h"
#include "transport/parts/kept_buffers.h"
#include "transport/parts/record_sender.h"
#include "transport/parts/sticky_error.h"
#include "transport/sealed/record.h"
#include "transport/sealed/setup.h"

namespace leat::detail {

// Each protocol context and direction is a flow with keys and numbers of its own. X hands over what
// it was given, in order, so the record whose turn it is opens; anything else was changed, moved,
// repeated or removed on its way. Then nothing more is handed out: both sides of this transport say
// kAuthentication, and the lifeline is cut, which ends the peer.
//
// A message that is under way has its number, which must not serve twice: it cannot be taken back.
// Call again with the same message; another one throws kInvalidArgument, also after abandon(), and
// the flow ends with the one that is under way.
class SealedTransport final : public Transport {
 public:
  // `stream`: inside TLS, whose keys those of the records are derived from; outlives this.
  SealedTransport(std::unique_ptr<Transport> inner, Stream& stream,
                  std::vector<std::byte> greetings, const SealOffer& offer, bool active);
  static MakeDecorator make;
  // The same with limits that this side offers; make() offers the defaults. A peer may offer less.
  static std::unique_ptr<Transport> make_with(const KeyLimits& limits, const MakeInner& inner,
                                              Endpoint end, const Settings& settings);

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
  void arm(Side side) override { inner_->arm(side); }
  Outlook outlook(Side side, Look look) const override { return inner_->outlook(side, look); }
  std::string describe() const override;
  void add_stats(Stats& stats) const override;

 private:
  SendResult send(SealedKind kind, std::span<const std::byte> message, Context context);
  void check_same(std::span<const std::byte> message, Context context);
  void check_unbroken() const;
  ReceiveResult open(Context context, Delivery& outer, Delivery& delivery);
  bool opens_as_end(Context context, std::span<const std::byte> record);
  [[noreturn]] void refuse(const std::string& what);

  const std::unique_ptr<Transport> inner_;
  Stream& stream_;
  const std::vector<std::byte> greetings_;
  const SealOffer offer_;
  const bool active_;
  std::vector<std::byte> setup_;
  std::string_view cipher_;
  std::optional<SealSecrets> secrets_;  // of both sides; each keeps to its own

  // --- send side
  std::array<std::unique_ptr<Sealer>, kContextCount> sealers_;
  RecordSender<SealedKind> records_;

  // --- receive side
  alignas(64) std::array<std::unique_ptr<Opener>, kContextCount> openers_;
  DeliveryBuffers buffers_;
  std::array<bool, kContextCount> ended_{};
  StickyError receive_error_;
  Counter refused_;
  // Written by the receive side, for the send side. Relaxed: it says no more than that.
  std::atomic<bool> broken_{false};
};

}  // namespace leat::detail

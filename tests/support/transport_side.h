// One side of a test of a transport over a device with faults.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/settings.h"
#include "net/stream.h"
#include "support/fault_device.h"
#include "support/peer_pair.h"
#include "transport/sealed/record.h"
#include "transport/transport.h"

namespace leat::detail {

// Belongs to one thread, or without a lifeline to a sending and a receiving one. Waits throw
// kPeerDied once the other side has said that it broke, as a channel's waits do at the end of the
// lifeline, and std::runtime_error at hang_deadline().
class TransportSide {
 public:
  TransportSide(Peer& its_peer, std::unique_ptr<Stream> its_stream,
                std::unique_ptr<Transport> its_transport)
      : peer(its_peer), stream(std::move(its_stream)), transport(std::move(its_transport)) {}

  Peer& peer;
  std::unique_ptr<Stream> stream;  // null unless the setup resumes, or the transport is tcp
  std::unique_ptr<Transport> transport;
  bool watches_lifeline = true;
  // Waits sleep on the transport's descriptors, as a channel's do; else they spin.
  bool sleeps = false;

  void send(std::span<const std::byte> message, Context context);
  // Begins a message of that many bytes with the pattern of `seed`, and gives it up unless a few
  // tries were enough.
  void send_or_give_up(std::size_t bytes, std::uint64_t seed, Context context);
  void end();
  // False: the peer's orderly end.
  bool receive(Context context, Delivery& delivery);

  // How this side's stream ended, for the other side; once. An empty `error` is an orderly end.
  void tell_outcome(std::uint64_t messages, const std::string& error);
  // The other side's: messages and error.
  std::pair<std::uint64_t, std::string> hear_outcome();

 private:
  void wait(Side side, const char* what, const std::function<bool()>& ready);
  void sleep(Side side) const;
  bool lifeline_ended();

  std::optional<std::pair<std::uint64_t, std::string>> heard_;
};

// The context of the n-th message of a stream, so that both sides know it.
inline Context context_of(std::uint64_t n) { return static_cast<Context>(n * 7 % 5); }

// The bytes of a delivery, wherever they are.
std::span<const std::byte> bytes_of(const Delivery& delivery);

using TransportBody = std::function<void(TransportSide&)>;

struct TransportSetup {
  std::string device = "shm";
  std::string transport = "ring";
  FaultProfile first;
  FaultProfile second;
  Settings settings;     // the transport's
  bool resumes = false;  // chunked only: over a TCP connection of its own
  // sealed+X only, without another decorator: what both sides offer; none: the defaults.
  std::optional<KeyLimits> key_limits = {};
};

// The first side offers, the second connects; both set up the transport. A transport that needs no
// device has a TCP connection instead, and no faults. As VerbsTest::run otherwise, but a side may
// end while the other goes on.
void run_transports(PeerMode mode, const TransportSetup& setup, const TransportBody& first,
                    const TransportBody& second);

}  // namespace leat::detail

#include "support/transport_side.h"

#include <poll.h>
#include <sys/socket.h>

#include <stdexcept>
#include <string_view>
#include <thread>
#include <vector>

#include "base/system_error.h"
#include "leat/error.h"
#include "net/tcp.h"
#include "support/channel_side.h"
#include "support/devices.h"
#include "support/keyed_stream.h"
#include "support/link_pair.h"
#include "support/pattern.h"
#include "support/scale.h"
#include "transport/sealed/sealed.h"
#include "transport/table.h"
#include "verbs/table.h"

namespace leat::detail {
namespace {

std::string as_word(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The lifeline of both sides, without a handshake.
std::unique_ptr<Stream> connect_streams(Peer& peer, bool listens) {
  Uri uri;
  uri.host = "127.0.0.1";
  if (!listens) {
    uri.port = peer.hear_value<std::uint16_t>();
    return plain_stream(connect_tcp(uri, hang_deadline(), false));
  }
  const Fd listener = listen_tcp(uri);
  peer.tell_value(bound_port(listener.get()));
  wait_ready(listener.get(), POLLIN, hang_deadline(), "nobody came");
  return plain_stream(Fd(check(::accept(listener.get(), nullptr, nullptr), "accept")));
}

void connect_queue_pairs(Peer& peer, const TransportSetup& setup, const FaultProfile& profile,
                         Endpoint& end) {
  const std::string address = device_address(setup.device);
  end.device = make_fault_device(open_device(setup.device, address), profile);
  end.depths = queue_depths(*end.device, setup.transport);
  if (!end.active) {
    const auto offer = end.device->offer(end.depths, address);
    peer.tell(as_word(offer->blob()));
    end.queue_pair = offer->accept(hang_deadline(), -1);
  } else {
    const std::string blob = peer.hear();
    end.queue_pair =
        end.device->connect(std::as_bytes(std::span(blob)), end.depths, hang_deadline());
  }
}

std::unique_ptr<Transport> make_side(const TransportSetup& setup, Endpoint end,
                                     const Settings& settings) {
  if (!setup.key_limits) return make_transport(setup.transport, std::move(end), settings);
  const TransportRow& inner = *find_transport(setup.transport);
  if (setup.transport != std::string("sealed+") + inner.name)
    throw std::invalid_argument(setup.transport + " has no limits of keys, or not only them");
  return SealedTransport::make_with(*setup.key_limits, inner.make, std::move(end), settings);
}

void run_side(Peer& peer, const TransportSetup& setup, const FaultProfile& profile, bool offers,
              const TransportBody& body) {
  Endpoint end{.active = !offers};
  const bool rdma = find_transport(setup.transport)->rdma;
  if (rdma) connect_queue_pairs(peer, setup, profile, end);
  std::unique_ptr<Stream> stream = setup.resumes || !rdma ? connect_streams(peer, offers) : nullptr;
  KeyedStream keyed(stream.get());
  end.stream = is_sealed(setup.transport) ? &keyed : stream.get();
  Settings settings = setup.settings;
  settings.attest_key_file = channel_key_file();
  if (!setup.resumes) settings.chunked_resume_timeout = std::chrono::milliseconds::zero();
  auto transport = make_side(setup, std::move(end), settings);
  TransportSide side(peer, std::move(stream), std::move(transport));
  peer.tell(as_word(side.transport->setup()));
  const std::string peer_setup = peer.hear();
  side.transport->start(std::as_bytes(std::span(peer_setup)));
  body(side);
}

}  // namespace

void TransportSide::wait(Side side, const char* what, const std::function<bool()>& ready) {
  const Deadline deadline = hang_deadline();
  while (!ready()) {
    if (lifeline_ended()) {
      if (ready()) return;  // what came before the end still counts
      throw Error(ErrorCode::kPeerDied, std::string("the lifeline ended during ") + what);
    }
    if (passed(deadline)) throw std::runtime_error(std::string("hangs: ") + what);
    if (!sleeps) {
      std::this_thread::yield();
      continue;
    }
    transport->arm(side);
    if (ready()) return;
    sleep(side);
  }
}

void TransportSide::sleep(Side side) const {
  const bool naps = transport->outlook(side, Look::kBrief).comes != Outlook::Comes::kWithEvent;
  pollfd fds[] = {{transport->event_fd(side), POLLIN, 0}, {stream ? stream->fd() : -1, POLLIN, 0}};
  ::poll(fds, 2, naps ? 1 : poll_timeout_ms(hang_deadline()));
}

bool TransportSide::lifeline_ended() {
  if (!watches_lifeline) return false;
  if (!heard_ && peer.has_word()) heard_ = hear_outcome();
  return heard_ && !heard_->second.empty();
}

void TransportSide::send(std::span<const std::byte> message, Context context) {
  wait(Side::kSend, "send", [&] { return sent(transport->try_send(message, context)); });
}

void TransportSide::send_or_give_up(std::size_t bytes, std::uint64_t seed, Context context) {
  std::vector<std::byte> message(bytes);
  fill_pattern(message, seed);
  for (std::uint64_t tries = seed % 6; tries != 0; --tries)
    if (sent(transport->try_send(message, context))) return;
  transport->abandon(context);
}

void TransportSide::end() {
  wait(Side::kSend, "end", [&] { return transport->try_end(); });
  wait(Side::kSend, "flush", [&] { return transport->try_flush(); });
}

bool TransportSide::receive(Context context, Delivery& delivery) {
  ReceiveResult result = ReceiveResult::kNothing;
  wait(Side::kReceive, "receive", [&] {
    result = transport->try_receive(context, delivery);
    return result != ReceiveResult::kNothing;
  });
  return result == ReceiveResult::kMessage;
}

void TransportSide::tell_outcome(std::uint64_t messages, const std::string& error) {
  peer.tell(std::to_string(messages) + ' ' + error.substr(0, 1000));
}

std::pair<std::uint64_t, std::string> TransportSide::hear_outcome() {
  if (heard_) return *heard_;
  const std::string word = peer.hear();
  const std::size_t blank = word.find(' ');
  return {std::stoull(word.substr(0, blank)), word.substr(blank + 1)};
}

std::span<const std::byte> bytes_of(const Delivery& delivery) {
  return {delivery.data == nullptr ? delivery.small.data() : delivery.data, delivery.bytes};
}

void run_transports(PeerMode mode, const TransportSetup& setup, const TransportBody& first,
                    const TransportBody& second) {
  run_pair(
      mode, [&](Peer& peer) { run_side(peer, setup, setup.first, true, first); },
      [&](Peer& peer) { run_side(peer, setup, setup.second, false, second); });
}

}  // namespace leat::detail

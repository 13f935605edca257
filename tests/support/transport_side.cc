#include "support/transport_side.h"

#include <poll.h>
#include <sys/socket.h>

#include <stdexcept>
#include <string_view>
#include <thread>

#include "base/system_error.h"
#include "conn/link.h"
#include "conn/resume.h"
#include "conn/tcp.h"
#include "leat/error.h"
#include "support/channel_side.h"
#include "support/devices.h"
#include "support/link_pair.h"
#include "support/scale.h"
#include "transport/attested.h"
#include "transport/batched.h"
#include "transport/confirm_each.h"
#include "verbs/device_table.h"

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

std::unique_ptr<Transport> make_transport(const TransportSetup& setup, const QueueDepths& depths,
                                          std::unique_ptr<Device> device,
                                          std::unique_ptr<QueuePair> queue_pair,
                                          std::unique_ptr<Resumer> resumer, bool active) {
  constexpr std::string_view kAttested = "attested+";
  if (setup.transport.starts_with(kAttested)) {
    TransportSetup inner = setup;
    inner.transport.erase(0, kAttested.size());
    constexpr auto kAlgorithm = trusted::Algorithm::kHmacSha256;
    return std::make_unique<AttestedTransport>(
        make_transport(inner, depths, std::move(device), std::move(queue_pair), std::move(resumer),
                       active),
        trusted::detail::ChannelSession(
            trusted::detail::make_local_home(attest_key_file(), kAlgorithm), kAlgorithm, active));
  }
  RingOptions ring = setup.ring;
  SlotOptions slots = setup.slots;
  ChunkedOptions chunks = setup.chunks;
  ring.depths = slots.depths = chunks.depths = depths;
  if (setup.transport == "ring")
    return std::make_unique<RingTransport>(std::move(device), std::move(queue_pair), ring);
  if (setup.transport == "batched")
    return std::make_unique<BatchedTransport>(std::move(device), std::move(queue_pair), slots);
  if (setup.transport == "confirm-each")
    return std::make_unique<ConfirmEachTransport>(std::move(device), std::move(queue_pair), slots);
  if (setup.transport == "chunked")
    return std::make_unique<ChunkedTransport>(std::move(device), std::move(queue_pair), chunks,
                                              std::move(resumer));
  throw std::invalid_argument("no transport " + setup.transport);
}

void run_side(Peer& peer, const TransportSetup& setup, const FaultProfile& profile, bool offers,
              const TransportBody& body) {
  const std::string address = device_address(setup.device);
  auto device = make_fault_device(open_device(setup.device, address), profile);
  const QueueDepths depths = queue_depths(*device, setup.transport);
  std::unique_ptr<QueuePair> queue_pair;
  if (offers) {
    const auto offer = device->offer(depths, address);
    peer.tell(as_word(offer->blob()));
    queue_pair = offer->accept(hang_deadline(), -1);
  } else {
    const std::string blob = peer.hear();
    queue_pair = device->connect(std::as_bytes(std::span(blob)), depths, hang_deadline());
  }
  std::unique_ptr<Stream> stream = setup.resumes ? connect_streams(peer, offers) : nullptr;
  auto resumer = stream ? std::make_unique<Resumer>(*stream, !offers, depths) : nullptr;
  auto transport = make_transport(setup, depths, std::move(device), std::move(queue_pair),
                                  std::move(resumer), !offers);
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
  const bool naps = side == Side::kSend ? transport->room_comes() != Transport::Comes::kWithEvent
                                        : transport->receiving_waits_for_room();
  pollfd fds[] = {{transport->event_fd(side), POLLIN, 0}, {stream ? stream->fd() : -1, POLLIN, 0}};
  ::poll(fds, 2, naps ? 1 : poll_timeout_ms(hang_deadline()));
}

bool TransportSide::lifeline_ended() {
  if (!watches_lifeline) return false;
  if (!heard_ && peer.has_word()) heard_ = hear_outcome();
  return heard_ && !heard_->second.empty();
}

void TransportSide::send(std::span<const std::byte> message, Context context) {
  wait(Side::kSend, "send", [&] { return transport->try_send(message, context); });
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

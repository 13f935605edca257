#include "trusted/attest_send.h"

#include <span>
#include <stdexcept>
#include <vector>

#include "forked_peer.h"
#include "leat/channel.h"
#include "leat/listener.h"

namespace leat::bench {
namespace {

// What a message's first byte says.
constexpr std::byte kStreamed{1}, kEchoed{2};

// Echoes what is to be, and the empty message at the end of a stream.
void serve(Channel& channel) {
  while (const Message message = channel.receive())
    if (message.size() == 0 || message.data()[0] == kEchoed) channel.send(message.bytes());
}

void echo(Channel& channel, std::span<const std::byte> message) {
  channel.send(message);
  if (channel.receive().size() != message.size())
    throw std::runtime_error("the peer echoed something else");
}

}  // namespace

void measure_sends(const Options& options, const RunArguments& arguments,
                   const std::optional<CorePair>& cores, const TickClock& clock,
                   const Progress& progress, const Sent& sent) {
  ForkedPeer peer([&](const ForkedPeer::Tell& tell) {
    if (cores) pin_to_core((*cores)[1]);
    Listener listener("127.0.0.1:0", options);
    tell(listener.address());
    Channel channel = listener.accept();
    serve(channel);
  });
  Channel channel = Channel::connect(peer.listen(), options);
  for (const std::size_t bytes : arguments.sizes) {
    const std::vector<std::byte> streamed(bytes, kStreamed), echoed(bytes, kEchoed);
    const Bandwidth stream = measure_bandwidth(
        bytes, arguments.length, clock, progress,
        [&](std::uint64_t count) {
          for (std::uint64_t i = 0; i < count; ++i) channel.send(streamed);
        },
        [&] { echo(channel, {}); });
    const Latency latency =
        measure_latency(bytes, arguments.length, clock, progress, [&] { echo(channel, echoed); });
    sent(stream, latency);
  }
  channel.shutdown();
  peer.wait();
}

}  // namespace leat::bench

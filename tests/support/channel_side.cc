#include "support/channel_side.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <thread>

#include "base/fd.h"
#include "base/system_error.h"
#include "support/devices.h"
#include "transport/table.h"
#include "verbs/row.h"

namespace leat::detail {
namespace {

constexpr const char* kConnected = "connected";

std::string kind_name(const ChannelKind& kind) {
  const std::string transport = device_label(kind.transport) + (kind.bundles ? "" : "_unbundled");
  return kind.device == kNoDevice ? transport : transport + "_on_" + device_label(kind.device);
}

// The timeout may be a short one that the test is about, and the other side slow to come.
Channel accept_patiently(Listener& listener) {
  std::optional<Channel> accepted;
  patiently([&] { accepted = listener.accept(); });
  return std::move(*accepted);
}

}  // namespace

void PrintTo(const ChannelKind& kind, std::ostream* out) { *out << kind_name(kind); }

std::vector<ChannelKind> channel_kinds() {
  std::vector<ChannelKind> kinds;
  for (const TransportRow& row : transport_rows()) {
    if (!row.rdma) {
      kinds.push_back({row.name, kNoDevice});
      continue;
    }
    for (const std::string& device : test_devices()) kinds.push_back({row.name, device});
  }
  for (const char* transport : {"attested+ring", "sealed+ring"})
    kinds.push_back({transport, "shm"});
  return kinds;
}

std::vector<ChannelKind> unbundled_kinds() {
  std::vector<ChannelKind> kinds;
  for (const std::string& device : test_devices()) kinds.push_back({"batched", device, false});
  return kinds;
}

std::vector<ChannelKind> nested_kinds() { return {{"attested+sealed+ring", "shm"}}; }

std::string channel_key_file() {
  // Memory, so that whichever of several processes ends first removes nothing.
  static const Fd file = [] {
    const std::string key(64, 'a');
    Fd made(check(memfd_create("channel.key", MFD_CLOEXEC), "memfd_create"));
    check(static_cast<int>(write(made.get(), key.data(), key.size())), "write");
    check(fchmod(made.get(), 0600), "fchmod");
    return made;
  }();
  return "/proc/self/fd/" + std::to_string(file.get());
}

Options channel_options(const ChannelKind& kind) {
  Options options;
  options.device = kind.device;
  options.transport = kind.transport;
  options.fallback = "never";
  if (kind.transport.starts_with("attested+")) options.attest_key_file = channel_key_file();
  if (is_sealed(kind.transport)) options.tls_psk_file = channel_key_file();
  options.batched_bundles = kind.bundles;
  options.chunked_region_bytes = std::size_t{1} << 20;  // as large as a quarter of a ring
  options.connect_timeout = hang_limit();
  options.handshake_timeout = hang_limit();
  options.timeout = hang_limit();
  options.linger = hang_limit();
  return options;
}

std::string server_host(const ChannelKind& kind) {
  const std::string address = device_address(kind.device);
  return address.empty() ? "127.0.0.1" : address;
}

std::string listening_address(const ChannelKind& kind) { return server_host(kind) + ":0"; }

void send_pattern(Channel& channel, std::size_t bytes, std::uint64_t seed, unsigned context) {
  std::vector<std::byte> message(bytes);
  fill_pattern(message, seed);
  channel.send(message, context);
}

void expect_message(const Message& message, std::size_t bytes, std::uint64_t seed) {
  ASSERT_TRUE(message) << "the end instead of a message";
  ASSERT_EQ(message.size(), bytes);
  ASSERT_EQ(pattern_mismatch(message.bytes(), seed), bytes) << "pattern of seed " << seed;
}

void patiently(const std::function<void()>& call) {
  for (const Deadline deadline = hang_deadline();;) {
    try {
      return call();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kTimeout || passed(deadline)) throw;
    }
  }
}

Message receive_patiently(Channel& channel, unsigned context) {
  const Deadline deadline = hang_deadline();
  while (!passed(deadline)) {
    if (auto message = channel.try_receive(context)) return std::move(*message);
    std::this_thread::yield();
  }
  throw std::runtime_error("no message comes");
}

std::size_t fill_up(Channel& channel, std::size_t bytes, unsigned context) {
  constexpr std::size_t kEnough = std::size_t{1} << 30;
  std::vector<std::byte> message(bytes);
  std::size_t count = 0;
  const Deadline deadline = hang_deadline();
  // Refused often in a row: the sockets of a kernel hand their bytes over little by little.
  for (int refusals = 0; refusals < 100;) {
    fill_pattern(message, count);
    if (channel.try_send(message, context)) {
      refusals = 0;
      if (++count * bytes > kEnough)
        throw std::runtime_error("a peer that does not read takes 1 GiB");
    } else if (channel.transport() != "tcp" && !channel.try_flush() && !passed(deadline)) {
      // A slow device has not done yet what it has.
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } else {
      // At last with time between them: a kernel may take a window's growth that long.
      if (++refusals > 50) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      } else {
        std::this_thread::yield();
      }
    }
  }
  return count;
}

void ChannelTest::run(const ChannelBody& first, const ChannelBody& second,
                      const ChannelSetup& setup) const {
  const bool second_returns = setup.second_ends == SecondEnds::kByReturning;
  run_pair(
      mode(),
      [&](Peer& peer) {
        Options options = channel_options(kind());
        if (setup.first_options) setup.first_options(options);
        Listener listener(listening_address(kind()), options);
        peer.tell(listener.address());
        peer.hear(kConnected);  // throws at once if the second side was refused
        ChannelSide side{peer, accept_patiently(listener)};
        EXPECT_EQ(side.channel.transport(), kind().transport);
        EXPECT_EQ(side.channel.device(), kind().device);
        first(side);
        if (second_returns) peer.barrier();
      },
      [&](Peer& peer) {
        Options options = channel_options(kind());
        if (setup.second_options) setup.second_options(options);
        ChannelSide side{peer, Channel::connect(peer.hear(), options)};
        peer.tell(kConnected);
        EXPECT_EQ(side.channel.transport(), kind().transport);
        EXPECT_EQ(side.channel.device(), kind().device);
        second(side);
        if (second_returns) peer.barrier();
      },
      setup.second_ends);
}

void ChannelTest::run_both(const ChannelBody& body,
                           const std::function<void(Options&)>& options) const {
  run(body, body, {.first_options = options, .second_options = options});
}

std::string channel_test_name(const testing::TestParamInfo<ChannelTest::ParamType>& parameters) {
  return kind_name(std::get<0>(parameters.param)) + "_" + to_string(std::get<1>(parameters.param));
}

}  // namespace leat::detail

// One side of a test of channels, and the fixture that makes two of them and connects them.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "leat/channel.h"
#include "leat/error.h"
#include "leat/listener.h"
#include "leat/options.h"
#include "support/errors.h"
#include "support/pattern.h"
#include "support/peer_pair.h"
#include "support/scale.h"

namespace leat::detail {

// What carries a channel.
struct ChannelKind {
  std::string transport;
  std::string device;
  bool bundles = true;  // of transport batched
};
void PrintTo(const ChannelKind& kind, std::ostream* out);  // "ring_on_shm"

// Every transport that needs a device on every test_devices(), the others on none, and each
// decorator around one of them.
std::vector<ChannelKind> channel_kinds();
// Transport batched with a slot for each message.
std::vector<ChannelKind> unbundled_kinds();
// Decorators over each other.
std::vector<ChannelKind> nested_kinds();

// The key of every attested channel, and of TLS for every sealed one.
std::string channel_key_file();
// Options that force `kind`, and make a call that hangs fail.
Options channel_options(const ChannelKind& kind);
// The numeric host at which a peer reaches a listener for `kind`.
std::string server_host(const ChannelKind& kind);
// The address at which a listener for `kind` listens, on a port that the system chooses.
std::string listening_address(const ChannelKind& kind);

// A test body gets it connected and may take it apart.
struct ChannelSide {
  Peer& peer;
  Channel channel;
};

// A message of `bytes` bytes with the pattern of `seed`.
void send_pattern(Channel& channel, std::size_t bytes, std::uint64_t seed, unsigned context = 0);
// EXPECTs a message with exactly that content.
void expect_message(const Message& message, std::size_t bytes, std::uint64_t seed);
// Calls it again as long as it times out, until hang_deadline(): with a short timeout it may, on a
// busy machine.
void patiently(const std::function<void()>& call);
// The next message, waited for by trying until hang_deadline(), whatever the timeout option says.
Message receive_patiently(Channel& channel, unsigned context = 0);
// Sends messages of `bytes` with the patterns 0, 1, ... until no more is taken; returns how many.
std::size_t fill_up(Channel& channel, std::size_t bytes, unsigned context = 0);

using ChannelBody = std::function<void(ChannelSide&)>;

struct ChannelSetup {
  std::function<void(Options&)> first_options = {};
  std::function<void(Options&)> second_options = {};
  SecondEnds second_ends = SecondEnds::kByReturning;
};

// Parameters: what carries the channel, threads or processes.
class ChannelTest : public testing::TestWithParam<std::tuple<ChannelKind, PeerMode>> {
 protected:
  const ChannelKind& kind() const { return std::get<0>(GetParam()); }
  PeerMode mode() const { return std::get<1>(GetParam()); }

  // The first side listens, the second connects. Channels are closed when their bodies return, but
  // not before both have returned (a second side that vanishes excepted).
  void run(const ChannelBody& first, const ChannelBody& second,
           const ChannelSetup& setup = {}) const;
  // The same body and options on both sides.
  void run_both(const ChannelBody& body, const std::function<void(Options&)>& options = {}) const;
};

std::string channel_test_name(const testing::TestParamInfo<ChannelTest::ParamType>& parameters);

// Registers the tests of a suite derived from ChannelTest for these kinds and both modes.
#define LEAT_INSTANTIATE_SUITE(name, suite, kinds)                                 \
  INSTANTIATE_TEST_SUITE_P(                                                        \
      name, suite,                                                                 \
      testing::Combine(testing::ValuesIn(kinds),                                   \
                       testing::Values(PeerMode::kThreads, PeerMode::kProcesses)), \
      channel_test_name)
#define LEAT_INSTANTIATE_CHANNEL_SUITE(suite) \
  LEAT_INSTANTIATE_SUITE(Channels, suite, channel_kinds())
// What channels promise about messages must hold for these too, and where decorators go over each
// other.
#define LEAT_INSTANTIATE_UNBUNDLED_SUITE(suite) \
  LEAT_INSTANTIATE_SUITE(Unbundled, suite, unbundled_kinds())
#define LEAT_INSTANTIATE_NESTED_SUITE(suite) LEAT_INSTANTIATE_SUITE(Nested, suite, nested_kinds())

}  // namespace leat::detail

// Two sides of the planned transport, on each device, as threads and as processes.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "leat/planned.h"
#include "support/channel_side.h"

namespace leat::detail {

inline constexpr std::size_t kPlannedRegionBytes = 256 * 1024;
// Where the planned part of a setup starts: behind that of its rings (docs/wire_format.md).
inline constexpr std::size_t kRingSetupBytes = 64;

std::vector<ChannelKind> planned_kinds();

struct PlannedSide {
  Peer& peer;
  PlannedChannel channel;
};
using PlannedBody = std::function<void(PlannedSide&)>;

class PlannedTest : public ChannelTest {
 protected:
  static void choose(Options& options) { options.planned_bytes = kPlannedRegionBytes; }

  void run(const PlannedBody& first, const PlannedBody& second,
           const ChannelSetup& setup = {.first_options = choose, .second_options = choose}) const;
};

// Registers the tests of a suite derived from PlannedTest on every device, in both modes.
#define LEAT_INSTANTIATE_PLANNED_SUITE(suite)                                      \
  INSTANTIATE_TEST_SUITE_P(                                                        \
      Channels, suite,                                                             \
      testing::Combine(testing::ValuesIn(planned_kinds()),                         \
                       testing::Values(PeerMode::kThreads, PeerMode::kProcesses)), \
      channel_test_name)

// The bytes of messages [index, index + count) in round `round` of a context, sent by that side.
std::vector<std::byte> messages(const MessageArray& array, unsigned context, std::uint64_t round,
                                bool first_side, std::uint64_t index, std::uint64_t count);
// ASSERTs that these are they.
void expect_messages(std::span<const std::byte> bytes, const MessageArray& array, unsigned context,
                     std::uint64_t round, bool first_side, std::uint64_t index,
                     std::uint64_t count);

}  // namespace leat::detail

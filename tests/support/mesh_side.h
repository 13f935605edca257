// A mesh of parties over every carrier, as threads and as processes: what its tests share.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "leat/scml/party.h"
#include "support/channel_side.h"
#include "support/leaving_host.h"

namespace leat::scml {

inline constexpr std::uint64_t kRegionBytes = 1 << 20;
inline constexpr unsigned kMaxThreads = 4;

struct MeshKind {
  Carrier carrier;
  std::string device;
  bool sealed = false;  // as between hosts with confidential=require

  // Messages are streams, not written to their places.
  bool streams() const { return carrier != Carrier::kPlanned || sealed; }
};
void PrintTo(const MeshKind& kind, std::ostream* out);
std::vector<MeshKind> mesh_kinds();
bool is_ib(const std::string& device);

// Different addresses without a listener, also at the ports of further threads.
std::vector<std::string> free_addresses(unsigned parties, const std::string& device);

class MeshTest : public testing::TestWithParam<std::tuple<MeshKind, leat::detail::PeerMode>> {
 protected:
  const MeshKind& kind() const { return std::get<0>(GetParam()); }
  leat::detail::PeerMode mode() const { return std::get<1>(GetParam()); }

  MeshOptions options(const std::vector<std::string>& addresses, unsigned self) const;
  // Every party with its mesh.
  void run(unsigned parties, const std::function<void(Mesh&)>& body,
           std::optional<unsigned> killed = {}) const;

 private:
  const leat::detail::LeavingHost leaving_{kind().sealed};
};

std::string mesh_test_name(const testing::TestParamInfo<MeshTest::ParamType>& info);

// Registers the tests of a suite derived from MeshTest for every kind and both modes.
#define LEAT_INSTANTIATE_MESH_SUITE(suite)                                                        \
  INSTANTIATE_TEST_SUITE_P(Carriers, suite,                                                       \
                           testing::Combine(testing::ValuesIn(mesh_kinds()),                      \
                                            testing::Values(leat::detail::PeerMode::kThreads,     \
                                                            leat::detail::PeerMode::kProcesses)), \
                           mesh_test_name)

std::vector<Flow> all_flows(unsigned parties);

// Messages [index, index + count) of an array in a round, from one party to another.
std::vector<std::byte> messages(const leat::MessageArray& array, std::uint64_t round, unsigned from,
                                unsigned to, std::uint64_t index, std::uint64_t count);
testing::AssertionResult same(std::span<const std::byte> got,
                              const std::vector<std::byte>& expected);

}  // namespace leat::scml

// The setting confidential of a mesh, where every device counts as leaving the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "support/channel_side.h"
#include "support/leaving_host.h"
#include "support/mesh_side.h"

namespace leat::scml {
namespace {

using leat::detail::error_of;
using leat::detail::PeerMode;
using leat::detail::run_parties;
using testing::HasSubstr;

class MeshConfidential : public testing::TestWithParam<MeshKind> {
 protected:
  static MeshOptions options(const std::vector<std::string>& addresses, unsigned self,
                             std::optional<std::string> confidential, bool key = true) {
    MeshOptions options;
    options.addresses = addresses;
    options.self = self;
    options.carrier = GetParam().carrier;
    options.options = leat::detail::channel_options({"auto", GetParam().device});
    options.options.confidential = std::move(confidential);
    options.options.planned_bytes = kRegionBytes;
    if (key) options.options.tls_psk_file = leat::detail::channel_key_file();
    return options;
  }
  // Large and small messages between three parties, and what their channels say.
  static void expect_messages(const std::function<MeshOptions(unsigned self)>& of,
                              const testing::Matcher<std::string>& description) {
    const std::vector<leat::MessageArray> arrays{
        {.base_bytes = 0, .message_bytes = 4, .count = 1'000},
        {.base_bytes = 8192, .message_bytes = 50'000, .count = 5}};
    run_parties(PeerMode::kThreads, 3, [&](unsigned self) {
      Mesh mesh(of(self));
      EXPECT_EQ(mesh.carrier(), GetParam().carrier);
      const std::vector<unsigned> contexts{1, 200};
      for (std::size_t i = 0; i < arrays.size(); ++i)
        mesh.open(contexts[i], arrays[i], all_flows(3));
      for (std::size_t i = 0; i < arrays.size(); ++i) {
        mesh.select(contexts[i]);
        for (unsigned peer = 0; peer < 3; ++peer)
          if (peer != self)
            mesh.send(peer, 0, messages(arrays[i], i, self, peer, 0, arrays[i].count));
      }
      for (std::size_t i = 0; i < arrays.size(); ++i) {
        mesh.select(contexts[i]);
        for (unsigned peer = 0; peer < 3; ++peer) {
          if (peer == self) continue;
          EXPECT_THAT(mesh.channel(peer).description(), description);
          EXPECT_TRUE(same(mesh.receive(peer, 0, arrays[i].count),
                           messages(arrays[i], i, peer, self, 0, arrays[i].count)));
        }
        mesh.close(contexts[i]);
      }
      mesh.barrier();
    });
  }

 private:
  const leat::detail::LeavingHost leaving_;
};

INSTANTIATE_TEST_SUITE_P(Carriers, MeshConfidential,
                         testing::Values(MeshKind{Carrier::kTcp, "tcp"},
                                         MeshKind{Carrier::kUnified, "shm"},
                                         MeshKind{Carrier::kContexts, "shm"},
                                         MeshKind{Carrier::kPlanned, "shm"}));

TEST_P(MeshConfidential, WithAKeyEveryConnectionIsEncrypted) {
  const bool tcp = GetParam().carrier == Carrier::kTcp;
  for (const char* value : {"require", "prefer"}) {
    const auto addresses = free_addresses(3, GetParam().device);
    expect_messages([&](unsigned self) { return options(addresses, self, value); },
                    HasSubstr(tcp ? "TLS" : "sealed+"));
  }
}

TEST_P(MeshConfidential, OnePartyThatRequiresItHasItWithAllOthers) {
  const auto addresses = free_addresses(2, GetParam().device);
  for (const unsigned demanding : {0U, 1U}) {
    run_parties(PeerMode::kThreads, 2, [&](unsigned self) {
      std::optional<std::string> wish;
      if (self == demanding) wish = "require";
      Mesh mesh(options(addresses, self, wish));
      EXPECT_THAT(mesh.channel(1 - self).transport(),
                  HasSubstr(GetParam().carrier == Carrier::kTcp ? "tcp" : "sealed+"));
      mesh.barrier();
    });
  }
}

TEST_P(MeshConfidential, PreferWithoutAKeyGoesInClearAndSaysSo) {
  const auto addresses = free_addresses(3, GetParam().device);
  expect_messages([&](unsigned self) { return options(addresses, self, "prefer", false); },
                  HasSubstr(", in clear"));
}

TEST_P(MeshConfidential, RequireWithoutAKeyFailsAtOnceWithAdvice) {
  const auto addresses = free_addresses(2, GetParam().device);
  for (const unsigned self : {0U, 1U})
    EXPECT_THAT(error_of(ErrorCode::kInvalidArgument,
                         [&] { const Mesh mesh(options(addresses, self, "require", false)); }),
                testing::AllOf(HasSubstr("confidential = require"), HasSubstr("tls_psk_file")));
}

}  // namespace
}  // namespace leat::scml

// Mesh: who meets, who is missing, who is turned away; and the plans that parties have.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "leat/scml/model.h"
#include "support/channel_side.h"
#include "support/errors.h"
#include "support/mesh_side.h"

namespace leat::scml {
namespace {

using leat::detail::expect_error;
using leat::detail::expect_text;
using leat::detail::hang_limit;
using leat::detail::run_parties;
using leat::detail::scaled;

class MeshMeeting : public MeshTest {};
LEAT_INSTANTIATE_MESH_SUITE(MeshMeeting);

TEST_P(MeshMeeting, OptionsThatCannotBe) {
  const auto addresses = free_addresses(3, kind().device);
  const auto refused = [&](const std::function<void(MeshOptions&)>& spoil) {
    MeshOptions wrong = options(addresses, 1);
    spoil(wrong);
    expect_error(ErrorCode::kInvalidArgument, [&] { Mesh mesh(wrong); });
  };
  refused([](MeshOptions& wrong) { wrong.self = 3; });
  refused([](MeshOptions& wrong) { wrong.addresses.resize(1); });
  refused([](MeshOptions& wrong) { wrong.addresses.resize(17, "127.0.0.1:1"); });
  refused([](MeshOptions& wrong) { wrong.addresses[2] = wrong.addresses[1]; });
  refused([](MeshOptions& wrong) { wrong.addresses[0] = "127.0.0.1"; });
  refused([](MeshOptions& wrong) { wrong.addresses[0] = "127.0.0.1:http"; });
  refused([](MeshOptions& wrong) { wrong.addresses[0] = "127.0.0.1:70000"; });
  refused([](MeshOptions& wrong) { wrong.thread = 60'000; });
  refused([](MeshOptions& wrong) { wrong.options.planned_bytes = std::size_t{1} << 50; });
}

TEST_P(MeshMeeting, WhoIsMissingIsNamed) {
  const auto addresses = free_addresses(3, kind().device);
  run_parties(mode(), 2, [&](unsigned self) {
    MeshOptions mine = options(addresses, 2 * self);
    mine.options.connect_timeout =
        std::chrono::milliseconds(kind().device == "shm" || kind().device == "tcp" ? 1'000 : 8'000);
    try {
      Mesh mesh(mine);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == ErrorCode::kTimeout || error.code() == ErrorCode::kRefused)
          << error.what();
      // Party 2 connects to party 0 first, which may be late.
      expect_text(error, self == 0 ? "party 1" : "party ");
    }
  });
}

std::string refusal(const MeshOptions& options) {
  return leat::detail::error_of(ErrorCode::kInvalidArgument, [&] { const Mesh mesh(options); });
}

// A mesh connects although strangers come before; they are told why they are turned away.
TEST_P(MeshMeeting, OthersAreTurnedAwayAndToldWhy) {
  const auto addresses = free_addresses(4, kind().device);
  const std::vector<std::string> both(addresses.begin(), addresses.begin() + 2);
  using testing::HasSubstr;
  run_parties(mode(), 2, [&](unsigned self) {
    if (self == 1) {
      MeshOptions wrong = options({addresses[0], addresses[2], addresses[3]}, 1);
      EXPECT_THAT(refusal(wrong),
                  HasSubstr("the number of parties is 2 at party 0 and 3 at party 1"));
      if (kind().carrier != Carrier::kPlanned) {  // there the transport refuses, and says it too
        wrong = options(both, 1);
        wrong.options.planned_bytes = kRegionBytes / 2;
        EXPECT_THAT(refusal(wrong), HasSubstr("planned_bytes are "));
      }
      if (kind().carrier == Carrier::kUnified) {
        wrong = options(both, 1);
        wrong.carrier = Carrier::kContexts;
        EXPECT_THAT(refusal(wrong),
                    HasSubstr("the carrier is unified at party 0 and contexts at party 1"));
      }
    }
    Mesh mesh(options(both, self));
    mesh.barrier();
  });
}

TEST_P(MeshMeeting, StrangersAtTheListenerAreIgnored) {
  const auto addresses = free_addresses(2, kind().device);
  run_parties(mode(), 2, [&](unsigned self) {
    if (self == 0) {
      Mesh mesh(options(addresses, 0));
      mesh.barrier();
      return;
    }
    Options stranger = options(addresses, 1).options;
    stranger.transport = kind().carrier == Carrier::kTcp       ? "tcp"
                         : kind().carrier == Carrier::kPlanned ? "planned"
                                                               : "ring";
    stranger.connect_retry = true;
    const Channel silent = Channel::connect(addresses[0], stranger);
    Channel talking = Channel::connect(addresses[0], stranger);
    talking.send("let me in");
    Channel leaving = Channel::connect(addresses[0], stranger);
    leaving.close();
    const leat::detail::Fd no_leat(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    const std::size_t colon = addresses[0].find(':');
    address.sin_port =
        htons(static_cast<std::uint16_t>(std::stoul(addresses[0].substr(colon + 1))));
    inet_pton(AF_INET, addresses[0].substr(0, colon).c_str(), &address.sin_addr);
    ASSERT_EQ(::connect(no_leat.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
              0);
    Mesh mesh(options(addresses, 1));
    mesh.barrier();
  });
}

// Two say that they are party 1. One of them is told that it is not; it goes on as party 2.
TEST_P(MeshMeeting, TwoWithTheSameNumber) {
  const auto addresses = free_addresses(4, kind().device);
  const auto with = [&](unsigned first) {
    return std::vector<std::string>{addresses[0], addresses[first], addresses[3]};
  };
  run_parties(mode(), 3, [&](unsigned self) {
    if (self == 0) {
      Mesh mesh(options(with(1), 0));
      mesh.barrier();
      return;
    }
    std::optional<Mesh> mesh;
    try {
      mesh.emplace(options(with(self), 1));
    } catch (const Error& error) {
      expect_text(error, "party 1 is connected already");
      mesh.emplace(options(with(3 - self), 2));
    }
    mesh->barrier();
  });
  const Listener holder(addresses[0]);
  expect_error(ErrorCode::kAddress, [&] { Mesh mesh(options(addresses, 0)); });
}

TEST_P(MeshMeeting, ConnectingToItself) {
  const auto addresses = free_addresses(2, kind().device);
  const std::string everywhere = "0.0.0.0" + addresses[0].substr(addresses[0].find(':'));
  EXPECT_THAT(refusal(options({addresses[0], everywhere, addresses[1]}, 1)),
              testing::HasSubstr("it says that it is party 1, as this one"));
}

// --- plans

constexpr const char* kModel = R"({"name": "tiny", "dataset": "none", "batch_size": 4,
  "input_size": 64, "num_classes": 3, "model": [
    {"layer": "cnn", "input_hw": [8, 8], "in_channels": 1, "out_channels": 2, "filter_hw": [3, 3],
     "stride": 1, "padding": 0},
    {"layer": "relu", "input_dim": 72},
    {"layer": "fc", "input_dim": 72, "output_dim": 3}]})";

Plan tiny_plan(unsigned parties, std::uint64_t batch) {
  return make_plan(parse(read_model(kModel), {.parties = parties, .train = true, .batch = batch}),
                   {});
}

TEST_P(MeshMeeting, AllMessagesOfAPlan) {
  for (const unsigned parties : {2U, 3U, 4U}) {
    const Plan plan = tiny_plan(parties, 4);
    const auto addresses = free_addresses(parties, kind().device);
    run_parties(mode(), parties, [&](unsigned self) {
      MeshOptions mine = options(addresses, self);
      mine.plan = &plan;
      Mesh mesh(mine);
      for (const Step& step : plan.steps) {
        for (const std::size_t i : step.opens) mesh.open(plan.placements[i]);
        for (const std::size_t i : step.arrays) {
          const Placement& placement = plan.placements[i];
          const leat::MessageArray array{
              .message_bytes = static_cast<std::uint32_t>(placement.messages.message_bytes),
              .count = placement.messages.message_count()};
          mesh.select(placement.context);
          std::uint64_t first = 0;
          for (const std::uint64_t count : placement.messages.round_messages) {
            for (const Flow& flow : placement.messages.flows)
              if (flow.sender == self)
                mesh.send(flow.receiver, messages(array, i, self, flow.receiver, first, count));
            for (const Flow& flow : placement.messages.flows)
              if (flow.receiver == self) {
                EXPECT_TRUE(same(mesh.receive(flow.sender, count),
                                 messages(array, i, flow.sender, self, first, count)));
              }
            first += count;
          }
        }
        for (const std::size_t i : step.frees) mesh.close(plan.placements[i].context);
      }
      mesh.barrier();
    });
  }
}

std::string hex(const Plan& plan) {
  std::string text;
  for (const std::uint8_t byte : plan.digest) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", byte);
    text += digits;
  }
  return text;
}

TEST_P(MeshMeeting, DifferentPlansAreRefusedWithBothDigests) {
  const std::vector<Plan> plans{tiny_plan(2, 4), tiny_plan(2, 5)};
  const auto addresses = free_addresses(2, kind().device);
  run_parties(mode(), 2, [&](unsigned self) {
    MeshOptions mine = options(addresses, self);
    mine.plan = &plans[self];
    if (self == 0)
      mine.options.connect_timeout = std::chrono::seconds(is_ib(kind().device) ? 12 : 4);
    try {
      Mesh mesh(mine);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      const bool refused = error.code() == ErrorCode::kInvalidArgument;
      EXPECT_TRUE(refused || self == 0) << error.what();
      // The listening side's transport has logged it; its mesh misses the other party.
      if (self == 0 && kind().carrier == Carrier::kPlanned) return expect_text(error, "party 1");
      expect_text(error, hex(plans[0]));
      expect_text(error, hex(plans[1]));
    }
  });
  MeshOptions wrong = options(free_addresses(3, kind().device), 0);
  wrong.plan = plans.data();
  expect_error(ErrorCode::kInvalidArgument, [&] { Mesh mesh(wrong); });
}

}  // namespace
}  // namespace leat::scml

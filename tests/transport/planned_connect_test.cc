// PlannedChannel: sides that have different plans, or no plan, do not connect.
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "support/channel_side.h"
#include "support/planned_side.h"

namespace leat::detail {
namespace {

class PlannedConnect : public testing::TestWithParam<ChannelKind> {
 protected:
  // What connecting says if the two sides have such options. EXPECTs that it throws, and that the
  // listener still serves a peer with equal ones.
  static std::string refusal(const std::function<void(Options&)>& client,
                             const std::function<void(Options&)>& server) {
    Options server_options = channel_options(GetParam());
    server(server_options);
    Listener listener(listening_address(GetParam()), server_options);
    std::string said;
    std::thread connecting([&] {
      Options options = channel_options(GetParam());
      client(options);
      try {
        Channel::connect(listener.address(), options);
        ADD_FAILURE() << "connected";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
        said = error.what();
      }
      Channel::connect(listener.address(), server_options).send("hello");
    });
    Channel accepted = listener.accept();
    EXPECT_EQ(accepted.receive().text(), "hello");
    connecting.join();
    return said;
  }
};

TEST_P(PlannedConnect, DifferentPlansAreRefusedWithBothDigests) {
  const auto said = refusal([](Options& options) { options.planned_digest = "00FFee"; },
                            [](Options& options) { options.planned_digest = "00ffef"; });
  EXPECT_NE(said.find("00ffee"), std::string::npos) << said;
  EXPECT_NE(said.find("00ffef"), std::string::npos) << said;
}

TEST_P(PlannedConnect, APlanAndNoneAreDifferent) {
  const auto said = refusal(
      [](Options&) {}, [](Options& options) { options.planned_digest = std::string(64, 'a'); });
  EXPECT_NE(said.find(std::string(64, 'a')), std::string::npos) << said;
  EXPECT_NE(said.find("none"), std::string::npos) << said;
}

TEST_P(PlannedConnect, DifferentRegionsAreRefusedWithBothSizes) {
  const auto said = refusal([](Options& options) { options.planned_bytes = 4096; },
                            [](Options& options) { options.planned_bytes = 8192; });
  EXPECT_NE(said.find("4096"), std::string::npos) << said;
  EXPECT_NE(said.find("8192"), std::string::npos) << said;
}

TEST_P(PlannedConnect, ArraysNeedThePlannedTransport) {
  ChannelKind ring = GetParam();
  ring.transport = "ring";
  Listener listener(listening_address(ring), channel_options(ring));
  std::thread connecting([&] {
    Channel channel = Channel::connect(listener.address(), channel_options(ring));
    expect_error(ErrorCode::kInvalidArgument, [&] { PlannedChannel{std::move(channel)}; });
  });
  const Channel accepted = listener.accept();
  connecting.join();
}

INSTANTIATE_TEST_SUITE_P(Channels, PlannedConnect, testing::ValuesIn(planned_kinds()),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace leat::detail

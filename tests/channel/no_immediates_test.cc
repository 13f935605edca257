// Devices without writes with immediate data, as iWARP's: what leat says of them, and where it
// goes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>

#include "leat/channel.h"
#include "leat/listener.h"
#include "support/channel_side.h"
#include "support/devices.h"
#include "support/errors.h"
#include "support/late_device.h"

namespace leat::detail {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A connection opens the listener's device, and then the client's.
enum class Lacking : unsigned { kListener, kClient };

std::atomic<unsigned> opened{0};
std::atomic<Lacking> lacking{Lacking::kListener};

std::unique_ptr<Device> decorate(std::unique_ptr<Device> device) {
  LateProfile profile;
  // Relaxed: the handshake orders the two.
  profile.immediates = opened.fetch_add(1, std::memory_order_relaxed) !=
                       static_cast<unsigned>(lacking.load(std::memory_order_relaxed));
  return make_late_device(std::move(device), profile);
}

class NoImmediates : public testing::TestWithParam<Lacking> {
 protected:
  NoImmediates() {
    opened = 0;
    lacking = GetParam();
  }

  static Options options(const std::string& transport) {
    Options options = channel_options({transport, transport == "auto" ? "shm,tcp" : "shm"});
    options.fallback = "allow";
    return options;
  }
  static std::string reason(const std::string& transport) {
    return std::string("shm: ") + (GetParam() == Lacking::kListener ? "listener" : "client") +
           ": device shm has no writes with immediate data, which transport " + transport +
           " needs";
  }

 private:
  const DecoratedDevices decorated_{decorate};
};

TEST_P(NoImmediates, AConnectionGoesOverTcpAndSaysWhy) {
  Listener listener("127.0.0.1:0", options("auto"));
  std::thread server([&] {
    Channel channel = listener.accept();
    channel.send(channel.receive().text());
  });
  Channel channel = Channel::connect(listener.address(), options("auto"));
  EXPECT_EQ(channel.device(), "tcp");
  EXPECT_EQ(channel.transport(), "tcp");
  EXPECT_THAT(channel.description(), HasSubstr("(rejected: " + reason("ring")));
  EXPECT_EQ(channel.stats().fallbacks, 1U);
  channel.send("hello");
  EXPECT_EQ(channel.receive().text(), "hello");
  server.join();
}

TEST_P(NoImmediates, WithoutFallbackItIsAnError) {
  Options never = options("auto");
  never.fallback = "never";
  const Listener listener("127.0.0.1:0", never);
  EXPECT_THAT(
      error_of(ErrorCode::kUnavailable, [&] { Channel::connect(listener.address(), never); }),
      AllOf(HasSubstr(reason("ring")), HasSubstr("forbidden")));
}

TEST_P(NoImmediates, EachTransportThatIsNamedIsAnError) {
  for (const ChannelKind& kind : channel_kinds()) {
    if (kind.device != "shm") continue;
    opened = 0;
    const Listener listener("127.0.0.1:0", options(kind.transport));
    EXPECT_THAT(error_of(ErrorCode::kUnavailable,
                         [&] { Channel::connect(listener.address(), options(kind.transport)); }),
                HasSubstr(reason(kind.transport)));
  }
}

INSTANTIATE_TEST_SUITE_P(Sides, NoImmediates, testing::Values(Lacking::kListener, Lacking::kClient),
                         [](const auto& tested) {
                           return tested.param == Lacking::kListener ? "listener" : "client";
                         });

}  // namespace
}  // namespace leat::detail

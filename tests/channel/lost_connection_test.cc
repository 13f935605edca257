// What a channel says when its connection is lost: with whom, why, and what to do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/uio.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "capi/stream_end.h"
#include "channel/channel_core.h"
#include "support/errors.h"
#include "support/lone_core.h"
#include "support/scale.h"
#include "support/silent_transport.h"

namespace leat::detail {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Every call fails in the same way.
class FailedTransport : public SilentTransport {
 public:
  explicit FailedTransport(Error error) : error_(std::move(error)) {}
  SendResult try_send(std::span<const std::byte>, Context) override { throw Error(error_); }
  std::span<std::byte> try_reserve(std::size_t, Context) override { throw Error(error_); }
  SendResult try_commit(std::size_t) override { throw Error(error_); }
  bool try_end() override { throw Error(error_); }
  bool try_flush() override { throw Error(error_); }
  ReceiveResult try_receive(Context, Delivery&) override { throw Error(error_); }

 private:
  const Error error_;
};

LoneCore failed(ErrorCode code, const std::string& text) {
  return LoneCore(std::make_unique<FailedTransport>(Error(code, text)));
}

TEST(LostConnection, EveryCallNamesPeerReasonAndAdvice) {
  const LoneCore lone = failed(ErrorCode::kPeerDied, "receiving failed: flushed");
  ChannelCore& core = *lone.core;
  const std::byte byte{};
  const std::pair<const char*, std::function<void()>> calls[] = {
      {"send",
       [&] {
         core.send({&byte, 1}, 0);
       }},
      {"try_send",
       [&] {
         (void)core.try_send({&byte, 1}, 0);
       }},
      {"offer",
       [&] {
         (void)core.try_send_unwatched({&byte, 1});
       }},
      {"reserve", [&] { (void)core.reserve(1, 0); }},
      {"commit", [&] { core.commit(1); }},
      {"has_room", [&] { (void)core.has_room(1); }},
      {"flush", [&] { core.flush(); }},
      {"try_flush", [&] { (void)core.try_flush(); }},
      {"try_shutdown", [&] { (void)core.try_shutdown(); }},
      {"receive", [&] { (void)core.receive(0); }},
      {"try_receive", [&] { (void)core.try_receive(0); }},
      {"glance", [&] { (void)core.glance(); }},
  };
  for (const auto& [name, call] : calls) {
    EXPECT_THAT(error_of(ErrorCode::kPeerDied, call),
                AllOf(HasSubstr("the connection with 192.0.2.1:4711 has ended: receiving failed: "
                                "flushed. See how the peer ended"),
                      HasSubstr("connect again.")))
        << name;
  }
}

TEST(LostConnection, WhatTheCallerDidWrongIsToldAsItIs) {
  const LoneCore lone = failed(ErrorCode::kTooLarge, "a message of 9 bytes is too large");
  EXPECT_EQ(error_of(ErrorCode::kTooLarge, [&] { (void)lone.core->try_send({}, 0); }),
            "a message of 9 bytes is too large");
}

TEST(LostConnection, OwnCloseIsNotThePeersDeath) {
  const LoneCore lone = failed(ErrorCode::kPeerDied, "sending failed: flushed");
  lone.core->interrupt();
  EXPECT_THAT(error_of(ErrorCode::kClosed, [&] { (void)lone.core->try_receive(0); }),
              AllOf(HasSubstr("was closed"), Not(HasSubstr("has ended"))));
}

// No event, no error of the device: only the lifeline tells.
TEST(LostConnection, PollingAloneNoticesThatThePeerIsGone) {
  LoneCore lone(std::make_unique<SilentTransport>());
  for (int i = 0; i < 10'000; ++i) ASSERT_FALSE(lone.core->try_receive(0));
  lone.peer.reset();
  const auto poll = [&] {
    const Deadline deadline = notice_deadline();
    while (!passed(deadline)) (void)lone.core->try_receive(0);
  };
  EXPECT_THAT(
      error_of(ErrorCode::kPeerDied, poll),
      AllOf(HasSubstr("192.0.2.1:4711"), HasSubstr("went away"), HasSubstr("connect again")));
  EXPECT_THAT(error_of(ErrorCode::kPeerDied, [&] { (void)lone.core->try_receive(0); }),
              HasSubstr("went away"));
}

TEST(LostConnection, ReceivingCWithoutBlockingNoticesIt) {
  LoneCore lone(std::make_unique<SilentTransport>());
  c::StreamEnd end(std::move(lone.core));
  const auto receive = [&] {
    std::byte byte{};
    const iovec part{&byte, 1};
    posix::Buffers to(&part, 1);
    EXPECT_EQ(end.take(to, false), 0u);
    return end.receive_state();
  };
  for (int i = 0; i < 10'000; ++i) ASSERT_EQ(receive(), 0);
  lone.peer.reset();
  const Deadline deadline = notice_deadline();
  int state = 0;
  while (state == 0 && !passed(deadline)) state = receive();
  EXPECT_EQ(state, -ECONNRESET);  // what is no TCP connection cannot say that it ended in order
}

}  // namespace
}  // namespace leat::detail

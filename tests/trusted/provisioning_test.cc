// How a kernel gets its sessions. README.md beside this numbers the cases.
#include "trusted/provisioning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <stdexcept>
#include <thread>

#include "support/errors.h"
#include "trusted/kernel_support.h"

namespace leat::trusted {
namespace {

using detail::Frame;
using detail::FrameType;
using detail::Order;
using detail::Provisioned;
using leat::detail::Fd;

Verdict say(Provisioned& kernel, const Order& order) {
  return detail::decode(kernel.answer(detail::encode(order)))->verdict;
}

class Provisioning : public testing::Test {
 protected:
  Verdict begin(std::uint64_t epoch) {
    return say(kernel_, {.type = FrameType::kBegin, .device = 1, .epoch = epoch});
  }
  Verdict provision(std::uint32_t id, const Key& key) {
    return say(kernel_, {.type = FrameType::kProvision,
                         .session = {.id = id, .peer = 2, .streams = 16, .key = key}});
  }
  Verdict enable(std::uint64_t epoch) {
    return say(kernel_, {.type = FrameType::kEnable, .epoch = epoch});
  }

  std::uint64_t remembered_ = 0;
  Provisioned kernel_{6, [this](std::uint64_t epoch) { remembered_ = epoch; }};
};

TEST_F(Provisioning, a_kernel_attests_after_enable_and_not_before) {
  EXPECT_EQ(begin(kEpoch), Verdict::kOk);
  EXPECT_EQ(remembered_, kEpoch);
  EXPECT_EQ(provision(kSession, key_of(1)), Verdict::kOk);
  Proof proof;
  EXPECT_EQ(kernel_.kernel()->attest({.session = kSession}, {}, proof), Verdict::kNotEnabled);
  EXPECT_FALSE(kernel_.enabled());
  EXPECT_EQ(enable(kEpoch + 1), Verdict::kEpoch);
  EXPECT_EQ(enable(kEpoch), Verdict::kOk);
  EXPECT_TRUE(kernel_.enabled());
  EXPECT_EQ(kernel_.kernel()->attest({.session = kSession}, {}, proof), Verdict::kOk);
}

TEST_F(Provisioning, an_epoch_that_was_remembered_is_refused) {
  for (const std::uint64_t epoch : {0U, 1U, 6U}) EXPECT_EQ(begin(epoch), Verdict::kEpochReused);
  EXPECT_EQ(remembered_, 0U);
  EXPECT_EQ(kernel_.kernel(), nullptr);
  EXPECT_EQ(begin(7), Verdict::kOk);
}

TEST_F(Provisioning, an_epoch_that_cannot_be_remembered_makes_no_kernel) {
  Provisioned forgetful{0, [](std::uint64_t) { throw std::runtime_error("disk full"); }};
  EXPECT_EQ(say(forgetful, {.type = FrameType::kBegin, .device = 1, .epoch = 1}),
            Verdict::kUnavailable);
  EXPECT_EQ(forgetful.kernel(), nullptr);
}

TEST_F(Provisioning, everything_has_its_order) {
  EXPECT_EQ(provision(1, key_of(1)), Verdict::kNotEnabled);
  EXPECT_EQ(enable(kEpoch), Verdict::kNotEnabled);
  EXPECT_EQ(begin(kEpoch), Verdict::kOk);
  EXPECT_EQ(begin(kEpoch + 1), Verdict::kSealed);
  EXPECT_EQ(provision(1, key_of(1)), Verdict::kOk);
  EXPECT_EQ(provision(1, key_of(2)), Verdict::kDuplicate);
  EXPECT_EQ(provision(2, key_of(1)), Verdict::kDuplicate);
  EXPECT_EQ(provision(2, key_of(2, 31)), Verdict::kBadKey);
  EXPECT_EQ(provision(2, key_of(2, 65)), Verdict::kBadKey);
  EXPECT_EQ(enable(kEpoch), Verdict::kOk);
  EXPECT_EQ(provision(3, key_of(3)), Verdict::kSealed);
}

// There is no frame that a key comes back by: every other type is refused.
TEST_F(Provisioning, no_frame_asks_for_keys) {
  ASSERT_EQ(begin(kEpoch), Verdict::kOk);
  ASSERT_EQ(provision(kSession, key_of(0x5a)), Verdict::kOk);
  ASSERT_EQ(enable(kEpoch), Verdict::kOk);
  Frame frame = detail::encode({.type = FrameType::kEnable, .epoch = kEpoch});
  for (unsigned type = 0; type < 256; ++type) {
    frame[5] = static_cast<std::byte>(type);
    const Frame answer = kernel_.answer(frame);
    const auto said = detail::decode(answer);
    ASSERT_TRUE(said);
    EXPECT_EQ(said->type, FrameType::kAnswer);
    EXPECT_TRUE(std::all_of(answer.begin() + 9, answer.end(),
                            [](std::byte byte) { return byte == std::byte{0}; }));
    EXPECT_EQ(said->verdict == Verdict::kOk, type == 3) << type;
  }
}

TEST_F(Provisioning, frames_of_other_sizes_and_with_stray_bytes_are_refused) {
  const Frame good = detail::encode({.type = FrameType::kBegin, .device = 1, .epoch = kEpoch});
  for (const std::size_t bytes : {0U, 1U, 95U})
    EXPECT_EQ(detail::decode(kernel_.answer(std::span(good).first(bytes)))->verdict,
              Verdict::kFormat);
  for (const std::size_t place : {0U, 4U, 6U, 7U, 20U, 95U}) {
    Frame bad = good;
    bad[place] ^= std::byte{0x40};
    EXPECT_EQ(detail::decode(kernel_.answer(bad))->verdict, Verdict::kFormat) << place;
  }
  EXPECT_EQ(kernel_.kernel(), nullptr);
}

TEST_F(Provisioning, over_a_socket_until_the_kernel_ends) {
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
  Fd served(sockets[1]);
  std::thread server([&] {
    Frame frame;
    for (int orders = 0; orders < 3; ++orders) {
      const ssize_t got = recv(served.get(), frame.data(), frame.size(), 0);
      if (got <= 0) break;
      const Frame answer = kernel_.answer(std::span(frame).first(static_cast<std::size_t>(got)));
      send(served.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    }
    served.reset();
  });
  detail::Provisioner controller{Fd(sockets[0])};
  const auto soon = leat::detail::deadline_after(std::chrono::seconds(20));
  const Key key = key_of(9);
  EXPECT_EQ(controller.begin(1, kEpoch, soon), Verdict::kOk);
  EXPECT_EQ(controller.provision({.id = 5, .peer = 2, .key = key}, soon), Verdict::kOk);
  EXPECT_EQ(controller.enable(kEpoch, soon), Verdict::kOk);
  server.join();
  EXPECT_FALSE(leat::detail::error_of(ErrorCode::kPeerDied, [&] {
                 controller.enable(kEpoch, soon);
               }).empty());
}

TEST_F(Provisioning, a_kernel_that_does_not_answer_is_a_timeout) {
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
  const Fd silent(sockets[1]);
  detail::Provisioner controller{Fd(sockets[0])};
  EXPECT_THAT(leat::detail::error_of(
                  ErrorCode::kTimeout,
                  [&] {
                    controller.begin(1, 1,
                                     leat::detail::deadline_after(std::chrono::milliseconds(20)));
                  }),
              testing::HasSubstr("does not answer"));
}

}  // namespace
}  // namespace leat::trusted

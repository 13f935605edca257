// Which connections are left to TCP, because those before them have ended too soon.
#include "preload/short_connections.h"

#include <gtest/gtest.h>

#include "preload/hidden.h"
#include "preload/kept_memory.h"
#include "preload/shared_memory.h"

namespace leat::preload {
namespace {

// Each test has an address of its own, since what is learned stays.
Address address(std::uint16_t port) { return Address::v4({.s_addr = 0x0100007f}, port); }

struct Ended {
  std::uint64_t sends = 1;
  std::uint64_t sent_bytes = 100;
  std::uint64_t received_bytes = 100;
  unsigned side = 0;
  bool of_this_process = true;
};

void note(const Address& to, const Ended& ended) {
  int memfd = -1;
  SharedMemory* memory = new_memory(memfd);
  ASSERT_NE(memory, nullptr);
  memory->begin({}, to);
  Object object;
  ASSERT_TRUE(object.connection.attach(memory, ended.side, hide(memfd)));
  object.made_at = ended.of_this_process ? memory_generation() : 0;
  object.connection.shown().sends = ended.sends;
  object.connection.shown().sent_bytes = ended.sent_bytes;
  object.connection.shown().received_bytes = ended.received_bytes;
  note_ended(object);
  close_hidden(object.connection.memfd());
  object.connection.unmap();
  object.connection.detach(false);
}

// How many of the next connections stay with TCP until one is carried, up to `most`.
unsigned left_to_tcp(const Address& to, unsigned most = 5000) {
  unsigned count = 0;
  while (count < most && !worth_carrying(to)) ++count;
  return count;
}

TEST(ShortConnections, ManyInARowPauseLongerAndLonger) {
  const Address to = address(1);
  for (int i = 0; i < 7; ++i) {
    note(to, {});
    EXPECT_TRUE(worth_carrying(to)) << i;
  }
  for (const unsigned pause : {16U, 32U, 64U, 128U, 256U, 512U, 1024U, 1024U}) {
    note(to, {});
    EXPECT_EQ(left_to_tcp(to), pause);
    EXPECT_EQ(left_to_tcp(to), pause / 32) << "others may be on their way before that one ends";
    EXPECT_EQ(left_to_tcp(to), pause / 32);
  }
}

TEST(ShortConnections, OneThatIsNotShortEndsIt) {
  const Ended kinds[] = {{.sends = 16}, {.sent_bytes = 65536}, {.received_bytes = 65536}};
  std::uint16_t port = 100;
  for (const Ended& ended : kinds) {
    const Address to = address(port++);
    for (int i = 0; i < 8; ++i) note(to, {});
    EXPECT_EQ(left_to_tcp(to), 16U);
    note(to, ended);
    for (int i = 0; i < 7; ++i) note(to, {});
    EXPECT_EQ(left_to_tcp(to), 0U);
    note(to, {});
    EXPECT_EQ(left_to_tcp(to), 16U) << "as at first";
  }
}

TEST(ShortConnections, OneThatIsNotShortEndsALookOfWhichOthersAreUnderWay) {
  const Address to = address(150);
  for (int i = 0; i < 8; ++i) note(to, {});
  for (const unsigned pause : {16U, 32U, 64U, 128U}) {
    EXPECT_EQ(left_to_tcp(to), pause);
    note(to, {});
  }
  EXPECT_EQ(left_to_tcp(to), 256U);
  EXPECT_EQ(left_to_tcp(to, 3), 3U);
  note(to, {.sends = 16});
  EXPECT_EQ(left_to_tcp(to), 0U);
  EXPECT_EQ(left_to_tcp(to), 0U);
}

TEST(ShortConnections, ThoseUnderWayWhenAPauseBeginsDoNotMakeItLonger) {
  const Address to = address(200);
  for (int i = 0; i < 8 + 50; ++i) note(to, {});
  EXPECT_EQ(left_to_tcp(to), 16U);
}

TEST(ShortConnections, OnlyWhatThisProcessMadeCounts) {
  const Address to = address(300);
  for (int i = 0; i < 20; ++i) {
    note(to, {.side = 1});
    note(to, {.of_this_process = false});
  }
  EXPECT_EQ(left_to_tcp(to), 0U);
}

TEST(ShortConnections, OneAddressDoesNotSpeakForAnother) {
  const Address to = address(400);
  for (int i = 0; i < 8; ++i) note(to, {});
  EXPECT_EQ(left_to_tcp(address(401)), 0U);
  // One that shares its place in the table, too.
  EXPECT_EQ(left_to_tcp(address(400 + 64)), 0U);
  EXPECT_EQ(left_to_tcp(to), 16U);
}

}  // namespace
}  // namespace leat::preload

// Memory of connections that are over: who gets it again, and who must not.
#include "preload/kept_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "preload/hidden.h"
#include "preload/shared_memory.h"

namespace leat::preload {
namespace {

constexpr uid_t kPeer = 4711;

class KeptMemory : public testing::Test {
 protected:
  ~KeptMemory() override { forget_kept_memory(); }

  // A connection of this process to kPeer, as it is when its peer has closed it.
  void make(Object& object, unsigned side = 0) {
    int memfd = -1;
    SharedMemory* memory = new_memory(memfd);
    ASSERT_NE(memory, nullptr);
    memory->begin({}, {});
    memory->directions[0].tail = 100;
    memory->sides[1 - side].note = kClosedInOrder;
    ASSERT_TRUE(object.connection.attach(memory, side, hide(memfd)));
    object.connection.own().tcp.flags = kPeerGone;
    object.owner = kPeer;
    object.made_at = side == 0 ? memory_generation() : 0;
  }
  static void unmake(Object& object) {
    close_hidden(object.connection.memfd());
    object.connection.unmap();
    object.connection.detach(false);
  }
  // False, and then it is unmade, if it is not kept.
  bool is_kept(Object& object) {
    if (keep_memory(object)) return true;
    unmake(object);
    return false;
  }
};

TEST_F(KeptMemory, ComesAgainAsNewForTheSameUserOnly) {
  Object object;
  make(object);
  SharedMemory* const memory = object.connection.memory();
  const int memfd = object.connection.memfd();
  ASSERT_TRUE(keep_memory(object));
  int found = -1;
  EXPECT_EQ(take_kept_memory(kPeer + 1, found), nullptr);
  ASSERT_EQ(take_kept_memory(kPeer, found), memory);
  EXPECT_EQ(found, memfd);
  EXPECT_EQ(memory->directions[0].tail, 0U);
  EXPECT_EQ(memory->sides[1].note, kNotClosed);
  EXPECT_EQ(take_kept_memory(kPeer, found), nullptr) << "it was given away";
  unmake(object);
}

TEST_F(KeptMemory, IsNotWhatAnotherProcessMayHave) {
  Object inherited;
  make(inherited);
  inherited.made_at = 0;
  EXPECT_FALSE(is_kept(inherited));
  Object forked;
  make(forked);
  share_all_memory();
  EXPECT_FALSE(is_kept(forked));
}

TEST_F(KeptMemory, IsNotWhatThePeerMayStillUse) {
  Object open;
  make(open);
  open.connection.own().tcp.flags = 0;
  EXPECT_FALSE(is_kept(open));
  Object in_use;
  make(in_use);
  in_use.connection.peer().note = kClosedInUse;
  EXPECT_FALSE(is_kept(in_use));
  Object killed;
  make(killed);
  killed.connection.peer().note = kNotClosed;
  EXPECT_FALSE(is_kept(killed));
}

TEST_F(KeptMemory, IsNotWhatHasMuchInIt) {
  Object object;
  make(object);
  object.connection.memory()->directions[1].tail = 1 << 20;
  EXPECT_FALSE(is_kept(object));
}

TEST_F(KeptMemory, AcceptedMemoryIsFoundByWhatItIs) {
  Object object;
  make(object, 1);
  SharedMemory* const memory = object.connection.memory();
  const int again = dup(object.connection.memfd());
  ASSERT_TRUE(keep_memory(object));
  int other = -1;
  SharedMemory* const other_memory = new_memory(other);
  int found = -1;
  EXPECT_EQ(find_kept_memory(other, found), nullptr);
  EXPECT_EQ(find_kept_memory(again, found), memory);
  EXPECT_EQ(find_kept_memory(again, found), nullptr) << "it is in use";
  Connection unused;
  ASSERT_TRUE(unused.attach(other_memory, 0, other));
  unused.unmap();
  unused.detach(false);
  close(other);
  close(again);
  unmake(object);
}

// As many as there is place for; the oldest goes.
TEST_F(KeptMemory, IsFew) {
  int count = 0;
  for (int i = 0; i < 40; ++i) {
    Object object;
    make(object);
    EXPECT_TRUE(keep_memory(object));
  }
  int memfd = -1;
  while (SharedMemory* memory = take_kept_memory(kPeer, memfd)) {
    ++count;
    Connection unused;
    ASSERT_TRUE(unused.attach(memory, 0, memfd));
    unused.unmap();
    unused.detach(false);
    close_hidden(memfd);
  }
  EXPECT_EQ(count, 16);
}

// As vm.memfd_noexec=2 asks for, which some kernels refuse other memory under.
TEST(NewMemory, IsNotToBeExecuted) {
  constexpr unsigned kNoExecution = 8;  // MFD_NOEXEC_SEAL
  const int probe = memfd_create("probe", kNoExecution);
  if (probe < 0) GTEST_SKIP() << "this kernel does not know of it";
  close(probe);
  int memfd = -1;
  SharedMemory* memory = new_memory(memfd);
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(fchmod(memfd, 0700), -1);
  EXPECT_EQ(errno, EPERM);
  munmap(memory, kMemoryBytes);
  close(memfd);
}

}  // namespace
}  // namespace leat::preload

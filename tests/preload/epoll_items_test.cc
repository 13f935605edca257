// The items of a set of epoll: a number or mark that is used again means the new item only.
#include "preload/epoll_items.h"

#include <gtest/gtest.h>

#include <set>

namespace leat::preload {
namespace {

using State = EpollItem::State;

class Items : public testing::Test {
 protected:
  // An object of one reference, which is its user's.
  static Reference object() {
    Reference made = add(kNumber, Kind::kSocket);
    forget(kNumber);
    return made;
  }
  static constexpr int kNumber = 1000;

  EpollItems items_;
};

TEST_F(Items, AreFoundByNumberAndMark) {
  const Reference socket = object();
  EpollItem& item = items_.add(7, socket);
  EXPECT_EQ(items_.of_number(7), &item);
  EXPECT_EQ(items_.of_mark(items_.mark(item)), &item);
  EXPECT_EQ(items_.of_number(6), nullptr);
  EXPECT_EQ(items_.of_number(8), nullptr);
  EXPECT_EQ(items_.of_number(-1), nullptr);
  epoll_data_t own{};
  own.fd = 7;
  EXPECT_FALSE(items_.is_mark(own));
  EXPECT_EQ(items_.of_mark(own), nullptr);
  EXPECT_EQ(socket->references, 2u);
}

TEST_F(Items, BuriedOnesLetGoAtOnceAndAreFreedLater) {
  const Reference socket = object();
  EpollItem& item = items_.add(7, socket);
  const epoll_data_t mark = items_.mark(item);
  items_.bury(item);
  items_.bury(item);
  EXPECT_EQ(socket->references, 1u);
  EXPECT_EQ(items_.of_number(7), nullptr);
  EXPECT_EQ(items_.of_mark(mark), nullptr);
  int visited = 0;
  items_.for_each([&](EpollItem&) { ++visited; });
  EXPECT_EQ(visited, 0);
  items_.purge();
  EXPECT_EQ(items_.of_mark(mark), nullptr);
}

TEST_F(Items, NumberAndPlaceUsedAgain) {
  const Reference first = object();
  const Reference second = object();
  EpollItem& old = items_.add(7, first);
  const epoll_data_t mark = items_.mark(old);
  items_.bury(old);
  // Before the old one is freed, and after.
  EpollItem& next = items_.add(7, second);
  EXPECT_EQ(items_.of_number(7), &next);
  EXPECT_EQ(items_.of_mark(mark), nullptr);
  items_.purge();
  EXPECT_EQ(items_.of_number(7), &next);
  EpollItem& third = items_.add(8, first);
  EXPECT_EQ(items_.of_mark(mark), nullptr) << "has the place of the first, not its mark";
  EXPECT_EQ(items_.of_mark(items_.mark(third)), &third);
}

TEST_F(Items, OrphansKeepTheirMark) {
  const Reference first = object();
  const Reference second = object();
  EpollItem& orphan = items_.add(7, first);
  items_.unbind(orphan);
  orphan.state = State::kOrphan;
  EpollItem& next = items_.add(7, second);
  EXPECT_EQ(items_.of_number(7), &next);
  EXPECT_EQ(items_.of_mark(items_.mark(orphan)), &orphan);
  items_.bury(orphan);
  EXPECT_EQ(items_.of_number(7), &next);
}

TEST_F(Items, ManyPlaces) {
  const Reference socket = object();
  std::set<std::uint64_t> marks;
  for (int round = 0; round < 50; ++round) {
    for (int fd = 0; fd < 100; ++fd) marks.insert(items_.mark(items_.add(fd, socket)).u64);
    EXPECT_EQ(socket->references, 101u);
    EXPECT_LE(100u, items_.room());
    for (int fd = 0; fd < 100; ++fd) items_.bury(*items_.of_number(fd));
    items_.purge();
  }
  EXPECT_EQ(marks.size(), 5000u);
  EXPECT_LE(items_.room(), 256u);
}

}  // namespace
}  // namespace leat::preload

// Records that a node takes in between two turns: in any order, by several ways, forged ones among
// them.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "trusted/parties.h"
#include "trusted/parts/rounds.h"

namespace leat::trusted {
namespace {

using namespace detail;

class IntakeTest : public testing::Test {
 protected:
  // The next record of node 1.
  Bytes record() {
    const Bytes payload(10, std::byte(made_++));
    return attest(*sender_, {.session = kFirstSession}, payload);
  }
  void add(const Bytes& record) { intake_.add(record, expected_); }
  std::vector<Bytes> verify() {
    auto records = intake_.verify(*receiver_);
    expected_ += records.size();
    return records;
  }

 private:
  const std::unique_ptr<LocalKernel> sender_ = kernel_of(1, 2), receiver_ = kernel_of(2, 2);
  Intake intake_;
  unsigned made_ = 0;
  std::uint64_t expected_ = 0;
};

Bytes forged(Bytes record) {
  record.back() ^= std::byte{1};
  return record;
}

// The ways between nodes do not keep an order among each other: the record behind may overtake.
TEST_F(IntakeTest, a_forged_record_before_the_authentic_one_costs_no_later_one) {
  const std::vector<Bytes> records{record(), record(), record()};
  for (const Bytes& one : {forged(records[0]), records[1], records[0], records[2]}) add(one);
  EXPECT_EQ(verify(), records);
}

TEST_F(IntakeTest, each_record_is_given_once_whatever_comes_again_and_with_which_forgeries) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    std::vector<Bytes> records, arrivals;
    for (int i = 0; i < 5; ++i) {
      records.push_back(record());
      for (int copy = 0; copy < 3; ++copy) arrivals.push_back(records.back());
      arrivals.push_back(forged(records.back()));
    }
    // Copies and forgeries anywhere; behind them the records as a link brings them.
    std::ranges::shuffle(arrivals, random);
    arrivals.insert(arrivals.end(), records.begin(), records.end());
    for (const Bytes& one : arrivals) add(one);
    EXPECT_EQ(verify(), records);
    EXPECT_TRUE(verify().empty());
    for (const Bytes& one : arrivals) add(one);
    EXPECT_TRUE(verify().empty()) << "a record came again, and was given again";
  }
}

TEST_F(IntakeTest, a_record_whose_forerunners_have_not_come_is_not_kept) {
  const Bytes first = record(), second = record();
  add(second);
  EXPECT_TRUE(verify().empty());
  add(first);
  add(second);
  EXPECT_EQ(verify(), (std::vector<Bytes>{first, second}));
}

}  // namespace
}  // namespace leat::trusted

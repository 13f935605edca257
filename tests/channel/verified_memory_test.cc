// Memory beside attested messages, against an attacker that changes what is on its way, and against
// peers that lie. tests/trusted/README.md numbers the cases; remote_memory_test.cc has the devices.
#include "channel/verified_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/wire.h"
#include "support/errors.h"
#include "support/scratch.h"
#include "support/wire_transport.h"

namespace leat::detail {
namespace {

using trusted::Algorithm;
using trusted::Verdict;
using Taken = VerifiedMemory::Taken;

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Reads from memory that a test lets the peer publish.
class WireReads final : public RemoteReads {  // NOLINT(cppcoreguidelines-virtual-class-destructor)
 public:
  class Region final : public MemoryRegion {
   public:
    explicit Region(std::size_t bytes) : bytes_(bytes) {}
    std::span<std::byte> memory() const override { return bytes_; }
    std::uint32_t local_key() const override { return 1; }
    RemoteRegion remote() const override {
      return {reinterpret_cast<std::uint64_t>(bytes_.data()), bytes_.size(), 1};
    }

   private:
    mutable Bytes bytes_;
  };

  std::unique_ptr<MemoryRegion> allocate(std::size_t bytes, unsigned access) override {
    auto region = std::make_unique<Region>(bytes);
    if (access == kRemoteRead) published = region->memory();
    return region;
  }
  std::size_t max_read_bytes() const override { return 4096; }
  bool try_read(const RemoteRegion& from, const MemoryRegion& to) override {
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    const auto* bytes = reinterpret_cast<const std::byte*>(from.address);
    std::memcpy(to.memory().data(), bytes, from.bytes);
    return true;
  }
  bool try_finish_read() override { return true; }

  std::span<std::byte> published;
};

class VerifiedMemoryTest : public testing::Test {
 protected:
  static constexpr Context kWrites = 15;
  static constexpr trusted::RemoteMemoryOptions kOptions{.memory_bytes = 256,
                                                         .published_bytes = 1024};

  VerifiedMemoryTest()
      : ours_(transport(true)),
        theirs_(transport(false)),
        memory_(started(theirs_, ours_), kWrites, kOptions) {}

  static AttestedTransport& started(AttestedTransport& one, AttestedTransport& other) {
    const auto setup = one.setup();
    one.start(other.setup());
    other.start(setup);
    return one;
  }
  // The honest other side.
  VerifiedMemory& meet() {
    writer_.emplace(ours_, kWrites, kOptions);
    EXPECT_TRUE(writer_->try_describe());
    EXPECT_TRUE(memory_.try_describe());
    EXPECT_TRUE(writer_->try_take_description());
    EXPECT_TRUE(memory_.try_take_description());
    return *writer_;
  }
  // A side that describes itself as it likes.
  std::string description_refused(std::uint64_t address, std::uint64_t bytes, std::uint32_t zero,
                                  std::uint32_t slot, std::size_t length = 32) {
    Bytes description(length + 32);
    WireWriter writer(description);
    writer.number(std::uint64_t{256});
    writer.number(address);
    writer.number(bytes);
    writer.number(std::uint32_t{1});
    writer.number(zero);
    ours_.take_writes(kWrites);
    EXPECT_TRUE(sent(ours_.try_write(std::span(description).first(length), kWrites, slot, 0)));
    return error_of(ErrorCode::kProtocol, [&] { (void)memory_.try_take_description(); });
  }
  // Whether what is read of the peer's published memory is believed.
  Verdict read(std::string& text, std::uint64_t& floor) {
    Bytes bytes(text.size());
    EXPECT_TRUE(memory_.try_prepare_read(0, bytes.size()) && memory_.try_read() &&
                memory_.try_finish_read());
    const Verdict verdict = memory_.judge(bytes, floor);
    if (verdict == Verdict::kOk) text = text_of(bytes);
    return verdict;
  }
  Taken take() { return memory_.take(changed_); }
  std::uint64_t refused() const {
    Stats stats;
    theirs_.add_stats(stats);
    return stats.refused_records;
  }

  AttestedTransport transport(bool active) {
    return {std::make_unique<WireTransport>(active ? there_ : back_, active ? back_ : there_,
                                            active ? &our_reads_ : &their_reads_),
            {trusted::detail::make_local_home(key_file_, Algorithm::kHmacSha256),
             Algorithm::kHmacSha256, active}};
  }

  const ScratchFolder folder_;
  const std::string key_file_ = folder_.write("key", std::string(64, 'a'));
  Wire there_, back_;
  WireReads our_reads_, their_reads_;
  AttestedTransport ours_, theirs_;
  VerifiedMemory memory_;
  std::optional<VerifiedMemory> writer_;
  std::span<const std::byte> changed_;
};

// Case 23: a write that was changed on its way, in its target or anything else, changes no byte of
// the memory (24: nor is it counted, and the next correct one arrives).
TEST_F(VerifiedMemoryTest, a_write_redirected_or_changed_on_its_way_leaves_the_memory_as_it_was) {
  VerifiedMemory& writer = meet();
  ASSERT_TRUE(writer.try_write(64, as_bytes("as it was sent")));
  const Wire::Item good = there_.items.front();
  there_.items.clear();
  for (std::size_t i = 0; i < good.bytes.size(); ++i) {
    there_.items.push_back(good);
    there_.items.back().bytes[i] ^= std::byte{1};
  }
  EXPECT_EQ(take(), Taken::kNothing);
  EXPECT_EQ(refused(), good.bytes.size());
  EXPECT_THAT(memory_.memory(), testing::Each(std::byte{0}));
  there_.items.push_back(good);
  ASSERT_EQ(take(), Taken::kWrite);
  EXPECT_EQ(text_of(changed_), "as it was sent");
  EXPECT_EQ(changed_.data(), memory_.memory().data() + 64);
}

TEST_F(VerifiedMemoryTest, a_replayed_write_does_not_bring_old_bytes_back) {
  VerifiedMemory& writer = meet();
  ASSERT_TRUE(writer.try_write(0, as_bytes("old")));
  const Wire::Item old = there_.items.front();
  ASSERT_TRUE(writer.try_write(0, as_bytes("new")));
  there_.items.push_back(old);
  EXPECT_EQ(take(), Taken::kWrite);
  EXPECT_EQ(take(), Taken::kWrite);
  EXPECT_EQ(take(), Taken::kNothing);
  EXPECT_EQ(text_of(memory_.memory().first(3)), "new");
}

TEST_F(VerifiedMemoryTest, writes_outside_are_refused_on_both_sides) {
  VerifiedMemory& writer = meet();
  constexpr auto kFar = std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t offset : {std::uint64_t{254}, std::uint64_t{256}, kFar})
    EXPECT_THAT(error_of(ErrorCode::kInvalidArgument,
                         [&] { (void)writer.try_write(offset, as_bytes("out")); }),
                testing::HasSubstr("there are 256"));
  // The peer does not check the place, but attests it.
  for (const std::uint64_t offset : {std::uint64_t{254}, kFar - 1}) {
    ASSERT_TRUE(sent(ours_.try_write(as_bytes("out"), kWrites, 1, offset)));
    for (int i = 0; i < 2; ++i)
      EXPECT_THAT(error_of(ErrorCode::kProtocol, [&] { take(); }),
                  testing::HasSubstr("wrote 3 bytes at"));
  }
  EXPECT_THAT(memory_.memory(), testing::Each(std::byte{0}));
}

TEST_F(VerifiedMemoryTest, messages_and_writes_do_not_pass_for_each_other) {
  VerifiedMemory& writer = meet();
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument,
                       [&] { (void)ours_.try_send(as_bytes("message"), kWrites); }),
              testing::HasSubstr("writes"));
  ASSERT_TRUE(writer.try_write(0, as_bytes("write")));
  there_.items.front().context = 0;
  ASSERT_TRUE(sent(ours_.try_send(as_bytes("message"), 3)));
  there_.items.back().context = kWrites;
  Delivery delivery;
  EXPECT_EQ(theirs_.try_receive(0, delivery), ReceiveResult::kNothing);
  EXPECT_EQ(take(), Taken::kNothing);
  EXPECT_EQ(refused(), 2U);
}

// Case 39: a write that could not leave at once leaves later as it was attested, to its own place.
TEST_F(VerifiedMemoryTest, a_write_that_found_no_room_takes_no_second_counter) {
  VerifiedMemory& writer = meet();
  there_.refuses_commit = true;
  EXPECT_FALSE(writer.try_write(8, as_bytes("first")));
  EXPECT_FALSE(error_of(ErrorCode::kInvalidArgument, [&] {
                 (void)writer.try_write(9, as_bytes("first"));
               }).empty());
  there_.refuses_commit = false;
  EXPECT_TRUE(writer.try_write(8, as_bytes("first")));
  ASSERT_EQ(take(), Taken::kWrite);
  EXPECT_EQ(changed_.data(), memory_.memory().data() + 8);
}

// Case 41, for this memory.
TEST_F(VerifiedMemoryTest, descriptions_that_make_no_sense_are_refused) {
  constexpr auto kFar = std::numeric_limits<std::uint64_t>::max();
  EXPECT_THAT(description_refused(kFar - 9, 100, 0, 0), testing::HasSubstr("impossible"));
  EXPECT_FALSE(description_refused(0, kFar, 1, 0).empty()) << "what must be zero is not";
  EXPECT_FALSE(description_refused(0, 100, 0, 1).empty()) << "a write before it";
  EXPECT_FALSE(description_refused(0, 100, 0, 0, 31).empty());
  EXPECT_FALSE(description_refused(0, 100, 0, 0, 33).empty());
}

// Case 40.
TEST_F(VerifiedMemoryTest, an_older_record_put_back_is_below_the_floor) {
  VerifiedMemory& peer = meet();
  std::uint64_t floor = 0;
  std::string text = "one";
  ASSERT_EQ(peer.publish(0, as_bytes("one")), 0U);
  const Bytes old(our_reads_.published.begin(), our_reads_.published.begin() + 131);
  ASSERT_EQ(read(text, floor), Verdict::kOk);
  ASSERT_EQ(peer.publish(0, as_bytes("two")), 1U);
  ASSERT_EQ(read(text, floor), Verdict::kOk);
  EXPECT_EQ(text, "two");
  EXPECT_EQ(floor, 1U);
  std::ranges::copy(old, our_reads_.published.begin());
  EXPECT_EQ(read(text, floor), Verdict::kCounter);
  EXPECT_EQ(floor, 1U);
  // A reader that knows of a newer record rejects the one that it would have believed before.
  floor = 7;
  ASSERT_EQ(peer.publish(0, as_bytes("six")), 2U);
  EXPECT_EQ(read(text, floor), Verdict::kCounter);
}

TEST_F(VerifiedMemoryTest, nothing_else_than_what_was_published_there_is_read) {
  VerifiedMemory& peer = meet();
  std::uint64_t floor = 0;
  std::string text = "six";
  EXPECT_EQ(read(text, floor), Verdict::kFormat) << "nothing was published";
  ASSERT_EQ(peer.publish(0, as_bytes("six")), 0U);
  const auto published = our_reads_.published;
  for (std::size_t i = 0; i < 131; ++i) {
    published[i] ^= std::byte{1};
    EXPECT_NE(read(text, floor), Verdict::kOk) << i;
    published[i] ^= std::byte{1};
  }
  EXPECT_EQ(read(text, floor), Verdict::kOk);
  std::string longer = "four";
  EXPECT_EQ(read(longer, floor), Verdict::kLength);
  // Each is refused: a record of another place, a message's record, and the reader's own.
  peer.publish(512, as_bytes("six"));
  std::memmove(published.data(), published.data() + 512, 131);
  EXPECT_EQ(read(text, floor), Verdict::kSession);
  ASSERT_TRUE(sent(ours_.try_send(as_bytes("six"), 0)));
  std::ranges::copy(there_.items.back().bytes, published.begin());
  EXPECT_EQ(read(text, floor), Verdict::kSession);
  memory_.publish(0, as_bytes("six"));
  std::ranges::copy(their_reads_.published.first(131), published.begin());
  EXPECT_EQ(read(text, floor), Verdict::kDevice);
  EXPECT_EQ(floor, 0U);
}

TEST_F(VerifiedMemoryTest, what_is_published_and_read_must_lie_inside) {
  VerifiedMemory& peer = meet();
  constexpr auto kFar = std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t offset : {std::uint64_t{1024 - 130}, std::uint64_t{1024}, kFar - 5}) {
    EXPECT_FALSE(error_of(ErrorCode::kInvalidArgument, [&] {
                   peer.publish(offset, as_bytes("six"));
                 }).empty());
    EXPECT_FALSE(error_of(ErrorCode::kInvalidArgument, [&] {
                   (void)memory_.try_prepare_read(offset, 3);
                 }).empty());
  }
  peer.publish(1024 - 131, as_bytes("six"));
}

}  // namespace
}  // namespace leat::detail

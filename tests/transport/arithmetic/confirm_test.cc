// Batched confirmation over a modelled network that does whatever RDMA allows: requests wait, reads
// show each word as it was at some moment of theirs, answers and completions come late.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "support/scale.h"
#include "transport/batched/slot_receiver.h"
#include "transport/parts/sealed_word.h"

namespace leat::detail {
namespace {

constexpr std::uint64_t kKey = 0x1234567;

struct Schedule {
  unsigned slots = 16;
  unsigned messages = 40;
  unsigned bells = 0;       // in a hundred messages: the receiver is told of them
  unsigned landings = 0;    // in a hundred messages: it is told that all so far has landed
  unsigned longest = 1;     // slots of a message
  bool shared = false;      // memory: headers apart, stores instead of requests
  std::uint32_t first = 0;  // place and sequence number of the first message
};

// Both ends of context 0 and what is between them. Each step does one thing, chosen at random.
class Exchange {
 public:
  Exchange(const Schedule& schedule, std::uint64_t seed)
      : schedule_(schedule),
        random_(seed),
        layout_(64, schedule.slots, schedule.shared ? 0 : sizeof(SlotFront)),
        memory_(layout_.bytes()),
        headers_(layout_.all_slots()),
        sender_(layout_.slots(0)),
        flags_(layout_.words(0)),
        echoes_(layout_.words(0)),
        sequence_(schedule.first),
        receiver_(layout_, 0, memory_.data(), kKey, schedule.shared ? headers_.data() : nullptr,
                  schedule.first),
        given_(layout_.words(0)) {}

  // Until every message was delivered and every slot is back.
  void run() {
    std::uint64_t steps = 0;
    while (delivered_ < schedule_.messages || sender_.free() != sender_.slots()) {
      ASSERT_LT(++steps, 1'000'000u) << delivered_ << " of " << schedule_.messages;
      switch (random_() % 8) {
        case 0:
          send();
          break;
        case 1:
          execute();
          break;
        case 2:
          answer();
          break;
        case 3:
          ASSERT_NO_FATAL_FAILURE(read_flags());
          break;
        case 4:
          ASSERT_NO_FATAL_FAILURE(read_given());
          break;
        case 5:
          ASSERT_NO_FATAL_FAILURE(receive());
          break;
        case 6:
          release();
          break;
        default:
          ASSERT_NO_FATAL_FAILURE(hear());
      }
    }
    EXPECT_FALSE(receiver_.waiting());
  }

 private:
  struct Write {
    SlotRun run;
    SlotFront front;
    bool bell = false;
    bool landed = false;
  };
  struct Request {
    enum { kWrite, kEcho } what;
    Write write;
    unsigned slot = 0;  // of an echo
    bool half = false;
  };
  struct Answer {
    unsigned word;
    Echo value;
  };
  // A read in flight: words are sampled one by one, in any order.
  struct Read {
    bool active = false;
    std::vector<unsigned> unsampled;
    std::vector<std::uint64_t> values;
  };

  bool chance(unsigned percent) { return random_() % 100 < percent; }
  std::byte* at(unsigned slot) { return memory_.data() + layout_.offset(0, slot); }

  void send() {
    if (sent_ == schedule_.messages) return;
    const auto run = sender_.find(static_cast<unsigned>(1 + random_() % schedule_.longest));
    if (!run) return;
    Write write{*run, {}, chance(schedule_.bells), chance(schedule_.landings)};
    Echo& echo = write.front.echo;
    echo.bits = sender_.flipped(*run);
    sender_.take(*run);
    SlotHeader& header = echo.header;
    header.sequence = ++sequence_;
    header.place = schedule_.first + sent_++;
    header.size = sized(layout_.run_bytes(0, run->count), SlotKind::kMessage);
    header.check = schedule_.shared ? check_of(header, kKey) : check_of(echo, kKey);
    if (schedule_.shared) return store(write);
    wire_.push_back({Request::kWrite, write});
    // After a doorbell for it, a read shows its flip together with the flip of a later one, if
    // ever.
    if (!write.bell) wire_.push_back({Request::kEcho, {}, run->first});
  }

  // Where memory is shared: the message, the flip, and what tells of it, visible in that order.
  void store(const Write& write) {
    const SlotHeader& header = write.front.echo.header;
    const std::vector<std::uint32_t> body(header.bytes() / sizeof(std::uint32_t), header.place);
    std::memcpy(at(write.run.first), body.data(), body.size() * sizeof(std::uint32_t));
    headers_[write.run.first] = header;
    flags_[write.run.word()] = write.front.echo.bits;
    tell(write);
  }
  void tell(const Write& write) {
    const SlotHeader& header = write.front.echo.header;
    if (write.bell) events_.push_back({write.run.first, header.place});
    if (write.landed) events_.push_back({~0u, header.sequence});
  }

  // The receiver's device executes the sender's requests in order; a write takes a while.
  void execute() {
    if (wire_.empty()) return;
    Request& request = wire_.front();
    if (request.what == Request::kEcho) {
      Echo echo;
      std::memcpy(&echo, at(request.slot), sizeof echo);
      answers_.push_back({request.slot / kWordSlots, echo});
      wire_.pop_front();
      return;
    }
    const Write& write = request.write;
    const std::size_t bytes = layout_.run_bytes(0, write.run.count) / sizeof(std::uint32_t);
    const std::vector<std::uint32_t> body(bytes, write.front.echo.header.place);
    std::byte* const slot = at(write.run.first);
    if (!request.half) {  // the header comes first, the end of the body is missing
      std::memcpy(slot, &write.front, sizeof write.front);
      std::memset(slot + sizeof write.front, 0xee, bytes * sizeof(std::uint32_t));
      request.half = true;
      return;
    }
    std::memcpy(slot + sizeof write.front, body.data(), bytes * sizeof(std::uint32_t));
    tell(write);
    wire_.pop_front();
  }

  // An answer flips the sender's bit. It lands word by word, in any order.
  void answer() {
    if (answers_.empty()) return;
    if (unlanded_.empty()) {
      unlanded_ = {0, 1, 2};
      std::shuffle(unlanded_.begin(), unlanded_.end(), random_);
    }
    const auto& [word, value] = answers_.front();
    echoes_[word][unlanded_.back()] = std::bit_cast<EchoWords>(value)[unlanded_.back()];
    unlanded_.pop_back();
    if (unlanded_.empty()) answers_.pop_front();
  }

  // One step of a read. True: it is done.
  bool advance(Read& read, const std::vector<std::uint64_t>& words) {
    if (!read.active) {
      read = {true, {}, std::vector<std::uint64_t>(words.size())};
      for (unsigned i = 0; i < words.size(); ++i) read.unsampled.push_back(i);
      std::shuffle(read.unsampled.begin(), read.unsampled.end(), random_);
    }
    if (!read.unsampled.empty()) {
      read.values[read.unsampled.back()] = words[read.unsampled.back()];
      read.unsampled.pop_back();
      return false;
    }
    return true;
  }

  template <typename Word>
  void see_flag(unsigned word, const Word& value) {
    if (receiver_.tells_nothing(word, value)) return;
    std::uint32_t found = 0;
    const char* why = receiver_.see(word, value, found);
    ASSERT_EQ(why, nullptr) << why;
    found_ += found;
  }

  void read_flags() {
    if (schedule_.shared) {  // words are loaded, one after the other
      for (unsigned word = 0; word < flags_.size(); ++word)
        ASSERT_NO_FATAL_FAILURE(see_flag(word, flags_[word]));
      const char* why = receiver_.look_done();
      ASSERT_EQ(why, nullptr) << why;
      return;
    }
    std::vector<std::uint64_t> words;
    for (const EchoWords& echo : echoes_) words.insert(words.end(), echo.begin(), echo.end());
    if (!advance(flags_read_, words)) return;
    for (unsigned word = 0; word < echoes_.size(); ++word) {
      EchoWords echo;
      std::copy_n(flags_read_.values.begin() + word * std::ptrdiff_t{3}, 3, echo.begin());
      ASSERT_NO_FATAL_FAILURE(see_flag(word, std::bit_cast<Echo>(echo)));
    }
    flags_read_.active = false;
  }

  void read_given() {
    if (!advance(given_read_, given_)) return;
    unsigned freed = 0;
    for (unsigned word = 0; word < given_.size(); ++word)
      ASSERT_TRUE(sender_.see(word, given_read_.values[word], freed));
    given_read_.active = false;
  }

  // Takes what was announced by immediate data or a write.
  void hear() {
    if (events_.empty()) return;
    const auto [slot, number] = events_.front();
    events_.pop_front();
    std::uint32_t found = 0;
    bool known = false;
    const char* why = slot != ~0u ? receiver_.notified(slot, number, 0, found, known)
                                  : receiver_.landed(number, found);
    ASSERT_EQ(why, nullptr) << why;
    found_ += found;
  }

  void receive() {
    if (!receiver_.waiting()) return;
    const SlotOrder::Entry entry = receiver_.take();
    std::vector<std::uint32_t> body(entry.bytes / sizeof(std::uint32_t));
    std::memcpy(body.data(), receiver_.bytes_of(entry.run), entry.bytes);
    for (const std::uint32_t word : body)
      ASSERT_EQ(word, schedule_.first + delivered_) << "a message of another";
    ++delivered_;
    ASSERT_LE(delivered_, found_);
    held_.push_back(entry.run);
  }

  void release() {
    if (held_.empty()) return;
    const std::size_t which = random_() % held_.size();
    const SlotRun run = held_[which];
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(which));
    given_[run.word()] = receiver_.release(run);
  }

  const Schedule schedule_;
  std::mt19937_64 random_;
  const SlotLayout layout_;
  std::vector<std::byte> memory_;
  std::vector<SlotHeader> headers_;

  ConfirmSender sender_;
  std::vector<std::uint64_t> flags_;  // the sender's bitmap, where memory is shared
  std::vector<EchoWords> echoes_;     // and where it is not
  std::vector<unsigned> unlanded_;    // of the next answer
  std::uint32_t sequence_;
  std::uint32_t sent_ = 0;
  std::deque<Request> wire_;
  std::deque<Answer> answers_;

  SlotReceiver receiver_;
  std::vector<std::uint64_t> given_;  // the receiver's bitmap
  std::deque<std::pair<unsigned, std::uint32_t>> events_;
  std::vector<SlotRun> held_;
  std::uint32_t found_ = 0;
  std::uint32_t delivered_ = 0;
  Read flags_read_, given_read_;
};

void run_schedules(const Schedule& schedule, std::size_t count) {
  for (std::uint64_t seed = 0; seed < count; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Exchange exchange(schedule, seed);
    ASSERT_NO_FATAL_FAILURE(exchange.run());
  }
}

TEST(Confirm, EveryMessageOnceAndInOrderInAHundredThousandSchedules) {
  run_schedules({.slots = 16, .messages = 30}, scaled(40'000));
  run_schedules({.slots = 16, .messages = 30, .bells = 50}, scaled(20'000));
  run_schedules({.slots = 16, .messages = 30, .bells = 20, .landings = 30}, scaled(20'000));
  run_schedules({.slots = 16, .messages = 30, .bells = 20, .landings = 20, .longest = 4},
                scaled(20'000));
}

TEST(Confirm, SharedMemoryInAHundredThousandSchedules) {
  run_schedules({.slots = 16, .messages = 30, .shared = true}, scaled(40'000));
  run_schedules({.slots = 16, .messages = 30, .bells = 50, .shared = true}, scaled(20'000));
  run_schedules({.slots = 16, .messages = 30, .bells = 20, .landings = 30, .shared = true},
                scaled(20'000));
  run_schedules(
      {.slots = 16, .messages = 30, .bells = 20, .landings = 20, .longest = 4, .shared = true},
      scaled(20'000));
}

TEST(Confirm, ManyWordsAndLongRunsForMillionsOfSteps) {
  run_schedules({.slots = 200, .messages = 3000, .longest = 16}, scaled(100));
  run_schedules({.slots = 130, .messages = 3000, .bells = 30, .landings = 5, .longest = 30},
                scaled(100));
  run_schedules({.slots = 130, .messages = 3000, .bells = 30, .longest = 30, .shared = true},
                scaled(100));
}

// Places and numbers wrap around: at the end of all bits, of those that a doorbell has, and of a
// signed number.
TEST(Confirm, NumbersWrapAround) {
  for (const std::uint32_t wraps :
       {0U, 1U << kDoorbellPlaceBits, 1U << 31, 7U << kDoorbellPlaceBits}) {
    for (const bool shared : {false, true}) {
      SCOPED_TRACE(std::to_string(wraps) + (shared ? ", shared" : ""));
      run_schedules({.messages = 30,
                     .bells = 30,
                     .landings = 20,
                     .longest = 3,
                     .shared = shared,
                     .first = wraps - 15},
                    scaled(2000));
    }
  }
}

// --- what cannot be

TEST(ConfirmSender, RefusesBitsThatComeBackTwiceOrWereNeverTaken) {
  ConfirmSender sender(20);
  unsigned freed = 0;
  EXPECT_FALSE(sender.see(0, 1, freed));
  const auto run = *sender.find(3);
  EXPECT_EQ(sender.flipped(run), 7u);
  sender.take(run);
  EXPECT_TRUE(sender.see(0, 0, freed));
  EXPECT_EQ(freed, 0u);
  EXPECT_TRUE(sender.see(0, 3, freed));
  EXPECT_EQ(freed, 2u);
  EXPECT_FALSE(sender.see(0, 1, freed)) << "taken back again";
  EXPECT_FALSE(sender.see(0, 3 | 1u << 20, freed)) << "no slot";
}

TEST(ConfirmReceiver, RefusesABitThatFlipsTwice) {
  ConfirmReceiver receiver(20);
  std::uint64_t fresh = 0;
  EXPECT_TRUE(receiver.see(0, 5, fresh));
  EXPECT_EQ(fresh, 5u);
  EXPECT_FALSE(receiver.see(0, 4, fresh));
  EXPECT_FALSE(receiver.see(0, 5 | 1u << 20, fresh)) << "no slot";
  EXPECT_EQ(receiver.release({0, 1}), 1u);
  EXPECT_TRUE(receiver.see(0, 4, fresh));
  EXPECT_EQ(fresh, 1u);
}

TEST(ConfirmReceiver, GivesBackAtOnceWhatNoReadHasShown) {
  ConfirmReceiver receiver(20);
  std::uint64_t fresh = 0;
  ASSERT_TRUE(receiver.learn(0, 12, 7, fresh));
  EXPECT_EQ(fresh, 12u);
  EXPECT_EQ(receiver.release({2, 2}), 12u);
  ASSERT_TRUE(receiver.learn(0, 0, 8, fresh)) << "another message took both slots";
  EXPECT_EQ(fresh, 12u);
  EXPECT_EQ(receiver.release({2, 2}), 0u);
  for (const std::uint32_t place : {6u, 7u}) {
    EXPECT_TRUE(receiver.see(0, place == 7 ? 12 : 0, place, fresh)) << "reads that are older";
    EXPECT_EQ(fresh, 0u);
    EXPECT_TRUE(receiver.is_ahead(0));
  }
  EXPECT_TRUE(receiver.see(0, 0, 8, fresh));
  EXPECT_EQ(fresh, 0u);
  EXPECT_FALSE(receiver.is_ahead(0));
  EXPECT_TRUE(receiver.see(0, 1, 8 + (1u << 31), fresh)) << "after any number of other messages";
  EXPECT_EQ(fresh, 1u);
  EXPECT_FALSE(receiver.learn(0, 0, 9, fresh)) << "it flipped twice";
  EXPECT_FALSE(receiver.learn(0, 1 | 1u << 20, 9, fresh)) << "no slot";
}

TEST(SlotHeader, AnyFlippedBitChangesTheCheck) {
  SlotHeader header{.place = 2, .size = 100, .sequence = 3};
  header.check = check_of(header, kKey);
  for (std::size_t bit = 0; bit < sizeof header * 8; ++bit) {
    std::array<std::byte, sizeof header> bytes;
    std::memcpy(bytes.data(), &header, sizeof header);
    bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    SlotHeader damaged;
    std::memcpy(&damaged, bytes.data(), sizeof damaged);
    EXPECT_NE(damaged.check, check_of(damaged, kKey)) << bit;
  }
  Echo echo{5, header};
  echo.header.check = check_of(echo, kKey);
  for (std::size_t bit = 0; bit < sizeof echo * 8; ++bit) {
    auto words = std::bit_cast<EchoWords>(echo);
    words[bit / 64] ^= 1ULL << bit % 64;
    const auto damaged = std::bit_cast<Echo>(words);
    EXPECT_NE(damaged.header.check, check_of(damaged, kKey)) << bit;
  }
  for (const std::uint32_t number : {0u, 1u, 77u, ~0u}) {
    EXPECT_TRUE(is_sealed(sealed(number)));
    for (unsigned bit = 0; bit < 64; ++bit) EXPECT_FALSE(is_sealed(sealed(number) ^ 1ULL << bit));
  }
  EXPECT_FALSE(is_sealed(0)) << "memory that nobody wrote";
}

class HostileSlots : public testing::Test {
 protected:
  // `bits`: of the sender's bitmap as of that unit. `key`: of another connection, if it is to be a
  // forgery.
  void write(unsigned slot, SlotHeader header, std::uint64_t bits = 0, std::uint64_t key = kKey) {
    SlotFront front{{bits, header}};
    front.echo.header.check = check_of(front.echo, key);
    std::memcpy(memory_.data() + layout_.offset(0, slot), &front, sizeof front);
  }
  // As a read would show it.
  const char* see(std::uint64_t bits, std::uint32_t place = 0) {
    return see(receiver_, bits, place);
  }
  const char* see(SlotReceiver& receiver, std::uint64_t bits, std::uint32_t place = 0) {
    Echo echo{bits, {.place = place}};
    echo.header.check = check_of(echo, kKey);
    return receiver.see(0, echo, found_);
  }
  std::uint32_t bytes_of(unsigned slots) const {
    return sized(layout_.run_bytes(0, slots), SlotKind::kMessage);
  }
  const SlotLayout layout_{64, 16, sizeof(SlotFront)};
  std::vector<std::byte> memory_ = std::vector<std::byte>(layout_.bytes());
  SlotReceiver receiver_{layout_, 0, memory_.data(), kKey};
  std::uint32_t found_ = 0;
};

TEST_F(HostileSlots, LengthBeyondTheSlotsIsRefused) {
  for (const std::uint32_t bytes : {bytes_of(4) + 1, kMostSlotMessageBytes}) {
    SlotReceiver receiver(layout_, 0, memory_.data(), kKey);
    bool known = false;
    write(0, {.size = bytes, .sequence = 1});
    EXPECT_NE(see(receiver, 0xffff), nullptr) << bytes;
    EXPECT_FALSE(receiver.waiting());
    EXPECT_NE(receiver_.notified(0, 0, 0, found_, known), nullptr);
    EXPECT_EQ(receiver_.landed(1, found_), nullptr) << "may be on its way";
    EXPECT_FALSE(receiver_.waiting());
  }
  // Within a word, but beyond the set.
  write(14, {.size = bytes_of(4), .sequence = 1});
  EXPECT_NE(see(3u << 14), nullptr);
  EXPECT_FALSE(receiver_.waiting());
}

TEST_F(HostileSlots, MoreSlotsThanFlippedIsRefused) {
  write(0, {.size = bytes_of(2), .sequence = 1});
  EXPECT_NE(see(1), nullptr);
}

TEST_F(HostileSlots, DamagedHeaderIsRefused) {
  EXPECT_NE(see(1), nullptr) << "zeros are not a header";
  SlotReceiver receiver(layout_, 0, memory_.data(), kKey);
  write(0, {.size = sized(layout_.run_bytes(0, 2), SlotKind::kBundle), .sequence = 1});
  EXPECT_NE(see(receiver, 3), nullptr) << "bundles have one slot";
}

TEST_F(HostileSlots, RepeatedPlaceIsRefused) {
  write(0, {.place = 0, .size = 1, .sequence = 1});
  ASSERT_EQ(see(1), nullptr);
  write(1, {.place = 16, .size = 1, .sequence = 1});
  EXPECT_NE(see(3, 16), nullptr);
}

TEST_F(HostileSlots, PlaceBeyondWhatSlotsHoldIsRefused) {
  write(0, {.place = 16, .size = 1, .sequence = 1});
  EXPECT_NE(see(1, 16), nullptr);
}

TEST_F(HostileSlots, GapThatStaysIsRefused) {
  write(0, {.place = 1, .size = 1, .sequence = 1});
  ASSERT_EQ(see(1, 1), nullptr) << "the other one may come";
  EXPECT_EQ(receiver_.look_done(), nullptr);
  EXPECT_NE(receiver_.look_done(), nullptr);
  EXPECT_FALSE(receiver_.waiting());
}

// A doorbell says that all messages before its own have landed, though no bit shows them.
TEST_F(HostileSlots, DoorbellShowsThoseBeforeIt) {
  write(3, {.place = 0, .size = 8, .sequence = 1}, 8);
  write(1, {.place = 1, .size = 8, .sequence = 2}, 10);
  bool known = false;
  ASSERT_EQ(receiver_.notified(1, 1, sizeof(SlotFront) + 8, found_, known), nullptr);
  EXPECT_TRUE(known);
  EXPECT_EQ(found_, 2U);
  EXPECT_EQ(receiver_.newest(), 2U);
  EXPECT_EQ(receiver_.take().run.first, 3U);
  EXPECT_EQ(receiver_.take().run.first, 1U);
}

TEST_F(HostileSlots, DoorbellForASlotThatHasAnotherMessageIsRefused) {
  write(1, {.place = 2, .size = 8, .sequence = 3}, 2);
  bool known = false;
  EXPECT_NE(receiver_.notified(1, 1, sizeof(SlotFront) + 8, found_, known), nullptr);
  write(0, {.place = 0, .size = 8, .sequence = 1}, 1);
  EXPECT_NE(receiver_.notified(0, 0, sizeof(SlotFront) + 9, found_, known), nullptr)
      << "not as long as it says";
  EXPECT_EQ(found_, 0U);
  write(0, {.place = 0, .size = 8, .sequence = 1}, 0);
  EXPECT_NE(receiver_.notified(0, 0, sizeof(SlotFront) + 8, found_, known), nullptr)
      << "its own bit is not set";
}

// Words of which a part had not landed, and words of no unit at all, are no reason to hang up.
TEST_F(HostileSlots, WordThatIsNotWholeTellsNothing) {
  write(0, {.place = 0, .size = 8, .sequence = 1}, 1);
  Echo echo{1, {.place = 0}};
  EXPECT_EQ(receiver_.see(0, Echo{}, found_), nullptr);
  EXPECT_EQ(receiver_.see(0, echo, found_), nullptr) << "another one's check";
  EXPECT_EQ(found_, 0U);
  ASSERT_EQ(see(1), nullptr);
  EXPECT_EQ(found_, 1U);
}

TEST_F(HostileSlots, BytesOfAMessageAreNeverTakenForAHeader) {
  // A message of two slots was consumed; its second slot looks like the start of the next one, but
  // its writer did not know the key.
  write(0, {.size = bytes_of(2), .sequence = 1});
  write(1, {.place = 1, .size = 1, .sequence = 2}, 1, kKey + 1);
  ASSERT_EQ(see(3), nullptr);
  receiver_.release(receiver_.take().run);
  ASSERT_EQ(receiver_.landed(5, found_), nullptr);
  EXPECT_FALSE(receiver_.waiting());
}

}  // namespace
}  // namespace leat::detail

// What an attacker can do with records, and each algorithm's answer. README.md beside this numbers
// the cases.
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>

#include "trusted/kernel_support.h"

namespace leat::trusted {
namespace {

// Where the header has what these tests change.
constexpr std::ptrdiff_t kLengthPlace = 32, kSlotPlace = 36, kOffsetPlace = 40, kReservedPlace = 48;

class KernelAttacks : public testing::TestWithParam<Algorithm> {
 protected:
  // After whatever was refused, the next good record is accepted: nothing has changed.
  void expect_next_accepted(Pair& pair, const Record& good) {
    EXPECT_EQ(pair.b.verify(good, Kind::kSend), Verdict::kOk);
    EXPECT_EQ(pair.b.verify(good, Kind::kSend), Verdict::kCounter);
  }
  Pair pair_{GetParam()};
};

std::string name_of(const testing::TestParamInfo<Algorithm>& tested) {
  return std::array{"sha256", "sha384", "sha512",
                    "gmac"}[static_cast<std::size_t>(tested.param) - 1];
}

INSTANTIATE_TEST_SUITE_P(Algorithms, KernelAttacks,
                         testing::Values(Algorithm::kHmacSha256, Algorithm::kHmacSha384,
                                         Algorithm::kHmacSha512, Algorithm::kAes256Gmac),
                         name_of);

TEST_P(KernelAttacks, a_record_says_what_was_attested) {
  const Record record =
      attested(pair_.a, "hello",
               {.session = kSession, .kind = Kind::kWrite, .slot = 5, .offset = 0x1234'5678'9abc});
  const auto header = read_header(record);
  ASSERT_TRUE(header);
  EXPECT_EQ(header->algorithm, GetParam());
  EXPECT_EQ(header->kind, Kind::kWrite);
  EXPECT_EQ(header->session, kSession);
  EXPECT_EQ(header->device, 1U);
  EXPECT_EQ(header->epoch, kEpoch);
  EXPECT_EQ(header->counter, 0U);
  EXPECT_EQ(header->payload_bytes, 5U);
  EXPECT_EQ(header->slot, 5U);
  EXPECT_EQ(header->offset, 0x1234'5678'9abcU);
  EXPECT_EQ(text_of(record), "hello");
  EXPECT_EQ(pair_.b.verify(record, Kind::kWrite), Verdict::kOk);
}

TEST_P(KernelAttacks, every_flipped_bit_is_refused) {
  const Record good = attested(pair_.a, "a payload");
  Record bad = good;
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    const auto flip = std::byte{1} << (bit % 8);
    bad[bit / 8] ^= flip;
    EXPECT_NE(pair_.b.verify(bad, Kind::kSend), Verdict::kOk) << "bit " << bit;
    EXPECT_NE(pair_.b.verify_stateless(bad, Kind::kSend), Verdict::kOk) << "bit " << bit;
    bad[bit / 8] ^= flip;
  }
  expect_next_accepted(pair_, good);
}

TEST_P(KernelAttacks, forged_macs_are_refused) {
  const Record good = attested(pair_.a, "a payload");
  std::mt19937 random(1);
  for (int forgery = 0; forgery < 3; ++forgery) {
    Record bad = good;
    for (std::size_t i = bad.size() - kMacSlotBytes; i < bad.size(); ++i)
      bad[i] = forgery == 0   ? std::byte{0}
               : forgery == 1 ? std::byte{0xff}
                              : static_cast<std::byte>(random());
    EXPECT_EQ(pair_.b.verify(bad, Kind::kSend), Verdict::kMac);
  }
  expect_next_accepted(pair_, good);
}

TEST_P(KernelAttacks, a_record_is_accepted_once) {
  const Record record = attested(pair_.a, "once");
  EXPECT_EQ(pair_.b.verify(record, Kind::kSend), Verdict::kOk);
  EXPECT_EQ(pair_.b.verify(record, Kind::kSend), Verdict::kCounter);
}

TEST_P(KernelAttacks, reflection_is_refused) {
  const Record record = attested(pair_.a, "mine");
  EXPECT_EQ(pair_.a.verify(record, Kind::kSend), Verdict::kDevice);
  EXPECT_EQ(pair_.a.verify_stateless(record, Kind::kSend), Verdict::kOk);
}

TEST_P(KernelAttacks, swapped_records_are_accepted_in_order_only) {
  const Record first = attested(pair_.a, "1");
  const Record second = attested(pair_.a, "2");
  EXPECT_EQ(pair_.b.verify(second, Kind::kSend), Verdict::kCounter);
  EXPECT_EQ(pair_.b.verify(first, Kind::kSend), Verdict::kOk);
  EXPECT_EQ(pair_.b.verify(second, Kind::kSend), Verdict::kOk);
}

TEST_P(KernelAttacks, a_lost_record_holds_up_the_later_ones_until_it_comes_again) {
  const Record lost = attested(pair_.a, "lost");
  const Record copy = lost;
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(pair_.b.verify(attested(pair_.a, "later"), Kind::kSend), Verdict::kCounter);
  EXPECT_EQ(pair_.b.verify(copy, Kind::kSend), Verdict::kOk);
}

TEST_P(KernelAttacks, equal_payloads_are_two_messages) {
  const Record first = attested(pair_.a, "same");
  const Record second = attested(pair_.a, "same");
  EXPECT_NE(first, second);
  EXPECT_EQ(read_header(second)->counter, 1U);
  EXPECT_EQ(pair_.b.verify(first, Kind::kSend), Verdict::kOk);
  EXPECT_EQ(pair_.b.verify(second, Kind::kSend), Verdict::kOk);
}

TEST_P(KernelAttacks, every_truncation_and_extension_is_refused) {
  const Record good = attested(pair_.a, "some payload to cut");
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes) {
    const Record cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(bytes));
    EXPECT_EQ(pair_.b.verify(cut, Kind::kSend), Verdict::kLength);
  }
  Record longer = good;
  for (int i = 0; i < 80; ++i) {
    longer.push_back(std::byte{0});
    EXPECT_EQ(pair_.b.verify(longer, Kind::kSend), Verdict::kLength);
  }
  expect_next_accepted(pair_, good);
}

// The MAC of a longer message must not follow from that of a shorter one, as it does for a hash of
// key and message.
TEST_P(KernelAttacks, a_longer_payload_under_the_same_mac_is_refused) {
  const Record good = attested(pair_.a, "pay 1");
  Record bad(good.begin(), good.end() - kMacSlotBytes);
  const std::string padding("\x80\0\0\0000", 5);
  for (const char c : padding) bad.push_back(static_cast<std::byte>(c));
  bad.insert(bad.end(), good.end() - kMacSlotBytes, good.end());
  bad[kLengthPlace] = static_cast<std::byte>(5 + padding.size());
  ASSERT_TRUE(read_header(bad));
  EXPECT_EQ(pair_.b.verify(bad, Kind::kSend), Verdict::kMac);
  expect_next_accepted(pair_, good);
}

TEST_P(KernelAttacks, lengths_that_lie_are_refused_and_an_empty_payload_is_one) {
  const Record good = attested(pair_.a, "");
  for (const std::uint32_t lie : {1U, 64U, 0x7fff'ffffU, 0xffff'ffffU}) {
    Record bad = good;
    for (int i = 0; i < 4; ++i) bad[kLengthPlace + i] = static_cast<std::byte>(lie >> (8 * i));
    EXPECT_EQ(pair_.b.verify(bad, Kind::kSend), Verdict::kLength);
  }
  EXPECT_TRUE(payload_of(good).empty());
  expect_next_accepted(pair_, good);
}

// The same bytes cut at another place between header and payload, and between payload and MAC.
TEST_P(KernelAttacks, bytes_shifted_between_the_parts_are_refused) {
  const Record good = attested(pair_.a, "12345678abcdefgh");
  Record into_header = good;
  into_header.erase(into_header.begin() + kReservedPlace, into_header.begin() + kReservedPlace + 8);
  into_header[kLengthPlace] = std::byte{8};
  EXPECT_EQ(pair_.b.verify(into_header, Kind::kSend), Verdict::kFormat);
  Record into_payload = good;
  into_payload.insert(into_payload.begin() + kHeaderBytes, 8, std::byte{0});
  into_payload[kLengthPlace] = std::byte{24};
  EXPECT_EQ(pair_.b.verify(into_payload, Kind::kSend), Verdict::kMac);
  Record into_mac = good;
  into_mac.resize(good.size() - 8);
  into_mac[kLengthPlace] = std::byte{8};
  EXPECT_EQ(pair_.b.verify(into_mac, Kind::kSend), Verdict::kMac);
  expect_next_accepted(pair_, good);
}

// SHA-512's MAC fills the slot; the others' is padded.
TEST_P(KernelAttacks, another_last_byte_of_the_mac_slot_is_refused) {
  const Record good = attested(pair_.a, "padded");
  Record bad = good;
  bad.back() ^= std::byte{1};
  EXPECT_EQ(pair_.b.verify(bad, Kind::kSend), Verdict::kMac);
  expect_next_accepted(pair_, good);
}

TEST_P(KernelAttacks, another_algorithm_in_the_header_is_refused) {
  const Record good = attested(pair_.a, "weaker, please");
  for (unsigned algorithm = 0; algorithm < 256; ++algorithm) {
    if (algorithm == static_cast<unsigned>(GetParam())) continue;
    Record bad = good;
    bad[5] = static_cast<std::byte>(algorithm);
    EXPECT_EQ(pair_.b.verify(bad, Kind::kSend), Verdict::kAlgorithm);
  }
  expect_next_accepted(pair_, good);
}

TEST_P(KernelAttacks, no_kind_passes_for_another) {
  for (unsigned made = 1; made <= static_cast<unsigned>(Kind::kEnd); ++made) {
    const Record record =
        attested(pair_.a, "of a kind", {.session = kSession, .kind = static_cast<Kind>(made)});
    for (unsigned asked = 1; asked <= static_cast<unsigned>(Kind::kEnd); ++asked) {
      if (asked != made) {
        EXPECT_EQ(pair_.b.verify(record, static_cast<Kind>(asked)), Verdict::kKind);
      }
    }
    Record renamed = record;
    renamed[6] = static_cast<std::byte>(made % 7 + 1);
    EXPECT_EQ(pair_.b.verify(renamed, static_cast<Kind>(made % 7 + 1)), Verdict::kMac);
    EXPECT_EQ(pair_.b.verify(record, static_cast<Kind>(made)), Verdict::kOk);
  }
}

TEST_P(KernelAttacks, a_redirected_write_is_refused) {
  const Statement write = {.session = kSession, .kind = Kind::kWrite, .slot = 1, .offset = 64};
  const Record good = attested(pair_.a, "to its place", write);
  for (const auto place : {kSlotPlace, kOffsetPlace}) {
    Record bad = good;
    bad[place] ^= std::byte{2};
    EXPECT_EQ(pair_.b.verify(bad, Kind::kWrite), Verdict::kMac);
  }
  EXPECT_EQ(pair_.b.verify(good, Kind::kWrite), Verdict::kOk);
}

TEST_P(KernelAttacks, keys_of_the_two_directions_differ) {
  const Record record = attested(pair_.a, "from 1");
  Record turned = record;  // as if device 2 had sent it to device 1
  turned[12] = std::byte{2};
  EXPECT_EQ(pair_.a.verify(turned, Kind::kSend), Verdict::kMac);
  const Record other = attested(pair_.b, "from 1");
  EXPECT_FALSE(std::equal(record.end() - kMacSlotBytes, record.end(), other.end() - kMacSlotBytes));
}

TEST_P(KernelAttacks, peers_with_different_keys_refuse_everything) {
  Pair pair(GetParam(), 1, session_key(1), session_key(2));
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(pair.b.verify(attested(pair.a, "?"), Kind::kSend), Verdict::kMac);
    EXPECT_EQ(pair.a.verify(attested(pair.b, "?"), Kind::kSend), Verdict::kMac);
  }
  EXPECT_EQ(pair.b.counters(kSession, 0)->next_received, 0U);
  EXPECT_EQ(pair.a.counters(kSession, 0)->next_received, 0U);
}

TEST_P(KernelAttacks, stateless_verify_moves_nothing) {
  const Record first = attested(pair_.a, "1");
  const Record second = attested(pair_.a, "2");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(pair_.b.verify_stateless(second, Kind::kSend), Verdict::kOk);
    EXPECT_EQ(pair_.b.verify_stateless(first, Kind::kSend), Verdict::kOk);
  }
  EXPECT_EQ(pair_.b.verify(first, Kind::kSend), Verdict::kOk);
  EXPECT_EQ(pair_.b.verify(second, Kind::kSend), Verdict::kOk);
  EXPECT_EQ(pair_.b.verify_stateless(first, Kind::kSend), Verdict::kOk);
}

TEST_P(KernelAttacks, a_million_forgeries_change_nothing) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr int kForgeries = 20'000;
#else
  constexpr int kForgeries = 250'000;  // for each of four algorithms
#endif
  const Record good = attested(pair_.a, "good");
  Record bad = good;
  std::mt19937 random(2);
  for (int i = 0; i < kForgeries; ++i) {
    bad.back() = static_cast<std::byte>(random());
    bad[bad.size() - kMacSlotBytes] = good[good.size() - kMacSlotBytes] ^ std::byte{1};
    ASSERT_EQ(pair_.b.verify(bad, Kind::kSend), Verdict::kMac);
  }
  expect_next_accepted(pair_, good);
}

}  // namespace
}  // namespace leat::trusted

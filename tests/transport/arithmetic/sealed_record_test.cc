// Sealed records without a transport: known answers, and every record that is not the one whose
// turn it is.
#include "transport/sealed/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/system_error.h"
#include "support/errors.h"
#include "support/pattern.h"
#include "transport/sealed/setup.h"

namespace leat::detail {
namespace {

using Direction = SealSecrets::Direction;
using SealedBytes = std::vector<std::byte>;

constexpr std::string_view kSealedText = "What the network sees of this is noise.";
constexpr SealCipher kSealCiphers[] = {SealCipher::kAes256Gcm, SealCipher::kAes128Gcm,
                                       SealCipher::kChaCha20Poly1305};

SealedBytes text_bytes(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// What TLS exported: the bytes 0 to 31, or as many that begin with another one.
SealSecrets some_secrets(std::uint8_t first = 0) {
  std::array<std::byte, kSealSecretBytes> exported{};
  for (std::size_t i = 0; i < exported.size(); ++i) exported[i] = static_cast<std::byte>(first + i);
  return SealSecrets(exported);
}

// Both ends of one flow.
struct SealedFlow {
  explicit SealedFlow(SealCipher cipher = SealCipher::kAes256Gcm, const KeyLimits& limits = {},
                      Direction direction = Direction::kFromActive, Context context = 0,
                      std::uint8_t first = 0)
      : senders(some_secrets(first)),
        receivers(some_secrets(first)),
        sealer(cipher, context, limits, senders.of(direction, context)),
        opener(cipher, context, limits, receivers.of(direction, context)) {}

  SealedBytes seal(std::span<const std::byte> message, SealedKind kind = SealedKind::kMessage) {
    SealedBytes record(message.size() + kSealTagBytes);
    sealer.seal(kind, message, record);
    return record;
  }
  bool opens(std::span<const std::byte> record, SealedKind kind = SealedKind::kMessage) {
    opened.assign(record.size() + 1, std::byte{});
    if (!opener.open(kind, record, opened.data())) return false;
    opened.resize(record.size() - kSealTagBytes);
    return true;
  }

  SealSecrets senders, receivers;
  Sealer sealer;
  Opener opener;
  SealedBytes opened;
};

std::string sealed_hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) >> 4];
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

// From AES, GCM, ChaCha20-Poly1305 and HKDF written in plain Python after FIPS 197, SP 800-38D, RFC
// 8439 and RFC 5869, without OpenSSL, and checked there with the vectors of those documents.
// sealed_vectors.py makes them once more, from docs/transports/sealed.md, with the ciphers of a
// Python package.
struct KnownFlow {
  SealCipher cipher;
  // Of the active side in context 0: records 0 and 1; record 2 under the second key, if a key is
  // for two; an empty record 0. Of the passive side in context 3: record 0. Of the active side in
  // context 15: record 1 under the second key, if a key is for one, an end.
  const char* records[6];
};
constexpr KnownFlow kKnownFlows[] = {
    {SealCipher::kAes256Gcm,
     {"a84c87907434db88a05539313a8813f8e699ecaaa7f04d58c083e844eebe61b0ac4e4e35fd8f5b5989d2f269efe7"
      "34413254662a9e91a7",
      "88a648487c4e2022f1bc5a55d86c8d54a5bfe60197bf1bae9718b613ef1b5d49901bb86fb7d0ce1fd98dedcead7a"
      "6133d1d3e0cc771f37",
      "846bdaa87ed228695188330ad04e5bc35045c6748071b6331317b94dc0be85142b36154e343cd008cfa59fd7ec47"
      "118e9b6e4d7b0da4b0",
      "0c63ece50087d433a65ec5d58f40366b",
      "ea30809f28e9b2e1a3a46656801e7060d94b0f39cab737cacad8c624cdd8b66d5f996531e182369aa7c03e1148a8"
      "f249f8b4b10cfcc737",
      "52aad84bfd8f7b3f0db57d263544dd66"}},
    {SealCipher::kAes128Gcm,
     {"c40d171669446249b7ef4f8ba51c83374366c2e1c16fdaf7f89bab8b1155c21441567b9d44fc8ed88243c2cf5ed1"
      "956c1de7db0ab72553",
      "c81d59321672cfc8226ad7ebb70735ed50aafb31feb2e76d3a1f95789b8907d592c1dd139977a8d0d2116e49f220"
      "a6ffe0137705dd21bb",
      "695225fee82c2d7a9be25d81511cdf79d00de4fa4b746582bbbb01fddd2b03a73a2d8b3f2475b0ec5be771baa047"
      "57a10666ac22caa386",
      "77685e15755f52678099feac27db8aba",
      "87d558b4c9e4dcac4b3c00645ff7de52d89a5cf79de5426db23c68e013785a971b0e68fda919c04d9f3be935a305"
      "eebb3842d5a83bacb4",
      "3a0e87c3f54ccfa12a1aac2bd1e9e33c"}},
    {SealCipher::kChaCha20Poly1305,
     {"a278094218c1f2a3c72e480281643ee80318b906d397bcf52c4660aa4aeb4002de3eed20b4004e8682af0d0508e8"
      "237e713fb7adf7e5e8",
      "9df283e47fd8592edcdb55c93d27dfdf2b7f11265688735080875f7d1f12b7fe0d78c2ed5b78cee99a94b0c11b40"
      "0d1f297019887c2547",
      "0b4b3c5f044f3ea700b729af5872390390608ec10192093205ddb2e3c70eea035a53512f7c7dc5897625ad418c67"
      "72f16776b35a41f970",
      "9413127cf6acba8bb43f6ced64dae80e",
      "cfa0a020cc0272cebf0c9c95855584baba4f03543278b99074b843543a34297f7b6df210f8158f81df9cde08f91c"
      "784405948df4e82244",
      "9461e1caab74a4602a3f5b5e1c328271"}},
};

TEST(SealedRecords, AreThoseThatAnotherImplementationMakes) {
  const SealedBytes text = text_bytes(kSealedText);
  for (const KnownFlow& known : kKnownFlows) {
    SCOPED_TRACE(to_string(known.cipher));
    SealedFlow flow(known.cipher, {.records = 2});
    for (const int i : {0, 1, 2}) EXPECT_EQ(sealed_hex(flow.seal(text)), known.records[i]) << i;
    SealedFlow empty(known.cipher);
    EXPECT_EQ(sealed_hex(empty.seal({})), known.records[3]);
    SealedFlow back(known.cipher, {}, Direction::kFromPassive, 3);
    EXPECT_EQ(sealed_hex(back.seal(text)), known.records[4]);
    SealedFlow last(known.cipher, {.records = 1}, Direction::kFromActive, 15);
    static_cast<void>(last.seal(text));
    EXPECT_EQ(sealed_hex(last.seal({}, SealedKind::kEnd)), known.records[5]);
  }
}

TEST(SealedRecords, OfEverySizeOpenInTheirOrderAndInPlace) {
  for (const SealCipher cipher : kSealCiphers) {
    SealedFlow flow(cipher);
    for (const std::size_t bytes : {0U, 1U, 15U, 16U, 17U, 64U, 8191U, 8192U, 8193U, 100'000U}) {
      const SealedBytes message = pattern(bytes, bytes);
      ASSERT_TRUE(flow.opens(flow.seal(message))) << bytes;
      EXPECT_EQ(flow.opened, message);
      SealedBytes record = flow.seal(message);
      ASSERT_TRUE(flow.opener.open(SealedKind::kMessage, record, record.data()));
      EXPECT_TRUE(std::equal(message.begin(), message.end(), record.begin()));
    }
  }
}

TEST(SealedRecords, WithAnyBitFlippedOrCutAnywhereAreRefused) {
  for (const SealCipher cipher : kSealCiphers) {
    SealedFlow flow(cipher);
    for (const std::size_t bytes : {0U, 1U, 64U}) {
      const SealedBytes good = flow.seal(pattern(bytes, 1));
      for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
        SealedBytes bad = good;
        bad[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
        ASSERT_FALSE(flow.opens(bad)) << "bit " << bit;
      }
      for (std::size_t kept = 0; kept < good.size(); ++kept)
        ASSERT_FALSE(flow.opens(std::span(good).first(kept))) << kept;
      SealedBytes longer = good;
      longer.push_back(std::byte{});
      ASSERT_FALSE(flow.opens(longer));
      ASSERT_TRUE(flow.opens(good)) << "what was refused has changed nothing";
    }
  }
}

TEST(SealedRecords, SwappedRepeatedOrMissingAreRefused) {
  for (const SealCipher cipher : kSealCiphers) {
    SealedFlow flow(cipher);
    const SealedBytes first = flow.seal(pattern(64, 1));
    const SealedBytes second = flow.seal(pattern(64, 2));
    EXPECT_FALSE(flow.opens(second)) << "one is missing";
    EXPECT_TRUE(flow.opens(first));
    EXPECT_FALSE(flow.opens(first)) << "once more";
    EXPECT_TRUE(flow.opens(second));
  }
}

TEST(SealedRecords, OfAnotherContextDirectionConnectionCipherOrKindAreRefused) {
  SealedFlow flow;
  const SealedBytes text = text_bytes(kSealedText);
  SealedFlow context(SealCipher::kAes256Gcm, {}, Direction::kFromActive, 1);
  SealedFlow direction(SealCipher::kAes256Gcm, {}, Direction::kFromPassive);
  SealedFlow connection(SealCipher::kAes256Gcm, {}, Direction::kFromActive, 0, 1);
  SealedFlow cipher(SealCipher::kChaCha20Poly1305);
  for (SealedFlow* other : {&context, &direction, &connection, &cipher})
    EXPECT_FALSE(flow.opens(other->seal(text)));
  EXPECT_FALSE(flow.opens(flow.seal({}), SealedKind::kEnd)) << "an empty message is no end";
  SealedFlow ending;
  const SealedBytes end = ending.seal({}, SealedKind::kEnd);
  EXPECT_FALSE(ending.opens(end));
  EXPECT_TRUE(ending.opens(end, SealedKind::kEnd));
}

// Equal messages, whichever key and flow, so that equal nonces under one key would show.
TEST(SealedRecords, NeverRepeatANonceUnderOneKey) {
  std::set<std::string> seen;
  std::size_t count = 0;
  for (const Direction direction : {Direction::kFromActive, Direction::kFromPassive}) {
    for (Context context = 0; context < kContextCount; ++context) {
      SealedFlow flow(SealCipher::kAes256Gcm, {.records = 3}, direction, context);
      for (int i = 0; i < 20; ++i, ++count) seen.insert(sealed_hex(flow.seal({})));
    }
  }
  EXPECT_EQ(seen.size(), count);
}

TEST(SealedRecords, KeysChangeAfterSoManyRecordsOrBytesOnBothSides) {
  for (const SealCipher cipher : kSealCiphers) {
    for (const KeyLimits& limits :
         {KeyLimits{.records = 1}, KeyLimits{.records = 7}, KeyLimits{.bytes = 1},
          KeyLimits{.bytes = 1000}, KeyLimits{.records = 5, .bytes = 300}}) {
      SealedFlow flow(cipher, limits);
      SealedBytes secret(kSealSecretBytes);
      std::size_t keys = 0;
      for (std::size_t i = 0; i < 100; ++i) {
        const SealedBytes message = pattern(i * 37 % 1500, i);
        ASSERT_TRUE(flow.opens(flow.seal(message))) << i;
        ASSERT_EQ(flow.opened, message);
        const auto now = flow.senders.of(Direction::kFromActive, 0);
        if (!std::equal(now.begin(), now.end(), secret.begin())) ++keys;
        std::copy(now.begin(), now.end(), secret.begin());
        const auto theirs = flow.receivers.of(Direction::kFromActive, 0);
        ASSERT_TRUE(std::equal(now.begin(), now.end(), theirs.begin()));
      }
      EXPECT_GE(keys, 14U);
    }
  }
}

TEST(SealedRecords, APeerThatKeepsItsKeyIsRefusedOnceTheNextIsDue) {
  SealedFlow ours(SealCipher::kAes256Gcm, {.records = 2});
  SealedFlow keeping;
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(ours.opens(keeping.seal(pattern(64, 1))));
  EXPECT_FALSE(ours.opens(keeping.seal(pattern(64, 1))));
}

// The replay of a record whose key both sides have given up since.
TEST(SealedRecords, OfAnEarlierKeyAreRefusedInPlaceOfThoseOfALaterOne) {
  for (const SealCipher cipher : kSealCiphers) {
    SCOPED_TRACE(to_string(cipher));
    SealedFlow flow(cipher, {.records = 2});
    std::vector<SealedBytes> records;
    for (int i = 0; i < 6; ++i) records.push_back(flow.seal(text_bytes(kSealedText)));
    for (std::size_t turn = 0; turn < records.size(); ++turn) {
      for (std::size_t earlier = 0; earlier < turn; ++earlier) {
        EXPECT_FALSE(flow.opens(records[earlier])) << earlier << " in place of " << turn;
      }
      EXPECT_TRUE(flow.opens(records[turn])) << turn;
    }
  }
}

TEST(SealedRecords, ThatWaitAreToldFromThoseOfOtherMessages) {
  for (const SealCipher cipher : kSealCiphers) {
    SealedFlow flow(cipher, {.records = 1});
    for (const std::size_t bytes : {1U, 64U, 20'000U}) {
      const SealedBytes message = pattern(bytes, 3);
      const SealedBytes record = flow.seal(message);
      EXPECT_TRUE(flow.sealer.is_of(record, message));
      SealedBytes other = message;
      other.back() ^= std::byte{1};
      EXPECT_FALSE(flow.sealer.is_of(record, other));
      EXPECT_FALSE(flow.sealer.is_of(record, std::span(message).first(bytes - 1)));
      EXPECT_TRUE(flow.opens(record));
    }
  }
}

// So many addresses whose memory is the same 2 MiB again and again.
class RepeatedMemory {
 public:
  explicit RepeatedMemory(std::size_t bytes) : pieces_((bytes + kPieceBytes - 1) / kPieceBytes) {
    const Fd file(check(memfd_create("leat-sealed-test", MFD_CLOEXEC), "memfd_create"));
    check(ftruncate(file.get(), kPieceBytes), "ftruncate");
    begin_ = map(nullptr, pieces_ * kPieceBytes, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    for (std::size_t i = 0; i < pieces_; ++i)
      map(begin_ + i * kPieceBytes, kPieceBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
          file.get());
  }
  ~RepeatedMemory() { munmap(begin_, pieces_ * kPieceBytes); }
  RepeatedMemory(const RepeatedMemory&) = delete;
  RepeatedMemory& operator=(const RepeatedMemory&) = delete;

  std::span<std::byte> first(std::size_t bytes) const { return {begin_, bytes}; }
  bool is_zero() const {
    return std::all_of(begin_, begin_ + kPieceBytes, [](std::byte b) { return b == std::byte{}; });
  }

 private:
  static constexpr std::size_t kPieceBytes = std::size_t{2} << 20;

  static std::byte* map(std::byte* at, std::size_t bytes, int protection, int flags, int file) {
    void* const memory = mmap(at, bytes, protection, flags, file, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("mmap");
    return static_cast<std::byte*>(memory);
  }

  const std::size_t pieces_;
  std::byte* begin_ = nullptr;
};

// Neither is a record that was sealed: what shows the difference is whether the opener deciphers
// it, in place, before it refuses it.
TEST(SealedRecords, OfTheLargestSizeAreLookedAtAndLongerOnesAreNot) {
  EXPECT_EQ(kMaxSealedBytes, std::size_t{1'073'741'824});
  const std::size_t largest = kMaxSealedBytes + kSealTagBytes;
  const RepeatedMemory memory(largest + 1);
  SealedFlow flow(SealCipher::kAes128Gcm);
  const auto looks_at = [&](std::size_t bytes) {
    const auto record = memory.first(bytes);
    EXPECT_FALSE(flow.opener.open(SealedKind::kMessage, record, record.data()));
    return !memory.is_zero();
  };
  EXPECT_FALSE(looks_at(largest + 1));
  EXPECT_TRUE(looks_at(largest));
}

TEST(SealedSetups, OfferTheDefaultsThatTheDocumentsName) {
  const KeyLimits defaults{.records = 16'777'216, .bytes = 68'719'476'736};
  EXPECT_EQ(KeyLimits{}, defaults);
  EXPECT_EQ(decode_seal_offer(encode(SealOffer{})).limits, defaults);
}

// A peer can make keys serve for less than this side would, and never for more.
TEST(SealedSetups, OfAnyLimitsButNoneAreTakenAndTheSmallerOnesHold) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  const KeyLimits least{.records = 1, .bytes = 1};
  const KeyLimits most{.records = kMost, .bytes = kMost};
  for (const KeyLimits& limits : {least, most, KeyLimits{.records = 1, .bytes = kMost},
                                  KeyLimits{.records = kMost, .bytes = 1}}) {
    const SealOffer theirs = decode_seal_offer(encode(SealOffer{.limits = limits}));
    EXPECT_EQ(theirs.limits, limits);
    const KeyLimits expected{.records = limits.records == 1 ? 1 : KeyLimits{}.records,
                             .bytes = limits.bytes == 1 ? 1 : KeyLimits{}.bytes};
    EXPECT_EQ(agree(SealOffer{}, theirs).limits, expected);
    EXPECT_EQ(agree(theirs, SealOffer{}).limits, expected);
  }
}

TEST(SealedSetups, SayTheSameOnBothSides) {
  for (const SealCipher wish : {SealCipher::kAuto, SealCipher::kChaCha20Poly1305}) {
    const SealOffer offer{
        .wish = wish, .has_aes = true, .limits = {.records = 9, .bytes = 1 << 20}};
    EXPECT_EQ(decode_seal_offer(encode(offer)), offer);
  }
}

TEST(SealedSetups, ThatMakeNoSenseAreRefused) {
  const auto good = encode(SealOffer{});
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes)
    expect_error(ErrorCode::kProtocol, [&] { decode_seal_offer(std::span(good).first(bytes)); });
  struct Bad {
    std::size_t at;
    std::uint8_t value;
  };
  for (const Bad& bad : {Bad{0, 0}, Bad{4, 4}, Bad{5, 2}, Bad{22, 1}, Bad{31, 1}}) {
    auto changed = good;
    changed[bad.at] = static_cast<std::byte>(bad.value);
    expect_error(ErrorCode::kProtocol, [&] { decode_seal_offer(changed); });
  }
  for (const KeyLimits& none : {KeyLimits{.records = 0}, KeyLimits{.bytes = 0}})
    expect_error(ErrorCode::kProtocol,
                 [&] { decode_seal_offer(encode(SealOffer{.limits = none})); });
}

TEST(SealedSetups, AgreeOnWhatBothProcessorsDoFastOrOneSideNames) {
  const SealOffer fast{.has_aes = true};
  const SealOffer slow{};
  SealOffer named{.wish = SealCipher::kAes128Gcm};
  EXPECT_EQ(agree(fast, fast).cipher, SealCipher::kAes256Gcm);
  EXPECT_EQ(agree(fast, slow).cipher, SealCipher::kChaCha20Poly1305);
  EXPECT_EQ(agree(slow, fast).cipher, SealCipher::kChaCha20Poly1305);
  EXPECT_EQ(agree(slow, named).cipher, SealCipher::kAes128Gcm);
  EXPECT_EQ(agree(named, fast).cipher, SealCipher::kAes128Gcm);
  named.limits = {.records = 5, .bytes = 7};
  EXPECT_EQ(agree(named, fast).limits, named.limits);
  EXPECT_EQ(agree(fast, named).limits, named.limits);
  const SealOffer other{.wish = SealCipher::kAes256Gcm};
  EXPECT_THAT(error_of(ErrorCode::kUnavailable, [&] { static_cast<void>(agree(named, other)); }),
              testing::HasSubstr("sealed_cipher"));
}

}  // namespace
}  // namespace leat::detail

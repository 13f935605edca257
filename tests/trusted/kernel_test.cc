// Sessions, roles, counters and epochs of the attestation kernel. README.md beside this numbers the
// cases.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>

#include <cstring>
#include <limits>
#include <set>
#include <thread>

#include "attest/keystore.h"
#include "support/errors.h"
#include "trusted/kernel_support.h"

namespace leat::trusted {

// Kernel's friend: counters near their end, which nobody can reach by counting.
class KernelTest : public testing::Test {
 protected:
  static void set_counters(LocalKernel& kernel, std::uint64_t next) {
    detail::Entry& entry = *kernel.keystore_->find(kSession);
    if (entry.out) entry.out->counts[0].next = next;
    if (entry.in) entry.in->counts[0].next = next;
  }
};

namespace {

Session pair_session(std::uint32_t id, std::uint32_t peer, const Key& key) {
  return {.id = id, .role = Role::kPair, .peer = peer, .key = key};
}

// --- the MAC itself

std::vector<unsigned char> hkdf(const Key& key, std::string info, std::size_t bytes) {
  std::vector<unsigned char> out(bytes);
  EVP_PKEY_CTX* context = EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, nullptr);
  EVP_PKEY_derive_init(context);
  EVP_PKEY_CTX_set_hkdf_md(context, EVP_sha256());
  EVP_PKEY_CTX_set1_hkdf_key(context, reinterpret_cast<const unsigned char*>(key.data()),
                             static_cast<int>(key.size()));
  EVP_PKEY_CTX_add1_hkdf_info(context, reinterpret_cast<const unsigned char*>(info.data()),
                              static_cast<int>(info.size()));
  EVP_PKEY_derive(context, out.data(), &bytes);
  EVP_PKEY_CTX_free(context);
  return out;
}

// HKDF's info, byte by byte, as docs/attestation.md has it.
std::string info_of(Algorithm algorithm) {
  std::string info = "leatkey";
  info += '\x01';  // a pair
  info += static_cast<char>(algorithm);
  info += '\x01';  // streams
  info += std::string(2, '\0');
  info += std::string("\x07\0\0\0\0\0\0\0", 8);  // epoch
  info += std::string("\x64\0\0\0", 4);          // session
  info += std::string("\x01\0\0\0\x02\0\0\0", 8);
  return info;
}

// Another way through OpenSSL than the kernel's, from the description in docs/attestation.md.
TEST_F(KernelTest, hmac_is_that_of_rfc_2104_over_label_header_and_payload) {
  const struct {
    Algorithm algorithm;
    const EVP_MD* digest;
    unsigned bytes;
  } kHashes[] = {{Algorithm::kHmacSha256, EVP_sha256(), 32},
                 {Algorithm::kHmacSha384, EVP_sha384(), 48},
                 {Algorithm::kHmacSha512, EVP_sha512(), 64}};
  for (const auto& hash : kHashes) {
    Pair pair(hash.algorithm);
    const auto key = hkdf(session_key(1), info_of(hash.algorithm), hash.bytes);
    for (const std::string payload : {"", "abc"}) {
      const Record record = attested(pair.a, payload);
      std::string covered = "leat-att-v1";
      covered.append(reinterpret_cast<const char*>(record.data()), kHeaderBytes + payload.size());
      unsigned char mac[kMacSlotBytes] = {};
      unsigned bytes = 0;
      HMAC(hash.digest, key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(covered.data()), covered.size(), mac, &bytes);
      EXPECT_EQ(bytes, hash.bytes);
      EXPECT_EQ(std::memcmp(mac, &*(record.end() - kMacSlotBytes), kMacSlotBytes), 0);
    }
  }
}

TEST_F(KernelTest, gmac_is_aes_256_gcm_of_nothing_with_the_counter_as_nonce) {
  Pair pair(Algorithm::kAes256Gmac);
  const auto key = hkdf(session_key(1), info_of(Algorithm::kAes256Gmac), 32);
  for (unsigned char counter = 0; counter < 3; ++counter) {
    const Record record = attested(pair.a, "payload");
    std::string covered = "leat-att-v1";
    covered.append(reinterpret_cast<const char*>(record.data()), record.size() - kMacSlotBytes);
    const unsigned char nonce[12] = {0, 0, 0, 0, counter};
    unsigned char tag[kMacSlotBytes] = {};
    int bytes = 0;
    EVP_CIPHER_CTX* context = EVP_CIPHER_CTX_new();
    EVP_EncryptInit_ex(context, EVP_aes_256_gcm(), nullptr, key.data(), nonce);
    EVP_EncryptUpdate(context, nullptr, &bytes,
                      reinterpret_cast<const unsigned char*>(covered.data()),
                      static_cast<int>(covered.size()));
    EVP_EncryptFinal_ex(context, tag, &bytes);
    EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_GET_TAG, 16, tag);
    EVP_CIPHER_CTX_free(context);
    EXPECT_EQ(std::memcmp(tag, &*(record.end() - kMacSlotBytes), kMacSlotBytes), 0);
  }
}

// --- sessions

TEST_F(KernelTest, a_record_of_another_session_is_refused) {
  LocalKernel a(1, kEpoch), b(2, kEpoch);
  a.provision(pair_session(1, 2, session_key(1)));
  a.provision(pair_session(2, 2, session_key(2)));
  b.provision(pair_session(1, 1, session_key(1)));
  b.provision(pair_session(2, 1, session_key(2)));
  a.enable(), b.enable();
  Record record = attested(a, "of session 1", {.session = 1});
  record[8] = std::byte{2};
  EXPECT_EQ(b.verify(record, Kind::kSend), Verdict::kMac);
  record[8] = std::byte{3};
  EXPECT_EQ(b.verify(record, Kind::kSend), Verdict::kSession);
  record[8] = std::byte{1};
  EXPECT_EQ(b.verify(record, Kind::kSend), Verdict::kOk);
}

TEST_F(KernelTest, a_record_of_an_earlier_epoch_is_refused) {
  const Key key = session_key(1);
  LocalKernel old_a(1, kEpoch), a(1, kEpoch + 1), b(2, kEpoch + 1);
  for (LocalKernel* kernel : {&old_a, &a}) {
    kernel->provision(pair_session(kSession, 2, key));
    kernel->enable();
  }
  b.provision(pair_session(kSession, 1, key));
  b.enable();
  Record stale = attested(old_a, "stale");
  EXPECT_EQ(b.verify(stale, Kind::kSend), Verdict::kEpoch);
  stale[16] = std::byte{kEpoch + 1};  // the key is of the epoch too
  EXPECT_EQ(b.verify(stale, Kind::kSend), Verdict::kMac);
  EXPECT_EQ(b.verify(attested(a, "fresh"), Kind::kSend), Verdict::kOk);
}

TEST_F(KernelTest, streams_are_counted_each_for_itself) {
  Pair pair(Algorithm::kHmacSha256, 3);
  const Record first = attested(pair.a, "1", {.session = kSession, .stream = 1});
  const Record second = attested(pair.a, "2", {.session = kSession, .stream = 1});
  const Record other = attested(pair.a, "3", {.session = kSession, .stream = 2});
  EXPECT_EQ(read_header(second)->counter, 1U);
  EXPECT_EQ(read_header(other)->counter, 0U);
  EXPECT_EQ(pair.b.verify(other, Kind::kSend), Verdict::kOk);
  EXPECT_EQ(pair.b.verify(first, Kind::kSend), Verdict::kOk);
  EXPECT_EQ(pair.b.verify(second, Kind::kSend), Verdict::kOk);
  Proof proof;
  EXPECT_EQ(pair.a.attest({.session = kSession, .stream = 3}, {}, proof), Verdict::kSession);
}

TEST_F(KernelTest, nothing_is_attested_or_verified_before_enable) {
  Pair ready;
  const Record record = attested(ready.a, "early");
  LocalKernel kernel(2, kEpoch);
  kernel.provision(pair_session(kSession, 1, session_key(1)));
  Proof proof;
  EXPECT_EQ(kernel.attest({.session = kSession}, {}, proof), Verdict::kNotEnabled);
  EXPECT_EQ(kernel.verify(record, Kind::kSend), Verdict::kNotEnabled);
  EXPECT_EQ(kernel.verify_stateless(record, Kind::kSend), Verdict::kNotEnabled);
  kernel.enable();
  EXPECT_EQ(kernel.verify(record, Kind::kSend), Verdict::kOk);
}

TEST_F(KernelTest, keys_come_once_in_a_kernels_life) {
  LocalKernel kernel(1, kEpoch);
  kernel.enable();
  EXPECT_EQ(kernel.provision(pair_session(1, 2, session_key(1))), Verdict::kSealed);
}

TEST_F(KernelTest, an_epoch_that_the_device_has_had_is_refused) {
  using leat::detail::error_of;
  constexpr auto kInvalid = ErrorCode::kInvalidArgument;
  EXPECT_THAT(error_of(kInvalid, [] { LocalKernel(1, 7, 7); }), testing::HasSubstr("epoch 7"));
  EXPECT_THAT(error_of(kInvalid, [] { LocalKernel(1, 6, 7); }), testing::HasSubstr("epoch 6"));
  EXPECT_THAT(error_of(kInvalid, [] { LocalKernel(0, 1); }), testing::HasSubstr("number 0"));
}

TEST_F(KernelTest, duplicate_sessions_and_short_or_equal_keys_are_refused) {
  LocalKernel kernel(1, kEpoch);
  EXPECT_EQ(kernel.provision(pair_session(1, 2, session_key(1))), Verdict::kOk);
  EXPECT_EQ(kernel.provision(pair_session(1, 2, session_key(2))), Verdict::kDuplicate);
  EXPECT_EQ(kernel.provision(pair_session(2, 2, session_key(1))), Verdict::kDuplicate);
  EXPECT_EQ(kernel.provision(pair_session(3, 2, session_key(3, 31))), Verdict::kBadKey);
  EXPECT_EQ(kernel.provision(pair_session(3, 2, session_key(3, 65))), Verdict::kBadKey);
  EXPECT_EQ(kernel.provision(pair_session(3, 2, {})), Verdict::kBadKey);
  EXPECT_EQ(kernel.provision(pair_session(3, 2, session_key(3, 64))), Verdict::kOk);
}

TEST_F(KernelTest, sessions_that_contradict_themselves_are_refused) {
  LocalKernel kernel(1, kEpoch);
  const Key key = session_key(1);
  EXPECT_EQ(kernel.provision(pair_session(1, 1, key)), Verdict::kBadSession);
  EXPECT_EQ(kernel.provision(pair_session(1, 0, key)), Verdict::kBadSession);
  EXPECT_EQ(kernel.provision({.id = 1, .role = Role::kGroupSender, .peer = 2, .key = key}),
            Verdict::kBadSession);
  EXPECT_EQ(kernel.provision({.id = 1, .role = Role::kLog, .streams = 2, .key = key}),
            Verdict::kBadSession);
  EXPECT_EQ(kernel.provision({.id = 1, .peer = 2, .streams = 17, .key = key}),
            Verdict::kBadSession);
  EXPECT_EQ(kernel.provision({.id = 1, .algorithm = Algorithm{9}, .peer = 2, .key = key}),
            Verdict::kBadSession);
  EXPECT_EQ(kernel.provision({.id = 1, .role = Role{7}, .peer = 2, .key = key}),
            Verdict::kBadSession);
}

TEST_F(KernelTest, a_log_attests_and_is_read_but_never_delivers) {
  LocalKernel kernel(1, kEpoch);
  kernel.provision({.id = kSession, .role = Role::kLog, .key = session_key(1)});
  kernel.enable();
  const Record entry = attested(kernel, "entry", {.session = kSession, .kind = Kind::kLog});
  EXPECT_EQ(kernel.verify_stateless(entry, Kind::kLog), Verdict::kOk);
  EXPECT_NE(kernel.verify(entry, Kind::kLog), Verdict::kOk);
}

// --- counters

TEST_F(KernelTest, the_last_counters_are_used_once_and_then_the_session_is_exhausted) {
  constexpr std::uint64_t kLast = std::numeric_limits<std::uint64_t>::max();
  Pair pair;
  set_counters(pair.a, kLast - 1);
  set_counters(pair.b, kLast - 1);
  const Record before = attested(pair.a, "last but one");
  const Record last = attested(pair.a, "last");
  EXPECT_EQ(read_header(last)->counter, kLast);
  Proof proof;
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(pair.a.attest({.session = kSession}, {}, proof), Verdict::kExhausted);
  EXPECT_EQ(pair.b.verify(before, Kind::kSend), Verdict::kOk);
  EXPECT_EQ(pair.b.verify(last, Kind::kSend), Verdict::kOk);
  EXPECT_EQ(pair.b.verify(last, Kind::kSend), Verdict::kExhausted);
}

TEST_F(KernelTest, counters_far_ahead_are_refused) {
  for (const std::uint64_t gap : {std::uint64_t{1}, std::uint64_t{1} << 63}) {
    Pair pair;
    set_counters(pair.a, gap);
    EXPECT_EQ(pair.b.verify(attested(pair.a, "far"), Kind::kSend), Verdict::kCounter);
    EXPECT_EQ(pair.b.counters(kSession, 0)->next_received, 0U);
  }
}

TEST_F(KernelTest, threads_get_counters_without_gap_or_repetition) {
  constexpr unsigned kThreads = 4, kEach = 500;
  Pair pair;
  std::vector<std::vector<std::uint64_t>> seen(kThreads);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      for (unsigned n = 0; n < kEach; ++n)
        seen[i].push_back(read_header(attested(pair.a, "concurrent"))->counter);
    });
  for (std::thread& thread : threads) thread.join();
  std::set<std::uint64_t> all;
  for (const auto& one : seen) all.insert(one.begin(), one.end());
  EXPECT_EQ(all.size(), kThreads * kEach);
  EXPECT_EQ(*all.rbegin(), kThreads * kEach - 1);
}

}  // namespace
}  // namespace leat::trusted

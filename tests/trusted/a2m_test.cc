// Attested append-only memory: what each case of a lying host or client comes to. The numbers are
// those of the table in docs/trusted_systems.md.
#include "leat/trusted/a2m.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>
#include <vector>

#include "support/errors.h"
#include "support/scale.h"
#include "trusted/a2m_support.h"

namespace leat::trusted {
namespace {

using leat::detail::error_of;
using testing::HasSubstr;

class A2m : public testing::Test {
 protected:
  // `count` entries "0", "1", ... of a log.
  void fill(std::uint32_t log, int count) {
    for (int i = 0; i < count; ++i) memory_.append(log, bytes_of(std::to_string(i)));
  }
  Record record_of(std::uint32_t log, std::uint64_t index) {
    Record record;
    EXPECT_EQ(memory_.lookup(log, index, record), LookupStatus::kAssigned);
    return record;
  }
  LookupStatus status_of(std::uint64_t index) {
    Record record;
    return memory_.lookup(kFirstLog, index, record);
  }

  WriterKernel kernel_;
  ReaderKernel own_;
  AttestedMemory memory_{kernel_, options_of()};
  A2mVerifier verifier_{own_, kManifestLog};
};

TEST_F(A2m, case73_below_the_head_is_forgotten_and_from_the_tail_on_unassigned) {
  EXPECT_EQ(status_of(0), LookupStatus::kUnassigned);
  fill(kFirstLog, 10);
  memory_.truncate(kFirstLog, 4, nonce_of(1));  // the eleventh entry
  EXPECT_EQ(memory_.bounds(kFirstLog), (LogBounds{4, 11}));
  EXPECT_EQ(status_of(3), LookupStatus::kForgotten);
  EXPECT_EQ(status_of(4), LookupStatus::kAssigned);
  EXPECT_EQ(status_of(10), LookupStatus::kAssigned);
  EXPECT_EQ(status_of(11), LookupStatus::kUnassigned);
  EXPECT_EQ(status_of(~std::uint64_t{0}), LookupStatus::kUnassigned);

  ASSERT_EQ(learn(verifier_, memory_, kFirstLog), Finding::kOk);
  EXPECT_EQ(verifier_.bounds(kFirstLog), (LogBounds{4, 12}));
  const auto claimed = [&](std::uint64_t index, LookupStatus status) {
    return verifier_.verify_lookup(kFirstLog, index, status, {});
  };
  EXPECT_EQ(claimed(3, LookupStatus::kForgotten), Finding::kOk);
  EXPECT_EQ(claimed(4, LookupStatus::kForgotten), Finding::kForgottenSince);
  EXPECT_EQ(claimed(11, LookupStatus::kUnassigned), Finding::kFalseStatus);
  EXPECT_EQ(claimed(12, LookupStatus::kUnassigned), Finding::kOk);
}

// The bounds are as old as the client's question, and another client has truncated since.
TEST_F(A2m, an_honest_host_is_called_no_liar_after_a_truncation_that_the_client_does_not_know) {
  fill(kFirstLog, 6);
  ASSERT_EQ(learn(verifier_, memory_, kFirstLog), Finding::kOk);
  memory_.truncate(kFirstLog, 4, nonce_of(1));
  const auto said = [&] { return verifier_.verify_lookup(kFirstLog, 3, status_of(3), {}); };
  EXPECT_EQ(said(), Finding::kForgottenSince);
  EXPECT_EQ(verifier_.verify_all(kFirstLog, shows(memory_)), Finding::kForgottenSince);
  ASSERT_EQ(learn(verifier_, memory_, kFirstLog), Finding::kOk);
  EXPECT_EQ(said(), Finding::kOk);
}

TEST_F(A2m, case74_what_is_not_the_entry_asked_for_is_rejected) {
  fill(kFirstLog, 6);
  fill(kOtherLog, 6);
  const Record forgotten = record_of(kFirstLog, 1);
  memory_.truncate(kFirstLog, 2, nonce_of(1));
  EXPECT_EQ(verifier_.verify_lookup(kFirstLog, 3, LookupStatus::kAssigned, record_of(kFirstLog, 3)),
            Finding::kBoundsUnknown);
  ASSERT_EQ(learn(verifier_, memory_, kFirstLog), Finding::kOk);
  const auto shown = [&](std::uint64_t index, const Record& record) {
    return verifier_.verify_lookup(kFirstLog, index, LookupStatus::kAssigned, record);
  };
  const Record good = record_of(kFirstLog, 3);
  EXPECT_EQ(shown(3, good), Finding::kOk);
  EXPECT_EQ(shown(4, good), Finding::kOtherIndex);
  EXPECT_EQ(shown(3, record_of(kOtherLog, 3)), Finding::kOtherLog);
  EXPECT_EQ(shown(1, forgotten), Finding::kForgotten);
  EXPECT_EQ(shown(3, {}), Finding::kNotAttested);
  for (std::size_t i = 0; i < good.size(); ++i) {
    Record altered = good;
    altered[i] ^= std::byte{1};
    EXPECT_NE(shown(3, altered), Finding::kOk) << "byte " << i;
  }
  const auto later = memory_.append(kFirstLog, bytes_of("later"));
  EXPECT_EQ(shown(later, record_of(kFirstLog, later)), Finding::kBeyondTail);
}

TEST_F(A2m, case75_a_manifest_without_the_nonce_is_stale) {
  fill(kFirstLog, 5);
  const Nonce first = verifier_.challenge();
  const Record old_end = memory_.end(kFirstLog, first);
  const Record old_manifest = memory_.end(kManifestLog, first);
  ASSERT_EQ(verifier_.learn_bounds(kFirstLog, old_end, old_manifest, shows(memory_)), Finding::kOk);
  // Answered: not again.
  EXPECT_EQ(verifier_.learn_bounds(kFirstLog, old_end, old_manifest, shows(memory_)),
            Finding::kStale);

  memory_.truncate(kFirstLog, 3, nonce_of(1));
  const Nonce second = verifier_.challenge();
  const Record end = memory_.end(kFirstLog, second);
  EXPECT_EQ(verifier_.learn_bounds(kFirstLog, end, old_manifest, shows(memory_)), Finding::kStale);
  // Nor somebody else's nonce, nor one of an append that looks like an answer.
  EXPECT_EQ(verifier_.learn_bounds(kFirstLog, end, memory_.end(kManifestLog, nonce_of(5)),
                                   shows(memory_)),
            Finding::kStale);
  Record looks_like_end;
  memory_.append(kFirstLog, second, &looks_like_end);
  const Record manifest = memory_.end(kManifestLog, second);
  EXPECT_EQ(verifier_.learn_bounds(kFirstLog, looks_like_end, manifest, shows(memory_)),
            Finding::kStale);
  EXPECT_EQ(verifier_.bounds(kFirstLog)->head, 0U) << "nothing is learnt from what is refused";
  EXPECT_EQ(verifier_.learn_bounds(kFirstLog, end, manifest, shows(memory_)), Finding::kOk);
  EXPECT_EQ(verifier_.bounds(kFirstLog)->head, 3U);
}

TEST_F(A2m, case76_a_truncation_that_must_not_be_is_refused_by_the_host) {
  fill(kFirstLog, 8);
  memory_.truncate(kFirstLog, 5, nonce_of(1));
  const LogBounds before = memory_.bounds(kFirstLog);
  const auto refused = [&](std::uint64_t head, std::uint32_t nonce) {
    return error_of(ErrorCode::kInvalidArgument,
                    [&] { memory_.truncate(kFirstLog, head, nonce_of(nonce)); });
  };
  EXPECT_THAT(refused(6, 1), HasSubstr("used before"));
  EXPECT_THAT(refused(4, 2), HasSubstr("cannot begin at 4"));
  EXPECT_THAT(refused(before.tail + 1, 2), HasSubstr("cannot begin at 10"));
  EXPECT_EQ(memory_.bounds(kFirstLog), before);
  memory_.truncate(kFirstLog, before.tail, nonce_of(2));  // all of it
  EXPECT_EQ(memory_.bounds(kFirstLog), (LogBounds{before.tail, before.tail + 1}));
}

// Puts together what a host might attest past our library, on a kernel of the same keys.
TEST(A2mHost, case76_and_by_the_verifier_if_the_host_attested_it) {
  struct Case {
    const char* what;
    std::vector<std::pair<std::uint64_t, std::uint32_t>> truncations;  // head, nonce
    Finding finding;
  };
  for (const Case& each : {Case{"right", {{2, 1}, {3, 2}}, Finding::kOk},
                           Case{"lowered", {{3, 1}, {2, 2}}, Finding::kBadTruncation},
                           Case{"nonce again", {{2, 1}, {3, 1}}, Finding::kBadTruncation},
                           Case{"beyond the tail", {{9, 1}}, Finding::kBadTruncation}}) {
    WriterKernel kernel;
    std::map<std::pair<std::uint32_t, std::uint64_t>, Record> log;
    const auto put = [&](std::uint32_t id, EntryKind kind, std::uint64_t head,
                         std::span<const std::byte> context) {
      Proof proof;
      kernel.attest({.session = id,
                     .kind = Kind::kLog,
                     .slot = static_cast<std::uint32_t>(kind),
                     .offset = head},
                    context, proof);
      const Record record = put_together(proof, context);
      log[{id, read_header(record)->counter}] = record;
      return record;
    };
    for (int i = 0; i < 4; ++i) put(kFirstLog, EntryKind::kContext, 0, bytes_of("entry"));
    for (const auto& [head, nonce] : each.truncations)
      put(kManifestLog, EntryKind::kManifest, 0,
          put(kFirstLog, EntryKind::kTruncation, head, nonce_of(nonce)));
    ReaderKernel reader;
    A2mVerifier verifier(reader, kManifestLog);
    const Nonce nonce = verifier.challenge();
    const Record end = put(kFirstLog, EntryKind::kEnd, 0, nonce);
    const Record manifest = put(kManifestLog, EntryKind::kEnd, 0, nonce);
    EXPECT_EQ(verifier.learn_bounds(kFirstLog, end, manifest,
                                    [&](std::uint32_t id, std::uint64_t index, Record& record) {
                                      record = log[{id, index}];
                                      return LookupStatus::kAssigned;
                                    }),
              each.finding)
        << each.what;
  }
}

TEST_F(A2m, case77_two_entries_for_one_index_cannot_be_and_gaps_are_exposed) {
  // Two memories on one kernel: a host that wants to fork its log.
  AttestedMemory fork(kernel_, options_of());
  Record here;
  memory_.append(kFirstLog, bytes_of("yes"), &here);
  EXPECT_THAT(
      error_of(ErrorCode::kInvalidArgument, [&] { fork.append(kFirstLog, bytes_of("no")); }),
      HasSubstr("somebody else attests"));
  Record there;
  fork.append(kFirstLog, bytes_of("no"), &there);
  EXPECT_NE(read_entry(here)->index, read_entry(there)->index);

  // The first host lost entries 1 and 2 to the fork, and cannot show them.
  EXPECT_THROW(memory_.append(kFirstLog, bytes_of("more")), Error);
  ASSERT_EQ(learn(verifier_, memory_, kFirstLog), Finding::kOk);
  EXPECT_EQ(status_of(1), LookupStatus::kLost);
  EXPECT_EQ(verifier_.verify_lookup(kFirstLog, 1, LookupStatus::kLost, {}), Finding::kMissing);
  std::uint64_t bad = 0;
  EXPECT_EQ(verifier_.verify_all(kFirstLog, shows(memory_), &bad), Finding::kMissing);
  EXPECT_EQ(bad, 1U);

  // A gap in the MANIFEST: the truncation that is hidden there.
  const Nonce nonce = verifier_.challenge();
  memory_.truncate(kFirstLog, 1, verifier_.challenge());
  const std::uint64_t hidden = memory_.bounds(kManifestLog).tail - 1;
  const Record end = memory_.end(kFirstLog, nonce);
  const Record manifest = memory_.end(kManifestLog, nonce);
  for (const LookupStatus claim :
       {LookupStatus::kLost, LookupStatus::kForgotten, LookupStatus::kUnassigned})
    EXPECT_EQ(verifier_.learn_bounds(kFirstLog, end, manifest,
                                     [&](std::uint32_t log, std::uint64_t index, Record& record) {
                                       return index == hidden ? claim
                                                              : memory_.lookup(log, index, record);
                                     }),
              Finding::kMissing);
  EXPECT_EQ(verifier_.learn_bounds(kFirstLog, end, manifest,
                                   [&](std::uint32_t log, std::uint64_t index, Record& record) {
                                     return memory_.lookup(log, index == hidden ? 0 : index,
                                                           record);
                                   }),
            Finding::kOtherIndex);
  EXPECT_EQ(verifier_.learn_bounds(kFirstLog, end, manifest, shows(memory_)), Finding::kOk);
}

TEST_F(A2m, a_client_checks_its_truncation) {
  fill(kFirstLog, 5);
  const Nonce nonce = verifier_.challenge();
  const Record record = memory_.truncate(kFirstLog, 3, nonce);
  EXPECT_EQ(verifier_.verify_truncation(kFirstLog, 2, record), Finding::kBadTruncation);
  EXPECT_EQ(verifier_.verify_truncation(kOtherLog, 3, record), Finding::kOtherLog);
  EXPECT_EQ(verifier_.verify_truncation(kFirstLog, 3, record_of(kFirstLog, 5)), Finding::kOtherLog);
  EXPECT_EQ(verifier_.verify_truncation(kFirstLog, 3, record), Finding::kOk);
  EXPECT_EQ(verifier_.verify_truncation(kFirstLog, 3, record), Finding::kStale);
  const Nonce end_nonce = verifier_.challenge();
  EXPECT_EQ(verifier_.verify_truncation(kFirstLog, 3, memory_.end(kManifestLog, end_nonce)),
            Finding::kBadTruncation);
}

TEST(A2mDigests, case79_a_change_of_an_earlier_entry_breaks_all_later_digests) {
  WriterKernel kernel;
  ReaderKernel own;
  AttestedMemory memory(kernel, options_of({}, true));
  A2mVerifier verifier(own, kManifestLog);
  for (int i = 0; i < 5; ++i) memory.append(kFirstLog, bytes_of("entry"));
  ASSERT_EQ(learn(verifier, memory, kFirstLog), Finding::kOk);
  EXPECT_EQ(verifier.verify_all(kFirstLog, shows(memory)), Finding::kOk);

  // Another log with another entry 0: no digest is equal from there on, though all else is.
  WriterKernel kernel_b;
  AttestedMemory changed(kernel_b, options_of({}, true));
  changed.append(kFirstLog, bytes_of("Entry"));
  for (int i = 1; i < 5; ++i) changed.append(kFirstLog, bytes_of("entry"));
  for (std::uint64_t i = 0; i < 5; ++i) {
    Record one;
    Record two;
    memory.lookup(kFirstLog, i, one);
    changed.lookup(kFirstLog, i, two);
    const auto a = read_entry(one)->digest;
    const auto b = read_entry(two)->digest;
    EXPECT_FALSE(std::equal(a.begin(), a.end(), b.begin())) << i;
  }
  // And a host that mixes them is found at the first entry after.
  std::uint64_t bad = 0;
  EXPECT_EQ(verifier.verify_all(
                kFirstLog,
                [&](std::uint32_t log, std::uint64_t index, Record& record) {
                  return (index == 2 ? changed : memory).lookup(log, index, record);
                },
                &bad),
            Finding::kDigest);
  EXPECT_EQ(bad, 2U);

  // It goes on over a truncation, of which the last digest is kept.
  memory.truncate(kFirstLog, 4, verifier.challenge());
  memory.append(kFirstLog, bytes_of("after"));
  ASSERT_EQ(learn(verifier, memory, kFirstLog), Finding::kOk);
  EXPECT_EQ(verifier.verify_all(kFirstLog, shows(memory)), Finding::kOk);
}

TEST(A2mContexts, case80_short_empty_and_largest_come_back_exactly) {
  for (const Algorithm algorithm : {Algorithm::kHmacSha256, Algorithm::kHmacSha384,
                                    Algorithm::kHmacSha512, Algorithm::kAes256Gmac})
    for (const bool digests : {false, true}) {
      WriterKernel kernel(kEpoch, algorithm);
      ReaderKernel own(kEpoch, algorithm);
      AttestedMemory memory(kernel, options_of({}, digests));
      A2mVerifier verifier(own, kManifestLog);
      std::vector<std::string> contexts;
      for (std::size_t bytes = 0; bytes <= 64; ++bytes)
        contexts.emplace_back(bytes, static_cast<char>(bytes));
      for (const auto& context : contexts) memory.append(kFirstLog, bytes_of(context));
      EXPECT_THAT(error_of(ErrorCode::kTooLarge,
                           [&] { memory.append(kFirstLog, bytes_of(std::string(65, 'x'))); }),
                  HasSubstr("65 bytes"));
      ASSERT_EQ(learn(verifier, memory, kFirstLog), Finding::kOk);
      Record record;
      for (std::uint64_t i = 0; i < contexts.size(); ++i) {
        const auto status = memory.lookup(kFirstLog, i, record);
        EXPECT_EQ(verifier.verify_lookup(kFirstLog, i, status, record), Finding::kOk);
        EXPECT_EQ(context_of(record), contexts[i]);
      }
    }
}

// Against a map, over random operations.
TEST_F(A2m, is_the_same_as_a_simple_model) {
  std::mt19937 random(2024);
  struct Model {
    std::map<std::uint64_t, std::string> entries;
    LogBounds bounds;
  };
  std::map<std::uint32_t, Model> models;
  std::uint32_t nonces = 0;
  for (std::size_t step = 0; step < leat::detail::scaled(20'000); ++step) {
    const std::uint32_t id = random() % 2 == 0 ? kFirstLog : kOtherLog;
    Model& model = models[id];
    const auto what = random() % 100;
    if (what < 50) {
      const std::string context(random() % 65, static_cast<char>('a' + random() % 26));
      ASSERT_EQ(memory_.append(id, bytes_of(context)), model.bounds.tail);
      model.entries[model.bounds.tail++] = context;
    } else if (what < 52) {
      model.bounds.head += random() % (model.bounds.tail - model.bounds.head + 1);
      memory_.truncate(id, model.bounds.head, nonce_of(++nonces));
      ++model.bounds.tail;
    } else if (what < 54) {
      ASSERT_EQ(learn(verifier_, memory_, id), Finding::kOk);
      ++model.bounds.tail;
      ASSERT_EQ(verifier_.bounds(id), model.bounds);
    } else {
      const std::uint64_t index = random() % (model.bounds.tail + 2);
      Record record;
      const LookupStatus status = memory_.lookup(id, index, record);
      ASSERT_EQ(status, index < model.bounds.head   ? LookupStatus::kForgotten
                        : index < model.bounds.tail ? LookupStatus::kAssigned
                                                    : LookupStatus::kUnassigned);
      if (status != LookupStatus::kAssigned) continue;
      ASSERT_EQ(read_entry(record)->index, index);
      if (model.entries.contains(index)) {
        ASSERT_EQ(context_of(record), model.entries[index]);
      }
    }
    ASSERT_EQ(memory_.bounds(id), model.bounds);
  }
}

TEST_F(A2m, threads_append_look_up_and_truncate_at_the_same_time) {
  constexpr int kEntries = 2000;
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) threads.emplace_back([&] { fill(kFirstLog, kEntries); });
  threads.emplace_back([&] {
    for (std::uint32_t i = 1; i <= 20; ++i)
      memory_.truncate(kFirstLog, memory_.bounds(kFirstLog).tail / 2, nonce_of(i));
  });
  threads.emplace_back([&] {
    Record record;
    for (std::uint64_t tail = 0; tail < 2 * kEntries; tail = memory_.bounds(kFirstLog).tail) {
      const LogBounds bounds = memory_.bounds(kFirstLog);
      for (std::uint64_t i = bounds.head; i < bounds.tail; i += 1 + (bounds.tail - i) / 8) {
        const LookupStatus status = memory_.lookup(kFirstLog, i, record);
        if (status == LookupStatus::kForgotten) continue;
        ASSERT_EQ(status, LookupStatus::kAssigned);
        ASSERT_EQ(own_.verify_stateless(record, Kind::kLog), Verdict::kOk);
      }
    }
  });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(memory_.bounds(kFirstLog).tail, 2U * kEntries + 20);
  ASSERT_EQ(learn(verifier_, memory_, kFirstLog), Finding::kOk);
  EXPECT_EQ(verifier_.verify_all(kFirstLog, shows(memory_)), Finding::kOk);
}

TEST(A2mOptions, what_cannot_be_is_refused_and_said) {
  WriterKernel kernel;
  const auto refused = [&](const MemoryOptions& options) {
    return error_of(ErrorCode::kInvalidArgument, [&] { AttestedMemory(kernel, options); });
  };
  EXPECT_THAT(refused({.manifest = 77}), HasSubstr("no session 77"));
  EXPECT_THAT(refused({.manifest = kManifestLog, .logs = {{.session = kManifestLog}}}),
              HasSubstr("two logs"));
  EXPECT_THAT(
      refused({.manifest = kManifestLog, .logs = {{.session = kFirstLog, .max_context_bytes = 0}}}),
      HasSubstr("max_context_bytes 0"));
  EXPECT_THAT(refused({.manifest = kManifestLog,
                       .logs = {{.session = kFirstLog, .max_entries = ~std::uint64_t{0}}}}),
              HasSubstr("max_entries"));
  AttestedMemory memory(
      kernel, {.manifest = kManifestLog, .logs = {{.session = kFirstLog, .max_entries = 2}}});
  memory.append(kFirstLog, {});
  memory.append(kFirstLog, {});
  EXPECT_THAT(error_of(ErrorCode::kTooLarge, [&] { memory.append(kFirstLog, {}); }),
              HasSubstr("is full"));
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { memory.append(kManifestLog, {}); }),
              HasSubstr("truncations only"));
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { memory.append(kOtherLog, {}); }),
              HasSubstr("no log 11"));
}

}  // namespace
}  // namespace leat::trusted

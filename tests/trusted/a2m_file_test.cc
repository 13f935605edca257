// Logs in files: what opening finds after a crash, damage, a rollback, another epoch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "support/errors.h"
#include "support/scratch.h"
#include "trusted/a2m_support.h"

namespace leat::trusted {
namespace {

namespace fs = std::filesystem;
using leat::detail::error_of;
using testing::ElementsAre;
using testing::HasSubstr;
using Range = Recovery::Range;

constexpr std::size_t kFileHeader = 256, kSlot = 24 + 32 + 64;

class A2mFile : public testing::Test {
 protected:
  AttestedMemory open(bool check_all = false) {
    auto options = options_of(folder());
    options.check_all = check_all;
    return {kernel_, options};
  }
  // With entries "0" to "9" in kFirstLog, closed.
  void write_ten() {
    AttestedMemory memory = open();
    for (int i = 0; i < 10; ++i) memory.append(kFirstLog, bytes_of(std::to_string(i)));
  }
  std::string folder() const { return scratch_.path() + "/a2m"; }
  std::string file(std::uint32_t log = kFirstLog) const {
    return folder() + "/log-" + std::to_string(log) + ".a2m";
  }
  void flip(std::size_t offset) const {
    std::fstream stream(file(), std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(offset));
    const int byte = stream.get();
    stream.seekp(static_cast<std::streamoff>(offset));
    stream.put(static_cast<char>(byte ^ 0x40));
  }
  static std::size_t slot(std::size_t index) { return kFileHeader + index * kSlot; }

  leat::detail::ScratchFolder scratch_;
  WriterKernel kernel_;
  ReaderKernel own_;
};

TEST_F(A2mFile, reopens_with_all_that_was_appended_and_goes_on) {
  write_ten();
  {
    AttestedMemory memory = open();
    const Recovery& found = memory.recoveries().front();
    EXPECT_EQ(found.log, kFirstLog);
    EXPECT_EQ(found.bounds, (LogBounds{0, 10}));
    EXPECT_EQ(found.verified_from, 10U) << "it was closed: nothing to verify";
    EXPECT_EQ(found.lost, 0U);
    memory.truncate(kFirstLog, 7, nonce_of(1));
    EXPECT_EQ(memory.append(kFirstLog, bytes_of("next")), 11U);
  }
  AttestedMemory memory = open(true);
  EXPECT_EQ(memory.recoveries().front().bounds, (LogBounds{7, 12}));
  EXPECT_EQ(memory.recoveries().front().verified_from, 7U);
  EXPECT_EQ(memory.recoveries().front().lost, 0U);
  Record record;
  EXPECT_EQ(memory.lookup(kFirstLog, 6, record), LookupStatus::kForgotten);
  EXPECT_EQ(memory.lookup(kFirstLog, 11, record), LookupStatus::kAssigned);
  EXPECT_EQ(context_of(record), "next");
  EXPECT_THAT(
      error_of(ErrorCode::kInvalidArgument, [&] { memory.truncate(kFirstLog, 8, nonce_of(1)); }),
      HasSubstr("used before"))
      << "nonces are known again from the MANIFEST";
}

TEST_F(A2mFile, each_flipped_bit_of_an_entry_is_found) {
  write_ten();
  for (std::size_t byte = 0; byte < kSlot; ++byte) {
    // Bytes of the slot that the entry does not use say nothing.
    if (byte >= 24 + 32 + 1) break;
    const std::string before = file() + ".before";
    fs::copy_file(file(), before, fs::copy_options::overwrite_existing);
    flip(slot(4) + byte);
    {
      AttestedMemory memory = open();  // not verified one by one, yet no lie gets through
      Record record;
      const LookupStatus status = memory.lookup(kFirstLog, 4, record);
      EXPECT_NE(verify_lookup(own_, kFirstLog, 4, record, {0, 10}), Finding::kOk) << byte;
      EXPECT_TRUE(status == LookupStatus::kAssigned || status == LookupStatus::kLost);
      EXPECT_THAT(memory.check(kFirstLog).lost_ranges, ElementsAre(Range{4, 1})) << byte;
    }
    AttestedMemory memory = open(true);
    EXPECT_THAT(memory.recoveries().front().lost_ranges, ElementsAre(Range{4, 1})) << byte;
    Record record;
    EXPECT_EQ(memory.lookup(kFirstLog, 4, record), LookupStatus::kLost);
    EXPECT_EQ(memory.lookup(kFirstLog, 5, record), LookupStatus::kAssigned);
    fs::rename(before, file());
  }
}

TEST_F(A2mFile, a_file_that_was_cut_has_lost_the_rest_and_goes_on) {
  write_ten();
  fs::resize_file(file(), slot(6) + 30);  // in the middle of entry 6
  AttestedMemory memory = open();
  EXPECT_THAT(memory.recoveries().front().lost_ranges, ElementsAre(Range{6, 4}));
  Record record;
  EXPECT_EQ(memory.lookup(kFirstLog, 5, record), LookupStatus::kAssigned);
  EXPECT_EQ(memory.lookup(kFirstLog, 6, record), LookupStatus::kLost);
  EXPECT_EQ(memory.lookup(kFirstLog, 9, record), LookupStatus::kLost);
  EXPECT_EQ(memory.append(kFirstLog, bytes_of("on")), 10U);
  EXPECT_EQ(memory.lookup(kFirstLog, 10, record), LookupStatus::kAssigned);
}

TEST_F(A2mFile, an_older_state_of_the_file_is_found_by_the_kernels_counter) {
  write_ten();
  const std::string old = scratch_.path() + "/old";
  fs::copy(folder(), old);
  {
    AttestedMemory memory = open();
    for (int i = 0; i < 3; ++i) memory.append(kFirstLog, bytes_of("new"));
    memory.truncate(kFirstLog, 2, nonce_of(1));
  }
  fs::remove_all(folder());
  fs::rename(old, folder());
  AttestedMemory memory = open();
  EXPECT_THAT(memory.recoveries().front().lost_ranges, ElementsAre(Range{10, 4}));
  EXPECT_THAT(memory.recoveries().back().lost_ranges, ElementsAre(Range{0, 1}));
  // And by a client, of the log and of the MANIFEST.
  A2mVerifier verifier(own_, kManifestLog);
  EXPECT_EQ(learn(verifier, memory, kFirstLog), Finding::kMissing);
}

TEST_F(A2mFile, a_file_that_was_removed_is_all_lost) {
  write_ten();
  fs::remove(file());
  AttestedMemory memory = open();
  EXPECT_TRUE(memory.recoveries().front().new_file);
  EXPECT_THAT(memory.recoveries().front().lost_ranges, ElementsAre(Range{0, 10}));
}

// More entries than the memory of the new file has room for.
TEST_F(A2mFile, what_was_behind_the_end_of_a_file_that_was_removed_is_lost_when_it_is_looked_up) {
  {
    AttestedMemory memory = open();
    for (int i = 0; i < 2000; ++i) memory.append(kFirstLog, bytes_of("entry"));
  }
  fs::remove(file());
  AttestedMemory memory = open();
  Record record;
  for (const std::uint64_t index : {0U, 100U, 1999U})
    EXPECT_EQ(memory.lookup(kFirstLog, index, record), LookupStatus::kLost) << index;
  EXPECT_EQ(memory.append(kFirstLog, bytes_of("on")), 2000U);
  EXPECT_EQ(memory.lookup(kFirstLog, 1999, record), LookupStatus::kLost);
  EXPECT_EQ(memory.lookup(kFirstLog, 2000, record), LookupStatus::kAssigned);
}

TEST_F(A2mFile, a_kernel_that_began_anew_with_the_same_epoch_is_refused) {
  write_ten();
  WriterKernel restarted;
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument,
                       [&] { AttestedMemory(restarted, options_of(folder())); }),
              HasSubstr("started again"));
}

TEST_F(A2mFile, another_epoch_log_device_or_shape_is_refused_and_said) {
  write_ten();
  const auto refused = [&](AttestationKernel& kernel, const MemoryOptions& options) {
    return error_of(ErrorCode::kInvalidArgument, [&] { AttestedMemory(kernel, options); });
  };
  WriterKernel later(kEpoch + 1);
  EXPECT_THAT(refused(later, options_of(folder())), HasSubstr("epoch 7, and the kernel is in 8"));
  WriterKernel third(kEpoch, Algorithm::kHmacSha256, 3);
  EXPECT_THAT(refused(third, options_of(folder())), HasSubstr("of device 1, not log"));
  EXPECT_THAT(refused(kernel_, options_of(folder(), true)), HasSubstr("other options"));
  WriterKernel other(kEpoch, Algorithm::kHmacSha384);
  EXPECT_THAT(refused(other, options_of(folder())), HasSubstr("another algorithm"));
  fs::copy_file(file(kOtherLog), file(), fs::copy_options::overwrite_existing);
  EXPECT_THAT(refused(kernel_, options_of(folder())), HasSubstr("is log 11"));
  for (std::size_t byte = 0; byte < 128; byte += 5) {
    fs::remove_all(folder());
    WriterKernel fresh;
    { AttestedMemory made(fresh, options_of(folder())); }
    flip(byte);
    EXPECT_NE(refused(fresh, options_of(folder())), "no error") << byte;
  }
  fs::resize_file(file(), 0);
  EXPECT_THAT(refused(kernel_, options_of(folder())), HasSubstr("not a log file"));
}

TEST_F(A2mFile, damaged_words_of_the_header_cost_time_and_nothing_else) {
  write_ten();
  for (std::size_t byte = 128; byte < kFileHeader; byte += 8) {
    flip(byte);
    AttestedMemory memory = open();
    EXPECT_EQ(memory.recoveries().front().lost, 0U) << byte;
    EXPECT_EQ(memory.bounds(kFirstLog), (LogBounds{0, 10}));
  }
}

TEST_F(A2mFile, a_second_writer_is_refused) {
  AttestedMemory memory = open();
  EXPECT_THAT(error_of(ErrorCode::kUnavailable, [&] { open(); }), HasSubstr("another process"));
}

TEST_F(A2mFile, who_only_verifies_opens_an_archive_for_reading) {
  write_ten();
  const AttestedMemory archive(own_, options_of(folder()));
  EXPECT_EQ(archive.bounds(kFirstLog), (LogBounds{0, 10}));
  EXPECT_EQ(archive.check(kFirstLog).lost, 0U);
  AttestedMemory writable(own_, options_of(folder()));
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { writable.append(kFirstLog, {}); }),
              HasSubstr("reading only"));
}

// A kernel that fails from some attest on.
class FailingKernel final : public ForwardingKernel {
 public:
  FailingKernel(AttestationKernel& kernel, int attests)
      : ForwardingKernel(kernel), left_(attests) {}
  Verdict attest(const Statement& statement, std::span<const std::byte> payload,
                 Proof& proof) noexcept override {
    return left_-- > 0 ? ForwardingKernel::attest(statement, payload, proof)
                       : Verdict::kUnavailable;
  }

 private:
  int left_;
};

TEST_F(A2mFile, case78_a_truncation_cut_between_its_two_appends_is_finished) {
  {
    FailingKernel failing(kernel_, 11);  // ten appends and the first half
    AttestedMemory memory(failing, options_of(folder()));
    for (int i = 0; i < 10; ++i) memory.append(kFirstLog, bytes_of(std::to_string(i)));
    EXPECT_THROW(memory.truncate(kFirstLog, 5, nonce_of(1)), Error);
    EXPECT_EQ(memory.bounds(kFirstLog), (LogBounds{0, 11}));
  }
  {
    AttestedMemory memory = open();
    EXPECT_TRUE(memory.recoveries().front().finished_truncation);
    EXPECT_EQ(memory.bounds(kFirstLog), (LogBounds{5, 11}));
    EXPECT_EQ(memory.bounds(kManifestLog), (LogBounds{0, 1}));
    A2mVerifier verifier(own_, kManifestLog);
    ASSERT_EQ(learn(verifier, memory, kFirstLog), Finding::kOk);
    EXPECT_EQ(verifier.bounds(kFirstLog), (LogBounds{5, 12}));
  }
  EXPECT_FALSE(open().recoveries().front().finished_truncation) << "once";
}

TEST_F(A2mFile, case78_or_by_the_next_truncation_of_the_same_process) {
  class Recovering final : public ForwardingKernel {
   public:
    using ForwardingKernel::ForwardingKernel;
    Verdict attest(const Statement& statement, std::span<const std::byte> payload,
                   Proof& proof) noexcept override {
      return fails && statement.session == kManifestLog
                 ? Verdict::kUnavailable
                 : ForwardingKernel::attest(statement, payload, proof);
    }
    bool fails = true;
  } kernel(kernel_);
  AttestedMemory memory(kernel, options_of(folder()));
  for (int i = 0; i < 10; ++i) memory.append(kFirstLog, {});
  EXPECT_THROW(memory.truncate(kFirstLog, 5, nonce_of(1)), Error);
  kernel.fails = false;
  memory.truncate(kFirstLog, 6, nonce_of(2));
  EXPECT_EQ(memory.bounds(kManifestLog).tail, 2U);
  A2mVerifier verifier(own_, kManifestLog);
  ASSERT_EQ(learn(verifier, memory, kFirstLog), Finding::kOk);
  EXPECT_EQ(verifier.bounds(kFirstLog)->head, 6U);
}

TEST_F(A2mFile, a_disk_without_room_costs_no_number) {
  AttestedMemory memory = open();
  memory.append(kFirstLog, bytes_of("before"));
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit limit = before;
  limit.rlim_cur = 100'000;  // as a full disk: posix_fallocate fails
  signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &limit);
  std::uint64_t appended = 1;
  EXPECT_THROW(for (; appended < 10'000; ++appended) memory.append(kFirstLog, bytes_of("more")),
               Error);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(memory.append(kFirstLog, bytes_of("after")), appended);
  EXPECT_EQ(memory.check(kFirstLog).lost, 0U);
}

}  // namespace
}  // namespace leat::trusted

// Attested append-only memory under faults drawn from seeds: hosts that lie to their clients, that
// start again, that damage their files or put back old ones. No client believes an entry that was
// not appended, that one is missing which is there, or bounds that are not the log's; an honest
// host is believed; and what was appended and not damaged is there after each start.
#include <gtest/gtest.h>

#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include "support/scale.h"
#include "support/scratch.h"
#include "trusted/a2m_support.h"
#include "trusted/seeds.h"

namespace leat::trusted {
namespace {

namespace fs = std::filesystem;

// What was appended to a log, and what its host has lost of it.
struct Truth {
  std::map<std::uint64_t, Record> records;
  std::set<std::uint64_t> damaged;
  LogBounds bounds;
};

class SeededLog {
 public:
  explicit SeededLog(unsigned seed) : draw_(seed), clients_(2) { open(); }

  void run() {
    for (int step = 0; step < 60 && !testing::Test::HasFailure(); ++step) {
      const unsigned what = draw_.below(100);
      if (what < 45)
        append();
      else if (what < 50)
        truncate();
      else if (what < 65)
        learn();
      else if (what < 95)
        look_up();
      else
        start_again();
    }
  }

 private:
  struct Client {
    ReaderKernel kernel;
    A2mVerifier verifier{kernel, kManifestLog};
    Record old_end, old_manifest_end;
    LogBounds old_bounds;
  };
  std::string folder() const { return scratch_.path() + "/a2m"; }
  void open() { memory_.emplace(kernel_, options_of(folder())); }
  void keep(std::uint32_t log, const Record& record) {
    Truth& truth = truths_[log];
    truth.records[truth.bounds.tail++] = record;
  }

  void append() {
    Record record;
    const auto index =
        memory_->append(kFirstLog, Bytes(draw_.below(65), std::byte(draw_.below(256))), &record);
    EXPECT_EQ(index, truths_[kFirstLog].bounds.tail);
    keep(kFirstLog, record);
  }

  void truncate() {
    Client& client = clients_[draw_.below(2)];
    Truth& truth = truths_[kFirstLog];
    const auto [head, tail] = truth.bounds;
    const std::uint64_t to = head + draw_.below(static_cast<unsigned>(tail - head) + 1);
    const Record manifest = memory_->truncate(kFirstLog, to, client.verifier.challenge());
    Record own;
    EXPECT_EQ(memory_->lookup(kFirstLog, tail, own), LookupStatus::kAssigned);
    keep(kFirstLog, own);
    keep(kManifestLog, manifest);
    truth.bounds.head = to;
    const bool lied = draw_.chance(30);
    EXPECT_EQ(
        client.verifier.verify_truncation(kFirstLog, to + (lied ? 1 : 0), manifest) == Finding::kOk,
        !lied);
  }

  // What the host says of an entry, which may be a lie.
  LookupStatus show(std::uint32_t log, std::uint64_t index, Record& record, bool lies) {
    LookupStatus status = memory_->lookup(log, index, record);
    if (!lies) return status;
    const auto& records = truths_[log].records;
    switch (draw_.below(6)) {
      case 0:
        return LookupStatus::kForgotten;
      case 1:
        return LookupStatus::kUnassigned;
      case 2:  // another entry
        if (!records.empty())
          record = std::next(records.begin(), draw_.below(static_cast<unsigned>(records.size())))
                       ->second;
        return LookupStatus::kAssigned;
      case 3:  // the entry, which may be forgotten
        if (const auto found = records.find(index); found != records.end()) record = found->second;
        return LookupStatus::kAssigned;
      case 4:
        if (!record.empty())
          record[draw_.below(static_cast<unsigned>(record.size()))] ^= std::byte{1};
        return LookupStatus::kAssigned;
      default:  // the same entry of another log
        memory_->lookup(log == kFirstLog ? kOtherLog : kFirstLog, index, record);
        return LookupStatus::kAssigned;
    }
  }

  void learn() {
    Client& client = clients_[draw_.below(2)];
    const bool lies = draw_.chance(30);
    const Nonce nonce = client.verifier.challenge();
    Record end = memory_->end(kFirstLog, nonce);
    keep(kFirstLog, end);
    Record manifest_end = memory_->end(kManifestLog, nonce);
    keep(kManifestLog, manifest_end);
    LogBounds bounds = truths_[kFirstLog].bounds;
    const bool old_end = lies && draw_.chance(50), old_manifest = lies && draw_.chance(50);
    if (old_end) std::swap(end, client.old_end);
    if (old_manifest) std::swap(manifest_end, client.old_manifest_end);
    // Unless it is answered, an older challenge can be, with what was true when it was.
    if (old_end) std::swap(bounds, client.old_bounds);
    const Finding finding = client.verifier.learn_bounds(
        kFirstLog, end, manifest_end, [&](std::uint32_t log, std::uint64_t index, Record& record) {
          return show(log, index, record, lies && draw_.chance(50));
        });
    if (finding == Finding::kOk) {
      EXPECT_EQ(old_end, old_manifest);
      EXPECT_EQ(client.verifier.bounds(kFirstLog), bounds);
    } else {
      EXPECT_TRUE(lies || !truths_[kManifestLog].damaged.empty()) << to_string(finding);
    }
    if (old_end && old_manifest) return;
    client.old_end = end;
    client.old_manifest_end = manifest_end;
    client.old_bounds = bounds;
  }

  void look_up() {
    const Client& client = clients_[draw_.below(2)];
    const Truth& truth = truths_[kFirstLog];
    const bool lies = draw_.chance(40);
    const std::uint64_t index = draw_.below(static_cast<unsigned>(truth.bounds.tail) + 2);
    Record record;
    const LookupStatus status = show(kFirstLog, index, record, lies);
    const Finding finding = client.verifier.verify_lookup(kFirstLog, index, status, record);
    const auto bounds = client.verifier.bounds(kFirstLog);
    if (finding == Finding::kOk) {
      ASSERT_TRUE(bounds);
      if (status == LookupStatus::kAssigned) {
        EXPECT_EQ(record, truth.records.at(index));
        EXPECT_GE(index, bounds->head) << "a forgotten entry is believed";
      } else if (status == LookupStatus::kForgotten) {
        EXPECT_LT(index, truth.bounds.head);
      } else {
        EXPECT_GE(index, bounds->tail) << to_string(status);
      }
    } else if (!lies && !has_forgotten_a_head_ && bounds && !truth.damaged.contains(index)) {
      // Since the client learnt the bounds.
      const bool is_new = finding == Finding::kBeyondTail && index >= bounds->tail;
      const bool has_gone = finding == Finding::kForgottenSince && index < truth.bounds.head;
      EXPECT_TRUE(is_new || has_gone)
          << "an honest host at " << index << ": " << to_string(finding);
    }
  }

  // Its files may be older or damaged.
  void start_again() {
    if (draw_.chance(30)) memory_->sync();
    memory_.reset();
    const std::string copy = scratch_.path() + "/old";
    if (fs::exists(copy) && draw_.chance(30)) {
      put_back(copy);
    } else if (draw_.chance(50)) {
      fs::remove_all(copy);
      fs::copy(folder(), copy);
      copied_ = truths_;
    } else if (draw_.chance(50)) {
      damage(draw_.chance(80) ? kFirstLog : kManifestLog);
    }
    open();
    if (memory_->bounds(kFirstLog).head != truths_[kFirstLog].bounds.head) {
      EXPECT_FALSE(truths_[kManifestLog].damaged.empty());
      has_forgotten_a_head_ = true;
    }
    for (auto& [log, truth] : truths_) {
      // It finishes a truncation that its MANIFEST has lost.
      while (truth.bounds.tail < memory_->bounds(log).tail) {
        EXPECT_FALSE(truths_[kManifestLog].damaged.empty());
        Record record;
        EXPECT_EQ(memory_->lookup(log, truth.bounds.tail, record), LookupStatus::kAssigned);
        keep(log, record);
      }
      for (std::uint64_t i = truth.bounds.head; i < truth.bounds.tail; ++i) {
        if (truth.damaged.contains(i)) continue;
        Record record;
        EXPECT_EQ(memory_->lookup(log, i, record), LookupStatus::kAssigned) << log << " " << i;
        EXPECT_EQ(record, truth.records.at(i));
      }
    }
  }

  // All that came since is lost.
  void put_back(const std::string& copy) {
    fs::remove_all(folder());
    fs::copy(copy, folder());
    for (auto& [log, truth] : truths_) {
      truth.damaged = copied_[log].damaged;
      for (std::uint64_t i = copied_[log].bounds.tail; i < truth.bounds.tail; ++i)
        truth.damaged.insert(i);
    }
  }

  // One byte of an entry.
  void damage(std::uint32_t log) {
    Truth& truth = truths_[log];
    const auto [head, tail] = truth.bounds;
    if (tail == head) return;
    const std::uint64_t index = head + draw_.below(static_cast<unsigned>(tail - head));
    if (truth.damaged.contains(index)) return;
    constexpr std::size_t kFileHeader = 256, kSlotBytesAt = 36, kBeforePayload = 24 + 32;
    std::fstream stream(folder() + "/log-" + std::to_string(log) + ".a2m",
                        std::ios::in | std::ios::out | std::ios::binary);
    std::uint32_t slot_bytes = 0;
    stream.seekg(kSlotBytesAt);
    stream.read(reinterpret_cast<char*>(&slot_bytes), sizeof slot_bytes);
    const std::size_t bytes =
        kBeforePayload + truth.records.at(index).size() - kRecordOverheadBytes;
    const auto at = static_cast<std::streamoff>(kFileHeader + index * slot_bytes +
                                                draw_.below(static_cast<unsigned>(bytes)));
    stream.seekg(at);
    const int byte = stream.get();
    stream.seekp(at);
    stream.put(static_cast<char>(byte ^ static_cast<int>(1 + draw_.below(255))));
    ASSERT_TRUE(stream.flush());
    truth.damaged.insert(index);
  }

  Draw draw_;
  leat::detail::ScratchFolder scratch_;
  WriterKernel kernel_;
  std::optional<AttestedMemory> memory_;
  std::deque<Client> clients_;
  std::map<std::uint32_t, Truth> truths_;
  std::map<std::uint32_t, Truth> copied_;
  bool has_forgotten_a_head_ = false;  // with its files: then it is honest in vain
};

TEST(A2mSeededFaults, each_client_is_shown_one_log) {
  for_seeds(static_cast<unsigned>(leat::detail::scaled(2000)),
            [](unsigned seed) { SeededLog(seed).run(); });
}

}  // namespace
}  // namespace leat::trusted

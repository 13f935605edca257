// One log: slots of one size, one for each number that the attestor gave, in memory or in a file.
// docs/trusted_systems.md has the bytes of the file.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/fork.h"
#include "leat/trusted/a2m.h"
#include "trusted/a2m/entry.h"
#include "trusted/a2m/storage.h"

namespace leat::trusted::detail {

// A log that was not closed is verified from a multiple of this number: about 50 ms in process.
inline constexpr std::uint64_t kCheckpointEntries = std::uint64_t{1} << 16;

// Threads and errors are those of AttestedMemory.
class Log {
 public:
  // `folder`: empty for memory.
  Log(AttestationKernel& kernel, const LogOptions& options, const std::string& folder);
  Log(const Log&) = delete;
  ~Log();

  // To be called first: finds out what the file has of what the attestor attested. `head` is the
  // MANIFEST's; `seen` is called with each entry that verifies.
  Recovery recover(std::uint64_t head, bool check_all,
                   const std::function<void(const Entry&)>& seen);

  std::uint64_t append(EntryKind kind, std::uint64_t head, std::span<const std::byte> context,
                       Record* record);
  LookupStatus lookup(std::uint64_t index, Record& record) const;
  // Verifies from `first` to the tail.
  Recovery check(std::uint64_t first, const std::function<void(const Entry&)>& found = {},
                 const std::function<void(std::uint64_t)>& lost = {}) const;
  // Forgets the entries below.
  void forget(std::uint64_t head);
  // Whether append() must leave the checkpoint where it is, as between the halves of a truncation.
  void hold_checkpoint(bool hold);
  void sync();

  LogBounds bounds() const;
  std::uint32_t id() const { return session_.id; }
  bool writable() const { return writable_; }
  const LogOptions& options() const { return options_; }

 private:
  // The file is the one of the process that opened it: throws kClosed in a child of fork().
  void check_here() const;
  std::uint64_t check_counter() const;
  std::atomic_ref<std::uint64_t> word(std::size_t offset) const;
  void set_checkpoint(std::uint64_t index);
  std::uint64_t checkpoint(std::uint64_t tail) const;
  std::byte* slot(std::uint64_t index) const;
  std::uint64_t slots_there() const;
  bool copy_slot(std::uint64_t index, Record& record) const;
  bool verifies(std::uint64_t index, const Record& record) const;
  void remember_last_digest();

  const leat::detail::MadeHere made_here_;
  AttestationKernel& kernel_;
  const LogOptions options_;
  Session session_;
  const bool writable_;
  const std::size_t mac_bytes_;
  const std::size_t max_payload_bytes_;
  const std::size_t slot_bytes_;
  std::array<std::byte, kHeaderBytes>
      header_{};  // of its records, without what the slots hold; constant
  std::unique_ptr<A2mStorage> storage_;
  bool new_file_ = false;
  bool recovered_ = false;  // written by recover(), then constant

  // Held while appending.
  std::mutex mutex_;
  bool held_ = false;
  Digest last_digest_{};
  std::optional<Digester> digester_;
  Record payload_;

  std::atomic<std::uint64_t> head_{0};
  std::atomic<std::uint64_t> tail_{0};
};

}  // namespace leat::trusted::detail

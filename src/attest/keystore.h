// What LocalKernel stores: sessions, the two directions of each, and the position of each stream.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "attest/mac.h"
#include "base/fork.h"
#include "leat/attest/attestation.h"

namespace leat::trusted {
namespace detail {

struct Count {
  std::uint64_t next = 0;
  bool exhausted = false;  // the last value of `next` has been used; for good
};

struct Direction {
  Direction(Algorithm algorithm, std::span<const std::byte> key) : mac(algorithm, key) {}

  std::mutex mutex;  // guards everything below
  Mac mac;
  std::array<Count, kStreams> counts;
};

// Constant once the attestor is enabled, except for the contents of its directions.
struct Entry {
  Session session;  // without its key
  std::array<std::byte, 16> key_mark{};
  std::unique_ptr<Direction> out;  // null: this device does not attest here
  std::unique_ptr<Direction> in;   // null: nothing is delivered from here
  bool peer_has_group = false;     // this peer sends its protocol messages to a group
};

}  // namespace detail

struct LocalKernel::Keystore {
  using Entries = std::vector<std::unique_ptr<detail::Entry>>;

  Entries::const_iterator place_of(std::uint32_t id) const {
    return std::lower_bound(
        entries.begin(), entries.end(), id,
        [](const auto& entry, std::uint32_t wanted) { return entry->session.id < wanted; });
  }
  detail::Entry* find(std::uint32_t id) const {
    const auto place = place_of(id);
    return place != entries.end() && (*place)->session.id == id ? place->get() : nullptr;
  }
  detail::Entry* find_enabled(std::uint32_t id) const {
    return is_here() && enabled.load(std::memory_order_acquire) ? find(id) : nullptr;
  }
  bool has_key(std::span<const std::byte> mark) const {
    return std::any_of(entries.begin(), entries.end(), [&](const auto& entry) {
      return detail::equal_in_constant_time(entry->key_mark, mark);
    });
  }

  Verdict judge(std::span<const std::byte> record, Kind expected, const LocalKernel& kernel,
                RecordHeader& header, detail::Entry*& entry) const;
  static Verdict check_mac(std::span<const std::byte> record, const RecordHeader& header,
                           detail::Direction& direction);

  // Whether this is still the process that made it. The kernel empties secret memory in every
  // child, also in those of clone(2), of which pthread_atfork() does not hear.
  bool is_here() const { return made_here && here.span().front() != std::byte{0}; }

  const leat::detail::MadeHere made_here{};
  const leat::detail::SecretMemory here = [] {
    leat::detail::SecretMemory memory(1);
    memory.span().front() = std::byte{1};
    return memory;
  }();
  std::mutex provisioning;  // guards `scratch`, and the sessions until they are enabled
  leat::detail::SecretMemory scratch{kMaxKeyBytes};
  std::atomic<bool> enabled{false};
  Entries entries;  // by session id; constant once enabled
};

}  // namespace leat::trusted

// The header in front of a part of a transfer, as it lies in memory, and which header is due next.
// Pure.
//
// A transfer, which is a message, goes as one part if it fits a region (chunked_mode=inplace) or a
// chunk (chunked_mode=header), else as several, in order, all as long as the first but for the
// last.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace leat::detail {

using ChunkDigest = std::array<std::uint8_t, 32>;  // SHA-256

struct ChunkHeader {
  // As `count`: the sender takes the transfer back. This part has nothing that counts, and nothing
  // more of the transfer comes.
  static constexpr std::uint32_t kTakenBack = UINT32_MAX;

  std::uint32_t transfer = 0;  // of its context, from 0; modulo 2^32
  std::uint32_t sequence = 0;  // of this part among those of its transfer
  std::uint32_t count = 1;     // how many those are, or kTakenBack
  std::uint32_t check = 0;     // of all other words: a damaged header is not believed
  std::uint64_t length = 0;    // of this part
  std::uint64_t total = 0;     // of the transfer
  ChunkDigest digest{};        // of the transfer, in its last part; zeros if there is none
};
static_assert(sizeof(ChunkHeader) == 64);
static_assert(std::endian::native == std::endian::little);

// Any change of one bit in the numbers changes it. It does not protect against the sender, which
// makes it.
constexpr std::uint32_t check_of(const ChunkHeader& header) {
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;
  std::uint64_t mixed = (std::uint64_t{header.transfer} << 32 | header.sequence) * kOdd;
  mixed = (mixed ^ std::rotl(mixed, 29) ^ header.count) * kOdd;
  mixed = (mixed ^ std::rotl(mixed, 31) ^ header.length) * kOdd;
  mixed = (mixed ^ std::rotl(mixed, 27) ^ header.total) * kOdd;
  return static_cast<std::uint32_t>(mixed >> 32);
}

// How many parts of `part_bytes` a transfer has; an empty one has one too.
constexpr std::uint64_t parts_of(std::uint64_t total, std::uint64_t part_bytes) {
  return total == 0 ? 1 : (total - 1) / part_bytes + 1;
}

// Follows the headers of one context.
class TransferOrder {
 public:
  // Null: this header was due. Else why it cannot be. `most` bytes fit into a region.
  [[nodiscard]] const char* arrive(const ChunkHeader& header, std::uint64_t most) {
    if (header.check != check_of(header)) return "with a damaged header";
    if (header.transfer != transfer_) return "of a transfer that is not due";
    if (header.sequence != sequence_) return "out of its turn, or twice";
    if (header.length > most || header.length > header.total) return "with an impossible length";
    if (header.count == ChunkHeader::kTakenBack) {
      sequence_ = 0;
      ++transfer_;
      return nullptr;
    }
    if (sequence_ == 0) {
      // The first one says how long all but the last are.
      const bool alone = header.count == 1;
      if (alone ? header.length != header.total
                : header.length == 0 || header.count != parts_of(header.total, header.length))
        return "with a count that contradicts its length";
      count_ = header.count;
      total_ = header.total;
      part_bytes_ = header.length;
    } else {
      const std::uint64_t before = std::uint64_t{sequence_} * part_bytes_;
      const bool last = sequence_ + 1 == count_;
      if (header.count != count_ || header.total != total_ ||
          header.length != (last ? total_ - before : part_bytes_))
        return "that contradicts the parts before it";
    }
    if (++sequence_ == count_) {
      sequence_ = 0;
      ++transfer_;
    }
    return nullptr;
  }
  bool within_transfer() const { return sequence_ != 0; }

 private:
  std::uint32_t transfer_ = 0;  // that is due, or has begun
  std::uint32_t sequence_ = 0;
  std::uint32_t count_ = 0;
  std::uint64_t total_ = 0;
  std::uint64_t part_bytes_ = 0;
};

}  // namespace leat::detail

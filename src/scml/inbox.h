// Reassembles the messages of one sender, for carriers that do not deliver them to their places.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "leat/channel.h"
#include "leat/message_array.h"

namespace leat::scml::detail {

// Memory that is taken from the system at its first use.
class LandingMemory {
 public:
  explicit LandingMemory(std::uint64_t bytes);
  LandingMemory(const LandingMemory&) = delete;
  LandingMemory& operator=(const LandingMemory&) = delete;
  ~LandingMemory();

  std::byte* data() const noexcept { return data_; }
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::uint64_t bytes_;
};

// The arrivals of one context: a bit for each message, and its bytes, either in place in `memory`
// or still in the channel's memory. Otherwise pure. Calls with wrong arguments throw leat::Error.
class Inbox {
 public:
  bool is_open() const noexcept { return open_; }
  std::uint32_t epoch() const noexcept { return epoch_; }
  const leat::MessageArray& array() const noexcept { return array_; }
  std::uint64_t missing() const noexcept { return array_.incoming - arrived_count_; }

  void open(const leat::MessageArray& array);
  void close();

  // Throws kInvalidArgument unless the array is open and contains all of these messages.
  void check(unsigned context, std::uint64_t index, std::uint64_t count) const;
  // The number of messages in so many bytes. Throws kInvalidArgument.
  std::uint64_t count_of(unsigned context, std::uint64_t bytes) const;

  // Takes in messages from `index` on. Copies them to their places; or keeps `message`, which they
  // fill, if its ring of `ring_bytes` still has room for everything to come. Throws kProtocol if
  // they were not due.
  void arrive(std::uint64_t index, std::span<const std::byte> bytes, Message* message,
              std::uint64_t ring_bytes, std::byte* memory);
  bool arrived(std::uint64_t index, std::uint64_t count) const;
  // The bytes of messages that have arrived.
  std::span<const std::byte> view(std::uint64_t index, std::uint64_t count, std::byte* memory);

 private:
  struct Kept {
    Message message;
    std::uint64_t count = 0;
    bool copied = false;
  };

  leat::MessageArray array_;
  bool open_ = false;
  std::uint32_t epoch_ = 0;
  std::uint64_t arrived_count_ = 0;
  std::uint64_t kept_bytes_ = 0;  // of the ring, from the first kept message on
  std::vector<std::uint64_t> bits_;
  std::map<std::uint64_t, Kept> kept_;  // by index
};

}  // namespace leat::scml::detail

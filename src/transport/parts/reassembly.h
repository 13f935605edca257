// Puts a message together that came in pieces, because it is larger than what fits in place.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>

#include "leat/error.h"
#include "transport/parts/pieces.h"
#include "transport/transport.h"

namespace leat::detail {

// Threads: the receive side's. Without memory for a message the message is lost, and every later
// call says so: what follows must not pass for it, nor be handed out in its place.
class Reassembly {
 public:
  bool active() const { return active_; }

  // The peer says what Pieces says: the size of a message that follows in pieces, which is above
  // `in_place` and at most `most`, or that it takes back the one that it has begun. False: that
  // cannot be. Throws kResource.
  [[nodiscard]] bool announced(std::uint64_t total, std::size_t in_place, std::size_t most) {
    check();
    if (active()) {
      if (total != kTakenBack) return false;
      drop();
      return true;
    }
    if (total <= in_place || total > most) return false;
    begin(total);
    return true;
  }
  // What has come of a message that will not be completed: its sender gave it up.
  void drop() {
    memory_.reset();
    active_ = lost_;
  }
  // `total` comes from the peer and was checked against max_message_bytes. Throws kResource.
  void begin(std::size_t total) {
    active_ = true;
    total_ = total;
    filled_ = 0;
    try {
      memory_ = std::make_unique_for_overwrite<std::byte[]>(total);
    } catch (const std::bad_alloc&) {
      lost_ = true;
    }
    check();
  }
  // Throws kResource if a message was lost.
  void check() const {
    if (lost_) [[unlikely]]
      throw Error(ErrorCode::kResource,
                  "out of memory for a message of " + std::to_string(total_) + " bytes",
                  "Lower max_message_bytes, or send smaller messages; and connect again.");
  }
  // False: the piece is larger than what is missing.
  [[nodiscard]] bool add(std::span<const std::byte> piece) {
    check();
    if (piece.size() > total_ - filled_) return false;
    std::memcpy(memory_.get() + filled_, piece.data(), piece.size());
    filled_ += piece.size();
    return true;
  }
  // Where the next piece goes, for a caller that writes it there and then calls added(); null if it
  // is larger than what is missing.
  std::byte* room(std::size_t bytes) {
    return bytes <= total_ - filled_ ? memory_.get() + filled_ : nullptr;
  }
  void added(std::size_t bytes) { filled_ += bytes; }
  bool complete() const { return filled_ == total_; }
  bool ready() const { return active() && complete(); }
  // The complete message; this is then ready for the next.
  void take(Delivery& delivery) {
    delivery.data = memory_.get();
    delivery.bytes = total_;
    delivery.heap = std::move(memory_);
    active_ = false;
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::size_t total_ = 0;
  std::size_t filled_ = 0;
  bool active_ = false;
  bool lost_ = false;
};

}  // namespace leat::detail

// What a sender of chunks has posted and must keep until it is known to have arrived, and what goes
// again after its queue pair died. Pure.
//
// Requests are confirmed in the order in which they were posted: their bytes are then in the peer's
// memory. A part of a transfer has arrived when the peer has taken the announcement that its first
// chunk, posted last, carries; the peer counts those. After a queue pair died the peer says how
// many it has taken. Parts that have arrived are not sent again; of the others, the sender repeats
// the requests that were not confirmed, and announcements that were confirmed but never taken.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "transport/chunked/header.h"
#include "transport/chunked/window.h"
#include "transport/context.h"

namespace leat::detail {

// A request of a sender. Plain value.
struct ChunkWork {
  std::byte* local = nullptr;  // stays until it is confirmed
  std::uint32_t local_key = 0;
  std::size_t bytes = 0;
  std::uint64_t offset = 0;  // in the peer's region
  Context context = 0;
  std::uint64_t part = 0;       // among those of its context
  bool announces = false;       // it is, or carries, the header
  std::uint32_t immediate = 0;  // of an announcement
  ChunkHeader header;           // the same as among the bytes
  bool header_alone = false;    // the bytes are the header, for which place_headers finds a place
  std::uint64_t kept = 0;       // the sender's own: what is free once it is confirmed
  ChunkWindow::Flight flight;
};

class ChunkSender {
 public:
  // Whether everything that is to go again was posted: only then may new works follow.
  bool caught_up() const { return posted_ == works_.size(); }
  // The next that goes again. Requires !caught_up().
  ChunkWork& again() { return works_[posted_]; }
  void posted_again() { ++posted_; }
  // A new one. Requires caught_up().
  void posted(const ChunkWork& work) {
    works_.push_back(work);
    ++posted_;
    if (!work.announces) return;
    announced_.push_back(
        {work.header, work.offset, work.part, work.immediate, work.context, work.bytes == 0});
    ++announced_count_;
  }
  // The oldest that was posted is confirmed. False: nothing is posted.
  [[nodiscard]] bool confirmed(ChunkWork& work) {
    if (posted_ == 0) return false;
    work = works_.front();
    works_.pop_front();
    --posted_;
    return true;
  }
  // Bytes of that context that were posted and are not confirmed.
  std::size_t unconfirmed(Context context) const {
    std::size_t bytes = 0;
    for (const ChunkWork& work : works_)
      if (work.context == context) bytes += work.bytes;
    return bytes;
  }
  // Gives every announcement that goes again without its chunk a place for its header.
  template <typename Place>
  std::size_t place_headers(Place&& place) {
    std::size_t count = 0;
    for (ChunkWork& work : works_)
      if (work.header_alone) place(work, count++);
    return count;
  }
  // Requests that are not confirmed, and announcements that are not taken.
  std::size_t waiting() const { return works_.size() + announced_.size(); }
  // Nothing is posted and nothing is to be.
  bool idle() const { return works_.empty(); }

  // The peer has taken so many announcements ever. False: it cannot have.
  [[nodiscard]] bool taken(std::uint64_t count) {
    const std::uint64_t before = announced_count_ - announced_.size();
    if (count - before > announced_.size()) return false;
    for (std::uint64_t i = before; i != count; ++i) {
      const Announced& announced = announced_.front();
      arrived_[announced.context] = announced.part + 1;
      announced_.pop_front();
    }
    return true;
  }
  std::uint64_t announced() const { return announced_count_; }
  std::uint64_t untaken() const { return announced_.size(); }

  // The queue pair died, and there is a new one, of which the peer says how many announcements it
  // took before. False: it cannot have.
  [[nodiscard]] bool resume(std::uint64_t count) {
    if (!taken(count)) return false;
    std::deque<ChunkWork> works;
    // Announcements are confirmed in their order, so those without a work are the first.
    std::size_t unconfirmed = 0;
    for (const ChunkWork& work : works_)
      if (work.announces && !arrived(work)) ++unconfirmed;
    for (std::size_t i = 0; i + unconfirmed < announced_.size(); ++i) {
      const Announced& announced = announced_[i];
      ChunkWork work;
      work.bytes = announced.bare ? 0 : sizeof work.header;
      work.offset = announced.offset;
      work.context = announced.context;
      work.part = announced.part;
      work.announces = true;
      work.immediate = announced.immediate;
      work.header = announced.header;
      work.header_alone = !announced.bare;
      works.push_back(work);
    }
    // What is left out keeps its turn in giving back what it kept.
    std::uint64_t kept = 0;
    for (ChunkWork& work : works_) {
      kept = work.kept != 0 ? work.kept : kept;
      if (!arrived(work)) works.push_back(work);
    }
    dropped_kept_ = works.empty() ? kept : 0;
    works_.swap(works);
    posted_ = 0;
    return true;
  }
  // After resume: what is free because nothing goes again; 0: nothing.
  std::uint64_t dropped_kept() const { return dropped_kept_; }

 private:
  struct Announced {
    ChunkHeader header;
    std::uint64_t offset = 0;
    std::uint64_t part = 0;
    std::uint32_t immediate = 0;
    Context context = 0;
    bool bare = false;  // the word that nothing more comes: no header
  };

  bool arrived(const ChunkWork& work) const { return work.part < arrived_[work.context]; }

  std::deque<ChunkWork> works_;  // the first posted_ of them are with the device
  std::size_t posted_ = 0;
  std::deque<Announced> announced_;  // not known to be taken
  std::uint64_t announced_count_ = 0;
  std::array<std::uint64_t, kContextCount> arrived_{};  // parts of each context, from the first
  std::uint64_t dropped_kept_ = 0;
};

}  // namespace leat::detail

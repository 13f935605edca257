// What the requests of one end of a reliable connected queue pair may do next, of all that the
// contract of src/verbs/device.h allows: bytes move piece by piece, of several requests at a time;
// later writes overtake earlier ones and reads; what a read takes lands in any order; completions
// come late, and that of a write or immediate before its bytes are visible. Nothing happens by
// itself: each step does a little of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <random>
#include <span>
#include <vector>

#include "verbs/device.h"

namespace leat::detail {

// A request under way.
struct LateWork {
  // Of the request's bytes: whole aligned words of the peer's memory.
  struct Piece {
    std::size_t at = 0;
    std::size_t bytes = 0;
  };

  SendRequest request;
  std::vector<std::byte> bytes;  // taken at its post or its completion; of a read: at the peer
  std::vector<Piece> left;       // to be written, or to be taken from the peer
  std::vector<Piece> landing;    // of a read: taken, and not here yet
  bool announces = false;        // a completion of the peer's is still to come
  bool has_receive = false;      // the one that this needs is taken already
  bool completed = false;
  bool in_pieces = true;  // false: all of it at once, after all that was posted before
  bool failed = false;    // for who runs it to set

  bool reads() const { return request.opcode == Opcode::kRead; }
  // It has done all that it does at the peer.
  bool executed() const { return left.empty() && !announces && !failed; }
  // Nothing behind it runs before that is known.
  bool may_be_refused() const {
    return !in_pieces && !reads() && request.bytes != 0 && !executed();
  }
  const std::byte* source() const {
    return bytes.empty() ? static_cast<const std::byte*>(request.local) : bytes.data();
  }
};

class LateOrder {
 public:
  // What steps come to.
  class Effects {
   public:
    // A write's bytes become visible at the peer.
    virtual void write(LateWork& work, const LateWork::Piece& piece) = 0;
    // A read takes bytes of the peer into work.bytes.
    virtual void take(LateWork& work, const LateWork::Piece& piece) = 0;
    // Takes a receive of the peer for an immediate that completes before it arrives. False: there
    // is none now, or immediates of this device never do.
    virtual bool take_receive(LateWork& work) = 0;
    // An immediate arrives, in the receive that it has, or else takes now. False: there is none.
    virtual bool announce(LateWork& work) = 0;
    virtual void complete(LateWork& work) = 0;
    // Copies from or to memory of the request here. False: that has gone, so nothing was copied.
    virtual bool use_local(const LateWork& /*work*/, const std::function<void()>& copy) {
      copy();
      return true;
    }

   protected:
    ~Effects() = default;
  };

  struct Freedom {
    // Completions of writes, and of immediates, may come before their bytes are visible.
    bool completes_early = true;
    // Larger requests move in so many pieces, smaller ones word by word.
    std::size_t most_pieces = 256;
  };

  LateOrder(std::uint64_t seed, Effects& effects, const Freedom& freedom);

  void post(const SendRequest& request, bool in_pieces = true);
  // Does a little, or nothing: the next thing may have to wait for a receive of the peer.
  void step();
  // What is not completed, in post order.
  std::size_t uncompleted() const;
  bool idle() const { return works_.empty(); }
  // Ends it: what had completed becomes visible and arrives yet, and where `tells_all` what had
  // been executed completes. Returns what did not, in post order.
  std::vector<SendRequest> break_down(bool tells_all);

 private:
  void step_one();
  bool is_free(std::size_t at) const;
  bool may_execute_alone(std::size_t at) const;
  bool may_announce(std::size_t at) const;
  bool overtakes_same_word(std::size_t at, const LateWork::Piece& piece) const;
  bool lands_on_earlier(std::size_t at, const LateWork::Piece& piece) const;
  void move(std::size_t at);
  void land(std::size_t at);
  void complete_next();
  bool may_complete_early(LateWork& work);
  std::size_t some();
  bool chance(unsigned one_in) { return random_() % one_in == 0; }

  Effects& effects_;
  const Freedom freedom_;
  std::mt19937_64 random_;
  const std::size_t window_;  // so many are under way at a time; those behind have not left yet
  std::deque<LateWork> works_;
};

}  // namespace leat::detail

// The way out of a message that is larger than what fits in place: first its size, then its pieces.
// reassembly.h has the way in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "leat/error.h"
#include "transport/transport.h"

namespace leat::detail {

// What stands in the place of a size: the sender takes back the message that it has begun, and the
// receiver drops what it has of it.
inline constexpr std::uint64_t kTakenBack = 0;

// Of one context. Threads: the send side's.
class Pieces {
 public:
  // Part of a message has left, and the rest has not.
  bool under_way() const { return total_ != 0; }
  // Whether the last try_send sent a part of a message that it did not finish.
  bool took_part() const { return took_part_; }
  // The caller does not go on with that message.
  void abandon() { abandoned_ = under_way(); }

  // Takes back what was abandoned; nothing else of the context may go before. `announce` sends a
  // size, here kTakenBack, and returns whether there was room. False: there was none, call again.
  template <typename Announce>
  bool try_take_back(Announce&& announce) {
    if (!abandoned_) return true;
    took_part_ = false;
    if (!announce(kTakenBack)) return false;
    *this = {};
    return true;
  }

  // Sends a message, or goes on with the one that is under way, which must be the same. `announce`
  // as above. `put` sends a piece from the beginning of what it is given, and returns how many
  // bytes that are; 0: no room.
  template <typename Announce, typename Put>
  SendResult try_send(std::span<const std::byte> message, Announce&& announce, Put&& put) {
    took_part_ = false;
    if (total_ == 0) {
      if (!announce(std::uint64_t{message.size()})) return SendResult::kNoRoom;
      total_ = message.size();
    } else if (total_ != message.size()) {
      refuse_another(total_, message.size());
    }
    while (sent_ < total_) {
      const std::size_t bytes = put(message.subspan(sent_));
      if (bytes == 0) return SendResult::kUnderWay;
      sent_ += bytes;
      took_part_ = true;
    }
    *this = {};
    return SendResult::kSent;
  }

  // For transports that send in pieces by other means.
  [[noreturn]] static void refuse_another(std::size_t total, std::size_t bytes) {
    throw Error(ErrorCode::kInvalidArgument,
                "a message of " + std::to_string(bytes) + " bytes within one of " +
                    std::to_string(total) + " bytes, of which a part has been sent",
                "After try_send returned false go on with the same message, or abandon it.");
  }

 private:
  std::size_t total_ = 0;  // 0: no message is under way
  std::size_t sent_ = 0;
  bool abandoned_ = false;
  bool took_part_ = false;
};

}  // namespace leat::detail

// When a receiver of transport batched reads its peer's bitmap, when it asks to be notified
// instead, and when it may sleep. Pure.
//
// The sender counts what it posts and publishes that number beside its bitmap. A receiver that
// found nothing for a while allows the sender so many doorbells, by writing a limit into the
// sender's memory, then reads once more. The sender publishes its number, then looks at the limit.
// With a full barrier between the two steps on both sides at least one sees the other: the sender
// notifies the receiver, or the receiver finds that more was posted than arrived and goes on
// reading.
#pragma once

#include <algorithm>
#include <cstdint>

namespace leat::detail {

class DoorbellReceiver {
 public:
  enum class Step { kNothing, kRead, kAllow };

  // How many doorbells the sender may send before the receiver reads again: so that single
  // messages, each waited for, cost one allowance for many.
  static constexpr std::uint32_t kAllowance = 32;
  // Fruitless reads before it allows. Where a read takes a round trip the next message does not
  // wait for one. Where it is a look at memory it depends: if the doorbells of the last allowance
  // were waited for, as in a conversation, it allows at once; if they came in a burst, later and
  // later.
  static constexpr unsigned kSlowPatience = 1;
  static constexpr unsigned kFirstPatience = 8;
  static constexpr unsigned kMostPatience = 4096;
  // A doorbell after so many polls, and after we sent something, was waited for: an answer.
  static constexpr unsigned kPollsOfAWait = 6;
  // Polls before a read while no barrier was passed since the allowance. What the sender had posted
  // just then without seeing it, such a read shows; so each next one waits for so many times as
  // long, since a read takes the line that announces the next message away from its sender.
  static constexpr unsigned kPollsBeforeOpenRead = 256;
  static constexpr unsigned kOpenReadBackOff = 16;
  static constexpr unsigned kMostPollsBeforeOpenRead =
      kPollsBeforeOpenRead * kOpenReadBackOff * kOpenReadBackOff;

  // `near`: reading is a look at memory, and allowing costs next to nothing, so that it is done
  // again before the doorbells are used.
  explicit DoorbellReceiver(bool near = false) : near_(near) {}

  // Nothing is left of what was found. `arrived`: messages found ever.
  Step next(std::uint32_t arrived) {
    if (reading_) return Step::kNothing;
    if (!allowed()) {
      return expects(arrived) || idle_reads_ < (quick_ ? patience_ : kSlowPatience) ? Step::kRead
                                                                                    : Step::kAllow;
    }
    ++polls_;
    if (expects(arrived)) return Step::kRead;
    // More in time, while there is time.
    if (near_ && talking_ && polls_ == kPollsOfAWait && limit_ - notices_ <= kAllowance / 2)
      return Step::kAllow;
    if (!checked_) {
      if (fenced_) return Step::kRead;
      if (polls_ % open_polls_ != 0) return Step::kNothing;
      open_polls_ = std::min(open_polls_ * kOpenReadBackOff, kMostPollsBeforeOpenRead);
      return Step::kRead;
    }
    return Step::kNothing;
  }
  // Whether nothing can come without an event.
  bool may_sleep(std::uint32_t arrived) const {
    return allowed() && checked_ && !reading_ && !expects(arrived);
  }

  // A read was posted; one at a time.
  void read_posted() {
    reading_ = true;
    missed_ = false;
    read_fenced_ = fenced_;
  }
  bool reading() const { return reading_; }
  // The read is over, and brought the sender's number. `quick`: at once. `grew`: it showed
  // something new, even if the number is the same.
  void read_done(std::uint32_t posted, std::uint32_t arrived, bool quick, bool grew = false) {
    reading_ = false;
    idle_reads_ = posted == posted_ && !grew ? idle_reads_ + 1 : 0;
    posted_ = posted;
    quick_ = quick;
    // It was posted after the allowance, as there is one read at a time.
    checked_ = allowed() && read_fenced_ && !missed_ && !expects(arrived);
  }
  // What was found shows that at least so many were posted. Some before it may be missing: the flip
  // of a message without a doorbell may come later than the doorbell of a later message.
  void learned(std::uint32_t posted) {
    if (expects_more(posted, posted_)) posted_ = posted;
  }
  // The new limit, to be written into the sender's memory before the next read. Requires
  // !reading().
  std::uint32_t allow() {
    checked_ = false;
    fenced_ = false;
    idle_reads_ = 0;
    polls_ = 0;
    open_polls_ = kPollsBeforeOpenRead;
    waits_ = 0;
    return limit_ = notices_ + kAllowance;
  }
  // The limit is written, and a full barrier was passed since: what is read from now on counts. May
  // wait until the caller wants to sleep; until then it looks now and then for messages that came
  // without a doorbell.
  void fenced() { fenced_ = true; }
  bool checked() const { return checked_; }
  // The sender's number as it was last learned.
  std::uint32_t posted() const { return posted_; }
  bool allowed() const { return limit_ != notices_; }
  std::uint32_t limit() const { return limit_; }
  // The sender notified us. `found`: the message that it announced was found by that, so nothing is
  // missing but for what the next doorbell announces. `answered`: our side has sent since the
  // doorbell before. False: more often than it may.
  [[nodiscard]] bool notified(bool found, bool answered) {
    if (!allowed()) return false;
    ++notices_;
    if (!found) missed_ = true;
    checked_ = checked_ && found;
    talking_ = answered && polls_ >= kPollsOfAWait;
    if (talking_) ++waits_;
    polls_ = 0;
    idle_reads_ = 0;
    if (!allowed()) {
      patience_ =
          waits_ >= kAllowance / 2 ? 1 : std::clamp(2 * patience_, kFirstPatience, kMostPatience);
    }
    return true;
  }

 private:
  static bool expects_more(std::uint32_t posted, std::uint32_t arrived) {
    return static_cast<std::int32_t>(posted - arrived) > 0;
  }
  bool expects(std::uint32_t arrived) const { return expects_more(posted_, arrived); }

  bool near_;
  std::uint32_t limit_ = 0;
  std::uint32_t notices_ = 0;
  std::uint32_t posted_ = 0;  // the sender's number as last read
  unsigned idle_reads_ = 0;
  unsigned patience_ = kFirstPatience;
  unsigned waits_ = 0;    // doorbells of this allowance that were waited for, in a conversation
  bool talking_ = false;  // the last one was
  bool quick_ = false;    // reads are here at once
  unsigned polls_ = 0;
  unsigned open_polls_ = kPollsBeforeOpenRead;
  bool reading_ = false;
  bool fenced_ = false;       // a barrier was passed after the allowance
  bool read_fenced_ = false;  // and before the last read was posted
  bool checked_ = false;      // such a read found that all had arrived
  bool missed_ = false;  // since the last read was posted a doorbell announced what was not found
};

class DoorbellSender {
 public:
  // The limit as it stands in our memory. False: it cannot be.
  [[nodiscard]] bool see(std::uint32_t limit) {
    if (limit - notices_ > DoorbellReceiver::kAllowance) return false;
    limit_ = limit;
    return true;
  }
  bool may_notify() const { return limit_ != notices_; }
  void notify() { ++notices_; }

 private:
  std::uint32_t limit_ = 0;
  std::uint32_t notices_ = 0;
};

}  // namespace leat::detail

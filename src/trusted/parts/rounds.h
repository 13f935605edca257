// What a node asks its attestor in a round: one call verifies all records that have arrived,
// another attests all that it has to say. An attestor in a process of its own is then woken twice
// for a round instead of once for each record.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "leat/attest/attestation.h"
#include "leat/trusted/participant.h"
#include "trusted/parts/messages.h"

namespace leat::trusted::detail {

// Verdicts on records of kind kSend, in their order. Throws leat::Error kUnavailable if the
// attestor judges one of them not at all, for example because its process has ended: that is no
// sender's fault.
std::vector<Verdict> verify_all(AttestationKernel& kernel, Question::Asks asks,
                                const std::vector<View>& records);

// Whether the attestor knows the record for authentic; throws the same.
bool is_authentic(AttestationKernel& kernel, View record);

// Records that have arrived, to be verified as the next of their streams.
class Intake {
 public:
  // Keeps a copy if the record may be the next one or may follow those that are kept. `expected`:
  // the counter that is next in the stream; only verify() changes it.
  void add(View record, std::uint64_t expected);
  // The counter behind those that are kept of a session; `expected` if none is.
  std::uint64_t end(std::uint32_t session, std::uint64_t expected) const;
  // Removes and returns the records that are next in their streams, one stream after another,
  // ascending by session. Their turns are over, so the caller must process all of a stream, or none
  // of that stream any more.
  std::vector<Bytes> verify(AttestationKernel& kernel);

 private:
  // Any order will do.
  struct Less {
    bool operator()(const Bytes& one, const Bytes& other) const noexcept {
      return one.size() != other.size() ? one.size() < other.size()
                                        : std::memcmp(one.data(), other.data(), one.size()) < 0;
    }
  };
  struct Stream {
    std::uint64_t first = 0;
    // For each counter what arrived: one of them at most is authentic. The order of arrival is no
    // guide: a forged one may come first, and the next counter's before the authentic one.
    std::vector<std::set<Bytes, Less>> places;
  };

  std::map<std::uint32_t, Stream> streams_;  // by session
};

// What a node will attest in its own session, and what to do with each record.
class Outgoing {
 public:
  using Then = std::function<void(const Bytes& record, Outbox& outbox)>;

  Outgoing(AttestationKernel& kernel, std::uint32_t session) : kernel_(kernel), session_(session) {}

  void add(Bytes payload, Then then) { waiting_.push_back({std::move(payload), std::move(then)}); }
  // Attests everything in order, and then processes the records. Throws leat::Error kUnavailable if
  // the attestor refuses one; then none was processed.
  void attest(Outbox& outbox);

 private:
  struct Waiting {
    Bytes payload;
    Then then;
  };

  AttestationKernel& kernel_;
  const std::uint32_t session_;
  std::vector<Waiting> waiting_;
};

}  // namespace leat::trusted::detail

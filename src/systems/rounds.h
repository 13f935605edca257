// What a node asks its kernel in a round: all records that came, verified by one question, and all
// that it has to say, attested by another. A kernel in a process of its own is then woken twice for
// a round instead of for each record.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "leat/trusted/attestation.h"
#include "leat/trusted/participant.h"
#include "systems/messages.h"

namespace leat::trusted::detail {

// Verdicts on records of kind kSend, in their order.
std::vector<Verdict> verify_all(AttestationKernel& kernel, Question::Asks asks,
                                const std::vector<View>& records);

// Records that have come and are to be verified as the next of their streams.
class Intake {
 public:
  // Keeps a copy, if it may be the next or come behind those that are kept. `expected`: the counter
  // of the stream that is next in order, which only verify() changes.
  void add(View record, std::uint64_t expected);
  // Takes those out that are the next in their streams, in the order in which they came. The caller
  // must go on with each or with none of that stream any more: their turns are over.
  std::vector<Bytes> verify(AttestationKernel& kernel);

 private:
  struct Stream {
    std::uint64_t first = 0;
    std::vector<std::size_t> places;  // of the first record that came with each counter
  };

  std::vector<Bytes> records_;
  std::map<std::uint32_t, Stream> streams_;  // by session
};

// What a node is to attest in its own session, and what it does with each record.
class Outgoing {
 public:
  using Then = std::function<void(const Bytes& record, Outbox& outbox)>;

  Outgoing(AttestationKernel& kernel, std::uint32_t session) : kernel_(kernel), session_(session) {}

  void add(Bytes payload, Then then) { waiting_.push_back({std::move(payload), std::move(then)}); }
  // Attests all, in their order, then does with them what is to be done. Throws leat::Error
  // kUnavailable if the kernel refuses one; nothing was done with any.
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

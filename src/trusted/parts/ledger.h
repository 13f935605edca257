// What all replicas of a system have in common: the state machine, the waiting requests, and the
// progress of each client. A deterministic function of the attested steps; no I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "leat/trusted/fault.h"
#include "trusted/parts/messages.h"

namespace leat::trusted::detail {

// A request with all its commands executed.
struct Done {
  PartyId client = 0;
  std::uint64_t first = 0;
  std::size_t count = 0;
  StateDigest request{};  // digest_of_request()
  Bytes outputs;
};

// A step changes the ledger provisionally; keep() makes that permanent, undo() reverts it. The
// commands of all requests form one queue, in the order in which the requests were taken in.
class Ledger {
 public:
  // `keeps_answers`: the last answers to each client, kMaxUnderWay in kMaxKeptAnswerBytes, are part
  // of the state.
  Ledger(const Directory& directory, std::uint64_t epoch, const MachineFactory& make_machine,
         bool keeps_answers = false);

  // --- a step, in this order

  // Takes in a request if a client of the directory signed it for this epoch, and has no request
  // with that number or a later one.
  std::optional<FaultKind> take(View request);
  // The same in two parts, for a node that keeps a request until its turn comes.
  bool is_right(View request, const Signed& content) const;
  [[nodiscard]] bool take_right(View request);
  // Executes the next commands of the queue, at most `most`, while an output of any size still fits
  // into `room` bytes. Returns the outputs as items.
  std::size_t execute(std::size_t most, std::size_t room, Bytes& outputs);
  void keep();
  void undo();

  // Does all of this as a step says. No value if everything matches the step, which is then kept.
  std::optional<FaultKind> apply(const Step& step);

  // --- between steps

  std::size_t waiting() const noexcept { return waiting_; }
  // Whether a request with that number would be refused as old.
  bool has_taken(PartyId client, std::uint64_t first) const;
  // The least number that a client's next request may have.
  std::uint64_t next_number(PartyId client) const;
  // Whether that command was executed.
  bool has_executed(PartyId client, std::uint64_t number) const;
  // Whether the request that has that command, whichever it was, was executed to its end.
  bool has_finished(PartyId client, std::uint64_t number) const;
  // Requests that kept steps have finished; the caller empties it.
  std::vector<Done>& done() noexcept { return done_; }
  // The answer to that request; null if it is not kept or no longer kept.
  const Done* answer(PartyId client, std::uint64_t first) const;

  StateDigest digest() const { return digest_of(save()); }
  Bytes save() const;
  // Waiting requests may be of an earlier epoch. Returns false if save() does not make such bytes;
  // then this ledger is unusable.
  [[nodiscard]] bool load(View state);
  StateMachine& machine() noexcept { return *machine_; }

 private:
  struct Pending {
    Bytes bytes;  // the request; `left` is a view of its end
    PartyId client = 0;
    std::uint64_t first = 0;
    std::size_t count = 0;
    StateDigest digest{};
    Items left;
    Bytes outputs;
  };
  struct ClientState {
    std::uint64_t next = 0;      // the least number not taken in
    std::uint64_t executed = 0;  // the least number not executed
  };
  // What undo() needs of a request of which a step executed commands.
  struct Before {
    std::size_t index = 0;
    Items left;
    std::size_t outputs_bytes = 0;
    std::uint64_t executed = 0;
  };

  bool is_right(View request, const Signed& content, std::uint64_t oldest_epoch) const;
  void keep_answer(const Done& done);
  Bytes save_answers() const;
  bool load_answers(View part);

  const Directory& directory_;
  const std::uint64_t epoch_;
  const bool keeps_answers_;
  std::unique_ptr<StateMachine> machine_;
  std::map<PartyId, ClientState> clients_;
  std::deque<Pending> queue_;
  std::size_t front_ = 0;  // the first in the queue that the step has not finished
  std::size_t waiting_ = 0;

  std::vector<std::pair<PartyId, ClientState>> taken_;  // by the step: their states before it
  std::vector<Before> begun_;
  std::vector<Done> done_;
  std::map<PartyId, std::deque<Done>> answers_;
};

}  // namespace leat::trusted::detail

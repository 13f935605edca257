// What every replica of one system has alike: the state machine, the requests that wait, and how
// far each client is. A deterministic function of the steps that were attested; no I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "leat/trusted/fault.h"
#include "systems/messages.h"

namespace leat::trusted::detail {

// A request all of whose commands were executed.
struct Done {
  PartyId client = 0;
  std::uint64_t first = 0;
  std::size_t count = 0;
  Bytes outputs;
};

// A step changes it for now; keep() makes it so for good, undo() as it was before. The commands of
// all requests stand in one queue, in the order in which the requests were taken in.
class Ledger {
 public:
  // `keeps_answers`: a client's last are part of the state.
  Ledger(const Directory& directory, std::uint64_t epoch, const MachineFactory& make_machine,
         bool keeps_answers = false);

  // --- a step, in this order

  // Takes in a request, if a client of the directory signed it for this epoch and has none with
  // that number or a later one.
  std::optional<FaultKind> take(View request);
  // Executes the next commands of the queue, at most `most`, and only while the output of any one
  // more has room in `room` bytes; the outputs as items.
  std::size_t execute(std::size_t most, std::size_t room, Bytes& outputs);
  void keep();
  void undo();

  // All of that, as a step says: no value if everything is as it says, and then it is kept.
  std::optional<FaultKind> apply(const Step& step);

  // --- between steps

  std::size_t waiting() const noexcept { return waiting_; }
  // Whether a request with that number would be refused as old.
  bool has_taken(PartyId client, std::uint64_t first) const;
  // Whether that command was executed.
  bool has_executed(PartyId client, std::uint64_t number) const;
  // Requests that the kept steps finished; the caller empties it.
  std::vector<Done>& done() noexcept { return done_; }
  // The answer to that request; null: not kept, or not any more.
  const Done* answer(PartyId client, std::uint64_t first) const;

  StateDigest digest() const { return digest_of(save()); }
  Bytes save() const;
  // Requests that wait may be of an earlier epoch. False: not what save() makes; then this ledger
  // is of no more use.
  [[nodiscard]] bool load(View state);
  StateMachine& machine() noexcept { return *machine_; }

 private:
  struct Pending {
    Bytes bytes;  // the request; `left` is a view of its end
    PartyId client = 0;
    std::uint64_t first = 0;
    std::size_t count = 0;
    Items left;
    Bytes outputs;
  };
  struct ClientState {
    std::uint64_t next = 0;      // the least number that is not taken in
    std::uint64_t executed = 0;  // the least number that is not executed
  };
  // What undo() needs of a request that a step executed some of.
  struct Before {
    std::size_t index = 0;
    Items left;
    std::size_t outputs_bytes = 0;
    std::uint64_t executed = 0;
  };

  std::optional<FaultKind> take(View request, std::uint64_t oldest_epoch);
  void keep_answer(const Done& done);
  Bytes save_answers() const;
  bool load_answers(View part);

  const Directory& directory_;
  const std::uint64_t epoch_;
  const bool keeps_answers_;
  std::unique_ptr<StateMachine> machine_;
  std::map<PartyId, ClientState> clients_;
  std::deque<Pending> queue_;
  std::size_t front_ = 0;  // the first of the queue that the step has not finished
  std::size_t waiting_ = 0;

  std::vector<std::pair<PartyId, ClientState>> taken_;  // by the step: as they were before
  std::vector<Before> begun_;
  std::vector<Done> done_;
  std::map<PartyId, std::deque<Done>> answers_;
};

}  // namespace leat::trusted::detail

#include "trusted/bft/bft_replica.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "leat/error.h"
#include "trusted/parts/judge.h"

namespace leat::trusted {
namespace {

using namespace detail;

// Records of the leader that f followers have not answered yet.
constexpr std::uint64_t kWindow = 256;
// Results that are kept for followers that are slower than others.
constexpr std::size_t kKeptResults = 8192, kKeptResultBytes = std::size_t{16} << 20;

constexpr const char* kReplica = "a BFT replica";

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, std::string(kReplica) + " " + what);
}

void check(AttestationKernel& kernel, const BftOptions& options) {
  if (options.replicas.size() < 2 * std::size_t{options.faults} + 1)
    refuse("that survives " + std::to_string(options.faults) + " liars needs " +
           std::to_string(2 * options.faults + 1) + " replicas, not " +
           std::to_string(options.replicas.size()));
  if (options.batch == 0 || options.batch > kMaxCommands || options.checkpoint_records == 0)
    refuse("has batches of 1 to " + std::to_string(kMaxCommands) +
           " commands and at least one record for each checkpoint");
  if (std::ranges::find(options.replicas, kernel.device()) == options.replicas.end())
    refuse("has a kernel of device " + std::to_string(kernel.device()) +
           ", which is not one of the replicas");
  check_sessions(kReplica, kernel, options.first_session, options.replicas);
  check_unused(kReplica, kernel, options.first_session, options.replicas);
}

}  // namespace

BftReplica::State::State(AttestationKernel& its_kernel, const Directory& its_directory,
                         const SigningKey& its_key, const MachineFactory& its_make_machine,
                         const BftOptions& its_options, FaultHook its_hook)
    : kernel(its_kernel),
      directory(its_directory),
      key(its_key),
      make_machine(its_make_machine),
      options(its_options),
      hook(std::move(its_hook)),
      self((check(kernel, options), index_of(options, kernel.device()))),
      ledger(directory, kernel.epoch(), make_machine),
      history(options.faults + 1),
      replies(key, kernel.device(), kernel.epoch()),
      peers_(options.replicas.size()),
      outgoing_(kernel, session_of(options.first_session, kernel.device())),
      orderer_(ledger, options.batch, kernel.max_payload_bytes()) {}

// --- requests of clients

void BftReplica::State::on_request(PartyId from, std::span<const std::byte> request, Time now,
                                   Outbox& outbox) {
  if (peers_[0].accused) return;
  const auto content = read_signed(request, MessageType::kRequest);
  if (!content || content->epoch != kernel.epoch()) return;
  if (ledger.has_finished(content->sender, content->first)) {
    if (from == content->sender) replies.send_again(*content, nullptr, outbox);
    return;
  }
  if (request.size() > orderer_.max_request_bytes()) {
    if (from == content->sender && verify_signed(directory, request, *content))
      replies.refuse(*content, orderer_.max_request_bytes(), outbox);
    return;
  }
  // A client's own connection, or a follower that passes on what a client sent to it.
  if (leads()) return orderer_.take(request, *content);
  // The client has not got an answer by way of the leader: see to it that the leader has the
  // request, and give it some time.
  if (from != content->sender || ledger.has_taken(content->sender, content->first) ||
      !verify_signed(directory, request, *content))
    return;
  complaints_.add(content->sender, content->first, now + options.leader_timeout);
  outbox.send(id(0), request);
}

void BftReplica::State::look_at_complaints(Time now) {
  // Only told: it may come back, and only a view change can replace it.
  if (complaints_.overdue(ledger, now) && !peers_[0].accused && hook)
    hook({id(0), FaultKind::kSilent, {}});
}

// --- the leader

void BftReplica::State::order(bool also_short) {
  // With f = 0 there is nobody to wait for.
  const std::uint64_t end =
      options.faults == 0 ? ~std::uint64_t{0} : acknowledged_by_quorum() + kWindow;
  while (orderer_.ready(also_short) && executed < end) {
    Result result;
    Bytes snapshot;
    auto payload = orderer_.next(is_checkpoint(executed), result, snapshot);
    if (!payload) continue;
    for (Done& done : ledger.done()) replies.hold(executed, std::move(done));
    ledger.done().clear();
    const bool checkpoint = result.digest.has_value();
    outgoing_.add(std::move(*payload),
                  [this, checkpoint, counter = executed, snapshot = std::move(snapshot)](
                      const Bytes& record, Outbox& outbox) mutable {
                    history.add(record, checkpoint ? &snapshot : nullptr);
                    if (checkpoint) history.vouch(counter, id(0), record);
                    const Bytes message = write_order(record);
                    for (std::size_t i = 1; i < peers_.size(); ++i) outbox.send(id(i), message);
                  });
    finish_step(std::move(result));
  }
}

// How many records f followers have executed.
std::uint64_t BftReplica::State::acknowledged_by_quorum() const {
  if (options.faults == 0) return executed;
  std::vector<std::uint64_t> acknowledged;
  for (std::size_t i = 1; i < peers_.size(); ++i) acknowledged.push_back(peers_[i].acknowledged);
  std::ranges::sort(acknowledged, std::greater<>());
  return acknowledged[options.faults - 1];
}

// --- followers

void BftReplica::State::on_order(const Bytes& record, Outbox& outbox) {
  Bytes snapshot;
  const auto payload = payload_of(record);
  const bool checkpoint = is_checkpoint(executed);
  if (const auto fault = execute_record(ledger, payload, options.batch, checkpoint, snapshot))
    return accuse(0, *fault, record, outbox);

  const Step theirs = *read_step(payload);
  history.add(record, checkpoint ? &snapshot : nullptr);
  if (checkpoint) history.vouch(executed, id(0), record);
  outgoing_.add(write_step({.outputs = theirs.outputs, .digest = theirs.digest}),
                [this, checkpoint, counter = executed, record,
                 done = std::exchange(ledger.done(), {})](const Bytes& own, Outbox& to) {
                  // To all, so that each replica that has it sees to it that all get it; the leader
                  // has its record.
                  to.send(id(0), write_blobs(MessageType::kExecuted, {own}));
                  const Bytes message = write_blobs(MessageType::kExecuted, {own, record});
                  for (std::size_t i = 1; i < peers_.size(); ++i)
                    if (i != self) to.send(id(i), message);
                  if (checkpoint) history.vouch(counter, id(self), own);
                  for (const Done& one : done) replies.send(one, to);
                });
  finish_step({Bytes(theirs.outputs.bytes().begin(), theirs.outputs.bytes().end()),
               theirs.outputs.count(), theirs.digest});
}

// --- all

void BftReplica::State::take_in(std::span<const std::byte> record) {
  const auto header = read_header(record);
  if (!header || peers_[0].accused) return;
  const std::size_t index = sender_of(options, *header);
  // Not the next one: was executed, or comes by another way.
  if (index >= peers_.size() || index == self || peers_[index].accused) return;
  if (index == 0) return intake_.add(record, executed);
  // A correct follower sends each proof behind the leader's record. Others may pass on the proof
  // alone, and a liar proves what is not ordered: of those no more than a window.
  const Peer& peer = peers_[index];
  const std::uint32_t leaders = session_of(options.first_session, id(0));
  if (header->counter < std::max(executed + kWindow, intake_.end(leaders, executed)))
    intake_.add(record, peer.acknowledged + peer.proofs.size());
}

void BftReplica::State::settle(bool also_short, Outbox& outbox) {
  for (Bytes& record : intake_.verify(kernel)) {
    const std::size_t index = sender_of(options, *read_header(record));
    if (peers_[0].accused) break;  // nothing counts any more
    if (index == 0)
      on_order(record, outbox);
    else
      peers_[index].proofs.push_back(std::move(record));
  }
  for (std::size_t i = 1; i < peers_.size(); ++i) take_proofs(i, outbox);
  if (leads()) order(also_short);
  outgoing_.attest(outbox);
  if (leads()) replies.send_before(acknowledged_by_quorum(), outbox);
}

void BftReplica::State::finish_step(Result result) {
  results_bytes_ += result.outputs.size();
  results_.push_back(std::move(result));
  // Those of the window must be there: the quorum is counted by them.
  for (; results_.size() > kKeptResults ||
         (results_bytes_ > kKeptResultBytes && results_.size() > kWindow);
       results_.pop_front())
    results_bytes_ -= results_.front().outputs.size();
  ++executed;
}

void BftReplica::State::take_proofs(std::size_t index, Outbox& outbox) {
  Peer& peer = peers_[index];
  while (!peers_[0].accused && !peer.accused && !peer.proofs.empty() &&
         peer.acknowledged < executed) {
    const Bytes proof = std::move(peer.proofs.front());
    peer.proofs.pop_front();
    on_executed(proof, index, outbox);
  }
}

void BftReplica::State::on_executed(const Bytes& record, std::size_t index, Outbox& outbox) {
  // It answers the leader's record of the same counter: it answers each one once.
  const std::uint64_t counter = peers_[index].acknowledged;
  ++peers_[index].acknowledged;
  const std::uint64_t first_kept = executed - results_.size();
  if (counter < first_kept) return;
  const Result& result = results_[counter - first_kept];
  const auto fault =
      check_executed(payload_of(record), result.outputs, result.count, result.digest);
  if (fault) {
    --peers_[index].acknowledged;  // counts for nothing
    return accuse(index, *fault, record, outbox);
  }
  if (result.digest) history.vouch(counter, id(index), record);
}

void BftReplica::State::accuse(std::size_t index, FaultKind kind, std::span<const std::byte> record,
                               Outbox& outbox) {
  report(index, kind, history.evidence(record, index == 0), outbox);
}

void BftReplica::State::on_evidence(PartyId from, std::span<const std::byte> evidence,
                                    Outbox& outbox) {
  const std::size_t sender = index_of(options, from);
  // Judging costs a replay: a correct accuser sends evidence against each other replica once.
  if (sender == peers_.size() || ++peers_[sender].accusations >= peers_.size()) return;
  // What came before counts: what one correct replica has executed all do.
  settle(false, outbox);
  const auto fault = judge(kernel, directory, make_machine, options, evidence);
  if (!fault) return;
  const std::size_t index = index_of(options, fault->accused);
  if (index == self || peers_[index].accused) return;
  report(index, fault->kind, fault->evidence, outbox);
}

void BftReplica::State::report(std::size_t index, FaultKind kind, Bytes evidence, Outbox& outbox) {
  peers_[index].accused = true;
  // Behind the proofs of what was executed before, so that the others execute that too.
  outgoing_.attest(outbox);
  const Fault fault{id(index), kind, std::move(evidence)};
  if (!fault.evidence.empty())
    for (std::size_t i = 0; i < peers_.size(); ++i)
      if (i != self) outbox.send(id(i), fault.evidence);
  if (hook) hook(fault);
}

// --- the class

BftReplica::BftReplica(AttestationKernel& kernel, const Directory& directory, const SigningKey& key,
                       const MachineFactory& make_machine, const BftOptions& options,
                       FaultHook hook)
    : state_(std::make_unique<State>(kernel, directory, key, make_machine, options,
                                     std::move(hook))) {}
BftReplica::~BftReplica() = default;

void BftReplica::receive(PartyId from, std::span<const std::byte> message, Time now,
                         Outbox& outbox) {
  const auto type = type_of(message);
  if (!type) return;
  switch (*type) {
    case MessageType::kRequest:
      return state_->on_request(from, message, now, outbox);
    case MessageType::kOrder:
      return state_->take_in(message.subspan(1));
    case MessageType::kExecuted: {
      const auto blobs = read_blobs(message.subspan(1), 2);
      if (!blobs || blobs->empty()) return;
      if (blobs->size() == 2) state_->take_in((*blobs)[1]);
      return state_->take_in((*blobs)[0]);
    }
    case MessageType::kEvidence:
      return state_->on_evidence(from, message, outbox);
    case MessageType::kNumber:
      return outbox.send(from, write_number(state_->ledger.next_number(from)));
    case MessageType::kAttach:
    case MessageType::kReply:
    case MessageType::kRefused:
    case MessageType::kResume:
    case MessageType::kReceived:
    case MessageType::kChallenge:
    case MessageType::kAttached:
      return;
  }
}

void BftReplica::settle(Time, Outbox& outbox) { state_->settle(false, outbox); }

void BftReplica::idle(Time now, Outbox& outbox) {
  state_->settle(true, outbox);
  if (!state_->leads()) state_->look_at_complaints(now);
}

std::uint64_t BftReplica::executed_records() const noexcept { return state_->executed; }
Bytes BftReplica::save() const { return state_->ledger.save(); }

}  // namespace leat::trusted

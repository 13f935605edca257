#include "leat/trusted/chain.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "leat/error.h"
#include "leat/trusted/counter.h"
#include "trusted/chain/start.h"
#include "trusted/parts/history.h"
#include "trusted/parts/judge.h"
#include "trusted/parts/orderer.h"
#include "trusted/parts/replies.h"
#include "trusted/parts/rounds.h"

namespace leat::trusted {
namespace {

using namespace detail;

// Records of the head that the tail has not acknowledged.
constexpr std::uint64_t kWindow = 256;

constexpr const char* kNode = "a node of a chain";

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, std::string(kNode) + " " + what);
}

void check(AttestationKernel& kernel, const ChainOptions& options) {
  if (options.batch == 0 || options.batch > kMaxCommands || options.checkpoint_records == 0)
    refuse("has batches of 1 to " + std::to_string(kMaxCommands) +
           " commands and at least one record for each checkpoint");
  if (std::ranges::find(options.nodes, kernel.device()) == options.nodes.end())
    refuse("has a kernel of device " + std::to_string(kernel.device()) + ", which is not in it");
  check_sessions(kNode, kernel, options.first_session, options.nodes);
  check_unused(kNode, kernel, options.first_session, options.nodes);
}

}  // namespace

struct ChainNode::State {
  State(AttestationKernel& its_kernel, const Directory& its_directory, const SigningKey& key,
        const MachineFactory& make_machine, const ChainOptions& its_options, FaultHook its_hook)
      : kernel(its_kernel),
        directory(its_directory),
        options((check(its_kernel, its_options), its_options)),
        hook(std::move(its_hook)),
        self(static_cast<std::size_t>(std::ranges::find(options.nodes, kernel.device()) -
                                      options.nodes.begin())),
        ledger(first_ledger(directory, kernel.epoch(), make_machine, options)),
        history(options.nodes.size()),
        replies(key, kernel.device(), kernel.epoch()),
        orderer(ledger, options.batch, kernel.max_payload_bytes()),
        outgoing(kernel, session(self)) {}

  bool is_head() const { return self == 0; }
  bool is_tail() const { return self + 1 == options.nodes.size(); }
  std::uint32_t session(std::size_t index) const {
    return session_of(options.first_session, options.nodes[index]);
  }
  bool is_checkpoint(std::uint64_t counter) const {
    return (counter + 1) % options.checkpoint_records == 0;
  }

  // The proofs of execution of one step, by node from the head on.
  struct Proofs {
    Bytes message;
    std::vector<View> records;  // in it
    std::uint64_t counter = 0;
  };
  std::optional<Proofs> read_proofs(View list, std::size_t count) const;
  // Those all of whose records from node `first` on their senders attested.
  std::vector<Proofs> authentic(std::vector<Proofs> all, std::size_t first);

  void on_request(PartyId from, View request, Time now, Outbox& outbox);
  void take_in(PartyId from, View message);
  void settle(bool also_short, Outbox& outbox);
  void order(bool also_short);
  void execute(const Proofs& proofs);
  void on_executed(const Proofs& proofs);
  // After a step: passes the proofs on, with this node's at their end, and answers clients.
  void pass_on(const Proofs& before, Bytes payload, std::optional<Bytes> snapshot);
  void accuse(std::size_t index, FaultKind kind, View record);
  void report(std::size_t index, FaultKind kind, Bytes evidence);

  AttestationKernel& kernel;
  const Directory& directory;
  const ChainOptions options;
  const FaultHook hook;
  const std::size_t self;  // index in options.nodes
  Ledger ledger;
  History history;
  Replies replies;
  Orderer orderer;
  Complaints complaints;
  std::uint64_t executed = 0;      // records
  std::uint64_t acknowledged = 0;  // the head's: records that the tail has executed
  std::deque<Result> results;      // the head's, of the others
  bool stands_still = false;       // somebody lied: nothing more is executed
  // What came since the last settle(): steps to be executed, and acknowledgements of the tail.
  std::vector<Proofs> steps, acknowledgements;
  std::uint64_t steps_end = 0;  // behind the last of them
  Outgoing outgoing;
};

void ChainNode::State::on_request(PartyId from, View request, Time now, Outbox& outbox) {
  const auto content = read_signed(request, MessageType::kRequest);
  if (!content || content->epoch != kernel.epoch()) return;
  if (ledger.has_finished(content->sender, content->first)) {
    // Waits for the others to answer too: if they do not, something is stuck behind this node.
    if (from == content->sender)
      replies.send_again(*content, ledger.answer(content->sender, content->first), outbox);
    return;
  }
  if (stands_still) return;
  if (request.size() > orderer.max_request_bytes()) {
    if (from == content->sender && verify_signed(directory, request, *content))
      replies.refuse(*content, orderer.max_request_bytes(), outbox);
    return;
  }
  if (is_head()) return orderer.take(request, *content);
  if (from != content->sender || ledger.has_taken(content->sender, content->first) ||
      !verify_signed(directory, request, *content))
    return;
  complaints.add(content->sender, content->first, now + options.timeout);
  outbox.send(options.nodes.front(), request);
}

void ChainNode::State::take_in(PartyId from, View message) {
  if (stands_still) return;
  if (type_of(message) == MessageType::kOrder) {
    if (is_head() || from != options.nodes[self - 1]) return;
    auto proofs = read_proofs(message.subspan(1), self);
    // Not beyond those that came before it.
    if (!proofs || proofs->counter < executed || proofs->counter > std::max(executed, steps_end))
      return;
    steps_end = std::max(steps_end, proofs->counter + 1);
    steps.push_back(std::move(*proofs));
  } else {
    if (is_tail() || from != options.nodes.back()) return;
    const auto blobs = read_blobs(message.subspan(1), 1);
    if (!blobs || blobs->empty()) return;
    auto proofs = read_proofs(blobs->front(), options.nodes.size());
    if (proofs && proofs->counter < executed && (!is_head() || proofs->counter >= acknowledged))
      acknowledgements.push_back(std::move(*proofs));
  }
}

// Their counters are the place of the step in the head's order: a proof of another step has another
// one, and no kernel gives one twice.
std::optional<ChainNode::State::Proofs> ChainNode::State::read_proofs(View list,
                                                                      std::size_t count) const {
  Proofs proofs{.message = Bytes(list.begin(), list.end()), .records = {}};
  auto records = read_blobs(proofs.message, count);
  if (!records || records->size() != count) return std::nullopt;
  proofs.records = std::move(*records);
  for (std::size_t i = 0; i < count; ++i) {
    const auto header = read_header(proofs.records[i]);
    if (!header || header->session != session(i) || (i > 0 && header->counter != proofs.counter))
      return std::nullopt;
    proofs.counter = header->counter;
  }
  return proofs;
}

std::vector<ChainNode::State::Proofs> ChainNode::State::authentic(std::vector<Proofs> all,
                                                                  std::size_t first) {
  std::vector<View> records;
  for (const Proofs& proofs : all)
    records.insert(records.end(), proofs.records.begin() + static_cast<std::ptrdiff_t>(first),
                   proofs.records.end());
  const auto verdicts = verify_all(kernel, Question::Asks::kVerifyStateless, records);
  auto verdict = verdicts.begin();
  std::erase_if(all, [&](const Proofs& proofs) {
    const auto begin = verdict;
    verdict += static_cast<std::ptrdiff_t>(proofs.records.size() - first);
    return !std::all_of(begin, verdict, [](Verdict one) { return one == Verdict::kOk; });
  });
  return all;
}

void ChainNode::State::settle(bool also_short, Outbox& outbox) {
  for (const Proofs& proofs : authentic(std::exchange(acknowledgements, {}), 0))
    on_executed(proofs);
  // A turn in the head's order is taken only by a step that the nodes between have proven too.
  const auto proven = authentic(std::exchange(steps, {}), 1);
  steps_end = 0;
  std::vector<View> heads;
  heads.reserve(proven.size());
  for (const Proofs& proofs : proven) heads.push_back(proofs.records.front());
  const auto verdicts = verify_all(kernel, Question::Asks::kVerify, heads);
  for (std::size_t i = 0; i < proven.size() && !stands_still; ++i)
    if (verdicts[i] == Verdict::kOk) execute(proven[i]);
  if (is_head()) order(also_short);
  outgoing.attest(outbox);
}

void ChainNode::State::order(bool also_short) {
  const std::uint64_t end = is_tail() ? ~std::uint64_t{0} : acknowledged + kWindow;
  while (!stands_still && orderer.ready(also_short) && executed < end) {
    Result result;
    Bytes snapshot;
    auto payload = orderer.next(is_checkpoint(executed), result, snapshot);
    if (!payload) continue;
    const bool checkpoint = result.digest.has_value();
    if (!is_tail()) results.push_back(std::move(result));
    pass_on({}, std::move(*payload),
            checkpoint ? std::optional(std::move(snapshot)) : std::nullopt);
  }
}

void ChainNode::State::execute(const Proofs& proofs) {
  Bytes snapshot;
  const bool checkpoint = is_checkpoint(executed);
  const View head = proofs.records.front();
  if (const auto fault =
          execute_record(ledger, payload_of(head), options.batch, checkpoint, snapshot))
    return accuse(0, *fault, head);
  const Step step = *read_step(payload_of(head));
  history.add(head, checkpoint ? &snapshot : nullptr);
  for (std::size_t i = 1; i < self; ++i) {
    const auto fault = check_executed(payload_of(proofs.records[i]), step.outputs.bytes(),
                                      step.outputs.count(), step.digest);
    if (!fault) continue;
    // The step itself is the head's and is right: it stays executed. But nobody is told.
    ++executed;
    return accuse(i, *fault, proofs.records[i]);
  }
  pass_on(proofs, write_step({.outputs = step.outputs, .digest = step.digest}), std::nullopt);
}

void ChainNode::State::pass_on(const Proofs& before, Bytes payload, std::optional<Bytes> snapshot) {
  outgoing.add(std::move(payload),
               [this, counter = executed, before = before.message, snapshot = std::move(snapshot),
                done = std::exchange(ledger.done(), {})](const Bytes& own, Outbox& outbox) mutable {
                 Bytes list = std::move(before);
                 append_blob(list, own);
                 const bool checkpoint = is_checkpoint(counter);
                 if (is_head()) history.add(own, snapshot ? &*snapshot : nullptr);
                 if (!is_tail()) {
                   outbox.send(options.nodes[self + 1], write_order(list));
                 } else {
                   // The head must know how far the tail is; at checkpoints all are told what all
                   // attested.
                   const Bytes message = write_blobs(MessageType::kExecuted, {list});
                   for (std::size_t i = 0; i < self; ++i)
                     if (i == 0 || checkpoint) outbox.send(options.nodes[i], message);
                 }
                 if (checkpoint) {
                   const auto proofs = *read_blobs(list, self + 1);
                   for (std::size_t i = 0; i < proofs.size(); ++i)
                     history.vouch(counter, options.nodes[i], proofs[i]);
                 }
                 for (const Done& one : done) replies.send(one, outbox);
               });
  ++executed;
  if (is_head() && is_tail()) acknowledged = executed;
}

// From the tail: the proofs of all, for the head in the order of its steps.
void ChainNode::State::on_executed(const Proofs& proofs) {
  if (stands_still || (is_head() && proofs.counter != acknowledged)) return;
  if (is_head()) {
    const Result& result = results.front();
    for (std::size_t i = 1; i < proofs.records.size(); ++i)
      if (const auto fault = check_executed(payload_of(proofs.records[i]), result.outputs,
                                            result.count, result.digest))
        return accuse(i, *fault, proofs.records[i]);
    results.pop_front();
    ++acknowledged;
  }
  // A checkpoint counts only if all digests are those of this node's own state.
  if (!is_checkpoint(proofs.counter)) return;
  const auto own = read_step(payload_of(proofs.records[self]));
  for (std::size_t i = 0; i < proofs.records.size(); ++i) {
    const auto step = read_step(payload_of(proofs.records[i]));
    if (step && own && step->digest == own->digest)
      history.vouch(proofs.counter, options.nodes[i], proofs.records[i]);
  }
}

void ChainNode::State::accuse(std::size_t index, FaultKind kind, View record) {
  report(index, kind, history.evidence(record, index == 0));
}

void ChainNode::State::report(std::size_t index, FaultKind kind, Bytes evidence) {
  stands_still = true;
  if (hook) hook({options.nodes[index], kind, std::move(evidence)});
}

ChainNode::ChainNode(AttestationKernel& kernel, const Directory& directory, const SigningKey& key,
                     const MachineFactory& make_machine, const ChainOptions& options,
                     FaultHook hook)
    : state_(std::make_unique<State>(kernel, directory, key, make_machine, options,
                                     std::move(hook))) {}
ChainNode::~ChainNode() = default;

void ChainNode::receive(PartyId from, std::span<const std::byte> message, Time now,
                        Outbox& outbox) {
  const auto type = type_of(message);
  if (type == MessageType::kRequest) state_->on_request(from, message, now, outbox);
  if (type == MessageType::kNumber)
    outbox.send(from, write_number(state_->ledger.next_number(from)));
  if (type == MessageType::kOrder || type == MessageType::kExecuted) state_->take_in(from, message);
}

void ChainNode::settle(Time, Outbox& outbox) { state_->settle(false, outbox); }

void ChainNode::idle(Time now, Outbox& outbox) {
  state_->settle(true, outbox);
  if (state_->is_head()) return;
  // It may be any node before this one that is silent; this one knows its neighbour.
  if (state_->complaints.overdue(state_->ledger, now) && !state_->stands_still && state_->hook)
    state_->hook({state_->options.nodes[state_->self - 1], FaultKind::kSilent, {}});
}

std::uint64_t ChainNode::executed_records() const noexcept { return state_->executed; }
Bytes ChainNode::save() const { return state_->ledger.save(); }
Bytes ChainNode::history() const { return state_->history.proof(); }

namespace detail {

BftOptions as_replicas(const ChainOptions& options) {
  return {.replicas = options.nodes,
          .faults = static_cast<unsigned>(options.nodes.size()) - 1,
          .first_session = options.first_session,
          .batch = options.batch,
          .checkpoint_records = options.checkpoint_records};
}

Ledger first_ledger(const Directory& directory, std::uint64_t epoch,
                    const MachineFactory& make_machine, const ChainOptions& options) {
  Ledger ledger(directory, epoch, make_machine, true);
  if (!options.start.empty() && !ledger.load(options.start))
    refuse("cannot start with what is not a state");
  return ledger;
}

}  // namespace detail

std::optional<Fault> judge(AttestationKernel& kernel, const Directory& directory,
                           const MachineFactory& make_machine, const ChainOptions& options,
                           std::span<const std::byte> evidence) {
  Ledger ledger = first_ledger(directory, kernel.epoch(), make_machine, options);
  const auto replayed = replay(kernel, as_replicas(options), evidence, ledger);
  if (!replayed || !replayed->fault) return std::nullopt;
  return Fault{options.nodes[replayed->fault->index], replayed->fault->kind,
               Bytes(evidence.begin(), evidence.end())};
}

}  // namespace leat::trusted

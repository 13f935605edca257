#include "leat/trusted/chain.h"

#include <algorithm>
#include <deque>
#include <string>
#include <utility>

#include "leat/error.h"
#include "leat/trusted/counter.h"
#include "systems/chain_start.h"
#include "systems/history.h"
#include "systems/judge.h"
#include "systems/orderer.h"
#include "systems/replies.h"

namespace leat::trusted {
namespace {

using namespace detail;

// Records of the head that the tail has not acknowledged.
constexpr std::uint64_t kWindow = 256;

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, "a node of a chain " + what);
}

void check(AttestationKernel& kernel, const ChainOptions& options) {
  if (options.batch == 0 || options.batch > kMaxCommands || options.checkpoint_records == 0)
    refuse("has batches of 1 to " + std::to_string(kMaxCommands) +
           " commands and at least one record for each checkpoint");
  if (std::ranges::find(options.nodes, kernel.device()) == options.nodes.end())
    refuse("has a kernel of device " + std::to_string(kernel.device()) + ", which is not in it");
  for (std::size_t i = 0; i < options.nodes.size(); ++i) {
    const auto id = static_cast<std::uint32_t>(options.first_session + i);
    if (!is_group_of(kernel, id, options.nodes[i]))
      refuse("needs session " + std::to_string(id) + " as the group whose sender is device " +
             std::to_string(options.nodes[i]));
  }
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
        orderer(ledger, options.batch) {}

  bool is_head() const { return self == 0; }
  bool is_tail() const { return self + 1 == options.nodes.size(); }
  std::uint32_t session(std::size_t index) const {
    return options.first_session + static_cast<std::uint32_t>(index);
  }
  bool is_checkpoint(std::uint64_t counter) const {
    return (counter + 1) % options.checkpoint_records == 0;
  }

  void on_request(PartyId from, View request, Time now, Outbox& outbox);
  void order(bool also_short, Outbox& outbox);
  void on_chain(PartyId from, View message, Outbox& outbox);
  void on_executed(PartyId from, View message, Outbox& outbox);
  // After a step: passes the proofs on, with this node's at their end, and answers clients.
  void pass_on(const std::vector<View>& proofs, const Result& result, Bytes* snapshot,
               Outbox& outbox);
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
};

void ChainNode::State::on_request(PartyId from, View request, Time now, Outbox& outbox) {
  const auto content = read_signed(request, MessageType::kRequest);
  if (!content || content->epoch != kernel.epoch()) return;
  if (ledger.has_executed(content->sender, content->first)) {
    // Waits for the others to answer too: if they do not, something is stuck behind this node.
    if (from != content->sender || replies.send_again(content->sender, content->first, outbox))
      return;
    // In an earlier epoch.
    if (const Done* done = ledger.answer(content->sender, content->first))
      replies.send(*done, outbox);
    return;
  }
  if (stands_still) return;
  if (is_head()) {
    if (orderer.take(request)) order(false, outbox);
    return;
  }
  if (from != content->sender || ledger.has_taken(content->sender, content->first) ||
      !verify_signed(directory, request, *content))
    return;
  complaints.add(content->sender, content->first, now + options.timeout);
  outbox.send(options.nodes.front(), request);
}

void ChainNode::State::order(bool also_short, Outbox& outbox) {
  while (!stands_still && orderer.ready(also_short) && executed - acknowledged < kWindow) {
    Result result;
    Bytes snapshot;
    const Bytes payload = orderer.next(is_checkpoint(executed), result, snapshot);
    const Bytes record =
        attest(kernel, {.session = options.first_session, .kind = Kind::kSend}, payload);
    const bool checkpoint = result.digest.has_value();
    if (!is_tail()) results.push_back(result);
    pass_on({View(record)}, result, checkpoint ? &snapshot : nullptr, outbox);
    if (is_tail()) acknowledged = executed;
  }
}

// The proofs of all nodes before this one, the head's first. Their counters are the place of the
// step in the head's order: a proof of another step has another one, and no kernel gives one twice.
void ChainNode::State::on_chain(PartyId from, View message, Outbox& outbox) {
  if (is_head() || stands_still || from != options.nodes[self - 1]) return;
  const auto proofs = read_blobs(message.subspan(1), self);
  if (!proofs || proofs->size() != self) return;
  for (std::size_t i = 0; i < self; ++i) {
    const auto header = read_header((*proofs)[i]);
    if (!header || header->session != session(i) || header->counter != executed) return;
    if (i > 0 && kernel.verify_stateless((*proofs)[i], Kind::kSend) != Verdict::kOk) return;
  }
  if (kernel.verify(proofs->front(), Kind::kSend) != Verdict::kOk) return;

  Bytes snapshot;
  const bool checkpoint = is_checkpoint(executed);
  const auto payload = payload_of(proofs->front());
  if (const auto fault = execute_record(ledger, payload, options.batch, checkpoint, snapshot))
    return accuse(0, *fault, proofs->front());
  const Step step = *read_step(payload);
  Result result{Bytes(step.outputs.bytes().begin(), step.outputs.bytes().end()),
                step.outputs.count(), step.digest};
  for (std::size_t i = 1; i < self; ++i) {
    const auto fault =
        check_executed(payload_of((*proofs)[i]), result.outputs, result.count, result.digest);
    if (!fault) continue;
    // The step itself is the head's and is right: it stays executed. But nobody is told.
    history.add(proofs->front(), nullptr);
    ++executed;
    return accuse(i, *fault, (*proofs)[i]);
  }
  const Bytes own = attest(kernel, {.session = session(self), .kind = Kind::kSend},
                           write_step({.outputs = step.outputs, .digest = step.digest}));
  std::vector<View> all = *proofs;
  all.emplace_back(own);
  pass_on(all, result, checkpoint ? &snapshot : nullptr, outbox);
}

void ChainNode::State::pass_on(const std::vector<View>& proofs, const Result& result,
                               Bytes* snapshot, Outbox& outbox) {
  Bytes list;
  for (const View proof : proofs) append_blob(list, proof);
  history.add(proofs.front(), snapshot);
  if (!is_tail()) {
    outbox.send(options.nodes[self + 1], write_order(list));
  } else {
    // The head must know how far the tail is; at checkpoints all are told what all attested.
    const Bytes message = write_blobs(MessageType::kExecuted, {list});
    for (std::size_t i = 0; i < self; ++i)
      if (i == 0 || result.digest) outbox.send(options.nodes[i], message);
  }
  if (result.digest)
    for (std::size_t i = 0; i < proofs.size(); ++i)
      history.vouch(executed, options.nodes[i], proofs[i]);
  ++executed;
  for (const Done& done : ledger.done()) replies.send(done, outbox);
  ledger.done().clear();
}

// From the tail: the proofs of all, for the head in the order of its steps.
void ChainNode::State::on_executed(PartyId from, View message, Outbox& outbox) {
  if (stands_still || is_tail() || from != options.nodes.back()) return;
  const auto blobs = read_blobs(message.subspan(1), 1);
  if (!blobs || blobs->empty()) return;
  const auto proofs = read_blobs(blobs->front(), options.nodes.size());
  if (!proofs || proofs->size() != options.nodes.size()) return;
  const auto first = read_header(proofs->front());
  if (!first || first->counter >= executed || (is_head() && first->counter != acknowledged)) return;
  for (std::size_t i = 0; i < proofs->size(); ++i) {
    const auto header = read_header((*proofs)[i]);
    if (!header || header->session != session(i) || header->counter != first->counter ||
        kernel.verify_stateless((*proofs)[i], Kind::kSend) != Verdict::kOk)
      return;
  }
  if (is_head()) {
    const Result& result = results.front();
    for (std::size_t i = 1; i < proofs->size(); ++i)
      if (const auto fault =
              check_executed(payload_of((*proofs)[i]), result.outputs, result.count, result.digest))
        return accuse(i, *fault, (*proofs)[i]);
    results.pop_front();
    ++acknowledged;
  }
  // A checkpoint counts only if all digests are those of this node's own state.
  if (is_checkpoint(first->counter)) {
    const auto own = read_step(payload_of((*proofs)[self]));
    for (std::size_t i = 0; i < proofs->size(); ++i) {
      const auto step = read_step(payload_of((*proofs)[i]));
      if (step && own && step->digest == own->digest)
        history.vouch(first->counter, options.nodes[i], (*proofs)[i]);
    }
  }
  if (is_head()) order(false, outbox);
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
  if (type == MessageType::kOrder) state_->on_chain(from, message, outbox);
  if (type == MessageType::kExecuted) state_->on_executed(from, message, outbox);
}

void ChainNode::idle(Time now, Outbox& outbox) {
  if (state_->is_head()) return state_->order(true, outbox);
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
    refuse("cannot start with what is no state");
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

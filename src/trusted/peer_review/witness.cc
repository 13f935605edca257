#include <openssl/rand.h>

#include <algorithm>
#include <list>
#include <set>
#include <string>

#include "leat/error.h"
#include "trusted/parts/rounds.h"
#include "trusted/peer_review/replay.h"

namespace leat::trusted {
namespace {

using namespace detail;
using namespace std::chrono_literals;

constexpr auto kAskAgainAfter = 200ms;

Nonce fresh_nonce() {
  Nonce nonce;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), static_cast<int>(nonce.size())) !=
      1)
    throw Error(ErrorCode::kSystem, "OpenSSL cannot supply random numbers");
  return nonce;
}

}  // namespace

struct PeerWitness::State {
  struct Audited {
    Audited(State& state, std::size_t its_index)
        : index(its_index),
          audit(state.kernel, state.directory, state.make_machine, state.options, its_index) {}

    const std::size_t index;
    PeerAudit audit;
    Standing standing = Standing::kTrusted;
    Nonce nonce{};
    bool outstanding = false;
    Time asked{};  // of what is outstanding
    Time until{};  // when it must have come,
    Time end{};    // and all of the audit
    Time begin{};  // of the next audit
    // What its parent says it has not answered: records of the root below `offered` were given to
    // it, and it owes an answer to those below `owed`.
    std::uint64_t offered = 0, owed = 0;
    Time owed_until{};
  };

  State(PartyId its_self, AttestationKernel& its_kernel, const Directory& its_directory,
        const MachineFactory& its_make_machine, const PeerReviewOptions& its_options,
        StandingHook its_hook)
      : self(its_self),
        kernel(its_kernel),
        directory(its_directory),
        make_machine(its_make_machine),
        options(its_options),
        hook(std::move(its_hook)) {
    check_tree(kernel, options);
    for (std::size_t i = 0; i < options.nodes.size(); ++i)
      if (std::ranges::count(options.nodes[i].witnesses, self) > 0) audited.emplace_back(*this, i);
  }

  PartyId id(const Audited& node) const { return options.nodes[node.index].id; }
  Audited* find(PartyId node) {
    const auto found =
        std::ranges::find_if(audited, [&](const Audited& one) { return id(one) == node; });
    return found == audited.end() ? nullptr : &*found;
  }

  void ask(Audited& node, Time now, Outbox& outbox) const {
    node.asked = now;
    outbox.send(id(node), write_audit({node.nonce, node.audit.next()}));
  }

  void look_at(Audited& node, Time now, Outbox& outbox) {
    if (node.standing == Standing::kExposed) return;
    if (!node.outstanding) {
      if (now < node.begin) return;
      node.nonce = node.audit.begin(fresh_nonce());
      node.outstanding = true;
      node.until = now + options.patience;
      node.end = now + options.audit_patience;
      return ask(node, now, outbox);
    }
    if (now >= std::min(node.until, node.end)) suspect(node);
    if (now - node.asked >= kAskAgainAfter) ask(node, now, outbox);
  }

  void suspect(Audited& node) {
    if (node.standing != Standing::kTrusted) return;
    node.standing = Standing::kSuspected;
    if (hook) hook({id(node), node.standing, {id(node), FaultKind::kSilent, {}}});
  }

  void on_piece(View message, Time now, Outbox& outbox) {
    const auto piece = read_piece(message);
    Audited* node = piece ? find(piece->sender) : nullptr;
    if (node == nullptr || !node->outstanding || node->standing == Standing::kExposed) return;
    switch (node->audit.take(message, &node->nonce)) {
      case PeerAudit::Outcome::kNothing:
        return;
      case PeerAudit::Outcome::kProgress:
        node->until = now + options.patience;
        return ask(*node, now, outbox);
      case PeerAudit::Outcome::kComplete:
        return complete(*node, now);
      case PeerAudit::Outcome::kFault:
        return expose({id(*node), node->audit.fault(), node->audit.evidence()}, outbox);
    }
  }

  void on_answer(View answer, Outbox& outbox) {
    const auto content = read_signed(answer, MessageType::kReply);
    Audited* node = content ? find(content->sender) : nullptr;
    if (node == nullptr || node->standing == Standing::kExposed) return;
    if (node->audit.take_answer(answer) == PeerAudit::Outcome::kFault)
      expose({id(*node), node->audit.fault(), node->audit.evidence()}, outbox);
  }

  void complete(Audited& node, Time now) {
    node.outstanding = false;
    node.begin = now + options.audit_period;
    if (node.owed > node.audit.received(session_of(options, 0))) {
      if (now >= node.owed_until) suspect(node);
      return;
    }
    node.owed = 0;
    if (node.standing != Standing::kSuspected) return;
    node.standing = Standing::kTrusted;
    if (hook) hook({id(node), node.standing, {}});
  }

  // A parent says that a child does not answer this record of the root: it gets it from here, too.
  void on_record(PartyId from, View record, View message, Time now, Outbox& outbox) {
    const auto header = read_header(record);
    // Nobody deals with an exposed party any more.
    if (exposed.contains(from) || exposed.contains(options.nodes[0].id) || !header ||
        header->session != session_of(options, 0) || !is_authentic(kernel, record))
      return;
    const auto entry = read_log_entry(payload_of(record));
    for (Audited& node : audited) {
      if (options.nodes[node.index].parent != from || node.standing == Standing::kExposed) continue;
      const std::uint64_t received = node.audit.received(header->session);
      node.offered = std::max(node.offered, received);
      // Only without gaps, which it could not answer.
      if (header->counter > node.offered || header->counter < received) continue;
      node.offered = std::max(node.offered, header->counter + 1);
      outbox.send(id(node), message);
      if (!entry || entry->type != EntryType::kContent) continue;
      if (node.owed == 0) node.owed_until = now + options.patience;
      node.owed = std::max(node.owed, header->counter + 1);
    }
  }

  void on_proof(PartyId from, View evidence) {
    const auto proof = read_proof(evidence);
    if (!proof || exposed.contains(proof->accused) || !judged.emplace(from, proof->accused).second)
      return;
    if (auto fault = judge(kernel, directory, make_machine, options, evidence))
      remember(std::move(*fault));
  }

  void expose(Fault fault, Outbox& outbox) {
    std::set<PartyId> all;
    for (const auto& node : options.nodes) {
      all.insert(node.id);
      all.insert(node.witnesses.begin(), node.witnesses.end());
    }
    for (const PartyId one : all)
      if (one != self) outbox.send(one, fault.evidence);
    remember(std::move(fault));
  }

  void remember(Fault fault) {
    const PartyId accused = fault.accused;
    if (!exposed.insert(accused).second) return;
    if (Audited* node = find(accused)) node->standing = Standing::kExposed;
    for (Audited& node : audited)
      if (accused == options.nodes[0].id || accused == options.nodes[node.index].parent)
        node.owed = 0;
    if (hook) hook({accused, Standing::kExposed, std::move(fault)});
  }

  const PartyId self;
  AttestationKernel& kernel;
  const Directory& directory;
  const MachineFactory make_machine;
  const PeerReviewOptions options;
  const StandingHook hook;
  std::list<Audited> audited;
  std::set<PartyId> exposed;
  std::set<std::pair<PartyId, PartyId>> judged;  // accuser and accused
};

PeerWitness::PeerWitness(PartyId self, AttestationKernel& kernel, const Directory& directory,
                         const MachineFactory& make_machine, const PeerReviewOptions& options,
                         StandingHook hook)
    : state_(std::make_unique<State>(self, kernel, directory, make_machine, options,
                                     std::move(hook))) {}
PeerWitness::~PeerWitness() = default;

void PeerWitness::receive(PartyId from, std::span<const std::byte> message, Time now,
                          Outbox& outbox) {
  if (type_of(message) == MessageType::kReply) return state_->on_answer(message, outbox);
  const auto type = peer_message(message);
  if (!type) return;
  switch (*type) {
    case PeerMessage::kPiece:
      return state_->on_piece(message, now, outbox);
    case PeerMessage::kRecord:
      return state_->on_record(from, message.subspan(1), message, now, outbox);
    case PeerMessage::kProof:
      return state_->on_proof(from, message);
    case PeerMessage::kAudit:
      return;
  }
}

void PeerWitness::idle(Time now, Outbox& outbox) {
  for (auto& node : state_->audited) state_->look_at(node, now, outbox);
}

Standing PeerWitness::standing(PartyId node) const noexcept {
  if (state_->exposed.contains(node)) return Standing::kExposed;
  const State::Audited* found = state_->find(node);
  return found == nullptr ? Standing::kTrusted : found->standing;
}

std::uint64_t PeerWitness::audited(PartyId node) const noexcept {
  const State::Audited* found = state_->find(node);
  return found == nullptr ? 0 : found->audit.next();
}

}  // namespace leat::trusted

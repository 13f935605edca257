#include "trusted/peer_review/node.h"

#include <algorithm>
#include <string>

#include "leat/error.h"

namespace leat::trusted {
namespace {

using namespace detail;
using namespace std::chrono_literals;

// Records of the root that a trusted child has not answered yet.
constexpr std::uint64_t kWindow = 256;
// Records that are kept in any case, to be sent again.
constexpr std::size_t kKept = 2 * kWindow;
constexpr auto kResendAfter = 200ms;

std::size_t own_index(AttestationKernel& kernel, const PeerReviewOptions& options) {
  check_tree(kernel, options);
  check_unused(kernel, options);
  const std::size_t index = index_of(options, kernel.device());
  if (index == options.nodes.size())
    throw Error(ErrorCode::kInvalidArgument,
                "device " + std::to_string(kernel.device()) + " is not a node of the tree");
  return index;
}

// For a step, in an entry that says how far all streams were received.
std::size_t room_of(std::size_t payload, std::size_t nodes) {
  const std::size_t rest = max_entry_bytes(nodes);
  return payload > rest ? payload - rest : 0;
}

}  // namespace

PeerNode::State::State(AttestationKernel& kernel, const Directory& directory, const SigningKey& key,
                       const MachineFactory& make_machine, const PeerReviewOptions& options,
                       StandingHook hook)
    : kernel_(kernel),
      directory_(directory),
      key_(key),
      make_machine_(make_machine),
      options_(options),
      hook_(std::move(hook)),
      self_(own_index(kernel, options)),
      state_(directory, kernel.epoch(), make_machine, options_, self_),
      replies_(key, kernel.device(), kernel.epoch()),
      outgoing_(kernel, session_of(options_, self_)),
      orderer_(state_.ledger(), options_.batch,
               room_of(kernel.max_payload_bytes(), options_.nodes.size())) {
  for (std::size_t i = 1; i < options_.nodes.size(); ++i)
    if (options_.nodes[i].parent == id(self_)) children_.push_back({.index = i});
  for (const PartyId witness : options_.nodes[self_].witnesses) auditors_[witness] = {};
}

// --- the log

void PeerNode::State::log(EntryType type, std::span<const std::byte> body) {
  LogEntry entry{.type = type, .received = {}, .digest = {}, .body = body};
  Logged logged;
  for (auto& [session, received] : inbox_) {
    entry.received.push_back({session, received.first});
    state_.set_received(session, received.first);
    std::ranges::move(received.second, std::back_inserter(logged.received));
  }
  inbox_.clear();
  if (is_checkpoint(options_, next())) entry.digest = digest_of(state_.save());
  if (is_root()) extend(type == EntryType::kContent);
  outgoing_.add(write_log_entry(entry),
                [this, counter = next()](const Bytes& record, Outbox& outbox) {
                  log_[counter - log_base_].record = record;
                  if (is_root())
                    pass_on(record, outbox);
                  else
                    outbox.send(options_.nodes[self_].parent, write_record(record));
                });
  log_.push_back(std::move(logged));
}

// Keeps what a witness has not audited.
void PeerNode::State::forget() {
  std::uint64_t audited = next();
  for (const auto& [witness, auditor] : auditors_) audited = std::min(audited, auditor.from);
  while (log_.size() > kKept && log_base_ < audited) {
    log_.pop_front();
    ++log_base_;
  }
}

void PeerNode::State::extend(bool by_content) {
  ++root_next_;
  if (!by_content) return;
  for (Child& child : children_)
    if (child.acknowledged >= contents_end_) child.progress = now;
  contents_end_ = root_next_;
}

// A record of the root, own or received, to the children.
void PeerNode::State::pass_on(std::span<const std::byte> record, Outbox& outbox) {
  if (children_.empty()) return;
  if (root_records_.size() == kKept) root_records_.pop_front();
  root_records_.emplace_back(record.begin(), record.end());
  const Bytes message = write_record(record);
  for (const Child& child : children_)
    if (child.standing != Standing::kExposed) outbox.send(id(child.index), message);
}

// --- requests of clients

void PeerNode::State::on_request(PartyId from, std::span<const std::byte> request, Outbox& outbox) {
  const auto content = read_signed(request, MessageType::kRequest);
  if (!content || content->epoch != kernel_.epoch() || stopped_) return;
  Ledger& ledger = state_.ledger();
  if (ledger.has_finished(content->sender, content->first)) {
    if (from == content->sender)
      replies_.send_again(*content, ledger.answer(content->sender, content->first), outbox);
    return;
  }
  if (request.size() > orderer_.max_request_bytes()) {
    if (from == content->sender && verify_signed(directory_, request, *content))
      replies_.refuse(*content, orderer_.max_request_bytes(), outbox);
    return;
  }
  if (!is_root()) {
    // The client has no answer by way of the root: see to it that the root has the request.
    if (from == content->sender && verify_signed(directory_, request, *content))
      outbox.send(id(0), request);
    return;
  }
  orderer_.take(request, *content);
}

// --- the root

// How much of its stream all children have answered that it still reckons with.
std::uint64_t PeerNode::State::acknowledged() const {
  std::uint64_t least = root_next_;
  for (const Child& child : children_)
    if (child.standing == Standing::kTrusted) least = std::min(least, child.acknowledged);
  return least;
}

void PeerNode::State::order(bool also_short) {
  while (orderer_.ready(also_short) && root_next_ - acknowledged() < kWindow) {
    Result result;
    Bytes no_snapshot;  // the log's own checkpoints have more than the ledger
    const auto step = orderer_.next(false, result, no_snapshot);
    if (!step) continue;
    Ledger& ledger = state_.ledger();
    for (Done& done : ledger.done()) replies_.hold(next(), std::move(done));
    ledger.done().clear();
    log(EntryType::kContent, *step);
  }
}

// --- records of others

void PeerNode::State::take_in(std::span<const std::byte> record) {
  const auto header = read_header(record);
  if (!header || stopped_) return;
  if (!is_root() && header->session == root_session()) {
    if (header->counter < root_next_)
      resend_own_ = true;  // the parent has not got the answer
    else
      intake_.add(record, root_next_);
    return;
  }
  if (const Child* child = child_of(header->session)) intake_.add(record, child->next);
}

PeerNode::State::Child* PeerNode::State::child_of(std::uint32_t session) {
  const auto child = std::ranges::find_if(children_, [&](const Child& one) {
    return session == session_of(options_, one.index) && one.standing != Standing::kExposed;
  });
  return child == children_.end() ? nullptr : &*child;
}

void PeerNode::State::settle(bool also_short, Outbox& outbox) {
  for (const Bytes& record : intake_.verify(kernel_)) {
    if (stopped_) break;
    const std::uint32_t session = read_header(record)->session;
    if (!is_root() && session == root_session())
      on_root_record(record, outbox);
    else if (Child* child = child_of(session))
      on_child_record(*child, record);
  }
  if (is_root() && !stopped_) order(also_short);
  outgoing_.attest(outbox);
  forget();
  if (is_root()) return replies_.send_before(acknowledged(), outbox);
  for (const Done& done : state_.ledger().done()) replies_.send(done, outbox);
  state_.ledger().done().clear();
}

void PeerNode::State::on_root_record(std::span<const std::byte> record, Outbox& outbox) {
  auto& received = inbox_[root_session()];
  received.first = root_next_ + 1;
  if (!auditors_.empty()) received.second.emplace_back(record.begin(), record.end());
  const auto entry = read_log_entry(payload_of(record));
  extend(entry && entry->type == EntryType::kContent);
  pass_on(record, outbox);
  const auto answer = state_.answer(record);
  if (!answer) return;
  log(EntryType::kResponse,
      write_step(
          {.requests = {}, .outputs = *Items::read(answer->first, answer->second), .digest = {}}));
}

void PeerNode::State::on_child_record(Child& child, std::span<const std::byte> record) {
  auto& received = inbox_[session_of(options_, child.index)];
  received.first = ++child.next;
  if (!auditors_.empty()) received.second.emplace_back(record.begin(), record.end());
  const auto entry = read_log_entry(payload_of(record));
  if (!entry) return;  // its witnesses will see
  for (const StreamPosition& stream : entry->received) {
    if (stream.session != root_session() || stream.next <= child.acknowledged ||
        stream.next > root_next_)
      continue;
    child.acknowledged = stream.next;
    child.progress = now;
    if (child.standing == Standing::kSuspected) {
      child.standing = Standing::kTrusted;
      change(id(child.index), Standing::kTrusted);
    }
  }
}

// Sends again what a child owes an answer to, also by way of its witnesses, who will see whether it
// answers.
void PeerNode::State::look_after(Child& child, Outbox& outbox) {
  if (child.standing == Standing::kExposed || child.acknowledged >= contents_end_) return;
  if (now - std::max(child.progress, child.resent) < kResendAfter) return;
  child.resent = now;
  const std::uint64_t first_kept = root_next_ - root_records_.size();
  for (std::uint64_t i = std::max(child.acknowledged, first_kept); i < root_next_; ++i) {
    const Bytes message = write_record(root_records_[i - first_kept]);
    outbox.send(id(child.index), message);
    for (const PartyId witness : options_.nodes[child.index].witnesses)
      outbox.send(witness, message);
  }
  if (now - child.progress < options_.patience || child.standing != Standing::kTrusted) return;
  child.standing = Standing::kSuspected;
  change(id(child.index), Standing::kSuspected, {id(child.index), FaultKind::kSilent, {}});
  if (is_root()) replies_.send_before(acknowledged(), outbox);
}

void PeerNode::State::idle(Outbox& outbox) {
  settle(true, outbox);
  if (stopped_) return;
  for (Child& child : children_) look_after(child, outbox);
  if (!resend_own_ || is_root()) return;
  resend_own_ = false;
  for (auto logged = log_.end() - static_cast<std::ptrdiff_t>(std::min(log_.size(), kKept));
       logged != log_.end(); ++logged)
    outbox.send(options_.nodes[self_].parent, write_record(logged->record));
}

// --- audits

void PeerNode::State::on_audit(PartyId from, std::span<const std::byte> message, Outbox& outbox) {
  const auto audit = read_audit(message);
  const auto found = auditors_.find(from);
  if (!audit || found == auditors_.end() || audit->from < log_base_ || audit->from > next()) return;
  Auditor& auditor = found->second;
  auditor.from = std::max(auditor.from, audit->from);
  if (auditor.tail == 0 || auditor.nonce != audit->nonce) {
    log(EntryType::kMark, audit->nonce);
    outgoing_.attest(outbox);
    auditor.nonce = audit->nonce;
    auditor.tail = next();
  }
  if (audit->from >= auditor.tail) return;
  Bytes entries;
  const std::uint64_t end =
      std::min(auditor.tail, audit->from + std::uint64_t{options_.audit_records});
  for (std::uint64_t i = audit->from; i < end && entries.size() < kMaxPieceBytes; ++i)
    append_entry(entries, log_[i - log_base_].record, log_[i - log_base_].received);
  outbox.send(from, write_piece(key_,
                                {.sender = id(self_),
                                 .epoch = kernel_.epoch(),
                                 .from = audit->from,
                                 .tail = auditor.tail,
                                 .nonce = audit->nonce,
                                 .entries = {}},
                                entries));
}

void PeerNode::State::on_proof(PartyId from, std::span<const std::byte> evidence) {
  const auto proof = read_proof(evidence);
  // Judging costs a replay: once for each accuser.
  if (!proof || proof->accused == id(self_) || exposed_.contains(proof->accused) ||
      !judged_.emplace(from, proof->accused).second)
    return;
  auto fault = judge(kernel_, directory_, make_machine_, options_, evidence);
  if (!fault) return;
  exposed_.insert(fault->accused);
  if (fault->accused == id(0) || fault->accused == options_.nodes[self_].parent) stopped_ = true;
  for (Child& child : children_)
    if (id(child.index) == fault->accused) child.standing = Standing::kExposed;
  const PartyId accused = fault->accused;
  change(accused, Standing::kExposed, std::move(*fault));
}

void PeerNode::State::change(PartyId node, Standing standing, Fault fault) {
  if (hook_) hook_({node, standing, std::move(fault)});
}

// --- the class

PeerNode::PeerNode(AttestationKernel& kernel, const Directory& directory, const SigningKey& key,
                   const MachineFactory& make_machine, const PeerReviewOptions& options,
                   StandingHook hook)
    : state_(std::make_unique<State>(kernel, directory, key, make_machine, options,
                                     std::move(hook))) {}
PeerNode::~PeerNode() = default;

void PeerNode::receive(PartyId from, std::span<const std::byte> message, Time now, Outbox& outbox) {
  state_->now = now;
  if (type_of(message) == MessageType::kRequest) return state_->on_request(from, message, outbox);
  if (type_of(message) == MessageType::kNumber)
    return outbox.send(from, write_number(state_->next_number(from)));
  const auto type = peer_message(message);
  if (!type) return;
  switch (*type) {
    case PeerMessage::kRecord:
      return state_->take_in(message.subspan(1));
    case PeerMessage::kAudit:
      return state_->on_audit(from, message, outbox);
    case PeerMessage::kProof:
      return state_->on_proof(from, message);
    case PeerMessage::kPiece:
      return;
  }
}

void PeerNode::settle(Time now, Outbox& outbox) {
  state_->now = now;
  state_->settle(false, outbox);
}

void PeerNode::idle(Time now, Outbox& outbox) {
  state_->now = now;
  state_->idle(outbox);
}

std::uint64_t PeerNode::log_records() const noexcept { return state_->next(); }

}  // namespace leat::trusted

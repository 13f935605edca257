#include "systems/peer_node.h"

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
// Requests of the root that no record has yet: beyond that clients must try again.
constexpr std::size_t kMaxFreshBytes = std::size_t{4} << 20;
constexpr std::size_t kMaxFresh = 4096;

std::size_t own_index(AttestationKernel& kernel, const PeerReviewOptions& options) {
  check_tree(kernel, options);
  const std::size_t index = index_of(options, kernel.device());
  if (index == options.nodes.size())
    throw Error(ErrorCode::kInvalidArgument,
                "device " + std::to_string(kernel.device()) + " is no node of the tree");
  return index;
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
      replies_(key, kernel.device(), kernel.epoch()) {
  for (std::size_t i = 1; i < options_.nodes.size(); ++i)
    if (options_.nodes[i].parent == id(self_)) children_.push_back({.index = i});
  for (const PartyId witness : options_.nodes[self_].witnesses) auditors_[witness] = {};
}

// --- the log

void PeerNode::State::log(EntryType type, std::span<const std::byte> body, Outbox& outbox) {
  LogEntry entry{.type = type, .received = {}, .digest = {}, .body = body};
  Logged logged;
  for (auto& [session, received] : inbox_) {
    entry.received.push_back({session, received.first});
    state_.set_received(session, received.first);
    std::ranges::move(received.second, std::back_inserter(logged.received));
  }
  inbox_.clear();
  if (is_checkpoint(options_, next())) entry.digest = digest_of(state_.save());
  logged.record = attest(kernel_, {.session = session_of(options_, self_), .kind = Kind::kSend},
                         write_log_entry(entry));
  log_.push_back(std::move(logged));
  const Bytes& record = log_.back().record;
  if (is_root())
    pass_on(record, outbox);
  else
    outbox.send(options_.nodes[self_].parent, write_record(record));
  forget();
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

// A record of the root, own or received, to the children.
void PeerNode::State::pass_on(std::span<const std::byte> record, Outbox& outbox) {
  const auto entry = read_log_entry(payload_of(record));
  const bool content = entry && entry->type == EntryType::kContent;
  if (!children_.empty()) {
    if (root_records_.size() == kKept) root_records_.pop_front();
    root_records_.emplace_back(record.begin(), record.end());
    const Bytes message = write_record(record);
    for (Child& child : children_) {
      if (child.standing == Standing::kExposed) continue;
      if (content && child.acknowledged >= contents_end_) child.progress = now;
      outbox.send(id(child.index), message);
    }
  }
  ++root_next_;
  if (content) contents_end_ = root_next_;
}

// --- requests of clients

void PeerNode::State::on_request(PartyId from, std::span<const std::byte> request, Outbox& outbox) {
  const auto content = read_signed(request, MessageType::kRequest);
  if (!content || content->epoch != kernel_.epoch() || stopped_) return;
  Ledger& ledger = state_.ledger();
  if (ledger.has_executed(content->sender, content->first)) {
    replies_.send_again(content->sender, content->first, outbox);
    return;
  }
  if (!is_root()) {
    // The client has no answer by way of the root: see to it that the root has the request.
    if (from == content->sender && verify_signed(directory_, request, *content))
      outbox.send(id(0), request);
    return;
  }
  if (fresh_count_ == kMaxFresh || fresh_.size() + request.size() > kMaxFreshBytes ||
      ledger.take(request))
    return;
  append_blob(fresh_, request);
  ++fresh_count_;
  order(false, outbox);
}

// --- the root

// How much of its stream all children have answered that it still reckons with.
std::uint64_t PeerNode::State::acknowledged() const {
  std::uint64_t least = root_next_;
  for (const Child& child : children_)
    if (child.standing == Standing::kTrusted) least = std::min(least, child.acknowledged);
  return least;
}

void PeerNode::State::order(bool also_short, Outbox& outbox) {
  while (state_.ledger().waiting() >= (also_short ? 1 : options_.batch) &&
         root_next_ - acknowledged() < kWindow)
    order_one(outbox);
}

void PeerNode::State::order_one(Outbox& outbox) {
  Ledger& ledger = state_.ledger();
  Step step;
  if (const auto requests = read_blobs(fresh_, kMaxFresh)) step.requests = *requests;
  Bytes outputs;
  const std::size_t count = ledger.execute(options_.batch, outputs);
  ledger.keep();
  step.outputs = *Items::read(outputs, count);
  const Bytes body = write_step(step);
  fresh_.clear();
  fresh_count_ = 0;
  const std::uint64_t counter = next();
  log(EntryType::kContent, body, outbox);
  for (Done& done : ledger.done()) unanswered_.emplace_back(counter, std::move(done));
  ledger.done().clear();
  reply_acknowledged(outbox);
}

void PeerNode::State::reply_acknowledged(Outbox& outbox) {
  const std::uint64_t until = acknowledged();
  while (!unanswered_.empty() && unanswered_.front().first < until) {
    replies_.send(unanswered_.front().second, outbox);
    unanswered_.pop_front();
  }
}

// --- records of others

void PeerNode::State::on_record(std::span<const std::byte> record, Outbox& outbox) {
  const auto header = read_header(record);
  if (!header || stopped_) return;
  if (!is_root() && header->session == root_session()) {
    if (header->counter < root_next_) {
      resend_own_ = true;  // the parent has not got the answer
      return;
    }
    if (header->counter == root_next_ && kernel_.verify(record, Kind::kSend) == Verdict::kOk)
      on_root_record(record, outbox);
    return;
  }
  for (Child& child : children_)
    if (header->session == session_of(options_, child.index) &&
        child.standing != Standing::kExposed && kernel_.verify(record, Kind::kSend) == Verdict::kOk)
      return on_child_record(child, record, outbox);
}

void PeerNode::State::on_root_record(std::span<const std::byte> record, Outbox& outbox) {
  auto& received = inbox_[root_session()];
  received.first = root_next_ + 1;
  if (!auditors_.empty()) received.second.emplace_back(record.begin(), record.end());
  pass_on(record, outbox);
  const auto answer = state_.answer(record);
  if (!answer) return;
  log(EntryType::kResponse,
      write_step(
          {.requests = {}, .outputs = *Items::read(answer->first, answer->second), .digest = {}}),
      outbox);
  for (const Done& done : state_.ledger().done()) replies_.send(done, outbox);
  state_.ledger().done().clear();
}

void PeerNode::State::on_child_record(Child& child, std::span<const std::byte> record,
                                      Outbox& outbox) {
  const auto header = read_header(record);
  auto& received = inbox_[header->session];
  received.first = header->counter + 1;
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
  if (!is_root()) return;
  reply_acknowledged(outbox);
  order(false, outbox);
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
  if (is_root()) reply_acknowledged(outbox);
}

void PeerNode::State::idle(Outbox& outbox) {
  if (stopped_) return;
  if (is_root()) order(true, outbox);
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
    if (fresh_count_ > 0) order_one(outbox);  // so that the log has all that the state has
    log(EntryType::kMark, audit->nonce, outbox);
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
  // Judging costs a replay: once for each who accuses somebody.
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
  const auto type = peer_message(message);
  if (!type) return;
  switch (*type) {
    case PeerMessage::kRecord:
      return state_->on_record(message.subspan(1), outbox);
    case PeerMessage::kAudit:
      return state_->on_audit(from, message, outbox);
    case PeerMessage::kProof:
      return state_->on_proof(from, message);
    case PeerMessage::kPiece:
      return;
  }
}

void PeerNode::idle(Time now, Outbox& outbox) {
  state_->now = now;
  state_->idle(outbox);
}

std::uint64_t PeerNode::log_records() const noexcept { return state_->next(); }

}  // namespace leat::trusted

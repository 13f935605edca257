#include "trusted/peer_review/replay.h"

#include <algorithm>
#include <string>

#include "base/wire.h"
#include "leat/error.h"
#include "trusted/parts/rounds.h"

namespace leat::trusted {
namespace detail {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, "a PeerReview system " + what);
}

}  // namespace

void check_tree(AttestationKernel& kernel, const PeerReviewOptions& options) {
  if (options.nodes.empty()) refuse("has at least one node");
  if (options.batch == 0 || options.batch > kMaxCommands || options.checkpoint_records == 0 ||
      options.audit_records == 0 || options.audit_records > kMaxPieceEntries)
    refuse("has batches of 1 to " + std::to_string(kMaxCommands) +
           " commands, audits in pieces of 1 to " + std::to_string(kMaxPieceEntries) +
           " records, and at least one record for each checkpoint");
  for (std::size_t i = 0; i < options.nodes.size(); ++i) {
    const auto& node = options.nodes[i];
    const std::size_t parent = index_of(options, node.parent);
    if (node.id == 0 || index_of(options, node.id) != i || (i == 0) != (node.parent == 0) ||
        (i > 0 && parent >= i))
      refuse(
          "is a tree: the root comes first, every other node after its parent, each once; node " +
          std::to_string(node.id) + " does not");
    if (!is_group_of(kernel, session_of(options, i), node.id))
      refuse("needs session " + std::to_string(session_of(options, i)) +
             " as the group whose sender is device " + std::to_string(node.id));
  }
}

std::size_t index_of(const PeerReviewOptions& options, PartyId id) {
  return static_cast<std::size_t>(
      std::ranges::find(options.nodes, id, &PeerReviewOptions::Node::id) - options.nodes.begin());
}

std::uint32_t session_of(const PeerReviewOptions& options, std::size_t index) {
  return static_cast<std::uint32_t>(options.first_session + index);
}

// --- the state

PeerState::PeerState(const Directory& directory, std::uint64_t epoch,
                     const MachineFactory& make_machine, const PeerReviewOptions& options,
                     std::size_t index)
    : options_(options), index_(index), ledger_(directory, epoch, make_machine) {}

bool PeerState::receives(std::uint32_t session) const {
  const std::size_t sender = session - options_.first_session;  // wraps for what is below
  if (session < options_.first_session || sender >= options_.nodes.size() || sender == index_)
    return false;
  return sender == 0 || options_.nodes[sender].parent == options_.nodes[index_].id;
}

std::uint64_t PeerState::received(std::uint32_t session) const {
  const auto found = received_.find(session);
  return found == received_.end() ? 0 : found->second;
}

std::optional<std::pair<Bytes, std::size_t>> PeerState::answer(View root_record) {
  const auto entry = read_log_entry(payload_of(root_record));
  if (!entry || entry->type != EntryType::kContent) return std::nullopt;
  std::pair<Bytes, std::size_t> outputs;
  const auto step = read_step(entry->body);
  if (!step || step->digest || step->outputs.count() > options_.batch || ledger_.apply(*step))
    return outputs;
  outputs.first.assign(step->outputs.bytes().begin(), step->outputs.bytes().end());
  outputs.second = step->outputs.count();
  return outputs;
}

// Blobs: the ledger; how far each stream was received.
Bytes PeerState::save() const {
  Bytes state, part;
  append_blob(state, ledger_.save());
  for (const auto& [session, next] : received_) {
    const std::size_t at = part.size();
    part.resize(at + kPositionBytes);
    leat::detail::WireWriter writer(std::span<std::byte>(part).subspan(at));
    writer.number(session);
    writer.number(next);
  }
  append_blob(state, part);
  return state;
}

bool PeerState::load(View state) {
  const auto blobs = read_blobs(state, 2);
  if (!blobs || blobs->size() != 2 || (*blobs)[1].size() % kPositionBytes != 0 ||
      !ledger_.load((*blobs)[0]))
    return false;
  leat::detail::WireReader reader((*blobs)[1]);
  for (std::size_t i = 0; i < (*blobs)[1].size(); i += kPositionBytes) {
    const auto session = reader.number<std::uint32_t>();
    received_[session] = reader.number<std::uint64_t>();
  }
  return true;
}

// --- the audit

PeerAudit::PeerAudit(AttestationKernel& kernel, const Directory& directory,
                     const MachineFactory& make_machine, const PeerReviewOptions& options,
                     std::size_t index)
    : kernel_(kernel),
      directory_(directory),
      options_(options),
      index_(index),
      state_(directory, kernel.epoch(), make_machine, options_, index) {}

bool PeerAudit::start(View snapshot, View base) {
  const auto header = read_header(base);
  if (!header || header->session != session_of(options_, index_) ||
      kernel_.verify_stateless(base, Kind::kSend) != Verdict::kOk)
    return false;
  const auto entry = read_log_entry(payload_of(base));
  if (!entry || !entry->digest || *entry->digest != digest_of(snapshot) || !state_.load(snapshot))
    return false;
  next_ = header->counter + 1;
  return true;
}

PeerAudit::Outcome PeerAudit::take(View message, const Nonce* nonce) {
  const auto piece = read_piece(message);
  const PartyId node = options_.nodes[index_].id;
  if (!piece || piece->sender != node || piece->epoch != kernel_.epoch() || piece->from > next_)
    return Outcome::kNothing;
  if (nonce != nullptr) {
    if (tail_ && tail_->first != *nonce) tail_.reset();
    if (piece->nonce != *nonce || (tail_ && piece->tail != tail_->second) ||
        pieces_bytes_ + message.size() > options_.max_evidence_bytes)
      return Outcome::kNothing;
  }
  const std::uint64_t end = piece->from + piece->entries.size();
  const bool leads_further = end > next_ && (nonce == nullptr || piece->from == next_);
  const bool well_formed = !piece->entries.empty() && end <= piece->tail;
  if ((well_formed && !leads_further) || !verify_piece(directory_, message, node))
    return Outcome::kNothing;
  // From here on it is the node's word, whatever it is.
  if (nonce != nullptr) tail_ = {*nonce, piece->tail};
  pieces_.emplace_back(message.begin(), message.end());
  pieces_bytes_ += message.size();
  const auto found = [this](FaultKind kind) {
    fault_ = kind;
    return Outcome::kFault;
  };
  if (!well_formed) return found(FaultKind::kLog);
  const Authentic verified = authentic(*piece);
  for (std::size_t i = 0; i < piece->entries.size(); ++i) {
    const auto& [record, received] = piece->entries[i];
    if (piece->from + i < next_) continue;
    if (const auto fault = replay(record, received, verified)) return found(*fault);
  }
  if (end < piece->tail) return Outcome::kProgress;
  const auto entry = read_log_entry(payload_of(piece->entries.back().first));
  if (!entry || entry->type != EntryType::kMark || !std::ranges::equal(entry->body, piece->nonce))
    return found(FaultKind::kLog);
  return Outcome::kComplete;
}

// In one question: of those that are not replayed already.
PeerAudit::Authentic PeerAudit::authentic(const Piece& piece) const {
  std::vector<View> records;
  for (std::size_t i = 0; i < piece.entries.size(); ++i) {
    if (piece.from + i < next_) continue;
    records.push_back(piece.entries[i].first);
    records.insert(records.end(), piece.entries[i].second.begin(), piece.entries[i].second.end());
  }
  const auto verdicts = verify_all(kernel_, Question::Asks::kVerifyStateless, records);
  Authentic authentic;
  for (std::size_t i = 0; i < records.size(); ++i)
    if (verdicts[i] == Verdict::kOk) authentic.insert(records[i].data());
  return authentic;
}

// Takes the streams that an entry says were received.
std::optional<FaultKind> PeerAudit::receive(const LogEntry& entry,
                                            const std::vector<View>& received,
                                            const Authentic& authentic,
                                            std::optional<std::pair<Bytes, std::size_t>>& answer) {
  auto record = received.begin();
  for (const StreamPosition& stream : entry.received) {
    std::uint64_t counter = state_.received(stream.session);
    if (!state_.receives(stream.session) || stream.next <= counter) return FaultKind::kFormat;
    for (; counter < stream.next; ++counter, ++record) {
      if (record == received.end()) return FaultKind::kLog;
      const auto header = read_header(*record);
      if (!header || header->session != stream.session || header->counter != counter ||
          !authentic.contains(record->data()))
        return FaultKind::kLog;
      if (stream.session != session_of(options_, 0)) continue;
      if (answer) return FaultKind::kOutput;  // two contents, and only one answer
      answer = state_.answer(*record);
    }
    state_.set_received(stream.session, stream.next);
  }
  return record == received.end() ? std::nullopt : std::optional(FaultKind::kLog);
}

std::optional<FaultKind> PeerAudit::replay(View record, const std::vector<View>& received,
                                           const Authentic& authentic) {
  const auto header = read_header(record);
  if (!header || header->session != session_of(options_, index_) || header->counter != next_ ||
      !authentic.contains(record.data()))
    return FaultKind::kLog;
  const auto entry = read_log_entry(payload_of(record));
  if (!entry || entry->digest.has_value() != is_checkpoint(options_, next_) ||
      (entry->type == EntryType::kContent && index_ != 0) ||
      (entry->type == EntryType::kResponse && index_ == 0))
    return FaultKind::kFormat;

  std::optional<std::pair<Bytes, std::size_t>> answer;
  if (const auto fault = receive(*entry, received, authentic, answer)) return fault;
  if (entry->type == EntryType::kMark) {
    if (answer) return FaultKind::kOutput;  // received, and not answered
  } else {
    const auto step = read_step(entry->body);
    if (!step || step->digest || step->outputs.count() > options_.batch) return FaultKind::kFormat;
    if (entry->type == EntryType::kContent) {
      if (step->outputs.count() == 0 && step->requests.empty()) return FaultKind::kFormat;
      if (const auto fault = state_.ledger().apply(*step)) return fault;
    } else {
      if (!step->requests.empty()) return FaultKind::kFormat;
      if (!answer) return FaultKind::kQueue;
      if (step->outputs.count() != answer->second ||
          !std::ranges::equal(step->outputs.bytes(), answer->first))
        return FaultKind::kOutput;
    }
  }
  state_.ledger().done().clear();
  if (entry->digest) {
    Bytes snapshot = state_.save();
    if (*entry->digest != digest_of(snapshot)) return FaultKind::kDigest;
    snapshot_ = std::move(snapshot);
    base_.assign(record.begin(), record.end());
    pieces_.erase(pieces_.begin(), pieces_.end() - 1);
    pieces_bytes_ = pieces_.front().size();
  }
  ++next_;
  return std::nullopt;
}

Bytes PeerAudit::evidence() const {
  return write_proof({options_.nodes[index_].id, snapshot_, base_,
                      std::vector<View>(pieces_.begin(), pieces_.end())});
}

}  // namespace detail

std::optional<Fault> judge(AttestationKernel& kernel, const Directory& directory,
                           const MachineFactory& make_machine, const PeerReviewOptions& options,
                           std::span<const std::byte> evidence) {
  const auto proof = detail::read_proof(evidence);
  const std::size_t index = proof ? detail::index_of(options, proof->accused) : 0;
  if (!proof || index == options.nodes.size()) return std::nullopt;
  detail::PeerAudit audit(kernel, directory, make_machine, options, index);
  if (!proof->base.empty() && !audit.start(proof->snapshot, proof->base)) return std::nullopt;
  for (const detail::View piece : proof->pieces) switch (audit.take(piece)) {
      case detail::PeerAudit::Outcome::kNothing:
        return std::nullopt;
      case detail::PeerAudit::Outcome::kFault:
        return Fault{proof->accused, audit.fault(), Bytes(evidence.begin(), evidence.end())};
      case detail::PeerAudit::Outcome::kProgress:
      case detail::PeerAudit::Outcome::kComplete:
        break;
    }
  return std::nullopt;
}

}  // namespace leat::trusted

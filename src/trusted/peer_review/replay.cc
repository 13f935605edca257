#include "trusted/peer_review/replay.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "base/wire.h"
#include "leat/error.h"
#include "trusted/parts/rounds.h"

namespace leat::trusted {
namespace detail {
namespace {

// Answers that wait for the log.
constexpr std::size_t kMostAnswersOfClient = 256, kMostAnswerBytesOfClient = std::size_t{1} << 20,
                      kMostAnswerBytes = std::size_t{16} << 20;

constexpr const char* kSystem = "a PeerReview system";

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, std::string(kSystem) + " " + what);
}

std::vector<PartyId> ids_of(const PeerReviewOptions& options) {
  std::vector<PartyId> ids;
  for (const auto& node : options.nodes) ids.push_back(node.id);
  return ids;
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
  }
  check_sessions(kSystem, kernel, options.first_session, ids_of(options));
}

void check_unused(AttestationKernel& kernel, const PeerReviewOptions& options) {
  check_unused(kSystem, kernel, options.first_session, ids_of(options));
}

std::size_t index_of(const PeerReviewOptions& options, PartyId id) {
  return static_cast<std::size_t>(
      std::ranges::find(options.nodes, id, &PeerReviewOptions::Node::id) - options.nodes.begin());
}

std::uint32_t session_of(const PeerReviewOptions& options, std::size_t index) {
  return session_of(options.first_session, options.nodes[index].id);
}

// --- the state

PeerState::PeerState(const Directory& directory, std::uint64_t epoch,
                     const MachineFactory& make_machine, const PeerReviewOptions& options,
                     std::size_t index)
    : options_(options), index_(index), ledger_(directory, epoch, make_machine, true) {}

bool PeerState::receives(std::uint32_t session) const {
  const std::size_t sender = index_of(options_, node_of(options_.first_session, session));
  if (sender == options_.nodes.size() || sender == index_) return false;
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
  if (!header || header->session != session_of(options_, index_) || !is_authentic(kernel_, base))
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
  if (end < piece->tail) {
    forget();
    return Outcome::kProgress;
  }
  const auto entry = read_log_entry(payload_of(piece->entries.back().first));
  if (!entry || entry->type != EntryType::kMark || !std::ranges::equal(entry->body, piece->nonce))
    return found(FaultKind::kLog);
  if (piece->nonce == nonce_)
    if (const auto fault = check_mark()) return found(*fault);
  forget();
  return Outcome::kComplete;
}

// Only when a piece is through: a fault in it must lead further than where the evidence begins.
void PeerAudit::forget() {
  if (!last_digest_) return;
  std::tie(snapshot_, base_) = *std::exchange(last_digest_, std::nullopt);
  const bool ends_the_piece = read_header(base_)->counter + 1 == next_;
  pieces_.erase(pieces_.begin(), pieces_.end() - (ends_the_piece ? 0 : 1));
  pieces_bytes_ = pieces_.empty() ? 0 : pieces_.front().size();
}

// --- answers to clients

PeerAudit::Outcome PeerAudit::take_answer(View answer) {
  const auto content = read_signed(answer, MessageType::kReply);
  if (!content || content->sender != options_.nodes[index_].id ||
      content->epoch != kernel_.epoch() || content->items.count() == 0)
    return Outcome::kNothing;
  const std::pair key(content->target, content->first);
  const auto [begin, end] = answers_.equal_range(key);
  const bool is_there = std::any_of(begin, end, [answer](const auto& one) {
    return std::ranges::equal(one.second.answer, answer);
  });
  if (is_there || !has_room_for(content->target, answer) ||
      !verify_signed(directory_, answer, *content))
    return Outcome::kNothing;
  Waiting waiting{.answer = Bytes(answer.begin(), answer.end()), .digest = digest_of(answer)};
  if (const Done* done = state_.ledger().answer(content->target, content->first)) {
    const auto fault = verdict(waiting, std::ranges::equal(done->outputs, content->items.bytes()));
    if (fault) fault_ = *fault;
    return fault ? Outcome::kFault : Outcome::kNothing;
  }
  const std::uint64_t last = content->first + content->items.count() - 1;
  if (state_.ledger().has_executed(content->target, last)) return Outcome::kNothing;
  answers_.emplace(key, std::move(waiting));
  return Outcome::kProgress;
}

bool PeerAudit::has_room_for(PartyId client, View answer) const {
  std::size_t count = 0, its_bytes = answer.size(), bytes = answer.size();
  for (const auto& [key, waiting] : answers_) {
    bytes += waiting.answer.size();
    if (key.first != client) continue;
    its_bytes += waiting.answer.size();
    ++count;
  }
  return count < kMostAnswersOfClient && its_bytes <= kMostAnswerBytesOfClient &&
         bytes <= kMostAnswerBytes;
}

Nonce PeerAudit::begin(View salt) {
  Bytes digests;
  for (const auto& [key, waiting] : answers_)
    digests.insert(digests.end(), waiting.digest.begin(), waiting.digest.end());
  begin(salt, digests);
  return *nonce_;
}

void PeerAudit::begin(View salt, View digests) {
  salt_.assign(salt.begin(), salt.end());
  digests_.assign(digests.begin(), digests.end());
  nonce_ = nonce_of(salt, digests);
  for (auto& [key, waiting] : answers_)
    for (; digests.size() >= waiting.digest.size() && !waiting.must_be_there;
         digests = digests.subspan(waiting.digest.size()))
      waiting.must_be_there =
          std::ranges::equal(digests.first(waiting.digest.size()), waiting.digest);
}

// Of the requests that an entry has finished.
std::optional<FaultKind> PeerAudit::check_done() {
  for (const Done& done : state_.ledger().done()) {
    const auto [begin, end] = answers_.equal_range({done.client, done.first});
    for (auto one = begin; one != end; one = answers_.erase(one)) {
      const auto content = read_signed(one->second.answer, MessageType::kReply);
      if (const auto fault =
              verdict(one->second, std::ranges::equal(content->items.bytes(), done.outputs)))
        return fault;
    }
  }
  return std::nullopt;
}

// What the node had signed before it could know the nonce is executed before its mark.
std::optional<FaultKind> PeerAudit::check_mark() {
  for (auto one = answers_.begin(); one != answers_.end();) {
    if (!one->second.must_be_there) {
      ++one;
      continue;
    }
    const auto content = read_signed(one->second.answer, MessageType::kReply);
    const std::uint64_t last = content->first + content->items.count() - 1;
    if (const auto fault =
            verdict(one->second, state_.ledger().has_executed(content->target, last)))
      return fault;
    one = answers_.erase(one);  // its number is that of no request
  }
  return std::nullopt;
}

std::optional<FaultKind> PeerAudit::verdict(const Waiting& waiting, bool right) {
  if (right) return std::nullopt;
  wrong_answer_ = waiting.answer;
  return FaultKind::kOutput;
}

// --- replaying

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
  if (const auto fault = check_done()) return fault;
  state_.ledger().done().clear();
  if (entry->digest) {
    Bytes snapshot = state_.save();
    if (*entry->digest != digest_of(snapshot)) return FaultKind::kDigest;
    last_digest_ = {std::move(snapshot), Bytes(record.begin(), record.end())};
  }
  ++next_;
  return std::nullopt;
}

Bytes PeerAudit::evidence() const {
  PeerProof proof{.accused = options_.nodes[index_].id,
                  .snapshot = snapshot_,
                  .base = base_,
                  .pieces = std::vector<View>(pieces_.begin(), pieces_.end())};
  if (!wrong_answer_.empty()) {
    proof.answer = wrong_answer_;
    proof.salt = salt_;
    proof.digests = digests_;
  }
  return write_proof(proof);
}

}  // namespace detail

std::optional<Fault> judge(AttestationKernel& kernel, const Directory& directory,
                           const MachineFactory& make_machine, const PeerReviewOptions& options,
                           std::span<const std::byte> evidence) {
  const auto proof = detail::read_proof(evidence);
  const std::size_t index = proof ? detail::index_of(options, proof->accused) : 0;
  if (!proof || index == options.nodes.size()) return std::nullopt;
  using detail::PeerAudit;
  PeerAudit audit(kernel, directory, make_machine, options, index);
  if (!proof->base.empty() && !audit.start(proof->snapshot, proof->base)) return std::nullopt;
  PeerAudit::Outcome outcome = PeerAudit::Outcome::kProgress;
  if (!proof->answer.empty()) {
    outcome = audit.take_answer(proof->answer);
    audit.begin(proof->salt, proof->digests);
  }
  for (auto piece = proof->pieces.begin();
       piece != proof->pieces.end() && outcome != PeerAudit::Outcome::kFault &&
       outcome != PeerAudit::Outcome::kNothing;
       ++piece)
    outcome = audit.take(*piece);
  if (outcome != PeerAudit::Outcome::kFault) return std::nullopt;
  return Fault{proof->accused, audit.fault(), Bytes(evidence.begin(), evidence.end())};
}

}  // namespace leat::trusted

#include "trusted/parts/ledger.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "base/wire.h"

namespace leat::trusted {

std::string_view to_string(FaultKind kind) noexcept {
  switch (kind) {
    case FaultKind::kFormat:
      return "attested something that is not a message of the protocol";
    case FaultKind::kRequest:
      return "ordered a request that no client signed, or that was ordered before";
    case FaultKind::kQueue:
      return "executed commands that nobody had sent";
    case FaultKind::kOutput:
      return "outputs that are not those of the commands";
    case FaultKind::kDigest:
      return "another state than that of the commands";
    case FaultKind::kSilent:
      return "is silent";
    case FaultKind::kLog:
      return "signed as its log what it has not attested as such";
  }
  return "an unknown fault";
}

namespace detail {
namespace {

using leat::detail::WireReader;
using leat::detail::WireWriter;

constexpr std::size_t kMostBlobs = std::size_t{1} << 20;
constexpr std::size_t kAnswerBytes = 14 + std::tuple_size_v<StateDigest>;
constexpr std::size_t kClientBytes = 20;  // id (4), next, executed (8 each)
constexpr std::size_t kAnyRoom = std::numeric_limits<std::size_t>::max();

template <typename Number>
Bytes bytes_of(Number value) {
  Bytes bytes(sizeof value);
  WireWriter(bytes).number(value);
  return bytes;
}

}  // namespace

Ledger::Ledger(const Directory& directory, std::uint64_t epoch, const MachineFactory& make_machine,
               bool keeps_answers)
    : directory_(directory),
      epoch_(epoch),
      keeps_answers_(keeps_answers),
      machine_(make_machine()) {}

std::optional<FaultKind> Ledger::take(View request) {
  const auto content = read_signed(request, MessageType::kRequest);
  if (!content || has_taken(content->sender, content->first) || !is_right(request, *content) ||
      !take_right(request))
    return FaultKind::kRequest;
  return std::nullopt;
}

bool Ledger::is_right(View request, const Signed& content) const {
  return is_right(request, content, epoch_);
}

bool Ledger::is_right(View request, const Signed& content, std::uint64_t oldest_epoch) const {
  // A node is not a client: its signatures are for answers.
  const Party* client = directory_.find(content.sender);
  return content.epoch >= oldest_epoch && content.epoch <= epoch_ && client != nullptr &&
         client->address.empty() && verify_signed(directory_, request, content);
}

bool Ledger::take_right(View request) {
  Pending pending{.bytes = Bytes(request.begin(), request.end())};
  const auto content = read_signed(pending.bytes, MessageType::kRequest);
  if (!content || has_taken(content->sender, content->first)) return false;
  ClientState& state = clients_[content->sender];
  taken_.emplace_back(content->sender, state);
  state.next = content->first + content->items.count();
  pending.client = content->sender;
  pending.first = content->first;
  pending.count = content->items.count();
  pending.digest = digest_of_request(*content);
  pending.left = content->items;
  waiting_ += pending.count;
  queue_.push_back(std::move(pending));
  return true;
}

std::size_t Ledger::execute(std::size_t most, std::size_t room, Bytes& outputs) {
  std::size_t executed = 0;
  Bytes output;
  const auto goes_on = [&] {
    return executed < most && outputs.size() + kItemBytes + kMaxItemBytes <= room;
  };
  while (goes_on() && front_ < queue_.size()) {
    Pending& pending = queue_[front_];
    ClientState& client = clients_[pending.client];
    if (begun_.empty() || begun_.back().index != front_)
      begun_.push_back({front_, pending.left, pending.outputs.size(), client.executed});
    while (goes_on() && pending.left.count() > 0) {
      output.clear();
      machine_->execute(pending.left.take(), output);
      Items::append(outputs, output);
      Items::append(pending.outputs, output);
      ++executed;
    }
    client.executed = pending.first + pending.count - pending.left.count();
    if (pending.left.count() > 0) break;
    ++front_;
  }
  waiting_ -= executed;
  return executed;
}

void Ledger::keep() {
  machine_->keep();
  for (; front_ > 0; --front_) {
    Pending& pending = queue_.front();
    done_.push_back(
        {pending.client, pending.first, pending.count, pending.digest, std::move(pending.outputs)});
    if (keeps_answers_) keep_answer(done_.back());
    queue_.pop_front();
  }
  taken_.clear();
  begun_.clear();
}

void Ledger::undo() {
  machine_->undo();
  for (const Before& before : begun_) {
    Pending& pending = queue_[before.index];
    waiting_ += before.left.count() - pending.left.count();
    pending.left = before.left;
    pending.outputs.resize(before.outputs_bytes);
  }
  // From the last to the first: a client may be there several times.
  for (; !begun_.empty(); begun_.pop_back())
    clients_[queue_[begun_.back().index].client].executed = begun_.back().executed;
  for (; !taken_.empty(); taken_.pop_back()) {
    const auto& [client, before] = taken_.back();
    if (before.next == 0)
      clients_.erase(client);
    else
      clients_[client].next = before.next;
    waiting_ -= queue_.back().left.count();
    queue_.pop_back();
  }
  front_ = 0;
}

std::optional<FaultKind> Ledger::apply(const Step& step) {
  std::optional<FaultKind> fault;
  for (const View request : step.requests) {
    fault = take(request);
    if (fault) break;
  }
  if (!fault) {
    Bytes outputs;
    if (execute(step.outputs.count(), kAnyRoom, outputs) != step.outputs.count())
      fault = FaultKind::kQueue;
    else if (!std::ranges::equal(outputs, step.outputs.bytes()))
      fault = FaultKind::kOutput;
  }
  if (fault) {
    undo();
    return fault;
  }
  keep();
  return std::nullopt;
}

bool Ledger::has_taken(PartyId client, std::uint64_t first) const {
  const auto state = clients_.find(client);
  return state != clients_.end() && first < state->second.next;
}

std::uint64_t Ledger::next_number(PartyId client) const {
  const auto state = clients_.find(client);
  return state == clients_.end() ? 0 : state->second.next;
}

bool Ledger::has_executed(PartyId client, std::uint64_t number) const {
  const auto state = clients_.find(client);
  return state != clients_.end() && number < state->second.executed;
}

bool Ledger::has_finished(PartyId client, std::uint64_t number) const {
  return has_executed(client, number) && std::ranges::none_of(queue_, [&](const Pending& pending) {
           return pending.client == client && pending.first <= number;
         });
}

void Ledger::keep_answer(const Done& done) {
  auto& kept = answers_[done.client];
  kept.push_back(done);
  std::size_t bytes = 0;
  for (const Done& one : kept) bytes += one.outputs.size();
  for (; kept.size() > kMaxUnderWay || bytes > kMaxKeptAnswerBytes; kept.pop_front())
    bytes -= kept.front().outputs.size();
}

const Done* Ledger::answer(PartyId client, std::uint64_t first) const {
  const auto kept = answers_.find(client);
  if (kept == answers_.end()) return nullptr;
  const auto done = std::ranges::find(kept->second, first, &Done::first);
  return done == kept->second.end() ? nullptr : &*done;
}

// Two blobs for each: client (4), first (8), count (2), digest of the request (32); outputs.
Bytes Ledger::save_answers() const {
  Bytes part;
  for (const auto& [client, kept] : answers_)
    for (const Done& done : kept) {
      Bytes head(kAnswerBytes);
      WireWriter writer(head);
      writer.number(client);
      writer.number(done.first);
      writer.number(static_cast<std::uint16_t>(done.count));
      writer.bytes(done.request, done.request.size());
      append_blob(part, head);
      append_blob(part, done.outputs);
    }
  return part;
}

bool Ledger::load_answers(View part) {
  answers_.clear();
  const auto blobs = read_blobs(part, kMostBlobs);
  if (!blobs || blobs->size() % 2 != 0 || (!keeps_answers_ && !blobs->empty())) return false;
  for (std::size_t i = 0; i < blobs->size(); i += 2) {
    if ((*blobs)[i].size() != kAnswerBytes) return false;
    WireReader reader((*blobs)[i]);
    Done done;
    done.client = reader.number<std::uint32_t>();
    done.first = reader.number<std::uint64_t>();
    done.count = reader.number<std::uint16_t>();
    std::ranges::copy(reader.bytes(done.request.size()), done.request.begin());
    const View outputs = (*blobs)[i + 1];
    if (!Items::read(outputs, done.count)) return false;
    done.outputs.assign(outputs.begin(), outputs.end());
    keep_answer(done);
  }
  return true;
}

// Blobs: the machine; the clients; answers that are kept; for each waiting request itself, how many
// of its commands were executed (2), and their outputs.
Bytes Ledger::save() const {
  Bytes state, part;
  machine_->save(part);
  append_blob(state, part);
  part.clear();
  for (const auto& [id, client] : clients_) {
    const std::size_t at = part.size();
    part.resize(at + kClientBytes);
    WireWriter writer(std::span<std::byte>(part).subspan(at));
    writer.number(id);
    writer.number(client.next);
    writer.number(client.executed);
  }
  append_blob(state, part);
  append_blob(state, save_answers());
  for (const Pending& pending : queue_) {
    append_blob(state, pending.bytes);
    append_blob(state, bytes_of(static_cast<std::uint16_t>(pending.count - pending.left.count())));
    append_blob(state, pending.outputs);
  }
  return state;
}

bool Ledger::load(View state) {
  const auto blobs = read_blobs(state, kMostBlobs);
  if (!blobs || blobs->size() < 3 || blobs->size() % 3 != 0 ||
      (*blobs)[1].size() % kClientBytes != 0 || !machine_->load((*blobs)[0]) ||
      !load_answers((*blobs)[2]))
    return false;
  clients_.clear();
  queue_.clear();
  waiting_ = 0;
  for (std::size_t i = 3; i < blobs->size(); i += 3) {
    const auto content = read_signed((*blobs)[i], MessageType::kRequest);
    if ((*blobs)[i + 1].size() != 2 || !content || !is_right((*blobs)[i], *content, 0) ||
        !take_right((*blobs)[i]))
      return false;
    Pending& pending = queue_.back();
    const std::size_t executed = WireReader((*blobs)[i + 1]).number<std::uint16_t>();
    const View outputs = (*blobs)[i + 2];
    if (executed >= pending.count || !Items::read(outputs, executed)) return false;
    for (std::size_t k = 0; k < executed; ++k) pending.left.take();
    waiting_ -= executed;
    pending.outputs.assign(outputs.begin(), outputs.end());
  }
  WireReader reader((*blobs)[1]);
  for (std::size_t i = 0; i < (*blobs)[1].size(); i += kClientBytes) {
    ClientState& client = clients_[reader.number<std::uint32_t>()];
    client.next = reader.number<std::uint64_t>();
    client.executed = reader.number<std::uint64_t>();
  }
  front_ = 0;
  taken_.clear();
  begun_.clear();
  done_.clear();
  return true;
}

}  // namespace detail
}  // namespace leat::trusted

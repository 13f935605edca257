#include "leat/trusted/a2m.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>

#include "leat/error.h"
#include "trusted/a2m/log.h"

namespace leat::trusted {

using detail::Log;

struct AttestedMemory::State {
  static constexpr const char* kWhenEmpty = "this attested memory was moved from";
  // Where a log's last truncation, that the MANIFEST knows, stands.
  struct Truncated {
    std::uint64_t head = 0;
    std::uint64_t next = 0;  // the index after that of its entry
  };
  struct Place {
    std::unique_ptr<Log> log;
    Truncated truncated;
    // Appended to the log, and not yet to the MANIFEST.
    std::optional<Record> half_done;
  };

  Place* find(std::uint32_t id) {
    const auto found =
        std::ranges::find_if(places, [id](const Place& place) { return place.log->id() == id; });
    return found == places.end() ? nullptr : &*found;
  }
  Log& log(std::uint32_t id) {
    if (Place* place = find(id)) return *place->log;
    throw Error(ErrorCode::kInvalidArgument, "there is no log " + std::to_string(id),
                "Name it in MemoryOptions::logs.");
  }
  Log& manifest() { return *places.back().log; }

  void recover(bool check_all);
  Record finish_truncation(Place& place);

  std::vector<Place> places;  // the MANIFEST last; constant, what the mutex is over apart
  std::vector<Recovery> recoveries;

  std::mutex truncating;  // over `truncated`, `half_done` and this
  std::set<Nonce> nonces;
};

namespace {

Nonce nonce_of(const Entry& entry) {
  Nonce nonce;
  std::ranges::copy(entry.context, nonce.begin());
  return nonce;
}

}  // namespace

AttestedMemory::AttestedMemory(AttestationKernel& kernel, const MemoryOptions& options)
    : state_(std::make_unique<State>()) {
  auto logs = options.logs;
  logs.push_back({.session = options.manifest,
                  .max_context_bytes = kRecordOverheadBytes + detail::kDigestBytes + Nonce{}.size(),
                  .max_entries = options.max_manifest_entries});
  for (const LogOptions& log : logs) {
    if (state_->find(log.session) != nullptr)
      throw Error(ErrorCode::kInvalidArgument,
                  "session " + std::to_string(log.session) + " is named for two logs",
                  "Each log and the MANIFEST have a session of their own.");
    state_->places.push_back({.log = std::make_unique<Log>(kernel, log, options.folder)});
  }
  state_->recover(options.check_all);
  if (options.folder.empty()) state_->recoveries.clear();
}

AttestedMemory::AttestedMemory(AttestedMemory&&) noexcept = default;
AttestedMemory& AttestedMemory::operator=(AttestedMemory&&) noexcept = default;
AttestedMemory::~AttestedMemory() = default;

// The MANIFEST first and whole: it has the heads, and it is short.
void AttestedMemory::State::recover(bool check_all) {
  Recovery of_manifest = manifest().recover(0, true, [this](const Entry& entry) {
    if (entry.kind != EntryKind::kManifest) return;
    const auto truncation = read_entry(entry.context);
    if (!truncation || truncation->kind != EntryKind::kTruncation) return;
    nonces.insert(nonce_of(*truncation));
    if (Place* place = find(truncation->log))
      place->truncated = {truncation->head, truncation->index + 1};
  });
  for (Place& place : places) {
    if (&place == &places.back()) break;
    // A truncation since the last that the MANIFEST has: the process ended between its two halves.
    std::optional<std::uint64_t> pending;
    recoveries.push_back(
        place.log->recover(place.truncated.head, check_all, [&](const Entry& entry) {
          if (entry.kind == EntryKind::kTruncation && entry.index >= place.truncated.next)
            pending = entry.index;
        }));
    if (!pending || !place.log->writable()) continue;
    Record record;
    if (place.log->lookup(*pending, record) != LookupStatus::kAssigned) continue;
    place.log->hold_checkpoint(true);
    place.half_done = std::move(record);
    (void)finish_truncation(place);
    recoveries.back().finished_truncation = true;
    recoveries.back().bounds = place.log->bounds();
  }
  of_manifest.bounds = manifest().bounds();
  recoveries.push_back(std::move(of_manifest));
}

// Returns the entry of the MANIFEST.
Record AttestedMemory::State::finish_truncation(Place& place) {
  Record record;
  manifest().append(EntryKind::kManifest, 0, *place.half_done, &record);
  const Entry truncation = *read_entry(*place.half_done);
  nonces.insert(nonce_of(truncation));
  place.truncated = {truncation.head, truncation.index + 1};
  place.log->forget(truncation.head);
  place.half_done.reset();
  place.log->hold_checkpoint(false);
  return record;
}

const std::vector<Recovery>& AttestedMemory::recoveries() const { return state_->recoveries; }

std::uint64_t AttestedMemory::append(std::uint32_t log, std::span<const std::byte> context,
                                     Record* record) {
  Log& found = state_->log(log);
  if (&found == &state_->manifest())
    throw Error(ErrorCode::kInvalidArgument, "the MANIFEST takes truncations only",
                "Append to another log.");
  return found.append(EntryKind::kContext, 0, context, record);
}

LookupStatus AttestedMemory::lookup(std::uint32_t log, std::uint64_t index, Record& record) const {
  return state_->log(log).lookup(index, record);
}

Record AttestedMemory::truncate(std::uint32_t log, std::uint64_t head, const Nonce& nonce) {
  Log& found = state_->log(log);
  const std::string name = "log " + std::to_string(log);
  if (&found == &state_->manifest())
    throw Error(ErrorCode::kInvalidArgument, "the MANIFEST cannot be truncated",
                "It is what says how far the others are.");
  const std::lock_guard lock(state_->truncating);
  State::Place& place = *state_->find(log);
  // A failure before left it so.
  if (place.half_done) (void)state_->finish_truncation(place);
  const LogBounds bounds = found.bounds();
  if (head < bounds.head || head > bounds.tail)
    throw Error(ErrorCode::kInvalidArgument,
                name + " goes from " + std::to_string(bounds.head) + " to " +
                    std::to_string(bounds.tail) + ": it cannot begin at " + std::to_string(head),
                "Name a head that is there.");
  if (state_->nonces.contains(nonce))
    throw Error(ErrorCode::kInvalidArgument, "the nonce of a truncation was used before",
                "Take a fresh one: it shows that the answer is not an old one.");
  found.hold_checkpoint(true);
  Record record;
  try {
    found.append(EntryKind::kTruncation, head, nonce, &record);
  } catch (...) {
    found.hold_checkpoint(false);
    throw;
  }
  place.half_done = std::move(record);
  return state_->finish_truncation(place);
}

Record AttestedMemory::end(std::uint32_t log, const Nonce& nonce) {
  Record record;
  state_->log(log).append(EntryKind::kEnd, 0, nonce, &record);
  return record;
}

LogBounds AttestedMemory::bounds(std::uint32_t log) const { return state_->log(log).bounds(); }

Recovery AttestedMemory::check(std::uint32_t log) const { return state_->log(log).check(0); }

void AttestedMemory::sync() {
  for (const auto& place : state_->places) place.log->sync();
}

}  // namespace leat::trusted

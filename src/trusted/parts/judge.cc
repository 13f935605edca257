#include "trusted/parts/judge.h"

#include <algorithm>

#include "leat/trusted/counter.h"
#include "trusted/parts/history.h"
#include "trusted/parts/rounds.h"

namespace leat::trusted {
namespace detail {
namespace {

// The counter of the checkpoint whose state `snapshot` is, as f+1 replicas attested; no value if
// they did not.
std::optional<std::uint64_t> vouched_for(AttestationKernel& kernel, const BftOptions& options,
                                         View snapshot, const std::vector<View>& vouchers) {
  const StateDigest digest = digest_of(snapshot);
  std::optional<std::uint64_t> counter;
  std::vector<std::uint32_t> sessions;
  for (const View record : vouchers) {
    const auto header = read_header(record);
    if (!header || sender_of(options, *header) == options.replicas.size() ||
        std::ranges::find(sessions, header->session) != sessions.end() ||
        (counter && *counter != header->counter) || !is_authentic(kernel, record))
      return std::nullopt;
    const auto step = read_step(payload_of(record));
    if (!step || step->digest != digest) return std::nullopt;
    counter = header->counter;
    sessions.push_back(header->session);
  }
  if (sessions.size() < options.faults + 1) return std::nullopt;
  return counter;
}

}  // namespace

std::size_t index_of(const BftOptions& options, PartyId id) {
  return static_cast<std::size_t>(std::ranges::find(options.replicas, id) -
                                  options.replicas.begin());
}

std::size_t sender_of(const BftOptions& options, const RecordHeader& record) {
  return index_of(options, node_of(options.first_session, record.session));
}

std::optional<FaultKind> execute_record(Ledger& ledger, View payload, unsigned batch,
                                        bool is_checkpoint, Bytes& snapshot) {
  const auto step = read_step(payload);
  if (!step || step->outputs.count() > batch || step->digest.has_value() != is_checkpoint ||
      (step->outputs.count() == 0 && step->requests.empty()))
    return FaultKind::kFormat;
  if (const auto fault = ledger.apply(*step)) return fault;
  if (!is_checkpoint) return std::nullopt;
  snapshot = ledger.save();
  if (*step->digest != digest_of(snapshot)) return FaultKind::kDigest;
  return std::nullopt;
}

std::optional<FaultKind> check_executed(View payload, View outputs, std::size_t count,
                                        const std::optional<StateDigest>& digest) {
  const auto step = read_step(payload);
  if (!step || !step->requests.empty() || step->digest.has_value() != digest.has_value())
    return FaultKind::kFormat;
  if (step->outputs.count() != count || !std::ranges::equal(step->outputs.bytes(), outputs))
    return FaultKind::kOutput;
  if (step->digest != digest) return FaultKind::kDigest;
  return std::nullopt;
}

std::optional<Replayed> replay(AttestationKernel& kernel, const BftOptions& options, View evidence,
                               Ledger& ledger) {
  const auto parts = read_evidence(evidence);
  if (!parts) return std::nullopt;
  Replayed replayed;
  std::uint64_t& next = replayed.records;
  if (!parts->snapshot.empty()) {
    const auto counter = vouched_for(kernel, options, parts->snapshot, parts->vouchers);
    if (!counter || !ledger.load(parts->snapshot)) return std::nullopt;
    next = *counter + 1;
  }
  std::optional<RecordHeader> accusing;
  if (!parts->accusing.empty()) {
    accusing = read_header(parts->accusing);
    const std::size_t accused = accusing ? sender_of(options, *accusing) : 0;
    if (accused == 0 || accused == options.replicas.size() ||
        !is_authentic(kernel, parts->accusing))
      return std::nullopt;
  }
  for (const View record : parts->records) {
    const auto header = read_header(record);
    if (!header || sender_of(options, *header) != 0 || header->counter != next ||
        !is_authentic(kernel, record))
      return std::nullopt;
    Bytes snapshot;
    const bool checkpoint = (next + 1) % options.checkpoint_records == 0;
    const auto payload = payload_of(record);
    if (const auto fault = execute_record(ledger, payload, options.batch, checkpoint, snapshot)) {
      replayed.fault = {0, *fault};
      return replayed;
    }
    if (accusing && accusing->counter == next) {
      const Step step = *read_step(payload);
      const auto fault = check_executed(payload_of(parts->accusing), step.outputs.bytes(),
                                        step.outputs.count(), step.digest);
      if (fault) replayed.fault = {sender_of(options, *accusing), *fault};
      return replayed;
    }
    ledger.done().clear();
    ++next;
  }
  return replayed;
}

}  // namespace detail

using namespace detail;

std::optional<Fault> judge(AttestationKernel& kernel, const Directory& directory,
                           const MachineFactory& make_machine, const BftOptions& options,
                           std::span<const std::byte> evidence) {
  Ledger ledger(directory, kernel.epoch(), make_machine);
  const auto replayed = replay(kernel, options, evidence, ledger);
  if (!replayed || !replayed->fault) return std::nullopt;
  return Fault{options.replicas[replayed->fault->index], replayed->fault->kind,
               Bytes(evidence.begin(), evidence.end())};
}

}  // namespace leat::trusted

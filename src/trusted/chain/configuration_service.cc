#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "base/log.h"
#include "leat/error.h"
#include "leat/trusted/configuration.h"
#include "trusted/chain/start.h"
#include "trusted/parts/configuration_messages.h"

namespace leat::trusted {
namespace {

using namespace detail;
using Time = Participant::Time;

enum class Phase : std::uint8_t {
  kGathering,   // asks which nodes are there
  kInstalling,  // until all nodes have the configuration
  kServing,
  kSealing,  // until all nodes have said what they executed
};

// A node of the pool.
struct Node {
  std::optional<Time> heard;
  unsigned blamed = 0;  // how often silence was put down to it
  bool exposed = false;
};

// What a node of a sealed chain has executed.
struct Report {
  std::uint64_t records = 0;
  Ledger ledger;
};

// A client that has had no answer for too long, or different ones.
struct Grievance {
  PartyId client = 0;
  std::uint64_t first = 0;
  std::map<PartyId, Bytes> said;  // by node: the outputs
};

// A node that is heard from as seldom as that is not there.
constexpr int kPatienceOfAbsence = 2;
// How long the first chain waits for the nodes that it shall have.
constexpr int kPatienceAtStart = 25;
// Epochs in a row that have no attestor here: their provisioning failed, or its process has ended.
constexpr std::uint64_t kMostLeftOut = 64;

}  // namespace

struct ConfigurationService::State {
  State(const Directory& its_directory, const SigningKey& its_key, MachineFactory its_make_machine,
        KernelFactory its_make_kernel, const ConfigurationOptions& its_options, Hook its_hook,
        FaultHook its_faults)
      : directory(its_directory),
        key(its_key),
        make_machine(std::move(its_make_machine)),
        make_kernel(std::move(its_make_kernel)),
        options(its_options),
        hook(std::move(its_hook)),
        faults(std::move(its_faults)) {
    for (const PartyId node : options.pool) nodes[node];
    if (options.length == 0 || nodes.size() < options.length ||
        nodes.size() != options.pool.size() || nodes.contains(options.service))
      throw Error(ErrorCode::kInvalidArgument,
                  "a chain of " + std::to_string(options.length) +
                      " nodes cannot come of a pool of " + std::to_string(nodes.size()),
                  "Name at least as many nodes as a chain has, each once, and not the service.");
    if (options.liars >= options.length)
      throw Error(ErrorCode::kInvalidArgument,
                  "a chain of " + std::to_string(options.length) + " nodes cannot survive " +
                      std::to_string(options.liars) + " liars",
                  "Each chain needs a correct node.");
  }

  bool is_member(PartyId node) const {
    return std::ranges::find(configuration.nodes, node) != configuration.nodes.end();
  }
  ChainOptions chain() const {
    ChainOptions chain = options.chain;
    chain.nodes = configuration.nodes;
    chain.start = start;
    return chain;
  }
  Bytes announcement(bool with_state) const {
    return write_configuration(announced, with_state ? View(start) : View());
  }

  void on_join(PartyId from, std::uint64_t epoch, Time now, Outbox& outbox);
  void on_complaint(PartyId from, View message, Time now, Outbox& outbox);
  void on_evidence(PartyId from, View evidence, Time now, Outbox& outbox);
  void on_history(PartyId from, View message, Outbox& outbox);
  void gather(Time now, Outbox& outbox);
  std::unique_ptr<AttestationKernel> next_kernel(Configuration& next);
  void install(std::vector<PartyId> chosen, Time now, Outbox& outbox);
  void serve(Outbox& outbox);
  void seal(Time now, Outbox& outbox);
  bool is_accounted_for(PartyId node) const {
    return reports.contains(node) || lost.contains(node) || nodes.at(node).exposed;
  }
  bool all_is_known() const;
  bool enough_is_known() const;
  void ask_for_histories(Outbox& outbox);
  void replace(Time now, Outbox& outbox);
  void blame(const Report& best);
  void blame_silence(PartyId node);
  void expose(PartyId node, FaultKind kind, Bytes evidence);

  const Directory& directory;
  const SigningKey& key;
  const MachineFactory make_machine;
  const KernelFactory make_kernel;
  const ConfigurationOptions options;
  const Hook hook;
  const FaultHook faults;

  std::map<PartyId, Node> nodes;
  std::set<PartyId> clients;
  Phase phase = Phase::kGathering;
  std::optional<Time> until;  // of the phase
  Configuration configuration;
  std::unique_ptr<AttestationKernel> kernel;
  std::uint64_t missing_epoch = 0;  // that had no attestor when it was last asked for
  Bytes announced;                  // signed
  Bytes start;                      // state of the configuration's beginning
  std::set<PartyId> ready;
  // Clients that complain of silence: about which request, since when.
  std::map<PartyId, std::pair<std::uint64_t, Time>> waiting;
  std::set<PartyId> accusers;  // whose evidence was judged in this epoch
  std::optional<Grievance> grievance;
  // Of the epoch that is over, by node: what it has executed; those that have not begun the epoch,
  // or have lost what they executed; those that were blamed for not saying so in time.
  std::map<PartyId, Report> reports;
  std::set<PartyId> lost, late;
  bool enabled = false;  // the epoch; before that no correct node answers for it
};

void ConfigurationService::State::on_join(PartyId from, std::uint64_t epoch, Time now,
                                          Outbox& outbox) {
  const auto node = nodes.find(from);
  if (node == nodes.end()) {
    clients.insert(from);
    if (phase == Phase::kServing && epoch < configuration.epoch)
      outbox.send(from, announcement(false));
    return;
  }
  node->second.heard = now;
  if (!is_member(from)) return;
  if (epoch == configuration.epoch) {
    ready.insert(from);
    if (phase == Phase::kInstalling && ready.size() == options.length) serve(outbox);
  } else if (ready.contains(from)) {
    // It was there, and has started again: its kernel is gone, and with it this epoch. Blamed for
    // that, one that only says so cannot end epoch after epoch while there are others.
    if (phase != Phase::kServing && phase != Phase::kInstalling) return;
    blame_silence(from);
    late.insert(from);
    seal(now, outbox);
  } else if (phase == Phase::kInstalling) {
    outbox.send(from, announcement(true));
  }
}

// Chooses the first nodes of the pool if they come in time, else among those that are there.
void ConfigurationService::State::gather(Time now, Outbox& outbox) {
  if (!until) until = now + kPatienceAtStart * options.patience;
  std::vector<PartyId> able;
  for (const PartyId id : options.pool) {
    const Node& node = nodes.at(id);
    const bool there = node.heard && now - *node.heard < kPatienceOfAbsence * options.patience;
    if (there && !node.exposed) able.push_back(id);
  }
  // Those that were to blame least often; of the same, those that have the state already.
  std::ranges::stable_sort(
      able, {}, [this](PartyId id) { return std::pair(nodes.at(id).blamed, !is_member(id)); });
  if (able.size() < options.length) return;
  able.resize(options.length);
  if (configuration.nodes.empty() && now < *until &&
      !std::ranges::equal(able, std::span(options.pool).first(options.length)))
    return;
  // A node that stays keeps its place, one that joins comes behind.
  std::vector<PartyId> chosen;
  for (const PartyId id : configuration.nodes)
    if (std::ranges::find(able, id) != able.end()) chosen.push_back(id);
  for (const PartyId id : able)
    if (!is_member(id)) chosen.push_back(id);
  install(std::move(chosen), now, outbox);
}

// The attestor of the next epoch that has one, to which it sets `next.epoch`; null if there is
// none.
std::unique_ptr<AttestationKernel> ConfigurationService::State::next_kernel(Configuration& next) {
  std::string why;
  for (const auto end = next.epoch + kMostLeftOut; next.epoch < end; ++next.epoch) {
    try {
      return make_kernel(next);
    } catch (const Error& error) {
      if (why.empty()) why = error.what();
    }
  }
  const std::uint64_t wanted = configuration.epoch + 1;
  if (std::exchange(missing_epoch, wanted) != wanted)  // its operator reads why once
    leat::detail::log(leat::detail::LogLevel::kWarn, "the configuration service waits for epoch " +
                                                         std::to_string(wanted) + ": " + why);
  return nullptr;
}

void ConfigurationService::State::install(std::vector<PartyId> chosen, Time now, Outbox& outbox) {
  Configuration next{configuration.epoch + 1, std::move(chosen)};
  auto fresh = next_kernel(next);
  if (!fresh) return;  // is gathering still, and comes back here
  configuration = std::move(next);
  kernel = std::move(fresh);
  announced = sign_configuration(key, configuration, digest_of(start));
  ready.clear();
  waiting.clear();
  accusers.clear();
  grievance.reset();
  reports.clear();
  lost.clear();
  late.clear();
  enabled = false;
  phase = Phase::kInstalling;
  until = now + options.patience;
  for (const auto& [id, node] : nodes) outbox.send(id, announcement(is_member(id)));
}

void ConfigurationService::State::serve(Outbox& outbox) {
  phase = Phase::kServing;
  enabled = true;
  for (const PartyId id : configuration.nodes)
    outbox.send(id, write_epoch(ConfigurationMessage::kEnable, configuration.epoch));
  for (const PartyId client : clients) outbox.send(client, announcement(false));
  if (hook) hook(configuration);
}

void ConfigurationService::State::on_complaint(PartyId from, View message, Time now,
                                               Outbox& outbox) {
  const auto complaint = read_complaint(message);
  if (!complaint || phase != Phase::kServing) return;
  const auto request = read_signed(complaint->request, MessageType::kRequest);
  if (!request || request->sender != from || nodes.contains(from)) return;
  if (request->epoch != configuration.epoch) return outbox.send(from, announcement(false));
  if (!verify_signed(directory, complaint->request, *request)) return;
  Grievance its{.client = from, .first = request->first};
  for (const View reply : complaint->replies) {
    const auto content = read_signed(reply, MessageType::kReply);
    if (!content || !is_member(content->sender) || content->epoch != configuration.epoch ||
        content->target != from || content->first != request->first ||
        its.said.contains(content->sender) || !verify_signed(directory, reply, *content))
      continue;
    const View outputs = content->items.bytes();
    its.said.emplace(content->sender, Bytes(outputs.begin(), outputs.end()));
  }
  const bool differ = std::ranges::any_of(
      its.said, [&](const auto& one) { return one.second != its.said.begin()->second; });
  auto& [first, since] = waiting.try_emplace(from, request->first, now).first->second;
  if (first != request->first) std::tie(first, since) = std::tie(request->first, now);
  if (differ || now - since >= options.patience) {
    grievance = std::move(its);
    return seal(now, outbox);
  }
  outbox.send(configuration.nodes.front(), complaint->request);  // the head shall have had it
}

void ConfigurationService::State::on_evidence(PartyId from, View evidence, Time now,
                                              Outbox& outbox) {
  // Judging costs a replay: once for each accuser.
  if (phase != Phase::kServing || !accusers.insert(from).second) return;
  auto fault = judge(*kernel, directory, make_machine, chain(), evidence);
  if (!fault) return;
  expose(fault->accused, fault->kind, std::move(fault->evidence));
  seal(now, outbox);
}

void ConfigurationService::State::seal(Time now, Outbox& outbox) {
  phase = Phase::kSealing;
  until = now + options.patience;
  ask_for_histories(outbox);
}

void ConfigurationService::State::ask_for_histories(Outbox& outbox) {
  for (const PartyId id : configuration.nodes)
    if (!is_accounted_for(id))
      outbox.send(id, write_epoch(ConfigurationMessage::kSeal, configuration.epoch));
}

void ConfigurationService::State::on_history(PartyId from, View message, Outbox&) {
  const auto history = read_history(message);
  if (!history || history->epoch != configuration.epoch || phase != Phase::kSealing ||
      !is_member(from) || is_accounted_for(from))
    return;
  if (history->proof.empty()) {
    lost.insert(from);
    return;
  }
  Ledger ledger = first_ledger(directory, configuration.epoch, make_machine, chain());
  const auto replayed = replay(*kernel, as_replicas(chain()), history->proof, ledger);
  if (!replayed || replayed->fault) return expose(from, FaultKind::kLog, {});
  reports.emplace(from, Report{replayed->records, std::move(ledger)});
}

// All nodes of the chain that may be correct have reported: one of them is, because fewer lie or
// fail than there are.
bool ConfigurationService::State::all_is_known() const {
  return (!reports.empty() || (!enabled && !lost.empty())) &&
         std::ranges::all_of(configuration.nodes,
                             [this](PartyId id) { return is_accounted_for(id); });
}

// More nodes have reported than can still lie, so one of them is correct. Time proves nothing: one
// that is late may be the only correct node.
bool ConfigurationService::State::enough_is_known() const {
  const auto exposed = static_cast<std::size_t>(
      std::ranges::count_if(nodes, [](const auto& one) { return one.second.exposed; }));
  return !reports.empty() && reports.size() + exposed > options.liars;
}

// The epoch is over: the longest history has all that a client can have believed, because a correct
// node is among those that reported, and says nothing to clients any more.
void ConfigurationService::State::replace(Time now, Outbox& outbox) {
  for (const PartyId id : lost)
    if (late.insert(id).second) blame_silence(id);
  if (!reports.empty()) {  // else none has begun it, and the state is what it was
    const auto best = std::ranges::max_element(
        reports, {}, [](const auto& report) { return report.second.records; });
    if (grievance) blame(best->second);
    start = best->second.ledger.save();
  }
  phase = Phase::kGathering;
  gather(now, outbox);
}

void ConfigurationService::State::blame(const Report& best) {
  const Done* truth = best.ledger.answer(grievance->client, grievance->first);
  const bool executed = best.ledger.has_executed(grievance->client, grievance->first);
  for (const auto& [node, outputs] : grievance->said) {
    // A correct node's answers are in its own history, unless it has not told it.
    const bool wrong = truth != nullptr ? truth->outputs != outputs : !executed;
    if (wrong && reports.contains(node)) expose(node, FaultKind::kOutput, {});
  }
  // Where the request got stuck: either the one lies or the other.
  for (std::size_t i = 0; i < configuration.nodes.size(); ++i) {
    const auto report = reports.find(configuration.nodes[i]);
    if (report == reports.end()) return;  // it said nothing, and is blamed for that
    if (report->second.ledger.has_executed(grievance->client, grievance->first)) continue;
    if (i > 0) blame_silence(configuration.nodes[i - 1]);
    return blame_silence(configuration.nodes[i]);
  }
}

void ConfigurationService::State::blame_silence(PartyId node) {
  if (nodes.at(node).exposed) return;
  ++nodes.at(node).blamed;
  if (faults) faults({node, FaultKind::kSilent, {}});
}

void ConfigurationService::State::expose(PartyId node, FaultKind kind, Bytes evidence) {
  if (std::exchange(nodes.at(node).exposed, true)) return;
  if (faults) faults({node, kind, std::move(evidence)});
}

ConfigurationService::ConfigurationService(const Directory& directory, const SigningKey& key,
                                           const MachineFactory& make_machine,
                                           KernelFactory make_kernel,
                                           const ConfigurationOptions& options, Hook hook,
                                           FaultHook faults)
    : state_(std::make_unique<State>(directory, key, make_machine, std::move(make_kernel), options,
                                     std::move(hook), std::move(faults))) {}
ConfigurationService::~ConfigurationService() = default;

void ConfigurationService::receive(PartyId from, std::span<const std::byte> message, Time now,
                                   Outbox& outbox) {
  if (type_of(message) == MessageType::kEvidence)
    return state_->on_evidence(from, message, now, outbox);
  if (const auto epoch = read_epoch(message, ConfigurationMessage::kJoin))
    return state_->on_join(from, *epoch, now, outbox);
  state_->on_complaint(from, message, now, outbox);
  state_->on_history(from, message, outbox);
}

void ConfigurationService::idle(Time now, Outbox& outbox) {
  State& state = *state_;
  switch (state.phase) {
    case Phase::kGathering:
      return state.gather(now, outbox);
    case Phase::kInstalling:
      if (now < *state.until) return;
      for (const PartyId id : state.configuration.nodes)
        if (!state.ready.contains(id)) state.blame_silence(id);
      return state.seal(now, outbox);
    case Phase::kServing:
      return;
    case Phase::kSealing:
      if (state.all_is_known()) return state.replace(now, outbox);
      if (now < *state.until) return;
      for (const PartyId id : state.configuration.nodes)
        if (!state.is_accounted_for(id) && state.late.insert(id).second) state.blame_silence(id);
      if (state.enough_is_known()) return state.replace(now, outbox);
      return state.seal(now, outbox);
  }
}

}  // namespace leat::trusted

#include "plan.h"

#include <algorithm>
#include <list>
#include <numeric>
#include <utility>
#include <vector>

namespace training {
namespace {

using leat::scml::Flow;
using leat::scml::MessageArray;
using leat::scml::Operation;
using leat::scml::Task;

struct Traffic {
  Flow flow;
  std::vector<std::uint64_t> rounds;  // words
};

struct StageTraffic {
  Stage stage;
  std::vector<Traffic> flows;
};

// Swallows what is sent, answers with zeros, and remembers how much of both there was.
class RecordingExchange final : public Exchange {
 public:
  explicit RecordingExchange(unsigned self) : self_(self) {}

  void begin(const Stage& stage) override {
    stages_.push_back({stage, {}});
    received_ = false;
  }
  void end() override { zeros_.clear(); }
  std::span<Word> reserve(unsigned peer, std::size_t words) override {
    const bool new_round = std::exchange(received_, false);
    count({self_, peer}, words, new_round);
    scratch_.resize(std::max(scratch_.size(), words));
    return std::span(scratch_).first(words);
  }
  void commit(unsigned) override {}
  std::span<const Word> receive(unsigned peer, std::size_t words) override {
    received_ = true;
    if (peer == kOwner) count({peer, self_}, words, false);
    return zeros_.emplace_back(words, 0);
  }

  const std::vector<StageTraffic>& stages() const { return stages_; }

 private:
  void count(Flow flow, std::size_t words, bool new_round) {
    auto& flows = stages_.back().flows;
    auto traffic = std::ranges::find(flows, flow, &Traffic::flow);
    if (traffic == flows.end()) traffic = flows.insert(flows.end(), {flow, {}});
    if (traffic->rounds.empty() || new_round) traffic->rounds.push_back(0);
    traffic->rounds.back() += words;
  }

  const unsigned self_;
  std::vector<StageTraffic> stages_;
  Words scratch_;
  std::list<Words> zeros_;  // stay until end()
  bool received_ = false;
};

Matrix zeros(std::size_t rows, std::size_t columns) {
  return {rows, columns, Words(rows * columns, 0)};
}

std::size_t count_corrections(const Settings& settings) {
  const ReplicatedEngine::Keys keys;
  Material material = Material::dealer(keys.first, keys.second);
  const auto engine = make_engine(settings.parties, Role::kDealer, material, nullptr, keys);
  const Network& network = settings.network;
  Trainer trainer(network, *engine, weight_shapes(network));
  const Matrix samples = zeros(network.batch, network.widths.front());
  trainer.step(engine->prepare_samples(samples), {network.batch, network.widths.back(), {}});
  return material.take_corrections().size();
}

std::vector<StageTraffic> record(const Settings& settings, Role role, std::size_t corrections) {
  RecordingExchange exchange(role == Role::kFirst ? kFirstParty : kSecondParty);
  const Network& network = settings.network;
  Inputs inputs = take_inputs(exchange, role, settings);
  Material material =
      role == Role::kFirst ? Material::first_party(inputs.key) : Material::second_party(inputs.key);
  if (role == Role::kSecond) material.supply(take_corrections(exchange, corrections));
  const auto engine = make_engine(settings.parties, role, material, &exchange, {});
  for (Matrix& weights : inputs.weights) weights = zeros(weights.rows, weights.columns);
  Trainer trainer(network, *engine, std::move(inputs.weights));
  const Factor samples = prepare_samples(*engine, inputs.samples, network.batch);
  std::vector<std::size_t> batch(network.batch);
  std::iota(batch.begin(), batch.end(), 0);
  trainer.step(rows_of(samples, batch), zeros(network.batch, network.widths.back()));
  give_weights(exchange, trainer.weights());
  return exchange.stages();
}

// Flows with the same messages share a context.
void add_arrays(Operation& operation, const std::vector<Traffic>& flows) {
  for (const Traffic& traffic : flows) {
    auto array = std::ranges::find(operation.arrays, traffic.rounds, &MessageArray::round_messages);
    if (array == operation.arrays.end())
      array = operation.arrays.insert(operation.arrays.end(),
                                      {"words", sizeof(Word), traffic.rounds, {}});
    array->flows.push_back(traffic.flow);
  }
}

}  // namespace

TrainingPlan plan_training(const Settings& settings) {
  check(settings.network);
  const std::size_t corrections = count_corrections(settings);
  // The second party's has one stage more, dealing, and all of the first one's.
  std::vector<StageTraffic> stages = record(settings, Role::kSecond, corrections);
  for (const StageTraffic& first : record(settings, Role::kFirst, corrections)) {
    const auto same = std::ranges::find(stages, first.stage.name,
                                        [](const StageTraffic& stage) { return stage.stage.name; });
    same->flows.insert(same->flows.end(), first.flows.begin(), first.flows.end());
  }
  Task task;
  task.model = "secure_training, " + std::to_string(settings.parties) + " parties, " +
               std::to_string(settings.samples) + " samples, " + std::to_string(settings.epochs) +
               " epochs";
  task.options.parties = kProcesses;
  task.options.train = true;
  task.options.batch = settings.network.batch;
  task.options.profile = leat::scml::Profile::kBest;
  for (const StageTraffic& traffic : stages) {
    Operation operation{traffic.stage.name, traffic.stage.layer, traffic.stage.pass};
    add_arrays(operation, traffic.flows);
    task.operations.push_back(std::move(operation));
  }
  leat::scml::PlanOptions options;
  options.offline_bytes = options.memory_bytes;  // one step's corrections in one piece
  return {leat::scml::make_plan(task, options), corrections};
}

}  // namespace training

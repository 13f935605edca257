#include "processes.h"

#include <chrono>
#include <deque>
#include <stdexcept>
#include <utility>

#include "plain_engine.h"

namespace training {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Alternates between dealing and training, an epoch of each: the second party keeps one epoch's
// corrections in memory. All processes wait for each other in between, so that the times of the two
// are apart, and no dealer works while parties train.
template <typename Deal, typename Train>
void run_epochs(leat::scml::Mesh& mesh, const Settings& settings, std::uint64_t order_seed,
                Report& report, Deal&& deal, Train&& train) {
  for (std::size_t epoch = 1; epoch <= settings.epochs; ++epoch) {
    const std::vector<std::size_t> order = shuffled(settings.samples, order_seed, epoch);
    mesh.barrier();
    auto start = Clock::now();
    deal(order);
    mesh.barrier();
    report.offline_seconds += seconds_since(start);
    start = Clock::now();
    train(epoch, order);
    mesh.barrier();
    report.online_seconds += seconds_since(start);
  }
}

}  // namespace

Report run_party(leat::scml::Mesh& mesh, const Settings& settings, const TrainingPlan& plan,
                 const Progress& progress) {
  const Role role = mesh.self() == kFirstParty ? Role::kFirst : Role::kSecond;
  const Network& network = settings.network;
  const std::size_t steps = steps_per_epoch(settings);
  MeshExchange exchange(mesh, plan.plan);
  Inputs inputs = take_inputs(exchange, role, settings);
  ReplicatedEngine::Keys keys;
  (role == Role::kFirst ? keys.first : keys.second) = inputs.key;
  Material material =
      role == Role::kFirst ? Material::first_party(inputs.key) : Material::second_party(inputs.key);
  const auto engine = make_engine(settings.parties, role, material, &exchange, keys);
  Trainer trainer(network, *engine, std::move(inputs.weights));
  const Factor samples = prepare_samples(*engine, inputs.samples, network.batch);

  Report report;
  std::deque<Words> corrections;
  const auto deal = [&](const std::vector<std::size_t>&) {
    if (role == Role::kSecond)
      for (std::size_t step = 0; step < steps; ++step)
        corrections.push_back(take_corrections(exchange, plan.corrections));
  };
  const auto train = [&](std::size_t epoch, const std::vector<std::size_t>& order) {
    for (std::size_t step = 0; step < steps; ++step) {
      if (role == Role::kSecond) {
        material.supply(std::move(corrections.front()));
        corrections.pop_front();
      }
      const auto batch = batch_of(order, step, network.batch);
      trainer.step(rows_of(samples, batch), rows_of(inputs.labels, batch));
      progress(epoch, static_cast<double>(step + 1) / static_cast<double>(steps));
    }
  };
  run_epochs(mesh, settings, inputs.order_seed, report, deal, train);
  report.outcome = give_weights(exchange, trainer.weights());
  report.stages = exchange.figures();
  return report;
}

Owner::Owner(const Settings& settings, const OwnerSettings& owner) : settings_(settings) {
  const auto& widths = settings.network.widths;
  const Digits all = read_digits(owner.digits_file, widths.front(), widths.back());
  if (all.size() <= settings.samples)
    throw std::runtime_error(owner.digits_file + " has " + std::to_string(all.size()) +
                             " digits: too few to train with " + std::to_string(settings.samples) +
                             " and to test with others");
  const auto random_number = [] {
    const Key key = random_key();
    std::uint64_t number = 0;
    for (const std::uint8_t byte : key) number = number << 8 | byte;
    return number;
  };
  seed_ = owner.seed ? *owner.seed : random_number();
  const auto key = [&](std::uint64_t use) {
    return owner.seed ? key_from(*owner.seed, use) : random_key();
  };
  inputs_.keys = {key(0), key(1)};
  inputs_.order_seed = owner.seed ? *owner.seed : random_number();
  const std::vector<std::size_t> order = shuffled(all.size(), inputs_.order_seed, 0);
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>(settings.samples);
  inputs_.digits = choose(all, {order.begin(), middle});
  test_ = choose(all, {middle, order.end()});
  inputs_.weights = initial_weights(settings.network, seed_);
}

Report Owner::run(leat::scml::Mesh& mesh, const TrainingPlan& plan, const Progress& progress) {
  const Network& network = settings_.network;
  const std::size_t steps = steps_per_epoch(settings_);
  const Matrix labels{network.batch, network.widths.back(), {}};
  MeshExchange exchange(mesh, plan.plan);
  share_inputs(exchange, settings_, inputs_);

  Material material = Material::dealer(inputs_.keys.first, inputs_.keys.second);
  const auto dealer =
      make_engine(settings_.parties, Role::kDealer, material, nullptr, inputs_.keys);
  Trainer dealing(network, *dealer, weight_shapes(network));
  ReplicatedEngine helper(Role::kHelper, nullptr, &exchange, inputs_.keys);
  Trainer helping(network, helper, weight_shapes(network));
  const Factor dealt = prepare_samples(*dealer, inputs_.digits.pictures, network.batch);
  Factor helped;
  if (settings_.parties == 3)
    helped = prepare_samples(helper, inputs_.digits.pictures, network.batch);

  Report report;
  const auto deal = [&](const std::vector<std::size_t>& order) {
    for (std::size_t step = 0; step < steps; ++step) {
      dealing.step(rows_of(dealt, batch_of(order, step, network.batch)), labels);
      send_corrections(exchange, material.take_corrections());
    }
  };
  const auto train = [&](std::size_t epoch, const std::vector<std::size_t>& order) {
    if (settings_.parties == 2) return;
    for (std::size_t step = 0; step < steps; ++step) {
      helping.step(rows_of(helped, batch_of(order, step, network.batch)), labels);
      progress(epoch, static_cast<double>(step + 1) / static_cast<double>(steps));
    }
  };
  run_epochs(mesh, settings_, inputs_.order_seed, report, deal, train);
  report.outcome = judge(take_weights(exchange, settings_));
  send_outcome(exchange, report.outcome);
  report.stages = exchange.figures();
  return report;
}

// The same network, first weights, and order of samples, without shares.
Outcome Owner::judge(const std::vector<Matrix>& weights) const {
  const Network& network = settings_.network;
  PlainEngine plain(key_from(seed_, 2));
  Trainer trainer(network, plain, inputs_.weights);
  const Factor samples = prepare_samples(plain, inputs_.digits.pictures, network.batch);
  const Matrix labels = unit_vectors(inputs_.digits.labels, network.widths.back());
  for (std::size_t epoch = 1; epoch <= settings_.epochs; ++epoch) {
    const auto order = shuffled(settings_.samples, inputs_.order_seed, epoch);
    for (std::size_t step = 0; step < steps_per_epoch(settings_); ++step) {
      const auto batch = batch_of(order, step, network.batch);
      trainer.step(rows_of(samples, batch), rows_of(labels, batch));
    }
  }
  return {sha256_of(weights), accuracy(network, weights, test_.pictures, test_.labels),
          accuracy(network, trainer.weights(), test_.pictures, test_.labels)};
}

}  // namespace training

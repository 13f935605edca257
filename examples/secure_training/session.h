// What the processes of a training say to each other before, between and after its steps.
//
// Process 2 owns the digits. It shares them and the first weights between processes 0 and 1, deals
// the material, and gets the weights in the end. With two parties it sleeps while they train
// (SecureML's client-aided setting); with three it is one of them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "digits.h"
#include "exchange.h"
#include "multiplication.h"
#include "network.h"

namespace training {

inline constexpr unsigned kProcesses = 3;

// The same in all processes; that of the plan's digest sees to it.
struct Settings {
  unsigned parties = 2;  // that compute: 2 or 3
  Network network;
  std::size_t samples = 9000;  // to train with
  std::size_t epochs = 5;
};

// What a party holds: with matrices, shares.
struct Inputs {
  Key key{};                     // in common with process 2
  std::uint64_t order_seed = 0;  // public: in which order samples are used
  Matrix samples, labels;
  std::vector<Matrix> weights;
};

// What process 2 says about the outcome, and every process prints.
struct Outcome {
  std::string weights_sha256;
  double accuracy = 0;        // of the weights that were trained on shares
  double plain_accuracy = 0;  // of those that were trained on plain numbers
  bool operator==(const Outcome&) const = default;
};

// The stages besides those of training.
Stage input_stage();
Stage dealing_stage();  // once for each step
Stage output_stage();
Stage samples_stage();  // sent in with three parties alone

// --- parties 0 and 1
Inputs take_inputs(Exchange& exchange, Role role, const Settings& settings);
// The second party's, for one step.
Words take_corrections(Exchange& exchange, std::size_t words);
Outcome give_weights(Exchange& exchange, const std::vector<Matrix>& weights);

// --- process 2
struct OwnerInputs {
  ReplicatedEngine::Keys keys;
  std::uint64_t order_seed = 0;
  Digits digits;  // to train with
  std::vector<Matrix> weights;
};
void share_inputs(Exchange& exchange, const Settings& settings, const OwnerInputs& inputs);
void send_corrections(Exchange& exchange, const Words& corrections);
std::vector<Matrix> take_weights(Exchange& exchange, const Settings& settings);
// In the stage that take_weights began.
void send_outcome(Exchange& exchange, const Outcome& outcome);

// Matrices of which only the shape is known: what process 2 trains with.
std::vector<Matrix> weight_shapes(const Network& network);

// The engine of process 0 or 1, or the dealer's (process 2 without an exchange).
std::unique_ptr<Engine> make_engine(unsigned parties, Role role, Material& material,
                                    Exchange* exchange, const ReplicatedEngine::Keys& keys);

// Makes all samples ready, a batch at a time, so that few bytes are in flight: once for all epochs.
// Of all processes, as Trainer::step; parties have shares, the dealer the numbers.
Factor prepare_samples(Engine& engine, const Matrix& samples, std::size_t batch);

// Which samples are those of one step, of an epoch with this order.
inline std::span<const std::size_t> batch_of(std::span<const std::size_t> order, std::size_t step,
                                             std::size_t batch) {
  return order.subspan(step * batch, batch);
}
inline std::size_t steps_per_epoch(const Settings& settings) {
  return settings.samples / settings.network.batch;
}

std::string sha256_of(const std::vector<Matrix>& weights);

}  // namespace training

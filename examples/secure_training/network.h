// A network of fully connected layers with ReLU between them, and its training by gradient descent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine.h"

namespace training {

// SecureML's network (Mohassel and Zhang, S&P 2017: 784-128-128-10) without biases. The loss is
// half the squared distance to the label's unit vector, whose gradient is the difference itself, so
// that nothing is divided; SecureML's substitute for softmax divides by a sum, in a garbled
// circuit.
struct Network {
  std::vector<std::size_t> widths{784, 128, 128, 10};  // of the input, and of each layer's output
  std::size_t batch = 128;                             // samples, a power of two
  unsigned rate_bits = 2;                              // the learning rate is 2^-rate_bits

  std::size_t layers() const noexcept { return widths.size() - 1; }
};

// Throws std::invalid_argument with what is wrong.
void check(const Network& network);

// Random weights of variance 1 / inputs (LeCun et al., "Efficient BackProp"), encoded.
std::vector<Matrix> initial_weights(const Network& network, std::uint64_t seed);

// The stages of one step, in order.
std::vector<Stage> stages(const Network& network);

// Weights of a network and what one step does to them. One thread.
class Trainer {
 public:
  // `network` and `engine` must live longer.
  Trainer(const Network& network, Engine& engine, std::vector<Matrix> weights);

  // A batch of samples, made ready by the engine, and its matrix of their labels' unit vectors.
  void step(Factor samples, const Matrix& labels);
  const std::vector<Matrix>& weights() const noexcept { return weights_; }

 private:
  Matrix forward(Factor samples);
  void backward(Matrix error);

  const Network& network_;
  Engine& engine_;
  std::vector<Stage> stages_;
  std::vector<Matrix> weights_;
  // Of the forward pass, by layer.
  std::vector<Factor> inputs_, weight_factors_;
  std::vector<Sign> signs_;
};

// The share of samples that are classified as their labels say, with plain weights.
double accuracy(const Network& network, std::span<const Matrix> weights, const Matrix& samples,
                std::span<const std::uint8_t> labels);

}  // namespace training

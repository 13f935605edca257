// The weights of a model, and what the server and the clients compute with them. Every result is
// the same on every machine, bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tensors.h"

namespace federated {

// The number at `index` of the sequence that `seed` names: a multiple of 2^-23 in [-1, 1).
float seeded_value(std::uint64_t seed, std::uint64_t index);

class Model {
 public:
  // All zeros.
  explicit Model(Shapes shapes);
  // Value i of the model, counted over all tensors, is seeded_value(seed, i).
  static Model seeded(Shapes shapes, std::uint64_t seed);
  // FOLDER/tensors.txt, lines as in to_text(Shapes), and for each tensor FOLDER/NAME.f32: its
  // values as they lie in memory. Throws std::runtime_error if a file is not as long as its shape
  // says.
  static Model load(const std::string& folder);
  // Makes the folder if there is none; replaces what load() would read.
  void save(const std::string& folder) const;

  const Shapes& shapes() const { return shapes_; }
  std::size_t size() const { return shapes_.size(); }  // tensors
  std::uint64_t values() const { return values_.size(); }
  std::uint64_t bytes() const { return values() * sizeof(float); }
  std::span<float> tensor(std::size_t i) {
    return std::span(values_).subspan(starts_[i], shapes_[i].values());
  }
  std::span<const float> tensor(std::size_t i) const {
    return std::span(values_).subspan(starts_[i], shapes_[i].values());
  }
  std::span<float> all() { return values_; }

 private:
  Shapes shapes_;
  std::vector<std::uint64_t> starts_;  // of each tensor, among all values
  std::vector<float> values_;
};

// How a client trains.
struct Training {
  std::uint64_t data = 0;  // the seed of its data: the weights that would suit them best
  unsigned steps = 1;
  float rate = 0.25F;  // of learning
};

// Steps of gradient descent on half the square distance between the weights w and the client's data
// d: w = w - rate * (w - d), in float32. Returns the mean of (w - d)^2 before.
double train(std::span<float> weights, const Training& training);

// FedAvg: value i is the sum over the clients, in their order, of weight times value i, in double,
// divided by the sum of the weights, rounded to float. Weights are whole numbers below 2^29, so
// that every product is exact.
void weighted_mean(std::span<const float* const> clients, std::span<const double> weights,
                   std::span<float> mean);

}  // namespace federated

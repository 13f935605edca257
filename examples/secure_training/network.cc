#include "network.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>

namespace training {

using leat::scml::Pass;

Factor transposed(const Factor& factor) {
  return {transposed(factor.first), transposed(factor.second)};
}

Factor rows_of(const Factor& factor, std::span<const std::size_t> numbers) {
  return {rows_of(factor.first, numbers), rows_of(factor.second, numbers)};
}

void check(const Network& network) {
  if (network.widths.size() < 2 || std::ranges::count(network.widths, std::size_t{0}) != 0)
    throw std::invalid_argument("a network needs an input and a layer, none of them empty");
  if (!std::has_single_bit(network.batch))
    throw std::invalid_argument("a batch of " + std::to_string(network.batch) +
                                " samples: it must be a power of two, by which truncation divides");
  if (kFractionBits + std::countr_zero(network.batch) + network.rate_bits > 30)
    throw std::invalid_argument("the learning rate is too small for numbers of 32 bits");
}

std::vector<Matrix> initial_weights(const Network& network, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Matrix> weights;
  for (std::size_t layer = 0; layer < network.layers(); ++layer) {
    const std::size_t rows = network.widths[layer];
    std::normal_distribution<double> normal(0, std::sqrt(1.0 / static_cast<double>(rows)));
    Matrix matrix{rows, network.widths[layer + 1], {}};
    for (std::size_t i = 0; i < matrix.size(); ++i) matrix.words.push_back(encode(normal(random)));
    weights.push_back(std::move(matrix));
  }
  return weights;
}

std::vector<Stage> stages(const Network& network) {
  std::vector<Stage> result;
  for (std::size_t layer = 0; layer < network.layers(); ++layer) {
    const std::string number = std::to_string(layer + 1);
    result.push_back({"fc" + number, 2 * layer, Pass::kForward});
    if (layer + 1 < network.layers())
      result.push_back({"relu" + number, 2 * layer + 1, Pass::kForward});
  }
  for (std::size_t i = result.size(); i-- > 0;)
    result.push_back({result[i].name + " gradient", result[i].layer, Pass::kBackward});
  return result;
}

Trainer::Trainer(const Network& network, Engine& engine, std::vector<Matrix> weights)
    : network_(network),
      engine_(engine),
      stages_(stages(network)),
      weights_(std::move(weights)),
      inputs_(network.layers()),
      weight_factors_(network.layers()),
      signs_(network.layers()) {}

void Trainer::step(Factor samples, const Matrix& labels) {
  Matrix error = forward(std::move(samples));
  subtract(error, labels);
  backward(std::move(error));
}

Matrix Trainer::forward(Factor samples) {
  inputs_.front() = std::move(samples);
  Matrix values;
  for (std::size_t layer = 0; layer < network_.layers(); ++layer) {
    engine_.begin(stages_[2 * layer]);
    if (layer == 0) {
      weight_factors_[0] = std::move(engine_.prepare({&weights_.front()}).front());
    } else {
      std::vector<Factor> factors = engine_.prepare({&values, &weights_[layer]});
      inputs_[layer] = std::move(factors[0]);
      weight_factors_[layer] = std::move(factors[1]);
    }
    values = std::move(engine_.multiply({{inputs_[layer], weight_factors_[layer]}}).front());
    engine_.end();
    if (layer + 1 == network_.layers()) break;
    engine_.begin(stages_[2 * layer + 1]);
    signs_[layer] = engine_.relu(values);
    engine_.end();
  }
  return values;
}

void Trainer::backward(Matrix error) {
  const auto batch_bits = static_cast<unsigned>(std::countr_zero(network_.batch));
  const unsigned rate_bits = kFractionBits + batch_bits + network_.rate_bits;
  auto stage = stages_.begin() + static_cast<std::ptrdiff_t>(stages_.size() / 2);
  for (std::size_t layer = network_.layers(); layer-- > 0;) {
    engine_.begin(*stage++);
    const Factor factor = std::move(engine_.prepare({&error}).front());
    const Product change{inputs_[layer], factor, rate_bits, Left::kTransposed};
    if (layer == 0) {
      subtract(weights_[0], engine_.multiply({change}).front());
      engine_.end();
      break;
    }
    const Factor weights = transposed(weight_factors_[layer]);
    std::vector<Matrix> products = engine_.multiply({change, {factor, weights}});
    subtract(weights_[layer], products[0]);
    error = std::move(products[1]);
    engine_.end();
    engine_.begin(*stage++);
    engine_.select(error, signs_[layer - 1]);
    engine_.end();
  }
}

double accuracy(const Network& network, std::span<const Matrix> weights, const Matrix& samples,
                std::span<const std::uint8_t> labels) {
  Matrix values = samples;
  for (std::size_t layer = 0; layer < network.layers(); ++layer) {
    values = product(values, weights[layer]);
    for (Word& word : values.words) {
      auto number = static_cast<std::int32_t>(word) >> kFractionBits;
      if (layer + 1 < network.layers()) number = std::max(number, 0);
      word = static_cast<Word>(number);
    }
  }
  std::size_t correct = 0;
  for (std::size_t row = 0; row < values.rows; ++row) {
    const auto first = values.words.begin() + static_cast<std::ptrdiff_t>(row * values.columns);
    const auto best = std::max_element(
        first, first + static_cast<std::ptrdiff_t>(values.columns),
        [](Word a, Word b) { return static_cast<std::int32_t>(a) < static_cast<std::int32_t>(b); });
    correct += best - first == labels[row] ? 1 : 0;
  }
  return static_cast<double>(correct) / static_cast<double>(values.rows);
}

}  // namespace training

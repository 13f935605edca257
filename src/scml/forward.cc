#include <bit>
#include <cstdint>

#include "scml/gates.h"
#include "scml/layer_arrays.h"

namespace leat::scml::detail {
namespace {

// The inverse square root by Newton's method from a public start, y = y * (3 - v * y * y) / 2: four
// iterations (as Falcon, Wagh et al. 2021) of three products.
constexpr unsigned kNewtonIterations = 4;
constexpr unsigned kNewtonProducts = 3;

void normalise(std::uint64_t elements, std::uint64_t samples, ArrayBuilder& arrays) {
  Rounds rounds{elements};  // squares of what differs from the mean
  rounds.insert(rounds.end(), kNewtonIterations * kNewtonProducts, samples);
  rounds.push_back(elements);  // divided by the deviation
  rounds.push_back(elements);  // scaled by the weights
  arrays.multiply(rounds);
  arrays.truncate(rounds);
}

}  // namespace

MatrixProduct as_matrices(const Layer& layer, std::uint64_t samples, const ArrayBuilder& arrays) {
  if (layer.kind == LayerKind::kFc) return {samples, layer.input.channels, layer.output.channels};
  return {arrays.product({samples, layer.output.height, layer.output.width}),
          arrays.product({layer.input.channels, layer.window.height, layer.window.width}),
          layer.output.channels};
}

void multiply_by(Protocol protocol, const LayerProduct& layer, ArrayBuilder& arrays) {
  const MatrixProduct& matrices = layer.matrices;
  switch (protocol) {
    case Protocol::kOt:
      // Each bit of a number of one matrix chooses multiples of a row of the other (Gilboa 1999).
      arrays.transfer(arrays.product({matrices.rows, matrices.inner}), matrices.columns);
      return arrays.truncate({layer.results});
    case Protocol::kHe:
      arrays.encrypt(matrices);
      return arrays.truncate({layer.results});
    default:
      return arrays.multiply_matrices(layer);
  }
}

std::uint64_t input_words(const Layer& layer, std::uint64_t samples, const ArrayBuilder& arrays) {
  if (arrays.profile() != Profile::kSecureMlAby3)
    return arrays.product({samples, layer.input.elements()});
  const MatrixProduct matrices = as_matrices(layer, samples, arrays);
  return arrays.product({matrices.rows, matrices.inner});
}

Rounds tournament(const Layer& layer, Protocol protocol, std::uint64_t samples,
                  const ArrayBuilder& arrays) {
  Rounds levels;
  const std::uint64_t windows = arrays.product({samples, layer.output.elements()});
  std::uint64_t left = arrays.product({layer.window.height, layer.window.width});
  // Piranha fills windows up to a power of two.
  if (arrays.profile() == Profile::kPiranha && arrays.is_on_numbers(protocol))
    left = std::bit_ceil(left);
  for (; left > 1; left -= left / 2) levels.push_back(arrays.product({windows, left / 2}));
  return levels;
}

void forward_arrays(const Layer& layer, Protocol protocol, std::uint64_t samples,
                    ArrayBuilder& arrays) {
  const std::uint64_t elements = arrays.product({samples, layer.output.elements()});
  switch (layer.kind) {
    case LayerKind::kCnn:
    case LayerKind::kFc: {
      const MatrixProduct matrices = as_matrices(layer, samples, arrays);
      // Training opens the samples once, before its first step.
      const bool is_ready = arrays.keeps_opened() && layer.inputs.front() == kModelInput;
      const std::uint64_t input = input_words(layer, samples, arrays);
      const std::uint64_t weights = arrays.product({matrices.inner, matrices.columns});
      return multiply_by(protocol, {matrices, (is_ready ? 0 : input) + weights, elements}, arrays);
    }
    case LayerKind::kAveragePool:
      return arrays.truncate(
          {elements});  // the sum is local, as is its product with a public number
    case LayerKind::kLn:
      return normalise(elements, samples, arrays);
    case LayerKind::kRelu:
      if (protocol == Protocol::kGc) return arrays.garble(elements, kGarbledReluGates, 0);
      if (arrays.is_on_numbers(protocol)) return arrays.rectify({elements});
      return arrays.and_words({elements});  // every bit with the sign
    case LayerKind::kMaxPool: {
      const Rounds levels = tournament(layer, protocol, samples, arrays);
      if (levels.empty()) return;  // windows of one number
      if (protocol == Protocol::kGc) {
        std::uint64_t comparisons = 0;
        for (const std::uint64_t level : levels) comparisons += level;
        return arrays.garble(comparisons, kGarbledMaxGates, 0);
      }
      if (!arrays.is_on_numbers(protocol)) return arrays.select_greater(levels);
      arrays.rectify(levels);  // the difference of the two
      // Whether each number, of which there are twice those of the first level, is the greatest.
      if (arrays.profile() == Profile::kPiranha)
        arrays.and_bits(Rounds(levels.size(), arrays.product({2, levels.front()})));
      return;
    }
    case LayerKind::kAdd:
    case LayerKind::kConversion:  // conversion_arrays
      return;
  }
}

// From ss, each party holds one summand (or, replicated, knows all but one), so that shares of bits
// of the summands need no messages, and a circuit adds them. To ss, a circuit takes random summands
// off and the rest is opened (ABY3, CCS 2018; ABY, NDSS 2015).
void conversion_arrays(Protocol from, Protocol to, std::uint64_t elements, ArrayBuilder& arrays) {
  constexpr std::uint64_t kInputLabels = kWordBits * kLabelBytes;
  if (from == Protocol::kSs && to == Protocol::kBoolean) {
    arrays.add_words(elements);
  } else if (from == Protocol::kBoolean && to == Protocol::kSs) {
    arrays.add_words(elements);
    arrays.open_to_share(elements);
  } else if (to == Protocol::kGc) {
    // Labels of the garbler's input, and the evaluator's by correlated transfer; the sum of the two
    // is a circuit from ss and free from shared bits.
    arrays.garbled_choices(elements);
    arrays.garble(elements, from == Protocol::kSs ? kGarbledAdderGates : 0, 2 * kInputLabels);
  } else if (from == Protocol::kGc && to == Protocol::kSs) {
    // The garbler's random summand is taken off, and the bits of the result are decoded.
    arrays.garble(elements, kGarbledAdderGates, kInputLabels + kWordBits / 8);
  }
  // From gc to shared bits: the labels' lowest bits are the shares (ABY, NDSS 2015).
}

}  // namespace leat::scml::detail

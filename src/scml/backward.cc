#include <algorithm>
#include <cstdint>

#include "scml/layer_arrays.h"

namespace leat::scml::detail {

// Y = X * W gives dW = transposed X * dY, where the forward pass has opened X ...
void weight_gradient_arrays(const Layer& layer, Protocol protocol, std::uint64_t samples,
                            ArrayBuilder& arrays) {
  const auto [rows, inner, columns] = as_matrices(layer, samples, arrays);
  const std::uint64_t input = arrays.keeps_opened() ? 0 : input_words(layer, samples, arrays);
  const std::uint64_t weights = arrays.product({inner, columns});
  multiply_by(protocol, {{inner, rows, columns}, input + arrays.product({rows, columns}), weights},
              arrays);
  if (arrays.profile() != Profile::kPiranha) return;
  // The learning rate: with the truncation above for kFc, where that of the biases is apart.
  arrays.truncate({layer.kind == LayerKind::kFc ? columns : weights});
}

// ... and dX = dY * transposed W, where W and then dY have been opened.
void input_gradient_arrays(const Layer& layer, Protocol protocol, std::uint64_t samples,
                           ArrayBuilder& arrays) {
  const std::uint64_t elements = arrays.product({samples, layer.output.elements()});
  switch (layer.kind) {
    case LayerKind::kCnn:
    case LayerKind::kFc: {
      const auto [rows, inner, columns] = as_matrices(layer, samples, arrays);
      const std::uint64_t both = elements + arrays.product({inner, columns});
      return multiply_by(protocol,
                         {{rows, columns, inner},
                          arrays.keeps_opened() ? 0 : both,
                          input_words(layer, samples, arrays)},
                         arrays);
    }
    case LayerKind::kAveragePool:
      // Piranha divides each window's gradient only where it is spread over the window.
      if (arrays.profile() == Profile::kPiranha)
        return arrays.truncate({arrays.product({samples, layer.input.elements()})});
      return arrays.truncate({elements});
    case LayerKind::kLn: {
      // With x normalised, g = gradient * weights and s the inverse deviation:
      // dx = s * (g - mean(g) - x * mean(g * x)); first g and the weights' gradient * x.
      const Rounds rounds{arrays.product({2, elements}), elements, elements, elements};
      arrays.multiply(rounds);
      return arrays.truncate(rounds);
    }
    case LayerKind::kRelu:
      if (arrays.is_on_numbers(protocol)) return arrays.select({elements});
      return arrays.multiply({elements});  // with a bit, so there is nothing to truncate
    case LayerKind::kMaxPool: {
      // Down the tournament: each bit sends a gradient to one side, and the other gets the rest.
      Rounds levels = tournament(layer, protocol, samples, arrays);
      if (levels.empty()) return;
      std::reverse(levels.begin(), levels.end());
      if (!arrays.is_on_numbers(protocol)) return arrays.multiply(levels);
      if (arrays.profile() == Profile::kBest) return arrays.select(levels);
      // Piranha: a bit for each number of the window, which says whether it was the greatest.
      return arrays.select({arrays.product({elements, layer.window.height, layer.window.width})});
    }
    case LayerKind::kAdd:
    case LayerKind::kConversion:
      return;
  }
}

void choice_bit_arrays(const Layer& layer, Protocol protocol, std::uint64_t samples,
                       ArrayBuilder& arrays) {
  std::uint64_t bits = 0;
  if (layer.kind == LayerKind::kRelu) {
    bits = arrays.product({samples, layer.output.elements()});
  } else {
    for (const std::uint64_t level : tournament(layer, protocol, samples, arrays)) bits += level;
  }
  if (bits > 0) arrays.convert_bits(bits);
}

}  // namespace leat::scml::detail

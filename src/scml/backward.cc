#include <algorithm>
#include <cstdint>

#include "scml/layer_arrays.h"

namespace leat::scml::detail {

// Y = X * W gives dW = transposed X * dY, where the forward pass has opened X ...
void weight_gradient_arrays(const Layer& layer, Protocol protocol, std::uint64_t samples,
                            ArrayBuilder& arrays) {
  const auto [rows, inner, columns] = as_matrices(layer, samples, arrays);
  const std::uint64_t input = arrays.keeps_opened() ? 0 : arrays.product({rows, inner});
  multiply_by(protocol, {inner, rows, columns}, input + arrays.product({rows, columns}), arrays);
}

// ... and dX = dY * transposed W, where W and then dY have been opened.
void input_gradient_arrays(const Layer& layer, Protocol protocol, std::uint64_t samples,
                           ArrayBuilder& arrays) {
  const std::uint64_t elements = arrays.product({samples, layer.output.elements()});
  switch (layer.kind) {
    case LayerKind::kCnn:
    case LayerKind::kFc: {
      const auto [rows, inner, columns] = as_matrices(layer, samples, arrays);
      const std::uint64_t both = arrays.product({rows, columns}) + arrays.product({inner, columns});
      return multiply_by(protocol, {rows, columns, inner}, arrays.keeps_opened() ? 0 : both,
                         arrays);
    }
    case LayerKind::kAveragePool:
      return arrays.truncate({elements});
    case LayerKind::kLn: {
      // With x normalised, g = gradient * weights and s the inverse deviation:
      // dx = s * (g - mean(g) - x * mean(g * x)); first g and the weights' gradient * x.
      const Rounds rounds{arrays.product({2, elements}), elements, elements, elements};
      arrays.multiply(rounds);
      return arrays.truncate(rounds);
    }
    case LayerKind::kRelu:
      return arrays.multiply({elements});  // with a bit, so there is nothing to truncate
    case LayerKind::kMaxPool: {
      // Down the tournament: each bit sends a gradient to one side, and the other gets the rest.
      Rounds levels = tournament(layer, samples, arrays);
      if (levels.empty()) return;
      std::reverse(levels.begin(), levels.end());
      return arrays.multiply(levels);
    }
    case LayerKind::kAdd:
    case LayerKind::kConversion:
      return;
  }
}

void choice_bit_arrays(const Layer& layer, std::uint64_t samples, ArrayBuilder& arrays) {
  std::uint64_t bits = 0;
  if (layer.kind == LayerKind::kRelu) {
    bits = arrays.product({samples, layer.output.elements()});
  } else {
    for (const std::uint64_t level : tournament(layer, samples, arrays)) bits += level;
  }
  if (bits > 0) arrays.convert_bits(bits);
}

}  // namespace leat::scml::detail

// The messages of each kind of layer and of each conversion.
#pragma once

#include <cstdint>

#include "leat/scml/model.h"
#include "scml/arrays.h"

namespace leat::scml::detail {

// `samples`: the batch. Layers that are computed locally add nothing.
void forward_arrays(const Layer& layer, Protocol protocol, std::uint64_t samples,
                    ArrayBuilder& arrays);

// From what `from` leaves to what `to` takes; both among kSs, kBoolean and kGc.
void conversion_arrays(Protocol from, Protocol to, std::uint64_t elements, ArrayBuilder& arrays);

// The gradient for the weights, and that for the layer's input given that for its output.
void weight_gradient_arrays(const Layer& layer, Protocol protocol, std::uint64_t samples,
                            ArrayBuilder& arrays);
void input_gradient_arrays(const Layer& layer, Protocol protocol, std::uint64_t samples,
                           ArrayBuilder& arrays);

// The bits by which a relu or maxpool layer chose, from shared bits to shared numbers.
void choice_bit_arrays(const Layer& layer, std::uint64_t samples, ArrayBuilder& arrays);

inline bool has_weights(LayerKind kind) {
  return kind == LayerKind::kCnn || kind == LayerKind::kFc;
}
inline bool chooses(LayerKind kind) {
  return kind == LayerKind::kRelu || kind == LayerKind::kMaxPool;
}

// The comparisons of a max-pooling layer as a tournament: how many at each level, the first first.
Rounds tournament(const Layer& layer, std::uint64_t samples, const ArrayBuilder& arrays);

// A layer as a product of matrices: convolutions lowered by im2col.
MatrixProduct as_matrices(const Layer& layer, std::uint64_t samples, const ArrayBuilder& arrays);
void multiply_by(Protocol protocol, const MatrixProduct& matrices, ArrayBuilder& arrays);

}  // namespace leat::scml::detail

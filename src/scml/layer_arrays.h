// The messages of each kind of layer and of each conversion.
#pragma once

#include <cstdint>

#include "leat/scml/model.h"
#include "scml/arrays.h"

namespace leat::scml::detail {

// `samples`: the batch. A layer that is computed locally adds nothing.
void forward_arrays(const Layer& layer, Protocol protocol, std::uint64_t samples,
                    ArrayBuilder& arrays);

// Converts the output of `from` to the input of `to`; both are kSs, kBoolean or kGc.
void conversion_arrays(Protocol from, Protocol to, std::uint64_t elements, ArrayBuilder& arrays);

// The gradient of the weights, and that of the layer's input, given that of its output.
void weight_gradient_arrays(const Layer& layer, Protocol protocol, std::uint64_t samples,
                            ArrayBuilder& arrays);
void input_gradient_arrays(const Layer& layer, Protocol protocol, std::uint64_t samples,
                           ArrayBuilder& arrays);

// Converts the bits by which a relu or maxpool layer chose, from shared bits to shared numbers.
void choice_bit_arrays(const Layer& layer, Protocol protocol, std::uint64_t samples,
                       ArrayBuilder& arrays);

inline bool has_weights(LayerKind kind) {
  return kind == LayerKind::kCnn || kind == LayerKind::kFc;
}
inline bool chooses(LayerKind kind) {
  return kind == LayerKind::kRelu || kind == LayerKind::kMaxPool;
}

// The comparisons of a max-pooling layer as a tournament: their number at each level, in order.
Rounds tournament(const Layer& layer, Protocol protocol, std::uint64_t samples,
                  const ArrayBuilder& arrays);

// A layer as a product of matrices: convolutions lowered by im2col.
MatrixProduct as_matrices(const Layer& layer, std::uint64_t samples, const ArrayBuilder& arrays);
// The numbers of a product's input that are opened, and of its gradient: those of the samples, or
// with kSecureMlAby3 those of the lowered matrix (CORA, section 3.2.1).
std::uint64_t input_words(const Layer& layer, std::uint64_t samples, const ArrayBuilder& arrays);
void multiply_by(Protocol protocol, const LayerProduct& layer, ArrayBuilder& arrays);

}  // namespace leat::scml::detail

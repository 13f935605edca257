// Describes what a secure machine learning task computes: the layers of a network, and how each is
// protected (CORA, USENIX Security 2024, section 3.2). docs/scml.md has the file format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "leat/cxx20.h"
#include "leat/export.h"

namespace leat::scml {

// kAdd joins the branches of a residual block; a "res" in a file becomes the layers of its blocks.
// kConversion computes nothing: it passes its input on in another protocol's form (section 3.2.3).
enum class LayerKind { kCnn, kMaxPool, kAveragePool, kRelu, kFc, kLn, kAdd, kConversion };

// How data and messages are protected.
enum class Protocol {
  kSs,          // additive or replicated secret sharing over Z_2^32
  kBoolean,     // the same for bits, 32 to a word
  kGc,          // garbled circuits; two parties
  kOt,          // oblivious transfer; two parties
  kHe,          // homomorphic encryption; two parties
  kConversion,  // turns the result of one protocol into another one's input
};

// The names in a file: "cnn", "maxpool", ...; "ss", "boolean", ...
LEAT_EXPORT std::string_view to_string(LayerKind kind) noexcept;
LEAT_EXPORT std::string_view to_string(Protocol protocol) noexcept;

// The shape of one sample. A vector has height and width 1.
struct Shape {
  std::uint64_t channels = 0;
  std::uint64_t height = 1;
  std::uint64_t width = 1;

  std::uint64_t elements() const noexcept { return channels * height * width; }
  friend bool operator==(const Shape&, const Shape&) = default;
};

// The filter of a convolution, or the area that a pooling layer pools.
struct Window {
  std::uint64_t height = 1;
  std::uint64_t width = 1;
  std::uint64_t stride = 1;
  std::uint64_t padding = 0;
};

// Among a layer's inputs: the samples themselves.
inline constexpr std::size_t kModelInput = static_cast<std::size_t>(-1);

struct Layer {
  LayerKind kind = LayerKind::kFc;
  std::string name;        // unique; from the file, or kind and number: "cnn3"
  std::size_t number = 0;  // position in the file, from 1; the layers of a "res" share one
  std::optional<Protocol> protocol;  // empty: the Parser's default for the kind
  std::vector<std::size_t> inputs;   // earlier layers of the model, or kModelInput
  Shape input;
  Shape output;
  Window window;                // of kCnn, kMaxPool, kAveragePool
  Protocol to = Protocol::kSs;  // of kConversion: the form of its output; kSs, kBoolean or kGc
  // Protocol "offline" in a file; `protocol` is then empty. The layer uses secret sharing, of
  // numbers or bits as its kind requires, and its triples are made in advance even if
  // ParseOptions::triples omits those of other layers (section 3.2.4).
  bool is_offline = false;
};

// Plain value. A model from read_model() is consistent: shapes match from layer to layer, inputs
// are earlier layers, every layer but the last is an input of another, and the product of a layer's
// dimensions is below 2^63.
struct Model {
  std::string name;
  std::string dataset;
  std::uint64_t batch_size = 0;
  std::uint64_t input_size = 0;
  std::uint64_t num_classes = 0;
  std::vector<Layer> layers;
};

// "layer 3 (cnn)", and the name if the file gave one; for messages to people.
LEAT_EXPORT std::string describe(const Layer& layer);

// Limits of a file, far above any network that fits a machine.
inline constexpr std::size_t kMaxModelBytes = 4 << 20;
inline constexpr std::size_t kMaxLayers = 10'000;
inline constexpr std::uint64_t kMaxDimension = 1 << 24;

// Reads a model from JSON text, which may be hostile. Throws leat::Error, naming the layer and the
// field: kInvalidArgument, or kTooLarge above a limit.
LEAT_EXPORT Model read_model(std::string_view json);

// The same from a file. Errors begin with its path.
LEAT_EXPORT Model load_model(const std::string& path);

}  // namespace leat::scml

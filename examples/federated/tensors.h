// The tensors that a model has: their names and shapes, and how those are written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace federated {

// So that a tensor is one message: bytes of float32.
inline constexpr std::uint64_t kMaxTensorBytes = std::uint64_t{1} << 30;
inline constexpr std::size_t kMaxTensors = 10'000;

struct Shape {
  std::string name;  // letters, digits, '.', '_' and '-': it also names a file
  std::vector<std::uint64_t> sizes;

  std::uint64_t values() const;
  std::uint64_t bytes() const { return values() * sizeof(float); }
  bool operator==(const Shape&) const = default;
};

using Shapes = std::vector<Shape>;

// Of GPT-2 with 117 million parameters (768 wide, 12 layers; 124 million with both embeddings).
// With a scale of n its width, context and vocabulary are an n-th, rounded up.
Shapes gpt2_shapes(unsigned layers, unsigned scale);

// "wte.weight 50257x768", one a line.
std::string to_text(const Shapes& shapes);
// The inverse. Throws std::runtime_error that quotes the line which is wrong; the text may be
// anything.
Shapes parse_shapes(std::string_view text);

}  // namespace federated

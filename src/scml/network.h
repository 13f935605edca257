// Assembles a model's layers and checks that they match.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "leat/scml/model.h"

namespace leat::scml::detail {

// A residual stage as in ResNet: blocks of convolutions and normalisations around a shortcut.
struct Stage {
  std::uint64_t in_planes = 0;
  std::uint64_t out_planes = 0;
  std::uint64_t blocks = 0;
  std::uint64_t stride = 1;     // of the first block
  std::uint64_t expansion = 1;  // 1: basic blocks; above: bottleneck blocks, widened by this factor
};

// Layers are added in order. Each call checks shapes and names. It throws errors of bad_field(),
// which name the layer (`where`), the field of the file, and what does not match.
class Network {
 public:
  explicit Network(std::uint64_t input_size);

  // The layer of that name, or kModelInput for "input".
  std::size_t find(const std::string& name, const std::string& where) const;
  std::size_t last() const { return layers_.empty() ? kModelInput : layers_.size() - 1; }

  // All of these take kind, name, number, protocol and inputs from `layer`. For windowed layers
  // also `input`, as the file has it, which is checked. `out_channels`: of a convolution.
  void add_windowed(Layer layer, std::uint64_t out_channels, const std::string& where);
  // kRelu, kLn.
  void add_elementwise(Layer layer, std::uint64_t input_dim, const std::string& where);
  void add_fc(Layer layer, std::uint64_t input_dim, std::uint64_t output_dim,
              const std::string& where);
  void add_sum(Layer layer, const std::string& where);
  void add_conversion(Layer layer, const std::string& where);
  // `layer.name` is the name of the stage's last layer.
  void add_stage(const Layer& layer, const Stage& stage, const std::string& where);

  // Makes the final checks, and returns the layers.
  std::vector<Layer> finish(std::uint64_t num_classes);

 private:
  const Shape& shape(std::size_t input) const;
  std::string source(std::size_t input) const;
  void expect_image(const Layer& layer, const char* channels_field, const std::string& where) const;
  void expect_vector(const Layer& layer, std::uint64_t input_dim, const std::string& where) const;
  void append(Layer layer, const std::string& where);
  void add_block(const Layer& layer, const Stage& stage, std::uint64_t block, std::uint64_t& planes,
                 const std::string& where);

  Shape input_;
  std::vector<Layer> layers_;
  std::vector<bool> used_;
  std::map<std::string, std::size_t> by_name_;
};

}  // namespace leat::scml::detail

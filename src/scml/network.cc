#include "scml/network.h"

#include <utility>

#include "leat/error.h"
#include "scml/checked.h"
#include "scml/json_fields.h"

namespace leat::scml::detail {
namespace {

std::string text_of(const Shape& shape) {
  if (shape.height == 1 && shape.width == 1) return std::to_string(shape.channels) + " numbers";
  return std::to_string(shape.channels) + " channels of " + std::to_string(shape.height) + " x " +
         std::to_string(shape.width);
}

bool is_vector(const Shape& shape) { return shape.height == 1 && shape.width == 1; }

// How often a window of `size` fits, moved by `stride`; 0: never.
std::uint64_t places(std::uint64_t input, std::uint64_t size, const Window& window) {
  const std::uint64_t padded = input + 2 * window.padding;
  return size > padded ? 0 : (padded - size) / window.stride + 1;
}

}  // namespace

Network::Network(std::uint64_t input_size) : input_{input_size} {}

const Shape& Network::shape(std::size_t input) const {
  return input == kModelInput ? input_ : layers_[input].output;
}

std::string Network::source(std::size_t input) const {
  return input == kModelInput ? "the model's input (field 'input_size')" : describe(layers_[input]);
}

std::size_t Network::find(const std::string& name, const std::string& where) const {
  if (name == "input") return kModelInput;
  const auto found = by_name_.find(name);
  if (found == by_name_.end())
    bad_field(where, "inputs", "no earlier layer has the name " + in_quotes(name),
              "Layers stand after those that they read, so that there is no cycle.");
  return found->second;
}

void Network::append(Layer layer, const std::string& where) {
  if (layers_.size() == kMaxLayers)
    throw Error(ErrorCode::kTooLarge,
                where + ": the model has more than " + std::to_string(kMaxLayers) + " layers");
  checked_product({layer.output.channels, layer.output.height, layer.output.width},
                  where + ": the number of its outputs");
  const auto [entry, is_new] = by_name_.emplace(layer.name, layers_.size());
  if (!is_new || layer.name == "input")
    bad_field(where, "name", in_quotes(layer.name) + " is another's name already");
  for (const std::size_t input : layer.inputs) {
    if (input != kModelInput) used_[input] = true;
  }
  used_.push_back(false);
  layers_.push_back(std::move(layer));
}

void Network::expect_image(const Layer& layer, const char* channels_field,
                           const std::string& where) const {
  const std::size_t input = layer.inputs.front();
  const Shape& given = shape(input);
  const std::uint64_t elements =
      checked_product({layer.input.channels, layer.input.height, layer.input.width},
                      where + ", field 'input_hw': the number of inputs");
  // A vector may be seen as an image of as many pixels.
  if (layer.input == given || (is_vector(given) && given.channels == elements)) return;
  bad_field(where, layer.input.channels == given.channels ? "input_hw" : channels_field,
            "this layer takes " + text_of(layer.input) + ", but " + source(input) + " gives " +
                text_of(given));
}

void Network::add_windowed(Layer layer, std::uint64_t out_channels, const std::string& where) {
  expect_image(layer, "in_channels", where);
  layer.output = {out_channels, places(layer.input.height, layer.window.height, layer.window),
                  places(layer.input.width, layer.window.width, layer.window)};
  if (layer.output.height == 0 || layer.output.width == 0)
    bad_field(where, layer.kind == LayerKind::kCnn ? "filter_hw" : "pool_hw",
              "a window of " + std::to_string(layer.window.height) + " x " +
                  std::to_string(layer.window.width) + " does not fit into " +
                  text_of(layer.input) + " with padding " + std::to_string(layer.window.padding));
  append(std::move(layer), where);
}

void Network::expect_vector(const Layer& layer, std::uint64_t input_dim,
                            const std::string& where) const {
  const Shape& given = shape(layer.inputs.front());
  if (given.elements() != input_dim)
    bad_field(where, "input_dim",
              "is " + std::to_string(input_dim) + ", but " + source(layer.inputs.front()) +
                  " gives " + text_of(given) +
                  (is_vector(given) ? "" : ", " + std::to_string(given.elements()) + " numbers"));
}

void Network::add_elementwise(Layer layer, std::uint64_t input_dim, const std::string& where) {
  expect_vector(layer, input_dim, where);
  layer.input = layer.output = shape(layer.inputs.front());
  append(std::move(layer), where);
}

void Network::add_fc(Layer layer, std::uint64_t input_dim, std::uint64_t output_dim,
                     const std::string& where) {
  expect_vector(layer, input_dim, where);
  layer.input = {input_dim};
  layer.output = {output_dim};
  append(std::move(layer), where);
}

void Network::add_sum(Layer layer, const std::string& where) {
  if (layer.inputs.size() < 2) bad_field(where, "inputs", "an add layer needs two or more");
  // Vectors may be seen as the image that they are added to.
  Shape sum = shape(layer.inputs.front());
  for (const std::size_t input : layer.inputs) {
    const Shape& given = shape(input);
    const bool fits = given == sum ||
                      ((is_vector(given) || is_vector(sum)) && given.elements() == sum.elements());
    if (!fits)
      bad_field(where, "inputs",
                source(input) + " gives " + text_of(given) + ", but " +
                    source(layer.inputs.front()) + " gives " + text_of(sum));
    if (!is_vector(given)) sum = given;
  }
  layer.input = layer.output = sum;
  append(std::move(layer), where);
}

void Network::add_conversion(Layer layer, const std::string& where) {
  layer.input = layer.output = shape(layer.inputs.front());
  append(std::move(layer), where);
}

// One block: 3x3, 3x3 (basic) or 1x1, 3x3, 1x1 widened (bottleneck), a normalisation after each and
// a ReLU between; the shortcut has a 1x1 convolution where shapes differ (He et al.
// 2016). `planes`: channels so far.
void Network::add_block(const Layer& layer, const Stage& stage, std::uint64_t block,
                        std::uint64_t& planes, const std::string& where) {
  const std::string prefix = layer.name + "." + std::to_string(block + 1) + ".";
  const std::size_t entry = block == 0 ? layer.inputs.front() : last();
  const Shape entry_shape = block == 0 ? layer.input : shape(entry);
  const std::uint64_t stride = block == 0 ? stage.stride : 1;

  const auto convolve = [&](const std::string& name, std::size_t input, Shape input_shape,
                            std::uint64_t out, std::uint64_t size, std::uint64_t by) {
    Layer cnn{LayerKind::kCnn, prefix + name, layer.number, {}, {input}, input_shape};
    cnn.window = {size, size, by, size / 2};
    add_windowed(std::move(cnn), out, where);
    Layer norm{LayerKind::kLn, prefix + name + ".ln", layer.number, {}, {last()}};
    add_elementwise(std::move(norm), layers_.back().output.elements(), where);
  };
  const auto rectify = [&](const std::string& name) {
    add_elementwise({LayerKind::kRelu, name, layer.number, {}, {last()}},
                    layers_.back().output.elements(), where);
  };

  const std::uint64_t out =
      checked_product({stage.out_planes, stage.expansion}, where + ", field 'expansion'");
  if (stage.expansion == 1) {
    convolve("conv1", entry, entry_shape, out, 3, stride);
    rectify(prefix + "relu1");
    convolve("conv2", last(), layers_.back().output, out, 3, 1);
  } else {
    convolve("conv1", entry, entry_shape, stage.out_planes, 1, 1);
    rectify(prefix + "relu1");
    convolve("conv2", last(), layers_.back().output, stage.out_planes, 3, stride);
    rectify(prefix + "relu2");
    convolve("conv3", last(), layers_.back().output, out, 1, 1);
  }
  const std::size_t main_path = last();
  std::size_t shortcut = entry;
  if (stride != 1 || planes != out) {
    convolve("shortcut", entry, entry_shape, out, 1, stride);
    shortcut = last();
  }
  add_sum({LayerKind::kAdd, prefix + "add", layer.number, {}, {main_path, shortcut}}, where);
  rectify(block + 1 == stage.blocks ? layer.name : prefix + "relu");
  planes = out;
}

void Network::add_stage(const Layer& layer, const Stage& stage, const std::string& where) {
  expect_image(layer, "in_planes", where);
  std::uint64_t planes = stage.in_planes;
  for (std::uint64_t block = 0; block < stage.blocks; ++block)
    add_block(layer, stage, block, planes, where);
}

std::vector<Layer> Network::finish(std::uint64_t num_classes) {
  for (std::size_t i = 0; i + 1 < layers_.size(); ++i) {
    if (!used_[i])
      throw Error(ErrorCode::kInvalidArgument,
                  describe(layers_[i]) + ": no later layer reads it, and it is not the last",
                  "Name it among the 'inputs' of another layer, or take it out.");
  }
  const Layer& last_layer = layers_.back();
  if (last_layer.output.elements() != num_classes)
    bad_field("the model", "num_classes",
              "is " + std::to_string(num_classes) + ", but the last layer, " +
                  describe(last_layer) + ", gives " + text_of(last_layer.output));
  return std::move(layers_);
}

}  // namespace leat::scml::detail

#include "confirm/resnet152_model.h"

#include <algorithm>
#include <cmath>

namespace leat::bench {
namespace {

constexpr std::uint64_t kStages[] = {3, 8, 36, 3};  // bottlenecks of conv2_x to conv5_x
constexpr std::uint64_t kFirstWidth = 64;
constexpr std::uint64_t kExpansion = 4;  // a bottleneck's output channels are 4 times its width
constexpr std::uint64_t kClasses = 1000;
constexpr std::uint64_t kColours = 3;

class Network {
 public:
  std::vector<Block> blocks() && { return std::move(blocks_); }

  void convolution(const std::string& name, std::uint64_t out, std::uint64_t in,
                   std::uint64_t kernel) {
    add(name + ".weight", {out, in, kernel, kernel});
  }
  // One whose output is not normalized next, and so needs a bias.
  void biased_convolution(const std::string& name, std::uint64_t out, std::uint64_t in,
                          std::uint64_t kernel) {
    convolution(name, out, in, kernel);
    add(name + ".bias", {out});
  }
  void normalization(const std::string& name, std::uint64_t channels) {
    add(name + ".gamma", {channels});
    add(name + ".beta", {channels});
  }

  // Normalizes, squeezes to `width`, looks at 3 by 3 pixels, expands again; beside it the shortcut,
  // which is a convolution where the number of channels changes.
  void bottleneck(const std::string& name, std::uint64_t in, std::uint64_t width) {
    const std::uint64_t out = width * kExpansion;
    normalization(name + ".preact_bn", in);
    if (in != out) biased_convolution(name + ".shortcut", out, in, 1);
    convolution(name + ".conv1", width, in, 1);
    normalization(name + ".bn1", width);
    convolution(name + ".conv2", width, width, 3);
    normalization(name + ".bn2", width);
    biased_convolution(name + ".conv3", out, width, 1);
  }

  void add(const std::string& name, std::vector<std::uint64_t> shape) {
    blocks_.push_back({name, std::move(shape)});
  }

 private:
  std::vector<Block> blocks_;
};

}  // namespace

std::uint64_t Block::parameters() const {
  std::uint64_t product = 1;
  for (const std::uint64_t extent : shape) product *= extent;
  return product;
}

std::vector<Block> resnet152_blocks() {
  Network network;
  network.biased_convolution("conv1", kFirstWidth, kColours, 7);
  std::uint64_t channels = kFirstWidth;
  std::uint64_t width = kFirstWidth;
  unsigned stage = 0;
  for (const std::uint64_t bottlenecks : kStages) {
    ++stage;
    for (std::uint64_t i = 0; i < bottlenecks; ++i) {
      network.bottleneck("layer" + std::to_string(stage) + "." + std::to_string(i), channels,
                         width);
      channels = width * kExpansion;
    }
    width *= 2;
  }
  network.normalization("postnorm", channels);
  network.add("fc.weight", {kClasses, channels});
  network.add("fc.bias", {kClasses});
  return std::move(network).blocks();
}

std::vector<SizeClass> size_classes(const std::vector<Block>& blocks) {
  std::size_t largest = 0;
  for (const Block& block : blocks) largest = std::max(largest, block.bytes());
  std::vector<SizeClass> classes{{256}};
  while (classes.back().up_to_bytes < largest) classes.push_back({classes.back().up_to_bytes * 4});
  for (const Block& block : blocks) {
    const auto fits = [&block](const SizeClass& one) { return block.bytes() <= one.up_to_bytes; };
    SizeClass& found = *std::find_if(classes.begin(), classes.end(), fits);
    ++found.blocks;
    found.bytes += block.bytes();
  }
  return classes;
}

std::size_t size_at_rank(const std::vector<Block>& blocks, double rank) {
  if (blocks.empty()) return 0;
  std::vector<std::size_t> sizes;
  sizes.reserve(blocks.size());
  for (const Block& block : blocks) sizes.push_back(block.bytes());
  std::ranges::sort(sizes);
  const auto index = static_cast<std::size_t>(std::ceil(static_cast<double>(sizes.size()) * rank));
  return sizes[std::clamp<std::size_t>(index, 1, sizes.size()) - 1];
}

}  // namespace leat::bench

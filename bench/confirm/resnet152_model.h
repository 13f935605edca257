// The parameter tensors of ResNet-152, as messages between processes that train it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace leat::bench {

// A tensor of single-precision floats; what is exchanged at a time.
struct Block {
  std::string name;                  // "layer3.17.conv2.weight"; no two have the same
  std::vector<std::uint64_t> shape;  // output channels, input channels, height, width
  std::uint64_t parameters() const;
  std::size_t bytes() const { return parameters() * sizeof(float); }
};

// All that is learned in ResNet-152 with identity mappings ("v2") for 1000 classes: the stages of
// He, Zhang, Ren, Sun: Deep residual learning for image recognition (CVPR 2016), table 1, column
// "152-layer", of the units of their Identity mappings in deep residual networks (ECCV 2016),
// figure 1(b), as TF-Slim and Keras have them: a normalization in front of each unit and behind the
// last one, and biases where none follows a convolution. Those are 514 tensors, which is the number
// that HiPower gives; the network of the first paper has 467. In the order of the forward pass.
std::vector<Block> resnet152_blocks();

// How many blocks are larger than the limit before and no larger than this one.
struct SizeClass {
  std::size_t up_to_bytes = 0;
  std::uint64_t blocks = 0;
  std::uint64_t bytes = 0;  // of all of them
};
// In powers of four from 256 bytes up; every block is in one class.
std::vector<SizeClass> size_classes(const std::vector<Block>& blocks);

// The size in bytes that the fraction `rank` of the blocks does not exceed.
std::size_t size_at_rank(const std::vector<Block>& blocks, double rank);

}  // namespace leat::bench

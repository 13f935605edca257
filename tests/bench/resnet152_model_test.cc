// The parameter tensors of ResNet-152 against what is published of it.
#include "confirm/resnet152_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace leat::bench {
namespace {

std::uint64_t parameters(const std::vector<Block>& blocks) {
  std::uint64_t sum = 0;
  for (const Block& block : blocks) sum += block.parameters();
  return sum;
}

// TF-Slim's table of models and Keras give this number for ResNet-152 v2.
TEST(Resnet152, HasThePublishedNumberOfParameters) {
  EXPECT_EQ(parameters(resnet152_blocks()), 60'236'904U);
}

// HiPower, section 4.2: "60 million parameters (organized in 514 blocks)". Counted here from the
// architecture, and not from how the blocks are made.
TEST(Resnet152, HasThe514BlocksOfHiPower) {
  constexpr std::size_t kUnits = 3 + 8 + 36 + 3;
  constexpr std::size_t kStages = 4;  // the first unit of each has a convolution for its shortcut
  constexpr std::size_t kConvolutions = 1 + 3 * kUnits + kStages;
  constexpr std::size_t kNormalizations = 3 * kUnits + 1;  // before each convolution of a unit
  // Where no normalization follows: the first one, which feeds a shortcut too, the last one of each
  // unit, and the shortcuts.
  constexpr std::size_t kBiases = 1 + kUnits + kStages;
  constexpr std::size_t kLastLayer = 1;
  static_assert(1 + 3 * kUnits + kLastLayer == 152);
  static_assert(kConvolutions + kBiases + 2 * kNormalizations + 2 * kLastLayer == 514);

  const auto blocks = resnet152_blocks();
  const auto count = [&blocks](const char* ending) {
    std::size_t count = 0;
    for (const Block& block : blocks) count += block.name.ends_with(ending) ? 1 : 0;
    return count;
  };
  EXPECT_EQ(count(".weight"), kConvolutions + kLastLayer);
  EXPECT_EQ(count(".bias"), kBiases + kLastLayer);
  EXPECT_EQ(count(".gamma"), kNormalizations);
  EXPECT_EQ(count(".beta"), kNormalizations);
  EXPECT_EQ(blocks.size(), 514U);
  std::set<std::string> names;
  for (const Block& block : blocks) names.insert(block.name);
  EXPECT_EQ(names.size(), blocks.size());
  // "Most of these blocks are less than 4KB": 348 have at most 4 KiB.
  EXPECT_LE(size_at_rank(blocks, 0.677), 4096U);
  EXPECT_GT(size_at_rank(blocks, 0.68), 4096U);
}

TEST(Resnet152, HasThePublishedShapes) {
  const auto blocks = resnet152_blocks();
  const auto shape = [&blocks](const std::string& name) {
    const auto found = std::find_if(blocks.begin(), blocks.end(),
                                    [&name](const Block& block) { return block.name == name; });
    return found == blocks.end() ? std::vector<std::uint64_t>() : found->shape;
  };
  using Shape = std::vector<std::uint64_t>;
  EXPECT_EQ(shape("conv1.weight"), (Shape{64, 3, 7, 7}));
  EXPECT_EQ(shape("layer1.0.preact_bn.gamma"), Shape{64});
  EXPECT_EQ(shape("layer1.1.preact_bn.gamma"), Shape{256});
  EXPECT_EQ(shape("layer1.0.shortcut.weight"), (Shape{256, 64, 1, 1}));
  EXPECT_EQ(shape("layer1.1.shortcut.weight"), Shape());
  EXPECT_EQ(shape("layer3.35.conv3.weight"), (Shape{1024, 256, 1, 1}));
  EXPECT_EQ(shape("layer3.35.conv3.bias"), Shape{1024});
  EXPECT_EQ(shape("layer3.36.conv3.weight"), Shape());
  EXPECT_EQ(shape("layer4.2.conv2.weight"), (Shape{512, 512, 3, 3}));
  EXPECT_EQ(shape("layer4.2.conv2.bias"), Shape());
  EXPECT_EQ(shape("postnorm.beta"), Shape{2048});
  EXPECT_EQ(shape("fc.weight"), (Shape{1000, 2048}));
  EXPECT_EQ(blocks.front().name, "conv1.weight");
  EXPECT_EQ(blocks.back().name, "fc.bias");
}

TEST(Resnet152, EveryBlockIsInOneSizeClass) {
  const auto blocks = resnet152_blocks();
  std::uint64_t counted = 0;
  std::uint64_t bytes = 0;
  std::size_t before = 0;
  for (const SizeClass& one : size_classes(blocks)) {
    EXPECT_GT(one.up_to_bytes, before);
    before = one.up_to_bytes;
    counted += one.blocks;
    bytes += one.bytes;
    EXPECT_LE(one.bytes, one.blocks * one.up_to_bytes);
  }
  EXPECT_EQ(counted, blocks.size());
  EXPECT_EQ(bytes, parameters(blocks) * sizeof(float));
}

TEST(Resnet152, RanksAreThoseOfTheSortedSizes) {
  std::vector<Block> blocks;
  for (const std::uint64_t floats : {40, 10, 30, 20}) blocks.push_back({"", {floats}});
  EXPECT_EQ(size_at_rank(blocks, 0), 40U);
  EXPECT_EQ(size_at_rank(blocks, 0.25), 40U);
  EXPECT_EQ(size_at_rank(blocks, 0.5), 80U);
  EXPECT_EQ(size_at_rank(blocks, 0.51), 120U);
  EXPECT_EQ(size_at_rank(blocks, 1), 160U);
}

}  // namespace
}  // namespace leat::bench

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

TEST(Resnet152, HasThePublishedNumberOfParameters) {
  EXPECT_EQ(parameters(resnet152_blocks()), 60'192'808U);
}

TEST(Resnet152, HasATensorForEachThingLearned) {
  const auto blocks = resnet152_blocks();
  const auto count = [&blocks](const char* ending) {
    return std::count_if(blocks.begin(), blocks.end(),
                         [ending](const Block& block) { return block.name.ends_with(ending); });
  };
  // 152 layers: 151 convolutions on the main path and the last one; 4 convolutions in shortcuts.
  EXPECT_EQ(count(".weight"), 151 + 4 + 1);
  EXPECT_EQ(count(".gamma"), 151 + 4);
  EXPECT_EQ(count(".beta"), 151 + 4);
  EXPECT_EQ(blocks.size(), 467U);
  std::set<std::string> names;
  for (const Block& block : blocks) names.insert(block.name);
  EXPECT_EQ(names.size(), blocks.size());
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
  EXPECT_EQ(shape("layer1.0.shortcut.weight"), (Shape{256, 64, 1, 1}));
  EXPECT_EQ(shape("layer1.1.shortcut.weight"), Shape());
  EXPECT_EQ(shape("layer3.35.conv3.weight"), (Shape{1024, 256, 1, 1}));
  EXPECT_EQ(shape("layer3.36.conv3.weight"), Shape());
  EXPECT_EQ(shape("layer4.2.conv2.weight"), (Shape{512, 512, 3, 3}));
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

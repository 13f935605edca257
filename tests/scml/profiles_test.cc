// What each profile sends for a ReLU, a product and a pool, by hand. Other tests of the Parser are
// of kSecureMlAby3.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "leat/scml/planner.h"
#include "support/parsed_task.h"

namespace leat::scml {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr Profile kPiranha = Profile::kPiranha, kAby3 = Profile::kSecureMlAby3,
                  kBest = Profile::kBest;

const std::vector<Flow> kRingOfFour{{0, 1}, {1, 2}, {2, 3}, {3, 0}};
const std::vector<Flow> kEachTwoOfFour{{0, 2}, {1, 3}, {3, 0}, {0, 1}, {2, 1}, {3, 2}};

// What a task sends forward, backward and in all.
Totals sent(const Model& model, const ParseOptions& options) {
  return total_of(make_plan(parse(model, options), {}));
}

// Two samples of 16: 32 numbers, so that their bits fill words.
Model relu_model() {
  return layer_model(R"({"layer": "relu", "input_dim": 16, "protocol": "boolean"})", 16, 16);
}

// After a layer with weights, so that there is a gradient.
Model after_fc(const std::string& layer, int numbers, int classes) {
  const std::string text = std::to_string(numbers);
  return layer_model(
      R"({"layer": "fc", "input_dim": )" + text + R"(, "output_dim": )" + text + "}, " + layer,
      numbers, classes);
}

constexpr const char* kSquare =
    R"({"layer": "maxpool", "input_hw": [4, 4], "in_channels": 1, "pool_hw": [2, 2], "stride": 2})";
constexpr const char* kMean =
    R"({"layer": "averagepool", "input_hw": [4, 4], "in_channels": 1, "pool_hw": [2, 2], "stride": 2})";

// Piranha's comparison of so many numbers: the number, the ANDs of the carry tree, the sign, and
// the product with it. Each level has half of the ANDs of the one before.
void expect_comparison(const Operation& operation, const Rounds& numbers, const Rounds& ands,
                       std::uint64_t and_bytes, const std::vector<Flow>& opened,
                       const std::vector<Flow>& multiplied) {
  expect_array(operation, 0, 4, numbers, opened);
  expect_array(operation, 1, 32 * and_bytes, ands, multiplied);
  expect_array(operation, 2, 1, numbers, opened);
  expect_array(operation, 3, and_bytes == 2 ? 8 : 4, numbers, multiplied);
}

TEST(Profiles, ReluOfPiranha) {
  // Two parties, each way: 4 bytes to open the number; 16, 8, 4, 2 and 1 pairs of two ANDs, each of
  // which opens two bits, a byte each, so 124 in messages of 32 ANDs; 1 for the sign; 8 for the
  // product with it.
  const Rounds ands{32, 16, 8, 4, 2};
  const Task two = parse(relu_model(), {});
  EXPECT_THAT(names(two), ElementsAre("relu1"));
  EXPECT_THAT(two.operations[0].arrays, SizeIs(4));
  expect_comparison(two.operations[0], {32}, ands, 2, kBothWays, kBothWays);
  EXPECT_EQ(sent(relu_model(), {}).bytes, 2 * 137U * 32);
  EXPECT_EQ(sent(relu_model(), {}).rounds, 8U);
  // Replicated shares: an AND is a byte, a product a word; what is opened goes to the next party.
  const Task three = parse(relu_model(), {.parties = 3});
  expect_comparison(three.operations[0], {32}, ands, 1, kRingOfThree, kRingOfThree);
  EXPECT_EQ(sent(relu_model(), {.parties = 3}).bytes, 3 * 71U * 32);
  const Task four = parse(relu_model(), {.parties = 4});
  expect_comparison(four.operations[0], {32}, ands, 1, kRingOfFour, kEachTwoOfFour);
}

TEST(Profiles, ReluOfSecureMlAndAby3) {
  // To bits 10 ANDs of words, 1 for the ReLU, 10 back, of 8 bytes each way; then 4 one way. Between
  // two: 6 + 1 + 6 + 1 rounds. CORA's conversions are operations of their own.
  const ParseOptions options{.profile = kAby3};
  EXPECT_THAT(names(parse(relu_model(), options)),
              ElementsAre("input to boolean", "relu1", "relu1 to ss"));
  EXPECT_EQ(sent(relu_model(), options).bytes, (2 * 21 * 8 + 4) * 32U);
  EXPECT_EQ(sent(relu_model(), options).rounds, 14U);
}

TEST(Profiles, ReluOfTheBest) {
  // In words of 32 numbers' bits: 32 for the numbers; 23, 11, 5, 2 planes of the tree; the signs:
  // 74 bits of each number, 9.25 bytes, each way.
  const Rounds rounds{32, 23, 11, 5, 2, 1};
  for (const unsigned parties : {2U, 3U, 4U}) {
    const ParseOptions options{.parties = parties, .profile = kBest};
    const Task task = parse(relu_model(), options);
    ASSERT_THAT(task.operations, SizeIs(1));
    ASSERT_THAT(task.operations[0].arrays, SizeIs(1));
    expect_array(task.operations[0], 0, 4, rounds, kBothWays);
    EXPECT_EQ(sent(relu_model(), options).bytes, 2 * 296U);
  }
  // 10 numbers take words of their own.
  const Task ten = parse(layer_model(kRelu, 5, 5), {.profile = kBest});
  expect_array(ten.operations[0], 0, 4, {10, 23, 11, 5, 2, 1}, kBothWays);
}

TEST(Profiles, GradientOfARelu) {
  const Model model = after_fc(kRelu, 5, 5);
  const auto gradient = [&](const ParseOptions& options) {
    return find(parse(model, options), "relu2 input gradient");
  };
  // Piranha opens the sign under another random bit, and multiplies.
  const Operation piranha = gradient({.train = true});
  expect_array(piranha, 0, 1, {10}, kBothWays);
  expect_array(piranha, 1, 8, {10}, kBothWays);
  // The best opens the gradient; the sign is open since the forward pass.
  const Operation best = gradient({.train = true, .profile = kBest});
  ASSERT_THAT(best.arrays, SizeIs(1));
  expect_array(best, 0, 4, {10}, kBothWays);
  EXPECT_THAT(best.reuses, ElementsAre(1U));
  EXPECT_THAT(piranha.reuses, ElementsAre(1U));
}

TEST(Profiles, ProductOfMatrices) {
  // 3 samples, 4 to 5 numbers: 3*4 + 4*5 = 32 words are opened, or 3*5 = 15 of the product sent,
  // and 15 truncated. The same for the two profiles whose truncation opens.
  for (const Profile profile : {kPiranha, kBest}) {
    const Task two = parse(fc_model(), {.profile = profile});
    expect_array(two.operations[0], 0, 4, {32}, kBothWays);
    expect_array(two.operations[0], 1, 4, {15}, kBothWays);
  }
  // Piranha's three open each one's summand of the product under the mask that truncates.
  const Task three = parse(fc_model(), {.parties = 3});
  ASSERT_THAT(three.operations[0].arrays, SizeIs(1));
  expect_array(three.operations[0], 0, 4, {15}, {{0, 1}, {0, 2}, {1, 0}, {1, 2}, {2, 0}, {2, 1}});
  const Task four = parse(fc_model(), {.parties = 4});
  expect_array(four.operations[0], 0, 4, {15}, kEachTwoOfFour);
  expect_array(four.operations[0], 1, 4, {15}, kRingOfFour);
  // The best: a share of each factor is exchanged, the third's summand handed over.
  const Task helped = parse(fc_model(), {.parties = 3, .profile = kBest});
  expect_array(helped.operations[0], 0, 4, {32}, kBothWays);
  expect_array(helped.operations[0], 1, 4, {15}, {{2, 1}});
  expect_array(helped.operations[0], 2, 4, {15}, kBothWays);
  EXPECT_EQ(sent(fc_model(), {.profile = kAby3}).bytes, 2 * 4 * 32U);
  EXPECT_EQ(sent(fc_model(), {.parties = 3, .profile = kAby3}).bytes, 4 * (3 + 1) * 15U);
}

TEST(Profiles, AConvolutionOpensItsImageOnce) {
  // 2 samples of 3*4*4 = 48 numbers, windows of 27, 5 channels: 96 + 135, where the lowered matrix
  // has 32 * 27 = 864. Then 160 truncated.
  const Model model = layer_model(
      R"({"layer": "cnn", "input_hw": [4, 4], "in_channels": 3, "out_channels": 5, "filter_hw": [3, 3], "stride": 1, "padding": 1})",
      48, 80);
  for (const Profile profile : {kPiranha, kBest}) {
    const Task task = parse(model, {.profile = profile});
    expect_array(task.operations[0], 0, 4, {231}, kBothWays);
    expect_array(task.operations[0], 1, 4, {160}, kBothWays);
  }
  expect_array(parse(model, {.profile = kAby3}).operations[0], 0, 4, {999}, kBothWays);
}

TEST(Profiles, AConvolutionsGradientIsAnImage) {
  // After a layer with weights. dX has the 96 numbers of the input, whose windows overlap: with 27
  // of each window there would be 864. dY has 160 and W 135; dW is divided once more by Piranha.
  const Model model = layer_model(
      R"({"layer": "fc", "input_dim": 48, "output_dim": 48},
         {"layer": "cnn", "input_hw": [4, 4], "in_channels": 3, "out_channels": 5, "filter_hw": [3, 3], "stride": 1, "padding": 1})",
      48, 80);
  const Task piranha = parse(model, {.train = true});
  const Operation& gradient = find(piranha, "cnn2 input gradient");
  ASSERT_THAT(gradient.arrays, SizeIs(2));
  expect_array(gradient, 0, 4, {295}, kBothWays);
  expect_array(gradient, 1, 4, {96}, kBothWays);
  const Operation& weights = find(piranha, "cnn2 weight gradient");
  ASSERT_THAT(weights.arrays, SizeIs(3));
  expect_array(weights, 0, 4, {96 + 160}, kBothWays);
  expect_array(weights, 1, 4, {135}, kBothWays);
  expect_array(weights, 2, 4, {135}, kBothWays);
  const Task three = parse(model, {.parties = 3, .train = true});
  EXPECT_EQ(find(three, "cnn2 input gradient").arrays[0].round_messages, (Rounds{96}));
  const Task best = parse(model, {.train = true, .profile = kBest});
  ASSERT_THAT(find(best, "cnn2 input gradient").arrays, SizeIs(1));
  expect_array(find(best, "cnn2 input gradient"), 0, 4, {96}, kBothWays);
  const Task lowered = parse(model, {.parties = 3, .train = true, .profile = kAby3});
  expect_array(find(lowered, "cnn2 input gradient"), 0, 4, {864}, kRingOfThree);
}

TEST(Profiles, WhatTrainingOpensAgain) {
  // 3 samples, 4 to 5 to 2. Piranha has new masks for each product: X2 and dY, 15 + 6; dY and W2,
  // 6 + 10; the samples too, 12 + 15. Each is truncated, and the gradient of the biases divided.
  const Model model = two_layer_model();
  const Task piranha = parse(model, {.train = true});
  EXPECT_THAT(names(piranha), ElementsAre("fc1", "fc2", "fc2 loss", "fc2 weight gradient",
                                          "fc2 input gradient", "fc1 weight gradient"));
  // The 6 outputs are opened, and their gradient divided by the batch.
  expect_array(piranha.operations[2], 0, 4, {6}, kBothWays);
  expect_array(piranha.operations[2], 1, 4, {6}, kBothWays);
  const Operation& weights = piranha.operations[3];
  ASSERT_THAT(weights.arrays, SizeIs(3));
  expect_array(weights, 0, 4, {21}, kBothWays);
  expect_array(weights, 1, 4, {10}, kBothWays);
  expect_array(weights, 2, 4, {2}, kBothWays);
  expect_array(piranha.operations[4], 0, 4, {16}, kBothWays);
  expect_array(piranha.operations[5], 0, 4, {27}, kBothWays);
  EXPECT_THAT(weights.reuses, IsEmpty());
  // The best opens each once, with three parties, too.
  for (const unsigned parties : {2U, 3U}) {
    const Task best = parse(model, {.parties = parties, .train = true, .profile = kBest});
    EXPECT_THAT(names(best), ElementsAre("fc1", "fc2", "fc2 weight gradient", "fc2 input gradient",
                                         "fc1 weight gradient"));
    expect_array(best.operations[0], 0, 4, {20}, kBothWays);
    expect_array(best.operations[2], 0, 4, {6}, kBothWays);
    EXPECT_EQ(best.operations[3].arrays[0].content, parties == 2 ? "truncated" : "summands");
    EXPECT_THAT(best.operations[3].reuses, ElementsAre(1U, 2U));
  }
}

TEST(Profiles, MaxPools) {
  // 2 samples of 4 windows of 4: 16, then 8 comparisons, each as a ReLU.
  const Model model = layer_model(kSquare, 16, 4);
  const Operation piranha = find(parse(model, {}), "maxpool1");
  ASSERT_THAT(piranha.arrays, SizeIs(5));
  expect_comparison(piranha, {16, 8}, {16, 8, 4, 2, 1, 8, 4, 2, 1, 1}, 2, kBothWays, kBothWays);
  // Whether each of the 32 numbers is the greatest, an AND at each level.
  expect_array(piranha, 4, 64, {1, 1}, kBothWays);
  const Operation best = find(parse(model, {.profile = kBest}), "maxpool1");
  ASSERT_THAT(best.arrays, SizeIs(1));
  expect_array(best, 0, 4, {16, 23, 11, 5, 2, 1, 8, 23, 11, 5, 2, 1}, kBothWays);
  // The gradient: the best goes down the tournament, Piranha has a bit for each of the 32.
  const Model trained = after_fc(kSquare, 16, 4);
  const Task with_bits = parse(trained, {.train = true});
  expect_array(find(with_bits, "maxpool2 input gradient"), 0, 1, {32}, kBothWays);
  expect_array(find(with_bits, "maxpool2 input gradient"), 1, 8, {32}, kBothWays);
  expect_array(find(parse(trained, {.train = true, .profile = kBest}), "maxpool2 input gradient"),
               0, 4, {8, 16}, kBothWays);
  // Windows of 9 are filled up to 16 by Piranha alone: 2 samples, 8 + 4 + 2 + 1 comparisons each.
  const Model nine = layer_model(R"({"layer": "maxpool", "input_hw": [3, 3], "in_channels": 1,
                                     "pool_hw": [3, 3]})",
                                 9, 1);
  expect_array(find(parse(nine, {}), "maxpool1"), 0, 4, {16, 8, 4, 2}, kBothWays);
  EXPECT_EQ(find(parse(nine, {.profile = kBest}), "maxpool1").arrays[0].round_messages[0], 8U);
}

TEST(Profiles, AveragePools) {
  // 2 samples of 4 means; Piranha's gradient is divided after it is spread over 32 numbers.
  const Model model = after_fc(kMean, 16, 4);
  const auto pool = [&](const ParseOptions& options, const char* name) {
    return find(parse(model, options), name);
  };
  for (const Profile profile : {kPiranha, kBest})
    expect_array(pool({.profile = profile}, "averagepool2"), 0, 4, {8}, kBothWays);
  expect_array(pool({.train = true}, "averagepool2 input gradient"), 0, 4, {32}, kBothWays);
  expect_array(pool({.train = true, .profile = kBest}, "averagepool2 input gradient"), 0, 4, {8},
               kBothWays);
  EXPECT_THAT(pool({.profile = kAby3}, "averagepool2").arrays, IsEmpty());
}

TEST(Profiles, MaterialOfARelu) {
  // 32 numbers. Piranha: an edaBit each is made by an adder, 10 ANDs of words in 6 rounds; a daBit
  // each by a product; triples for the product and the daBit, 64 choices; bit triples for 62 ANDs
  // of each number, 62 words, and the adder's 320.
  const Task piranha = parse(relu_model(), {.triples = Triples::kOt});
  ASSERT_THAT(names(piranha), ElementsAre("relu1 triples", "relu1"));
  const Operation& made = piranha.operations[0];
  ASSERT_THAT(made.arrays, SizeIs(5));
  expect_array(made, 0, 8, {32, 64, 64, 64, 64, 32}, kBothWays);
  expect_array(made, 1, 8, {32}, kBothWays);
  expect_array(made, 2, 512, {64}, kBothWays);
  expect_array(made, 3, 128, {64}, kBothWays);
  expect_array(made, 4, 512, {382}, kBothWays);
  // The best's tree has 41 ANDs.
  const Task best = parse(relu_model(), {.triples = Triples::kOt, .profile = kBest});
  expect_array(best.operations[0], 4, 512, {361}, kBothWays);
}

TEST(Profiles, ConversionsToBitsAreOfNoUseOnNumbers) {
  // The file may have one, as kSecureMlAby3 takes it; the others' ReLU reads shared numbers.
  const Model model =
      layer_model(std::string(R"({"layer": "conversion", "to": "boolean"},)") + kRelu, 5, 5);
  EXPECT_THAT(names(parse(model, {.profile = kAby3})),
              ElementsAre("conversion1", "relu2", "relu2 to ss"));
  for (const Profile profile : {kPiranha, kBest}) {
    const Task task = parse(model, {.profile = profile});
    EXPECT_THAT(names(task), ElementsAre("conversion1", "relu2"));
    EXPECT_THAT(task.operations[0].arrays, IsEmpty());
    EXPECT_THAT(task.operations[1].inputs, ElementsAre(0U));
  }
  // Garbled circuits of the file stay, and are converted.
  EXPECT_THAT(
      names(parse(layer_model(R"({"layer": "relu", "input_dim": 5, "protocol": "gc"})", 5, 5), {})),
      ElementsAre("input to gc", "relu1", "relu1 to ss"));
}

TEST(Profiles, TheBestSendsTheFewestBytesForEachShippedModel) {
  for (const char* name : {"secureml", "lenet", "alexnet", "vgg16"}) {
    const Model model =
        load_model(std::string(LEAT_SOURCE_FOLDER "/examples/models/") + name + ".json");
    for (const unsigned parties : {2U, 3U, 4U}) {
      for (const bool train : {false, true}) {
        SCOPED_TRACE(std::string(name) + (train ? ", training, " : ", inference, ") +
                     std::to_string(parties) + " parties");
        const auto bytes = [&](Profile profile) {
          return sent(model, {.parties = parties, .train = train, .profile = profile}).bytes;
        };
        EXPECT_LT(bytes(kBest), bytes(kPiranha));
        EXPECT_LT(bytes(kBest), bytes(kAby3));
      }
    }
  }
}

}  // namespace
}  // namespace leat::scml

// The Parser's counts for each kind of layer, computed by hand in a comment. Messages are those
// along one flow.
#include "leat/scml/parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "leat/error.h"
#include "support/parsed_task.h"

namespace leat::scml {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST(Parser, WholeMatricesOfTwoParties) {
  // Both masked matrices are opened, word by word: M*N + N*P = 3*4 + 4*5 = 32.
  const Task task = parse_aby3(fc_model(), {});
  ASSERT_THAT(task.operations, SizeIs(1));
  EXPECT_EQ(task.options.batch, 3U);
  ASSERT_THAT(task.operations[0].arrays, SizeIs(1));
  expect_array(task.operations[0], 0, 4, {32}, kBothWays);
}

TEST(Parser, InnerProductsOfTwoParties) {
  // Each of M*N*P = 3*4*5 = 60 products opens two masked words.
  const Task task = parse_aby3(fc_model(), {.form = Form::kInnerProducts});
  expect_array(task.operations[0], 0, 8, {60}, kBothWays);
}

TEST(Parser, MatricesOfThreeParties) {
  // Each word of the product is shared again, M*P = 15, and truncated, 15.
  const Task task = parse_aby3(fc_model(), {.parties = 3});
  ASSERT_THAT(task.operations[0].arrays, SizeIs(2));
  expect_array(task.operations[0], 0, 4, {15}, kRingOfThree);
  expect_array(task.operations[0], 1, 4, {15}, {{0, 2}});
  const Task inner = parse_aby3(fc_model(), {.parties = 3, .form = Form::kInnerProducts});
  expect_array(inner.operations[0], 0, 4, {60}, kRingOfThree);
}

TEST(Parser, MatricesOfFourParties) {
  // A product takes six words among four parties, one between each two; a truncation two words.
  const Task task = parse_aby3(fc_model(), {.parties = 4});
  const std::vector<MessageArray>& arrays = task.operations[0].arrays;
  ASSERT_THAT(arrays, SizeIs(2));
  EXPECT_EQ(arrays[0].message_count(), 15U);
  EXPECT_THAT(arrays[0].flows, SizeIs(6));
  std::vector<std::vector<int>> words(4, std::vector<int>(4, 0));
  for (const Flow& flow : arrays[0].flows) {
    ++words[flow.sender][flow.receiver];
    ++words[flow.receiver][flow.sender];
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) EXPECT_EQ(words[i][j], i == j ? 0 : 1) << i << " and " << j;
  }
  expect_array(task.operations[0], 1, 4, {15}, {{3, 0}, {0, 2}});
}

TEST(Parser, ConvolutionsAreLoweredToMatrices) {
  // 2 samples, 3x3 windows of 3 channels over 4x4 with padding 1, 5 channels out:
  // M = 2*4*4 = 32, N = 3*3*3 = 27, P = 5; M*N + N*P = 864 + 135 = 999, M*N*P = 4320.
  const Model model = layer_model(
      R"({"layer": "cnn", "input_hw": [4, 4], "in_channels": 3, "out_channels": 5, "filter_hw": [3, 3], "stride": 1, "padding": 1})",
      48, 80);
  expect_array(parse_aby3(model, {}).operations[0], 0, 4, {999}, kBothWays);
  expect_array(parse_aby3(model, {.form = Form::kInnerProducts}).operations[0], 0, 8, {4320},
               kBothWays);
  // M*P = 160.
  expect_array(parse_aby3(model, {.parties = 3}).operations[0], 0, 4, {160}, kRingOfThree);
}

TEST(Parser, TheBatchCanBeAnother) {
  // M = 1: 4 + 20.
  const Task task = parse_aby3(fc_model(), {.batch = 1});
  expect_array(task.operations[0], 0, 4, {24}, kBothWays);
}

TEST(Parser, MatricesByObliviousTransfer) {
  // Each of the M*N = 12 words of the left matrix chooses 32 times (16 bytes each) among multiples
  // of a row of P = 5 words (20 bytes each).
  const Task task = parse_aby3(fc_model("ot"), {});
  EXPECT_EQ(task.operations[0].protocol, Protocol::kOt);
  expect_array(task.operations[0], 0, 512, {12}, kBothWays);
  expect_array(task.operations[0], 1, 640, {12}, kBothWays);
}

TEST(Parser, MatricesByHomomorphicEncryption) {
  // 4*4*8 is a block of 128 at most 4096: all three matrices fit one ciphertext each, of
  // 2 polynomials * 4096 coefficients * 109 bits = 111616 bytes.
  const Task task = parse_aby3(fc_model("he"), {});
  expect_array(task.operations[0], 0, 111616, {1}, kBothWays);
  expect_array(task.operations[0], 1, 111616, {1}, kBothWays);
  // 64 x 256 times 256 x 64. Blocks m*n*p = 4096 take 64/m * 256/n + 64/m * 64/p ciphertexts;
  // m = 64, n = 16, p = 4: 16 + 16 = 32 is the least (n = 32, p = 2: 8 + 32 = 40; n = 8, p = 8:
  // 32 + 8 = 40).
  const Model wide = read_model(
      R"({"batch_size": 64, "input_size": 256, "num_classes": 64, "model": [
          {"layer": "fc", "input_dim": 256, "output_dim": 64, "protocol": "he"}]})");
  const Task wide_task = parse_aby3(wide, {});
  expect_array(wide_task.operations[0], 0, 111616, {16}, kBothWays);
  expect_array(wide_task.operations[0], 1, 111616, {16}, kBothWays);
}

TEST(Parser, ReluOfSharedBits) {
  // 2*5 = 10 numbers. To bits: an adder, 1 + 2*4 + 1 ANDs of words in 6 rounds. The ReLU: one AND
  // with the sign. Back: the adder again, and the result opened to party 1.
  const Task task = parse_aby3(layer_model(kRelu, 5, 5), {});
  EXPECT_THAT(names(task), ElementsAre("input to boolean", "relu1", "relu1 to ss"));
  const Rounds adder{10, 20, 20, 20, 20, 10};
  expect_array(task.operations[0], 0, 8, adder, kBothWays);
  EXPECT_EQ(task.operations[0].protocol, Protocol::kConversion);
  expect_array(task.operations[1], 0, 8, {10}, kBothWays);
  EXPECT_EQ(task.operations[1].protocol, Protocol::kBoolean);
  expect_array(task.operations[2], 0, 8, adder, kBothWays);
  expect_array(task.operations[2], 1, 4, {10}, {{0, 1}});
  EXPECT_THAT(task.operations[2].inputs, ElementsAre(1U));
}

TEST(Parser, ReluOfSharedBitsOfThreeAndFourParties) {
  // Three summands: one carry-save step (one AND) more; four: two.
  const Task three = parse_aby3(layer_model(kRelu, 5, 5), {.parties = 3});
  expect_array(three.operations[0], 0, 4, {10, 10, 20, 20, 20, 20, 10}, kRingOfThree);
  expect_array(three.operations[1], 0, 4, {10}, kRingOfThree);
  expect_array(three.operations[2], 1, 4, {10}, {{0, 1}, {1, 0}});
  const Task four = parse_aby3(layer_model(kRelu, 5, 5), {.parties = 4});
  EXPECT_EQ(four.operations[0].arrays[0].round_messages, (Rounds{10, 10, 10, 20, 20, 20, 20, 10}));
  expect_array(four.operations[2], 1, 4, {10}, kRingOfThree);
}

TEST(Parser, ReluByGarbledCircuits) {
  // Two parties' default. 10 numbers. To garbled: 32 choices of 16 bytes; an adder of 31 gates of
  // 32 bytes and 32 labels of 16 bytes for each party's input: 992 + 1024. The ReLU: 31 gates.
  // Back: 31 gates, the labels of the garbler's summand and 32 decoding bits: 992 + 512 + 4.
  const Task task = parse_aby3(layer_model(R"({"layer": "relu", "input_dim": 5})", 5, 5), {});
  EXPECT_THAT(names(task), ElementsAre("input to gc", "relu1", "relu1 to ss"));
  expect_array(task.operations[0], 0, 512, {10}, {{1, 0}});
  expect_array(task.operations[0], 1, 2016, {10}, {{0, 1}});
  expect_array(task.operations[1], 0, 992, {10}, {{0, 1}});
  expect_array(task.operations[2], 0, 1508, {10}, {{0, 1}});
  // Three parties have no garbled circuits.
  const Task three =
      parse_aby3(layer_model(R"({"layer": "relu", "input_dim": 5})", 5, 5), {.parties = 3});
  EXPECT_EQ(find(three, "relu1").protocol, Protocol::kBoolean);
}

TEST(Parser, MaxPoolingIsATournament) {
  // 2 samples of one window of 9: 4, 2, 1, 1 comparisons at 4 levels, for both samples 8, 4, 2, 2.
  // Each is a subtraction (1, 2, 2, 2, 2, 1 ANDs) and a choice (1): 7 rounds.
  const Task task = parse_aby3(layer_model(kPool, 9, 1), {});
  const Operation& pool = find(task, "maxpool1");
  ASSERT_THAT(pool.arrays, SizeIs(1));
  Rounds rounds;
  for (const std::uint64_t pairs : {8, 4, 2, 2}) {
    for (const std::uint64_t gates : {1, 2, 2, 2, 2, 1, 1}) rounds.push_back(gates * pairs);
  }
  expect_array(pool, 0, 8, rounds, kBothWays);
  // 16 comparisons of 11 ANDs.
  EXPECT_EQ(pool.arrays[0].message_count(), 176U);
}

TEST(Parser, MaxPoolingByGarbledCircuits) {
  // 16 comparisons of 32 gates with a choice of 32, 32 bytes each.
  std::string layer = kPool;
  layer.insert(1, R"("protocol": "gc", )");
  expect_array(find(parse_aby3(layer_model(layer, 9, 1), {}), "maxpool1"), 0, 2048, {16}, {{0, 1}});
}

TEST(Parser, AveragePoolingIsLocalButForTheTruncation) {
  const Model model = layer_model(
      R"({"layer": "averagepool", "input_hw": [4, 4], "in_channels": 1, "pool_hw": [2, 2], "stride": 2})",
      16, 4);
  EXPECT_THAT(parse_aby3(model, {}).operations[0].arrays, IsEmpty());
  expect_array(parse_aby3(model, {.parties = 3}).operations[0], 0, 4, {8}, {{0, 2}});
}

TEST(Parser, Normalisation) {
  // 2 samples of 5: 10 squares; four iterations of three products for each sample; 10 divided, 10
  // scaled.
  const Model model = layer_model(R"({"layer": "ln", "input_dim": 5})", 5, 5);
  const Rounds rounds{10, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 10, 10};
  const Task two = parse_aby3(model, {});
  ASSERT_THAT(two.operations[0].arrays, SizeIs(1));
  expect_array(two.operations[0], 0, 8, rounds, kBothWays);
  const Task three = parse_aby3(model, {.parties = 3});
  expect_array(three.operations[0], 0, 4, rounds, kRingOfThree);
  expect_array(three.operations[0], 1, 4, rounds, {{0, 2}});
}

TEST(BadTask, PartiesThatHaveNoProtocol) {
  for (const unsigned parties : {0U, 1U, 5U, 4'000'000'000U}) {
    EXPECT_THAT(parse_error(fc_model(), {.parties = parties}, ErrorCode::kInvalidArgument),
                HasSubstr(std::to_string(parties) + " parties"));
  }
}

TEST(BadTask, TwoPartyProtocolsOfThree) {
  for (const char* protocol : {"ot", "he"}) {
    EXPECT_THAT(
        parse_error(fc_model(protocol), {.parties = 3}, ErrorCode::kInvalidArgument),
        AllOf(HasSubstr("layer 1 (fc), field 'protocol'"), HasSubstr("for two parties, not 3")));
  }
}

TEST(BadTask, CountsThatOverflow) {
  EXPECT_THAT(parse_error(fc_model(), {.batch = ~std::uint64_t{0}}, ErrorCode::kTooLarge),
              HasSubstr("layer 1 (fc): the number of messages is above"));
  const Model huge = read_model(
      R"({"batch_size": 16777216, "input_size": 16777216, "num_classes": 16777216, "model": [
          {"layer": "fc", "input_dim": 16777216, "output_dim": 16777216}]})");
  EXPECT_THAT(parse_error(huge, {}, ErrorCode::kTooLarge), HasSubstr("layer 1 (fc)"));
}

}  // namespace
}  // namespace leat::scml

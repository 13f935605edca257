// The Parser's counts, each computed by hand in a comment. Messages are those along one flow.
#include "leat/scml/parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "leat/error.h"

namespace leat::scml {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

using Rounds = std::vector<std::uint64_t>;

const std::vector<Flow> kBothWays{{0, 1}, {1, 0}};
const std::vector<Flow> kRingOfThree{{0, 1}, {1, 2}, {2, 0}};

// Three samples of 4 x 5 (a fully connected layer): M = 3, N = 4, P = 5.
Model fc_model(const std::string& protocol = "ss") {
  return read_model(
      R"({"batch_size": 3, "input_size": 4, "num_classes": 5, "model": [
          {"layer": "fc", "input_dim": 4, "output_dim": 5, "protocol": ")" +
      protocol + R"("}]})");
}

// One layer between nothing: `layer` maps `input` numbers to `classes`; two samples.
Model layer_model(const std::string& layer, int input, int classes) {
  return read_model(R"({"batch_size": 2, "input_size": )" + std::to_string(input) +
                    R"(, "num_classes": )" + std::to_string(classes) + R"(, "model": [)" + layer +
                    "]}");
}

const Operation& find(const Task& task, const std::string& name) {
  for (const Operation& operation : task.operations) {
    if (operation.name == name) return operation;
  }
  static const Operation kNone{"none: " + name};
  ADD_FAILURE() << "no operation " << name;
  return kNone;
}

std::vector<std::string> names(const Task& task) {
  std::vector<std::string> result;
  for (const Operation& operation : task.operations) result.push_back(operation.name);
  return result;
}

void expect_array(const Operation& operation, std::size_t index, std::uint64_t message_bytes,
                  const Rounds& rounds, const std::vector<Flow>& flows) {
  ASSERT_GT(operation.arrays.size(), index) << operation.name;
  const MessageArray& array = operation.arrays[index];
  EXPECT_EQ(array.message_bytes, message_bytes) << operation.name;
  EXPECT_EQ(array.round_messages, rounds) << operation.name;
  EXPECT_EQ(array.flows, flows) << operation.name;
}

TEST(Parser, WholeMatricesOfTwoParties) {
  // Both masked matrices are opened, word by word: M*N + N*P = 3*4 + 4*5 = 32.
  const Task task = parse(fc_model(), {});
  ASSERT_THAT(task.operations, SizeIs(1));
  EXPECT_EQ(task.options.batch, 3U);
  ASSERT_THAT(task.operations[0].arrays, SizeIs(1));
  expect_array(task.operations[0], 0, 4, {32}, kBothWays);
}

TEST(Parser, InnerProductsOfTwoParties) {
  // Each of M*N*P = 3*4*5 = 60 products opens two masked words.
  const Task task = parse(fc_model(), {.form = Form::kInnerProducts});
  expect_array(task.operations[0], 0, 8, {60}, kBothWays);
}

TEST(Parser, MatricesOfThreeParties) {
  // Each word of the product is shared anew, M*P = 15, and truncated, 15.
  const Task task = parse(fc_model(), {.parties = 3});
  ASSERT_THAT(task.operations[0].arrays, SizeIs(2));
  expect_array(task.operations[0], 0, 4, {15}, kRingOfThree);
  expect_array(task.operations[0], 1, 4, {15}, {{0, 2}});
  const Task inner = parse(fc_model(), {.parties = 3, .form = Form::kInnerProducts});
  expect_array(inner.operations[0], 0, 4, {60}, kRingOfThree);
}

TEST(Parser, MatricesOfFourParties) {
  // A product takes six words among four parties, one between each two; a truncation two words.
  const Task task = parse(fc_model(), {.parties = 4});
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
  expect_array(parse(model, {}).operations[0], 0, 4, {999}, kBothWays);
  expect_array(parse(model, {.form = Form::kInnerProducts}).operations[0], 0, 8, {4320}, kBothWays);
  // M*P = 160.
  expect_array(parse(model, {.parties = 3}).operations[0], 0, 4, {160}, kRingOfThree);
}

TEST(Parser, TheBatchCanBeAnother) {
  // M = 1: 4 + 20.
  const Task task = parse(fc_model(), {.batch = 1});
  expect_array(task.operations[0], 0, 4, {24}, kBothWays);
}

TEST(Parser, MatricesByObliviousTransfer) {
  // Each of the M*N = 12 words of the left matrix chooses 32 times (16 bytes each) among multiples
  // of a row of P = 5 words (20 bytes each).
  const Task task = parse(fc_model("ot"), {});
  EXPECT_EQ(task.operations[0].protocol, Protocol::kOt);
  expect_array(task.operations[0], 0, 512, {12}, kBothWays);
  expect_array(task.operations[0], 1, 640, {12}, kBothWays);
}

TEST(Parser, MatricesByHomomorphicEncryption) {
  // 4*4*8 is a block of 128 at most 4096: all three matrices fit one ciphertext each, of
  // 2 polynomials * 4096 coefficients * 109 bits = 111616 bytes.
  const Task task = parse(fc_model("he"), {});
  expect_array(task.operations[0], 0, 111616, {1}, kBothWays);
  expect_array(task.operations[0], 1, 111616, {1}, kBothWays);
  // 64 x 256 times 256 x 64. Blocks m*n*p = 4096 take 64/m * 256/n + 64/m * 64/p ciphertexts;
  // m = 64, n = 16, p = 4: 16 + 16 = 32 is the least (n = 32, p = 2: 8 + 32 = 40; n = 8, p = 8:
  // 32 + 8 = 40).
  const Model wide = read_model(
      R"({"batch_size": 64, "input_size": 256, "num_classes": 64, "model": [
          {"layer": "fc", "input_dim": 256, "output_dim": 64, "protocol": "he"}]})");
  const Task wide_task = parse(wide, {});
  expect_array(wide_task.operations[0], 0, 111616, {16}, kBothWays);
  expect_array(wide_task.operations[0], 1, 111616, {16}, kBothWays);
}

constexpr const char* kRelu = R"({"layer": "relu", "input_dim": 5, "protocol": "boolean"})";
constexpr const char* kPool =
    R"({"layer": "maxpool", "input_hw": [3, 3], "in_channels": 1, "pool_hw": [3, 3]})";

TEST(Parser, ReluOfSharedBits) {
  // 2*5 = 10 numbers. To bits: an adder, 1 + 2*4 + 1 ANDs of words in 6 rounds. The ReLU: one AND
  // with the sign. Back: the adder again, and the result opened to party 1.
  const Task task = parse(layer_model(kRelu, 5, 5), {});
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
  const Task three = parse(layer_model(kRelu, 5, 5), {.parties = 3});
  expect_array(three.operations[0], 0, 4, {10, 10, 20, 20, 20, 20, 10}, kRingOfThree);
  expect_array(three.operations[1], 0, 4, {10}, kRingOfThree);
  expect_array(three.operations[2], 1, 4, {10}, {{0, 1}, {1, 0}});
  const Task four = parse(layer_model(kRelu, 5, 5), {.parties = 4});
  EXPECT_EQ(four.operations[0].arrays[0].round_messages, (Rounds{10, 10, 10, 20, 20, 20, 20, 10}));
  expect_array(four.operations[2], 1, 4, {10}, kRingOfThree);
}

TEST(Parser, ReluByGarbledCircuits) {
  // Two parties' default. 10 numbers. To garbled: 32 choices of 16 bytes; an adder of 31 gates of
  // 32 bytes and 32 labels of 16 bytes for each party's input: 992 + 1024. The ReLU: 31 gates.
  // Back: 31 gates, the labels of the garbler's summand and 32 decoding bits: 992 + 512 + 4.
  const Task task = parse(layer_model(R"({"layer": "relu", "input_dim": 5})", 5, 5), {});
  EXPECT_THAT(names(task), ElementsAre("input to gc", "relu1", "relu1 to ss"));
  expect_array(task.operations[0], 0, 512, {10}, {{1, 0}});
  expect_array(task.operations[0], 1, 2016, {10}, {{0, 1}});
  expect_array(task.operations[1], 0, 992, {10}, {{0, 1}});
  expect_array(task.operations[2], 0, 1508, {10}, {{0, 1}});
  // Three parties have no garbled circuits.
  const Task three =
      parse(layer_model(R"({"layer": "relu", "input_dim": 5})", 5, 5), {.parties = 3});
  EXPECT_EQ(find(three, "relu1").protocol, Protocol::kBoolean);
}

TEST(Parser, MaxPoolingIsATournament) {
  // 2 samples of one window of 9: 4, 2, 1, 1 comparisons at 4 levels, for both samples 8, 4, 2, 2.
  // Each is a subtraction (1, 2, 2, 2, 2, 1 ANDs) and a choice (1): 7 rounds.
  const Task task = parse(layer_model(kPool, 9, 1), {});
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
  expect_array(find(parse(layer_model(layer, 9, 1), {}), "maxpool1"), 0, 2048, {16}, {{0, 1}});
}

TEST(Parser, AveragePoolingIsLocalButForTheTruncation) {
  const Model model = layer_model(
      R"({"layer": "averagepool", "input_hw": [4, 4], "in_channels": 1, "pool_hw": [2, 2], "stride": 2})",
      16, 4);
  EXPECT_THAT(parse(model, {}).operations[0].arrays, IsEmpty());
  expect_array(parse(model, {.parties = 3}).operations[0], 0, 4, {8}, {{0, 2}});
}

TEST(Parser, Normalisation) {
  // 2 samples of 5: 10 squares; four iterations of three products for each sample; 10 divided, 10
  // scaled.
  const Model model = layer_model(R"({"layer": "ln", "input_dim": 5})", 5, 5);
  const Rounds rounds{10, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 10, 10};
  const Task two = parse(model, {});
  ASSERT_THAT(two.operations[0].arrays, SizeIs(1));
  expect_array(two.operations[0], 0, 8, rounds, kBothWays);
  const Task three = parse(model, {.parties = 3});
  expect_array(three.operations[0], 0, 4, rounds, kRingOfThree);
  expect_array(three.operations[0], 1, 4, rounds, {{0, 2}});
}

TEST(Parser, ConversionsStandOnlyWhereNeighboursDiffer) {
  const std::string layers =
      std::string(
          R"({"layer": "cnn", "input_hw": [3, 3], "in_channels": 1, "out_channels": 1, "filter_hw": [1, 1]},)") +
      kPool + R"(,{"layer": "relu", "input_dim": 1, "protocol": "boolean"},)" +
      R"({"layer": "relu", "input_dim": 1, "protocol": "gc"},)" +
      R"({"layer": "relu", "input_dim": 1, "protocol": "boolean"})";
  const Task task = parse(layer_model(layers, 9, 1), {});
  EXPECT_THAT(names(task),
              ElementsAre("cnn1", "cnn1 to boolean", "maxpool2", "relu3", "relu3 to gc", "relu4",
                          "relu4 to boolean", "relu5", "relu5 to ss"));
  // From shared bits to garbled: 2 numbers' choices and labels, no gates. Back: free.
  expect_array(find(task, "relu3 to gc"), 0, 512, {2}, {{1, 0}});
  expect_array(find(task, "relu3 to gc"), 1, 1024, {2}, {{0, 1}});
  EXPECT_THAT(find(task, "relu4 to boolean").arrays, IsEmpty());
}

TEST(Parser, AConversionServesAllItsReaders) {
  const std::string layers =
      R"({"layer": "fc", "input_dim": 4, "output_dim": 5, "name": "a"},
         {"layer": "relu", "input_dim": 5, "protocol": "boolean", "name": "b"},
         {"layer": "relu", "input_dim": 5, "protocol": "boolean", "name": "c", "inputs": ["a"]},
         {"layer": "add", "name": "d", "inputs": ["b", "c"]})";
  const Task task = parse(layer_model(layers, 4, 5), {});
  EXPECT_THAT(names(task), ElementsAre("a", "a to boolean", "b", "c", "b to ss", "c to ss", "d"));
  EXPECT_THAT(find(task, "b").inputs, ElementsAre(1U));
  EXPECT_THAT(find(task, "c").inputs, ElementsAre(1U));
  EXPECT_THAT(find(task, "d").inputs, ElementsAre(4U, 5U));
  EXPECT_THAT(find(task, "d").arrays, IsEmpty());
}

TEST(Parser, BackwardPassOfMatrices) {
  // Two layers, 3 samples: 4 to 5, 5 to 2. dW2 = X' * dY: 5x3 times 3x2: 15 + 6 = 21.
  // dX2 = dY * W': 3x2 times 2x5: 6 + 10 = 16. dW1: 4x3 times 3x5: 12 + 15 = 27.
  // Nobody needs the gradient of the input.
  const Model model = read_model(
      R"({"batch_size": 3, "input_size": 4, "num_classes": 2, "model": [
          {"layer": "fc", "input_dim": 4, "output_dim": 5},
          {"layer": "fc", "input_dim": 5, "output_dim": 2}]})");
  const Task task = parse(model, {.train = true});
  EXPECT_THAT(names(task), ElementsAre("fc1", "fc2", "fc2 weight gradient", "fc2 input gradient",
                                       "fc1 weight gradient"));
  expect_array(task.operations[2], 0, 4, {21}, kBothWays);
  expect_array(task.operations[3], 0, 4, {16}, kBothWays);
  expect_array(task.operations[4], 0, 4, {27}, kBothWays);
  EXPECT_THAT(task.operations[2].inputs, ElementsAre(1U));
  EXPECT_THAT(task.operations[3].inputs, ElementsAre(1U));
  EXPECT_THAT(task.operations[4].inputs, ElementsAre(3U));
  EXPECT_EQ(task.operations[4].pass, Pass::kBackward);
  // Three parties: the words of dW1 (20), truncated too.
  const Task three = parse(model, {.parties = 3, .train = true});
  expect_array(three.operations[4], 0, 4, {20}, kRingOfThree);
  expect_array(three.operations[4], 1, 4, {20}, {{0, 2}});
}

TEST(Parser, BackwardPassOfConvolutions) {
  // As in ConvolutionsAreLoweredToMatrices: M = 32, N = 27, P = 5. dW: 27x32 times 32x5: 864 + 160.
  // dX: 32x5 times 5x27: 160 + 135.
  const Model model = layer_model(
      R"({"layer": "fc", "input_dim": 48, "output_dim": 48},
         {"layer": "cnn", "input_hw": [4, 4], "in_channels": 3, "out_channels": 5, "filter_hw": [3, 3], "stride": 1, "padding": 1})",
      48, 80);
  const Task task = parse(model, {.train = true});
  expect_array(find(task, "cnn2 weight gradient"), 0, 4, {1024}, kBothWays);
  expect_array(find(task, "cnn2 input gradient"), 0, 4, {295}, kBothWays);
}

TEST(Parser, BackwardPassOfRelu) {
  // 10 numbers. The signs, shared bits, become shared numbers: one product for two parties, two for
  // three. Then the gradient is multiplied by them.
  const std::string layers =
      std::string(R"({"layer": "fc", "input_dim": 4, "output_dim": 5},)") + kRelu;
  const Model model = layer_model(layers, 4, 5);
  const Task two = parse(model, {.train = true});
  expect_array(find(two, "relu2 bits to ss"), 0, 8, {10}, kBothWays);
  EXPECT_EQ(find(two, "relu2 bits to ss").protocol, Protocol::kConversion);
  expect_array(find(two, "relu2 input gradient"), 0, 8, {10}, kBothWays);
  const Task three = parse(model, {.parties = 3, .train = true});
  expect_array(find(three, "relu2 bits to ss"), 0, 4, {10, 10}, kRingOfThree);
  expect_array(find(three, "relu2 input gradient"), 0, 4, {10}, kRingOfThree);
}

TEST(Parser, BackwardPassOfMaxPooling) {
  // 8, 4, 2, 2 comparisons: 16 bits; gradients go down the tournament: 2, 2, 4, 8 products.
  const Model model = layer_model(
      std::string(R"({"layer": "fc", "input_dim": 9, "output_dim": 9},)") + kPool, 9, 1);
  const Task task = parse(model, {.train = true});
  expect_array(find(task, "maxpool2 bits to ss"), 0, 8, {16}, kBothWays);
  expect_array(find(task, "maxpool2 input gradient"), 0, 8, {2, 2, 4, 8}, kBothWays);
}

TEST(Parser, BackwardPassOfNormalisationAndAveragePooling) {
  // 10 numbers: two products of each, then one, one, one.
  const Model norm = layer_model(R"({"layer": "ln", "input_dim": 5})", 5, 5);
  expect_array(find(parse(norm, {.train = true}), "ln1 input gradient"), 0, 8, {20, 10, 10, 10},
               kBothWays);
  const Model pool = layer_model(
      R"({"layer": "fc", "input_dim": 16, "output_dim": 16},
         {"layer": "averagepool", "input_hw": [4, 4], "in_channels": 1, "pool_hw": [2, 2], "stride": 2})",
      16, 4);
  EXPECT_THAT(find(parse(pool, {.train = true}), "averagepool2 input gradient").arrays, IsEmpty());
}

TEST(Parser, GradientsMeetWhereBranchesPart) {
  const std::string layers =
      R"({"layer": "fc", "input_dim": 4, "output_dim": 5, "name": "a"},
         {"layer": "fc", "input_dim": 5, "output_dim": 5, "name": "b"},
         {"layer": "add", "name": "c", "inputs": ["a", "b"]})";
  const Task task = parse(layer_model(layers, 4, 5), {.train = true});
  EXPECT_THAT(names(task), ElementsAre("a", "b", "c", "c input gradient", "b weight gradient",
                                       "b input gradient", "a weight gradient"));
  EXPECT_THAT(find(task, "a weight gradient").inputs, ElementsAre(3U, 5U));
}

TEST(Parser, TriplesByObliviousTransfer) {
  // The product of 3x4 and 4x5 takes a matrix triple: 12 words choose, rows of 5 words.
  const Task matrix = parse(fc_model(), {.triples = Triples::kOt});
  EXPECT_THAT(names(matrix), ElementsAre("fc1 triples", "fc1"));
  EXPECT_EQ(matrix.operations[0].pass, Pass::kOffline);
  EXPECT_EQ(matrix.operations[0].protocol, Protocol::kOt);
  expect_array(matrix.operations[0], 0, 512, {12}, kBothWays);
  expect_array(matrix.operations[0], 1, 640, {12}, kBothWays);
  // 60 scalar triples, 32 transfers each (section 6.2), of 16 bytes there and 4 back.
  const Task inner = parse(fc_model(), {.form = Form::kInnerProducts, .triples = Triples::kOt});
  expect_array(inner.operations[0], 0, 512, {60}, kBothWays);
  expect_array(inner.operations[0], 1, 128, {60}, kBothWays);
}

TEST(Parser, TriplesOfBits) {
  // The ReLU's ANDs: 100, 10 and 100 words of 32 bits, a random transfer for each bit.
  const Task task = parse(layer_model(kRelu, 5, 5), {.triples = Triples::kHe});
  EXPECT_THAT(names(task),
              ElementsAre("input to boolean triples", "relu1 triples", "relu1 to ss triples",
                          "input to boolean", "relu1", "relu1 to ss"));
  expect_array(task.operations[0], 0, 512, {100}, kBothWays);
  expect_array(task.operations[1], 0, 512, {10}, kBothWays);
  EXPECT_EQ(task.operations[1].protocol, Protocol::kOt);
  EXPECT_THAT(task.operations[5].inputs, ElementsAre(4U));
}

TEST(Parser, TriplesByHomomorphicEncryption) {
  const Task task = parse(fc_model(), {.triples = Triples::kHe});
  EXPECT_EQ(task.operations[0].protocol, Protocol::kHe);
  expect_array(task.operations[0], 0, 111616, {1}, kBothWays);
  expect_array(task.operations[0], 1, 111616, {1}, kBothWays);
}

TEST(Parser, ReplicatedSharingNeedsNoTriples) {
  EXPECT_THAT(names(parse(fc_model(), {.parties = 3, .triples = Triples::kOt})),
              ElementsAre("fc1"));
}

// Three samples through a product of 4 x 5 and a ReLU of shared bits, with a conversion between.
Model converted_model(const std::string& conversion, const std::string& fc = "",
                      const std::string& relu = R"("protocol": "boolean")") {
  return read_model(
      R"({"batch_size": 3, "input_size": 4, "num_classes": 5, "model": [
          {"layer": "fc", "input_dim": 4, "output_dim": 5)" +
      fc + "}, " + conversion + R"({"layer": "relu", "name": "relu", "input_dim": 5, )" + relu +
      "}]}");
}

TEST(Parser, AConversionOfTheFileTakesThePlaceOfItsOwn) {
  const Task task = parse(converted_model(R"({"layer": "conversion", "to": "boolean"},)"), {});
  EXPECT_THAT(names(task), ElementsAre("fc1", "conversion2", "relu", "relu to ss"));
  const Operation& conversion = find(task, "conversion2");
  EXPECT_EQ(conversion.protocol, Protocol::kConversion);
  EXPECT_THAT(conversion.inputs, ElementsAre(0));
  EXPECT_THAT(find(task, "relu").inputs, ElementsAre(1));
  // An adder on 3*5 = 15 words: 1, 2, 2, 2, 2, 1 ANDs of 8 bytes.
  ASSERT_THAT(conversion.arrays, SizeIs(1));
  expect_array(conversion, 0, 8, {15, 30, 30, 30, 30, 15}, kBothWays);
  const Task implicit = parse(converted_model(""), {});
  expect_array(find(implicit, "fc1 to boolean"), 0, 8, {15, 30, 30, 30, 30, 15}, kBothWays);
}

TEST(Parser, AConversionAtTheEndAndOneOfTheSamples) {
  const Task task = parse(
      read_model(
          R"({"batch_size": 3, "input_size": 5, "num_classes": 5, "model": [
          {"layer": "conversion", "to": "gc"}, {"layer": "relu", "input_dim": 5, "protocol": "gc"},
          {"layer": "conversion", "name": "end", "to": "ss"}]})"),
      {});
  EXPECT_THAT(names(task), ElementsAre("conversion1", "relu2", "end"));
  EXPECT_THAT(task.operations[0].inputs, IsEmpty());
  EXPECT_THAT(task.operations[2].inputs, ElementsAre(1));
  // 15 numbers: 31 gates of 32 bytes, 32 labels of 16, 32 bits to decode; one way.
  expect_array(task.operations[2], 0, 31 * 32 + 32 * 16 + 4, {15}, {{0, 1}});
}

TEST(Parser, GradientsPassAConversion) {
  const Task task = parse(converted_model(R"({"layer": "conversion", "to": "boolean"},)"),
                          {.train = true});
  EXPECT_THAT(names(task),
              ElementsAre("fc1", "conversion2", "relu", "relu to ss", "relu bits to ss",
                          "relu input gradient", "fc1 weight gradient"));
  EXPECT_THAT(task.operations.back().inputs, ElementsAre(5));
}

TEST(Parser, TriplesOfAnOfflineLayerAreMadeAhead) {
  // Only that layer's: M*N = 12 choices, of 32*16 bytes and 32*4*5 bytes.
  const Task task = parse(converted_model("", R"(, "protocol": "offline")"), {});
  EXPECT_THAT(names(task),
              ElementsAre("fc1 triples", "fc1 to boolean triples", "fc1", "fc1 to boolean", "relu",
                          "relu to ss"));
  EXPECT_EQ(task.operations[0].pass, Pass::kOffline);
  EXPECT_EQ(task.operations[0].protocol, Protocol::kOt);
  ASSERT_THAT(task.operations[0].arrays, SizeIs(2));
  expect_array(task.operations[0], 0, 512, {12}, kBothWays);
  expect_array(task.operations[0], 1, 640, {12}, kBothWays);
  // What the layer leaves is converted as a part of it: 10 ANDs of 15 words, of 32*16 bytes.
  expect_array(task.operations[1], 0, 512, {150}, kBothWays);
  EXPECT_EQ(find(task, "fc1").protocol, Protocol::kSs);

  const Task he =
      parse(converted_model("", R"(, "protocol": "offline")"), {.triples = Triples::kHe});
  EXPECT_EQ(find(he, "fc1 triples").protocol, Protocol::kHe);
}

TEST(Parser, OfflineLayersOfBitsAndConversions) {
  // By default this ReLU would be a garbled circuit, which takes no triples: 15 ANDs.
  const Task relu = parse(converted_model("", "", R"("protocol": "offline")"), {});
  EXPECT_EQ(find(relu, "relu").protocol, Protocol::kBoolean);
  expect_array(find(relu, "relu triples"), 0, 512, {15}, kBothWays);
  const Task conversion = parse(
      converted_model(R"({"layer": "conversion", "to": "boolean", "protocol": "offline"},)"), {});
  EXPECT_THAT(names(conversion),
              ElementsAre("conversion2 triples", "fc1", "conversion2", "relu", "relu to ss"));
  expect_array(conversion.operations[0], 0, 512, {150}, kBothWays);
  // Both gradients need triples too: 3 operations of the layer, the other has none.
  const Task trained =
      parse(converted_model("", "", R"("protocol": "offline")"), {.train = true});
  EXPECT_THAT(names(trained), testing::Contains("relu input gradient triples"));
  EXPECT_THAT(names(trained), testing::Not(testing::Contains("fc1 weight gradient triples")));
}

// What cannot be parsed.

std::string error_of(const Model& model, const ParseOptions& options, ErrorCode code) {
  try {
    parse(model, options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "no error";
}

TEST(BadTask, PartiesThatHaveNoProtocol) {
  for (const unsigned parties : {0U, 1U, 5U, 4'000'000'000U}) {
    EXPECT_THAT(error_of(fc_model(), {.parties = parties}, ErrorCode::kInvalidArgument),
                HasSubstr(std::to_string(parties) + " parties"));
  }
}

TEST(BadTask, TwoPartyProtocolsOfThree) {
  for (const char* protocol : {"ot", "he"}) {
    EXPECT_THAT(
        error_of(fc_model(protocol), {.parties = 3}, ErrorCode::kInvalidArgument),
        AllOf(HasSubstr("layer 1 (fc), field 'protocol'"), HasSubstr("for two parties, not 3")));
  }
}

TEST(BadTask, ConversionsThatChangeNothing) {
  const auto error = [](const std::string& conversion, unsigned parties = 2) {
    return error_of(converted_model(conversion), {.parties = parties},
                    ErrorCode::kInvalidArgument);
  };
  EXPECT_THAT(error(R"({"layer": "conversion", "to": "ss"},)"),
              AllOf(HasSubstr("layer 2 (conversion), field 'to'"),
                    HasSubstr("is already in the form ss")));
  EXPECT_THAT(error(R"({"layer": "conversion", "name": "a", "to": "boolean"},
                       {"layer": "conversion", "inputs": ["fc1"], "to": "boolean"},
                       {"layer": "add", "inputs": ["a", "conversion3"]},)"),
              AllOf(HasSubstr("layer 3 (conversion)"), HasSubstr("was put before")));
  EXPECT_THAT(error(R"({"layer": "conversion", "to": "gc"},)", 3),
              HasSubstr("field 'to': gc is for two parties, not 3"));
}

TEST(BadTask, NothingToMakeAhead) {
  EXPECT_THAT(error_of(fc_model("offline"), {.parties = 4}, ErrorCode::kInvalidArgument),
              AllOf(HasSubstr("offline is for two parties, not 4"), HasSubstr("replicated")));
  const Model garbled =
      converted_model(R"({"layer": "conversion", "to": "gc", "protocol": "offline"},)", "",
                      R"("protocol": "gc")");
  EXPECT_THAT(error_of(garbled, {}, ErrorCode::kInvalidArgument),
              AllOf(HasSubstr("layer 2 (conversion)"), HasSubstr("nothing to make ahead")));
}

TEST(BadTask, CountsThatOverflow) {
  EXPECT_THAT(error_of(fc_model(), {.batch = ~std::uint64_t{0}}, ErrorCode::kTooLarge),
              HasSubstr("layer 1 (fc): the number of messages is above"));
  const Model huge = read_model(
      R"({"batch_size": 16777216, "input_size": 16777216, "num_classes": 16777216, "model": [
          {"layer": "fc", "input_dim": 16777216, "output_dim": 16777216}]})");
  EXPECT_THAT(error_of(huge, {}, ErrorCode::kTooLarge), HasSubstr("layer 1 (fc)"));
}

}  // namespace
}  // namespace leat::scml

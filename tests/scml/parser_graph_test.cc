// What the Parser puts between and beside layers: conversions, gradients, triples; counts are
// computed by hand.
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
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

TEST(ParserGraph, ConversionsStandOnlyWhereNeighboursDiffer) {
  const std::string layers =
      std::string(
          R"({"layer": "cnn", "input_hw": [3, 3], "in_channels": 1, "out_channels": 1, "filter_hw": [1, 1]},)") +
      kPool + R"(,{"layer": "relu", "input_dim": 1, "protocol": "boolean"},)" +
      R"({"layer": "relu", "input_dim": 1, "protocol": "gc"},)" +
      R"({"layer": "relu", "input_dim": 1, "protocol": "boolean"})";
  const Task task = parse_aby3(layer_model(layers, 9, 1), {});
  EXPECT_THAT(names(task),
              ElementsAre("cnn1", "cnn1 to boolean", "maxpool2", "relu3", "relu3 to gc", "relu4",
                          "relu4 to boolean", "relu5", "relu5 to ss"));
  // From shared bits to garbled: 2 numbers' choices and labels, no gates. Back: free.
  expect_array(find(task, "relu3 to gc"), 0, 512, {2}, {{1, 0}});
  expect_array(find(task, "relu3 to gc"), 1, 1024, {2}, {{0, 1}});
  EXPECT_THAT(find(task, "relu4 to boolean").arrays, IsEmpty());
}

TEST(ParserGraph, AConversionServesAllItsReaders) {
  const std::string layers =
      R"({"layer": "fc", "input_dim": 4, "output_dim": 5, "name": "a"},
         {"layer": "relu", "input_dim": 5, "protocol": "boolean", "name": "b"},
         {"layer": "relu", "input_dim": 5, "protocol": "boolean", "name": "c", "inputs": ["a"]},
         {"layer": "add", "name": "d", "inputs": ["b", "c"]})";
  const Task task = parse_aby3(layer_model(layers, 4, 5), {});
  EXPECT_THAT(names(task), ElementsAre("a", "a to boolean", "b", "c", "b to ss", "c to ss", "d"));
  EXPECT_THAT(find(task, "b").inputs, ElementsAre(1U));
  EXPECT_THAT(find(task, "c").inputs, ElementsAre(1U));
  EXPECT_THAT(find(task, "d").inputs, ElementsAre(4U, 5U));
  EXPECT_THAT(find(task, "d").arrays, IsEmpty());
}

TEST(ParserGraph, BackwardPassOfMatrices) {
  // Two layers, 3 samples: 4 to 5, 5 to 2. dW2 = X' * dY: 5x3 times 3x2; dX2 = dY * W': 3x2 times
  // 2x5; dW1: 4x3 times 3x5. The gradient of the input is of no use.
  const Model model = two_layer_model();
  const Task task = parse_aby3(model, {.train = true});
  EXPECT_THAT(names(task), ElementsAre("fc1", "fc2", "fc2 weight gradient", "fc2 input gradient",
                                       "fc1 weight gradient"));
  // X2 was opened forward, so dW2 opens dY alone, 6; dX2 finds both opened, W forward. dW1: 15.
  expect_array(task.operations[2], 0, 4, {6}, kBothWays);
  EXPECT_THAT(task.operations[3].arrays, IsEmpty());
  expect_array(task.operations[4], 0, 4, {15}, kBothWays);
  EXPECT_THAT(task.operations[2].inputs, ElementsAre(1U));
  EXPECT_THAT(task.operations[3].inputs, ElementsAre(1U));
  EXPECT_THAT(task.operations[4].inputs, ElementsAre(3U));
  EXPECT_EQ(task.operations[4].pass, Pass::kBackward);
  // Three parties: the words of dW1 (20), truncated too.
  const Task three = parse_aby3(model, {.parties = 3, .train = true});
  expect_array(three.operations[4], 0, 4, {20}, kRingOfThree);
  expect_array(three.operations[4], 1, 4, {20}, {{0, 2}});
}

TEST(ParserGraph, TrainingOpensEachMatrixOnce) {
  // Forward, the samples are open from the start: W1 alone, 4*5 = 20, then X2 and W2, 15 + 10.
  const Model model = two_layer_model();
  const Task task = parse_aby3(model, {.train = true});
  expect_array(task.operations[0], 0, 4, {20}, kBothWays);
  expect_array(task.operations[1], 0, 4, {25}, kBothWays);
  EXPECT_THAT(find(task, "fc2 weight gradient").reuses, ElementsAre(1U));
  EXPECT_THAT(find(task, "fc2 input gradient").reuses, ElementsAre(1U, 2U));
  EXPECT_THAT(find(task, "fc1 weight gradient").reuses, ElementsAre(0U));
  // Places count triples, too: each product has its own.
  const Task triples = parse_aby3(model, {.train = true, .triples = Triples::kOt});
  EXPECT_THAT(find(triples, "fc2 input gradient").reuses, ElementsAre(6U, 7U));
  // Samples of an inference are new.
  expect_array(parse_aby3(model, {}).operations[0], 0, 4, {32}, kBothWays);
  // Alone, each product of two numbers has masks of its own; replicated shares have none.
  EXPECT_THAT(
      find(parse_aby3(model, {.train = true, .form = Form::kInnerProducts}), "fc2 weight gradient")
          .reuses,
      IsEmpty());
  EXPECT_THAT(find(parse_aby3(model, {.parties = 3, .train = true}), "fc2 weight gradient").reuses,
              IsEmpty());
}

TEST(ParserGraph, SecureMlTrainsWithTheWordsOfItsPaper) {
  // Of each layer's X, W and dY one word each, X of the first layer before training:
  // 784*128 + 128*128, 3 * 128*128, 128*128 + 2 * 128*10.
  const Model model = load_model(LEAT_SOURCE_FOLDER "/examples/models/secureml.json");
  const Task task = parse_aby3(model, {.train = true});
  std::uint64_t words = 0;
  for (const Operation& operation : task.operations)
    for (const MessageArray& array : operation.arrays)
      if (array.content == "masked matrices") words += array.message_count();
  EXPECT_EQ(words, 116736U + 49152U + 18944U);
}

TEST(ParserGraph, BackwardPassOfConvolutions) {
  // As in ConvolutionsAreLoweredToMatrices: M = 32, N = 27, P = 5. dW: 27x32 times 32x5, of which
  // dY is opened, 160. dX: 32x5 times 5x27, both opened before.
  const Model model = layer_model(
      R"({"layer": "fc", "input_dim": 48, "output_dim": 48},
         {"layer": "cnn", "input_hw": [4, 4], "in_channels": 3, "out_channels": 5, "filter_hw": [3, 3], "stride": 1, "padding": 1})",
      48, 80);
  const Task task = parse_aby3(model, {.train = true});
  expect_array(find(task, "cnn2 weight gradient"), 0, 4, {160}, kBothWays);
  EXPECT_THAT(find(task, "cnn2 input gradient").arrays, IsEmpty());
  const Task inner = parse_aby3(model, {.train = true, .form = Form::kInnerProducts});
  expect_array(find(inner, "cnn2 input gradient"), 0, 8, {4320}, kBothWays);
}

TEST(ParserGraph, BackwardPassOfRelu) {
  // 10 numbers. The signs, shared bits, become shared numbers: one product for two parties, two for
  // three. Then the gradient is multiplied by them.
  const std::string layers =
      std::string(R"({"layer": "fc", "input_dim": 4, "output_dim": 5},)") + kRelu;
  const Model model = layer_model(layers, 4, 5);
  const Task two = parse_aby3(model, {.train = true});
  expect_array(find(two, "relu2 bits to ss"), 0, 8, {10}, kBothWays);
  EXPECT_EQ(find(two, "relu2 bits to ss").protocol, Protocol::kConversion);
  EXPECT_EQ(two.operations[find(two, "relu2 bits to ss").reuses.at(0)].name, "relu2");
  expect_array(find(two, "relu2 input gradient"), 0, 8, {10}, kBothWays);
  const Task three = parse_aby3(model, {.parties = 3, .train = true});
  expect_array(find(three, "relu2 bits to ss"), 0, 4, {10, 10}, kRingOfThree);
  expect_array(find(three, "relu2 input gradient"), 0, 4, {10}, kRingOfThree);
}

TEST(ParserGraph, BackwardPassOfMaxPooling) {
  // 8, 4, 2, 2 comparisons: 16 bits; gradients go down the tournament: 2, 2, 4, 8 products.
  const Model model = layer_model(
      std::string(R"({"layer": "fc", "input_dim": 9, "output_dim": 9},)") + kPool, 9, 1);
  const Task task = parse_aby3(model, {.train = true});
  expect_array(find(task, "maxpool2 bits to ss"), 0, 8, {16}, kBothWays);
  expect_array(find(task, "maxpool2 input gradient"), 0, 8, {2, 2, 4, 8}, kBothWays);
}

TEST(ParserGraph, BackwardPassOfNormalisationAndAveragePooling) {
  // 10 numbers: two products of each, then one, one, one.
  const Model norm = layer_model(R"({"layer": "ln", "input_dim": 5})", 5, 5);
  expect_array(find(parse_aby3(norm, {.train = true}), "ln1 input gradient"), 0, 8,
               {20, 10, 10, 10}, kBothWays);
  const Model pool = layer_model(
      R"({"layer": "fc", "input_dim": 16, "output_dim": 16},
         {"layer": "averagepool", "input_hw": [4, 4], "in_channels": 1, "pool_hw": [2, 2], "stride": 2})",
      16, 4);
  EXPECT_THAT(find(parse_aby3(pool, {.train = true}), "averagepool2 input gradient").arrays,
              IsEmpty());
}

TEST(ParserGraph, GradientsMeetWhereBranchesPart) {
  const std::string layers =
      R"({"layer": "fc", "input_dim": 4, "output_dim": 5, "name": "a"},
         {"layer": "fc", "input_dim": 5, "output_dim": 5, "name": "b"},
         {"layer": "add", "name": "c", "inputs": ["a", "b"]})";
  const Task task = parse_aby3(layer_model(layers, 4, 5), {.train = true});
  EXPECT_THAT(names(task), ElementsAre("a", "b", "c", "c input gradient", "b weight gradient",
                                       "b input gradient", "a weight gradient"));
  EXPECT_THAT(find(task, "a weight gradient").inputs, ElementsAre(3U, 5U));
}

TEST(ParserGraph, TriplesByObliviousTransfer) {
  // The product of 3x4 and 4x5 takes a matrix triple: 12 words choose, rows of 5 words.
  const Task matrix = parse_aby3(fc_model(), {.triples = Triples::kOt});
  EXPECT_THAT(names(matrix), ElementsAre("fc1 triples", "fc1"));
  EXPECT_EQ(matrix.operations[0].pass, Pass::kOffline);
  EXPECT_EQ(matrix.operations[0].protocol, Protocol::kOt);
  expect_array(matrix.operations[0], 0, 512, {12}, kBothWays);
  expect_array(matrix.operations[0], 1, 640, {12}, kBothWays);
  // 60 scalar triples, 32 transfers each (section 6.2), of 16 bytes there and 4 back.
  const Task inner =
      parse_aby3(fc_model(), {.form = Form::kInnerProducts, .triples = Triples::kOt});
  expect_array(inner.operations[0], 0, 512, {60}, kBothWays);
  expect_array(inner.operations[0], 1, 128, {60}, kBothWays);
}

TEST(ParserGraph, TriplesOfBits) {
  // The ReLU's ANDs: 100, 10 and 100 words of 32 bits, a random transfer for each bit.
  const Task task = parse_aby3(layer_model(kRelu, 5, 5), {.triples = Triples::kHe});
  EXPECT_THAT(names(task),
              ElementsAre("input to boolean triples", "relu1 triples", "relu1 to ss triples",
                          "input to boolean", "relu1", "relu1 to ss"));
  expect_array(task.operations[0], 0, 512, {100}, kBothWays);
  expect_array(task.operations[1], 0, 512, {10}, kBothWays);
  EXPECT_EQ(task.operations[1].protocol, Protocol::kOt);
  EXPECT_THAT(task.operations[5].inputs, ElementsAre(4U));
}

TEST(ParserGraph, TriplesByHomomorphicEncryption) {
  const Task task = parse_aby3(fc_model(), {.triples = Triples::kHe});
  EXPECT_EQ(task.operations[0].protocol, Protocol::kHe);
  expect_array(task.operations[0], 0, 111616, {1}, kBothWays);
  expect_array(task.operations[0], 1, 111616, {1}, kBothWays);
}

TEST(ParserGraph, ReplicatedSharingNeedsNoTriples) {
  EXPECT_THAT(names(parse_aby3(fc_model(), {.parties = 3, .triples = Triples::kOt})),
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

TEST(ParserGraph, AConversionOfTheFileTakesThePlaceOfItsOwn) {
  const Task task = parse_aby3(converted_model(R"({"layer": "conversion", "to": "boolean"},)"), {});
  EXPECT_THAT(names(task), ElementsAre("fc1", "conversion2", "relu", "relu to ss"));
  const Operation& conversion = find(task, "conversion2");
  EXPECT_EQ(conversion.protocol, Protocol::kConversion);
  EXPECT_THAT(conversion.inputs, ElementsAre(0));
  EXPECT_THAT(find(task, "relu").inputs, ElementsAre(1));
  // An adder on 3*5 = 15 words: 1, 2, 2, 2, 2, 1 ANDs of 8 bytes.
  ASSERT_THAT(conversion.arrays, SizeIs(1));
  expect_array(conversion, 0, 8, {15, 30, 30, 30, 30, 15}, kBothWays);
  const Task implicit = parse_aby3(converted_model(""), {});
  expect_array(find(implicit, "fc1 to boolean"), 0, 8, {15, 30, 30, 30, 30, 15}, kBothWays);
}

TEST(ParserGraph, AConversionAtTheEndAndOneOfTheSamples) {
  const Task task =
      parse_aby3(read_model(
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

TEST(ParserGraph, GradientsPassAConversion) {
  const Task task =
      parse_aby3(converted_model(R"({"layer": "conversion", "to": "boolean"},)"), {.train = true});
  EXPECT_THAT(names(task),
              ElementsAre("fc1", "conversion2", "relu", "relu to ss", "relu bits to ss",
                          "relu input gradient", "fc1 weight gradient"));
  EXPECT_THAT(task.operations.back().inputs, ElementsAre(5));
}

TEST(ParserGraph, TriplesOfAnOfflineLayerAreMadeAhead) {
  // Only that layer's: M*N = 12 choices, of 32*16 bytes and 32*4*5 bytes.
  const Task task = parse_aby3(converted_model("", R"(, "protocol": "offline")"), {});
  EXPECT_THAT(names(task), ElementsAre("fc1 triples", "fc1 to boolean triples", "fc1",
                                       "fc1 to boolean", "relu", "relu to ss"));
  EXPECT_EQ(task.operations[0].pass, Pass::kOffline);
  EXPECT_EQ(task.operations[0].protocol, Protocol::kOt);
  ASSERT_THAT(task.operations[0].arrays, SizeIs(2));
  expect_array(task.operations[0], 0, 512, {12}, kBothWays);
  expect_array(task.operations[0], 1, 640, {12}, kBothWays);
  // What the layer leaves is converted as a part of it: 10 ANDs of 15 words, of 32*16 bytes.
  expect_array(task.operations[1], 0, 512, {150}, kBothWays);
  EXPECT_EQ(find(task, "fc1").protocol, Protocol::kSs);

  const Task he =
      parse_aby3(converted_model("", R"(, "protocol": "offline")"), {.triples = Triples::kHe});
  EXPECT_EQ(find(he, "fc1 triples").protocol, Protocol::kHe);
}

TEST(ParserGraph, OfflineLayersOfBitsAndConversions) {
  // By default this ReLU would be a garbled circuit, which takes no triples: 15 ANDs.
  const Task relu = parse_aby3(converted_model("", "", R"("protocol": "offline")"), {});
  EXPECT_EQ(find(relu, "relu").protocol, Protocol::kBoolean);
  expect_array(find(relu, "relu triples"), 0, 512, {15}, kBothWays);
  const Task conversion = parse_aby3(
      converted_model(R"({"layer": "conversion", "to": "boolean", "protocol": "offline"},)"), {});
  EXPECT_THAT(names(conversion),
              ElementsAre("conversion2 triples", "fc1", "conversion2", "relu", "relu to ss"));
  expect_array(conversion.operations[0], 0, 512, {150}, kBothWays);
  // Both gradients need triples too: 3 operations of the layer, the other has none.
  const Task trained =
      parse_aby3(converted_model("", "", R"("protocol": "offline")"), {.train = true});
  EXPECT_THAT(names(trained), Contains("relu input gradient triples"));
  EXPECT_THAT(names(trained), Not(Contains("fc1 weight gradient triples")));
}

TEST(BadLayers, ConversionsThatChangeNothing) {
  const auto error = [](const std::string& conversion, unsigned parties = 2) {
    return parse_error(converted_model(conversion), {.parties = parties},
                       ErrorCode::kInvalidArgument);
  };
  EXPECT_THAT(
      error(R"({"layer": "conversion", "to": "ss"},)"),
      AllOf(HasSubstr("layer 2 (conversion), field 'to'"), HasSubstr("is already in the form ss")));
  EXPECT_THAT(error(R"({"layer": "conversion", "name": "a", "to": "boolean"},
                       {"layer": "conversion", "inputs": ["fc1"], "to": "boolean"},
                       {"layer": "add", "inputs": ["a", "conversion3"]},)"),
              AllOf(HasSubstr("layer 3 (conversion)"), HasSubstr("was put before")));
  EXPECT_THAT(error(R"({"layer": "conversion", "to": "gc"},)", 3),
              HasSubstr("field 'to': gc is for two parties, not 3"));
}

TEST(BadLayers, NothingToMakeAhead) {
  EXPECT_THAT(parse_error(fc_model("offline"), {.parties = 4}, ErrorCode::kInvalidArgument),
              AllOf(HasSubstr("offline is for two parties, not 4"), HasSubstr("replicated")));
  const Model garbled = converted_model(
      R"({"layer": "conversion", "to": "gc", "protocol": "offline"},)", "", R"("protocol": "gc")");
  EXPECT_THAT(parse_error(garbled, {}, ErrorCode::kInvalidArgument),
              AllOf(HasSubstr("layer 2 (conversion)"), HasSubstr("nothing to make ahead")));
}

}  // namespace
}  // namespace leat::scml

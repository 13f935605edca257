// Model files: what is read from good ones, and what is said about bad ones.
#include "leat/scml/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "leat/error.h"
#include "support/errors.h"
#include "support/scratch.h"

namespace leat::scml {
namespace {

using leat::detail::ScratchFolder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// A model of these layers, which takes `input` numbers and gives `classes`.
std::string model_text(const std::string& layers, int input = 48, int classes = 10) {
  return R"({"name": "m", "dataset": "d", "batch_size": 2, "input_size": )" +
         std::to_string(input) + R"(, "num_classes": )" + std::to_string(classes) +
         R"(, "model": [)" + layers + "]}";
}

std::string fc(int input, int output, const std::string& more = "") {
  return R"({"layer": "fc", "input_dim": )" + std::to_string(input) + R"(, "output_dim": )" +
         std::to_string(output) + more + "}";
}

// The text of the error that reading gives.
std::string error_of(const std::string& text, ErrorCode code = ErrorCode::kInvalidArgument) {
  return leat::detail::error_of(code, [&] { read_model(text); });
}

constexpr const char* kCnn =
    R"({"layer": "cnn", "input_hw": [4, 4], "in_channels": 3, "out_channels": 5, "filter_hw": [3, 3], "stride": 1, "padding": 1})";
constexpr const char* kStridedPool =
    R"({"layer": "maxpool", "input_hw": [4, 4], "in_channels": 5, "pool_hw": [2, 2], "stride": 2})";

TEST(Model, ShapesFollowFromLayerToLayer) {
  const Model model =
      read_model(model_text(std::string(kCnn) + "," + kStridedPool +
                            R"(,{"layer": "relu", "input_dim": 20},)" + fc(20, 10)));
  EXPECT_EQ(model.name, "m");
  EXPECT_EQ(model.dataset, "d");
  EXPECT_EQ(model.batch_size, 2U);
  ASSERT_EQ(model.layers.size(), 4U);
  EXPECT_EQ(model.layers[0].output, (Shape{5, 4, 4}));
  EXPECT_EQ(model.layers[1].output, (Shape{5, 2, 2}));
  EXPECT_EQ(model.layers[2].output, (Shape{5, 2, 2}));
  EXPECT_EQ(model.layers[3].output, (Shape{10, 1, 1}));
  EXPECT_THAT(model.layers[0].inputs, ElementsAre(kModelInput));
  EXPECT_THAT(model.layers[3].inputs, ElementsAre(2U));
  EXPECT_EQ(model.layers[1].name, "maxpool2");
  EXPECT_EQ(model.layers[1].protocol, std::nullopt);
}

TEST(Model, WindowsThatDoNotDivideLeaveTheRestOut) {
  // (7 + 2*1 - 3) / 4 + 1 = 2, as (9 - 3) / 4 rounds down.
  const Model model = read_model(model_text(
      R"({"layer": "cnn", "input_hw": [7, 3], "in_channels": 1, "out_channels": 1, "filter_hw": [3, 3], "stride": 4, "padding": 1})",
      21, 2));
  EXPECT_EQ(model.layers[0].output, (Shape{1, 2, 1}));
}

TEST(Model, ProtocolsAreRead) {
  const Model model =
      read_model(model_text(fc(48, 10, R"(, "protocol": "he")") +
                            R"(,{"layer": "relu", "input_dim": 10, "protocol": "gc"})"));
  EXPECT_EQ(model.layers[0].protocol, Protocol::kHe);
  EXPECT_EQ(model.layers[1].protocol, Protocol::kGc);
}

TEST(Model, BranchesJoinInAnAddLayer) {
  const Model model =
      read_model(model_text(fc(48, 10, R"(, "name": "a")") + "," + fc(10, 10, R"(, "name": "b")") +
                            R"(,{"layer": "add", "inputs": ["a", "b"], "name": "sum"})"));
  EXPECT_THAT(model.layers[2].inputs, ElementsAre(0U, 1U));
  EXPECT_EQ(describe(model.layers[2]), "layer 3 (add 'sum')");
}

TEST(Model, AResidualStageBecomesItsLayers) {
  // Stride 2 and more planes: the first block has a shortcut convolution, the second has none.
  const Model model = read_model(model_text(
      R"({"layer": "res", "input_hw": [4, 4], "in_planes": 3, "out_planes": 8, "num_blocks": 2, "stride": 2, "expansion": 1})",
      48, 32));
  std::string kinds;
  for (const Layer& layer : model.layers) kinds += std::string(to_string(layer.kind)) + " ";
  EXPECT_EQ(kinds,
            "cnn ln relu cnn ln cnn ln add relu "
            "cnn ln relu cnn ln add relu ");
  EXPECT_EQ(model.layers[0].output, (Shape{8, 2, 2}));
  EXPECT_THAT(model.layers[5].inputs, ElementsAre(kModelInput));
  EXPECT_THAT(model.layers[7].inputs, ElementsAre(4U, 6U));
  EXPECT_THAT(model.layers[14].inputs, ElementsAre(13U, 8U));
  EXPECT_EQ(model.layers.back().name, "res1");
}

TEST(Model, AResidualStageWithExpansionHasBottlenecks) {
  const Model model = read_model(model_text(
      R"({"layer": "res", "input_hw": [4, 4], "in_planes": 3, "out_planes": 8, "num_blocks": 1, "stride": 2, "expansion": 4})",
      48, 128));
  // 1x1, 3x3 with the stride, 1x1 to 8*4 channels, and the shortcut.
  EXPECT_EQ(model.layers[0].output, (Shape{8, 4, 4}));
  EXPECT_EQ(model.layers[3].output, (Shape{8, 2, 2}));
  EXPECT_EQ(model.layers[6].output, (Shape{32, 2, 2}));
  EXPECT_EQ(model.layers[8].output, (Shape{32, 2, 2}));
}

TEST(Model, ShippedModelsHaveTheLayersOfPiranhas) {
  // Each layer by a letter: convolution, max and average pool, ReLU, fully connected.
  const auto letters = [](const char* name) {
    std::string result;
    for (const Layer& layer :
         load_model(std::string(LEAT_SOURCE_FOLDER "/examples/models/") + name + ".json").layers)
      result += "cmarf"[static_cast<std::size_t>(layer.kind)];
    return result;
  };
  EXPECT_EQ(letters("secureml"), "frfrfr");
  EXPECT_EQ(letters("lenet"), "cmrcmrfrfr");
  EXPECT_EQ(letters("alexnet"), "carcarcrcrcrfrfrfr");
  EXPECT_EQ(letters("vgg16"), "crcarcrcarcrcrcarcrcrcarcrcrcarfrfrfr");
  const std::string folder = LEAT_SOURCE_FOLDER "/examples/models/";
  EXPECT_EQ(load_model(folder + "lenet.json").layers[5].output.elements(), 800U);
  EXPECT_EQ(load_model(folder + "alexnet.json").layers[0].output, (Shape{96, 10, 10}));
  EXPECT_EQ(load_model(folder + "vgg16.json").layers[30].output, (Shape{512, 1, 1}));
}

// Bad files. Every error names the layer and the field.

TEST(BadModel, TextThatIsNotJson) {
  EXPECT_THAT(error_of("{\"name\": "), HasSubstr("not JSON"));
  EXPECT_THAT(error_of("{\n\"name\": ,\n}"), HasSubstr("breaks off in line 2"));
  EXPECT_THAT(error_of(""), HasSubstr("not JSON"));
  EXPECT_THAT(error_of("\xff\xfe{}"), HasSubstr("not JSON"));
  EXPECT_THAT(error_of("[]"), HasSubstr("the model is [], not an object"));
  EXPECT_THAT(error_of("{\"a\": 1e999}"), HasSubstr("number"));
}

TEST(BadModel, DeepNestingIsCutOff) {
  EXPECT_THAT(error_of(std::string(1'000'000, '[')), HasSubstr("levels deep"));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_THAT(error_of(objects), HasSubstr("levels deep"));
}

TEST(BadModel, TooLongATextIsNotParsed) {
  EXPECT_THAT(error_of(std::string(kMaxModelBytes + 1, ' '), ErrorCode::kTooLarge),
              HasSubstr("bytes, above"));
}

TEST(BadModel, MissingAndUnknownFieldsOfTheModel) {
  EXPECT_THAT(error_of(R"({"batch_size": 1})"), HasSubstr("field 'input_size': is missing"));
  std::string text = model_text(fc(48, 10));
  text.insert(1, R"("epochs": 3, )");
  EXPECT_THAT(error_of(text), HasSubstr("the model: unknown field \"epochs\""));
  EXPECT_THAT(error_of(model_text("")), HasSubstr("at least one layer"));
}

TEST(BadModel, UnknownLayers) {
  EXPECT_THAT(error_of(model_text(R"({"layer": "lstm"})")),
              AllOf(HasSubstr("layer 1, field 'layer'"), HasSubstr("\"lstm\" is unknown")));
  EXPECT_THAT(error_of(model_text(R"({"layer": "\u001b[31m"})")), HasSubstr("\\u001b"));
  EXPECT_THAT(error_of(model_text("3")), HasSubstr("layer 1 is 3, not an object"));
}

TEST(BadModel, UnknownFieldsOfALayer) {
  EXPECT_THAT(error_of(model_text(fc(48, 10, R"(, "bias": true)"))),
              HasSubstr("layer 1 (fc): unknown field \"bias\""));
}

TEST(BadModel, NumbersThatAreNone) {
  const auto with = [](const std::string& value) {
    return error_of(
        model_text(R"({"layer": "fc", "input_dim": )" + value + R"(, "output_dim": 1})"));
  };
  for (const char* value :
       {"-3", "0", "\"48\"", "48.0", "null", "[48]", "true", "16777217", "18446744073709551615",
        "99999999999999999999", "-9223372036854775808"}) {
    EXPECT_THAT(with(value), HasSubstr("layer 1 (fc), field 'input_dim': is ")) << value;
  }
}

TEST(BadModel, WindowsThatAreNone) {
  const auto with = [](const std::string& hw) {
    return error_of(model_text(
        R"({"layer": "cnn", "in_channels": 3, "out_channels": 5, "filter_hw": [3, 3], "input_hw": )" +
        hw + "}"));
  };
  for (const char* hw : {"4", "[4]", "[4, 4, 4]", "[4, \"x\"]", "[4, -4]", "{}"}) {
    EXPECT_THAT(with(hw), HasSubstr("layer 1 (cnn), field 'input_hw'")) << hw;
  }
}

TEST(BadModel, SizesThatOverflow) {
  EXPECT_THAT(
      error_of(
          model_text(
              R"({"layer": "cnn", "input_hw": [16777216, 16777216], "in_channels": 16777216, "out_channels": 5, "filter_hw": [3, 3]})"),
          ErrorCode::kTooLarge),
      AllOf(HasSubstr("layer 1 (cnn)"), HasSubstr("input_hw")));
}

TEST(BadModel, ShapesThatDoNotFit) {
  EXPECT_THAT(error_of(model_text(fc(48, 20) + "," + fc(21, 10))),
              AllOf(HasSubstr("layer 2 (fc), field 'input_dim': is 21"),
                    HasSubstr("layer 1 (fc) gives 20 numbers")));
  EXPECT_THAT(error_of(model_text(fc(47, 10))),
              HasSubstr("the model's input (field 'input_size')"));
  EXPECT_THAT(
      error_of(model_text(
          std::string(kCnn) + "," +
          R"({"layer": "maxpool", "input_hw": [4, 4], "in_channels": 6, "pool_hw": [2, 2]})")),
      HasSubstr("layer 2 (maxpool), field 'in_channels'"));
  EXPECT_THAT(
      error_of(model_text(
          std::string(kCnn) + "," +
          R"({"layer": "maxpool", "input_hw": [2, 8], "in_channels": 5, "pool_hw": [2, 2]})")),
      HasSubstr("layer 2 (maxpool), field 'input_hw'"));
  EXPECT_THAT(
      error_of(model_text(
          R"({"layer": "averagepool", "input_hw": [4, 4], "in_channels": 3, "pool_hw": [5, 5]})")),
      HasSubstr("layer 1 (averagepool), field 'pool_hw'"));
  EXPECT_THAT(
      error_of(model_text(
          R"({"layer": "res", "input_hw": [4, 4], "in_planes": 4, "out_planes": 4, "num_blocks": 1})")),
      HasSubstr("layer 1 (res), field 'in_planes'"));
  EXPECT_THAT(error_of(model_text(fc(48, 9))), HasSubstr("field 'num_classes': is 10"));
}

TEST(BadModel, ProtocolsThatALayerCannotHave) {
  const auto relu = [](const std::string& protocol) {
    return error_of(model_text(fc(48, 10) + R"(,{"layer": "relu", "input_dim": 10, "protocol": ")" +
                               protocol + "\"}"));
  };
  EXPECT_THAT(relu("he"),
              HasSubstr("layer 2 (relu), field 'protocol': is he; a relu layer can have: "
                        "boolean, gc, offline"));
  EXPECT_THAT(relu("tls"), HasSubstr("\"tls\" is unknown"));
  EXPECT_THAT(relu("conversion"),
              AllOf(HasSubstr("is conversion"), HasSubstr("a layer of the kind conversion")));
  EXPECT_THAT(
      error_of(model_text(
          fc(48, 10) + R"(,{"layer": "add", "inputs": ["input", "fc1"], "protocol": "offline"})")),
      AllOf(HasSubstr("field 'protocol': is offline; a add layer can have: ss"),
            HasSubstr("no triples")));
}

TEST(BadModel, ConversionsThatCannotBe) {
  const auto conversion = [](const std::string& more) {
    return error_of(model_text(fc(48, 10) + R"(,{"layer": "conversion")" + more + "}"));
  };
  EXPECT_THAT(conversion(""), HasSubstr("layer 2 (conversion), field 'to': is missing"));
  EXPECT_THAT(conversion(R"(, "to": "he")"),
              HasSubstr("field 'to': is he; a conversion layer can have: ss, boolean, gc"));
  EXPECT_THAT(conversion(R"(, "to": "tls")"), HasSubstr("\"tls\" is unknown"));
  EXPECT_THAT(conversion(R"(, "to": "gc", "protocol": "gc")"),
              HasSubstr("'protocol': is gc; a conversion layer can have: conversion, offline"));
  EXPECT_THAT(conversion(R"(, "to": "gc", "input_dim": 10)"),
              HasSubstr("unknown field \"input_dim\""));
  EXPECT_THAT(conversion(R"(, "to": "gc", "inputs": ["fc1", "input"])"),
              HasSubstr("only an add layer"));
}

TEST(Model, ConversionsAndOfflineLayersAreRead) {
  const Model model =
      read_model(model_text(fc(48, 10, R"(, "protocol": "offline")") +
                            R"(,{"layer": "conversion", "to": "boolean", "protocol": "conversion"})"
                            R"(,{"layer": "conversion", "to": "ss", "protocol": "offline"})"));
  EXPECT_TRUE(model.layers.at(0).is_offline);
  EXPECT_EQ(model.layers[0].protocol, std::nullopt);
  EXPECT_EQ(model.layers.at(1).kind, LayerKind::kConversion);
  EXPECT_EQ(model.layers[1].to, Protocol::kBoolean);
  EXPECT_FALSE(model.layers[1].is_offline);
  EXPECT_EQ(model.layers[1].output, (Shape{10}));
  EXPECT_EQ(model.layers.at(2).to, Protocol::kSs);
  EXPECT_TRUE(model.layers[2].is_offline);
}

TEST(BadModel, CyclesAndUnknownNames) {
  EXPECT_THAT(error_of(model_text(fc(48, 10, R"(, "name": "a", "inputs": ["b"])") + "," +
                                  fc(10, 10, R"(, "name": "b")"))),
              AllOf(HasSubstr("layer 1 (fc), field 'inputs': no earlier layer has the name \"b\""),
                    HasSubstr("no cycle")));
  EXPECT_THAT(error_of(model_text(fc(48, 10, R"(, "name": "a", "inputs": ["a"])"))),
              HasSubstr("no earlier layer"));
  EXPECT_THAT(error_of(model_text(fc(48, 10) + "," + fc(10, 10, R"(, "inputs": [])"))),
              HasSubstr("layer 2 (fc), field 'inputs'"));
  EXPECT_THAT(error_of(model_text(fc(48, 10) + "," + fc(10, 10, R"(, "inputs": [1])"))),
              HasSubstr("layer 2 (fc), field 'inputs'"));
}

TEST(BadModel, NamesThatAreTakenOrOdd) {
  EXPECT_THAT(
      error_of(model_text(fc(48, 10, R"(, "name": "a")") + "," + fc(10, 10, R"(, "name": "a")"))),
      HasSubstr("layer 2 (fc 'a'), field 'name'"));
  EXPECT_THAT(error_of(model_text(fc(48, 10, R"(, "name": "input")"))), HasSubstr("field 'name'"));
  EXPECT_THAT(error_of(model_text(fc(48, 10, R"(, "name": "a b")"))), HasSubstr("field 'name'"));
  EXPECT_THAT(error_of(model_text(fc(48, 10, R"(, "name": "<b>")"))), HasSubstr("field 'name'"));
}

TEST(BadModel, JoinsThatDoNotFit) {
  const std::string two =
      fc(48, 10, R"(, "name": "a")") + "," + fc(10, 9, R"(, "name": "b")") + ",";
  EXPECT_THAT(error_of(model_text(two + R"({"layer": "add", "inputs": ["a", "b"]})")),
              HasSubstr("layer 3 (add), field 'inputs': layer 2 (fc 'b') gives 9 numbers"));
  EXPECT_THAT(error_of(model_text(two + R"({"layer": "add"})")), HasSubstr("two or more"));
  EXPECT_THAT(error_of(model_text(two + R"({"layer": "add", "inputs": ["a", "a"]})")),
              HasSubstr("twice"));
  EXPECT_THAT(error_of(model_text(two + fc(19, 10, R"(, "inputs": ["a", "b"])"))),
              HasSubstr("only an add layer"));
}

TEST(BadModel, LayersThatNobodyReads) {
  EXPECT_THAT(error_of(model_text(fc(48, 10, R"(, "name": "a")") + "," +
                                  fc(48, 10, R"(, "inputs": ["input"])"))),
              HasSubstr("layer 1 (fc 'a'): no later layer reads it"));
}

TEST(BadModel, MoreLayersThanAMachineHolds) {
  EXPECT_THAT(
      error_of(
          model_text(
              R"({"layer": "res", "input_hw": [4, 4], "in_planes": 3, "out_planes": 3, "num_blocks": 16777216})"),
          ErrorCode::kTooLarge),
      HasSubstr("layer 1 (res): the model has more than 10000 layers"));
}

TEST(BadModel, FilesThatCannotBeRead) {
  const ScratchFolder folder;
  const auto error = [](const std::string& path, ErrorCode code = ErrorCode::kInvalidArgument) {
    return leat::detail::error_of(code, [&] { load_model(path); });
  };
  EXPECT_THAT(error(folder.path() + "/none.json"), HasSubstr("No such file"));
  EXPECT_THAT(error(folder.path()), HasSubstr("cannot be read"));
  EXPECT_THAT(error("/dev/zero", ErrorCode::kTooLarge), HasSubstr("bytes, above"));
  const std::string path = folder.write("bad.json", "{");
  EXPECT_THAT(error(path), AllOf(HasSubstr(path), HasSubstr("not JSON")));
}

}  // namespace
}  // namespace leat::scml

// Reads model files. JSON in the layout of Piranha's network files (Watson et al., USENIX Security
// 2022), extended by names, inputs and protocols.
#include "leat/scml/model.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "leat/error.h"
#include "scml/json_fields.h"
#include "scml/network.h"

namespace leat::scml {
namespace {

using detail::bad_field;
using detail::Fields;
using detail::Network;
using nlohmann::json;

// Far deeper than a model ever is.
constexpr int kMaxDepth = 8;

constexpr Protocol kProtocols[] = {Protocol::kSs, Protocol::kBoolean, Protocol::kGc,
                                   Protocol::kOt, Protocol::kHe,      Protocol::kConversion};
constexpr std::string_view kOffline = "offline";

std::vector<Protocol> allowed_protocols(LayerKind kind) {
  switch (kind) {
    case LayerKind::kCnn:
    case LayerKind::kFc:
      return {Protocol::kSs, Protocol::kOt, Protocol::kHe};
    case LayerKind::kRelu:
    case LayerKind::kMaxPool:
      return {Protocol::kBoolean, Protocol::kGc};
    case LayerKind::kAveragePool:
    case LayerKind::kLn:
    case LayerKind::kAdd:
      return {Protocol::kSs};
    case LayerKind::kConversion:
      return {Protocol::kConversion};
  }
  return {};
}

// Averages and sums are computed without triples.
bool may_be_offline(LayerKind kind) {
  return kind != LayerKind::kAveragePool && kind != LayerKind::kAdd;
}

[[noreturn]] void bad_protocol(const Fields& fields, const char* field, const std::string& name,
                               LayerKind kind, const std::string& choice) {
  const bool known =
      name == kOffline || std::any_of(std::begin(kProtocols), std::end(kProtocols),
                                      [&](Protocol other) { return name == to_string(other); });
  std::string advice;
  if (name == to_string(Protocol::kConversion))
    advice =
        "Write a layer of the kind conversion before this one; or leave the field out: the Parser "
        "adds conversions where protocols differ.";
  if (name == kOffline) advice = "There are no triples here that could be made ahead.";
  bad_field(fields.where(), field,
            (known ? "is " + name : detail::in_quotes(name) + " is unknown") + "; a " +
                std::string(to_string(kind)) + " layer can have: " + choice,
            advice);
}

void read_protocol(Fields& fields, Layer& layer) {
  if (!fields.has("protocol")) return;
  const std::string name = fields.text("protocol");
  layer.is_offline = name == kOffline && may_be_offline(layer.kind);
  if (layer.is_offline) return;
  std::string choice;
  for (const Protocol protocol : allowed_protocols(layer.kind)) {
    if (name == to_string(protocol)) layer.protocol = protocol;
    choice += (choice.empty() ? "" : ", ") + std::string(to_string(protocol));
  }
  if (may_be_offline(layer.kind)) choice += ", " + std::string(kOffline);
  if (!layer.protocol) bad_protocol(fields, "protocol", name, layer.kind, choice);
}

// The form of data that a conversion leads to.
Protocol read_form(Fields& fields, LayerKind kind) {
  const std::string name = fields.text("to");
  for (const Protocol form : {Protocol::kSs, Protocol::kBoolean, Protocol::kGc}) {
    if (name == to_string(form)) return form;
  }
  bad_protocol(fields, "to", name, kind, "ss, boolean, gc");
}

std::vector<std::size_t> read_inputs(Fields& fields, const Network& network) {
  if (!fields.has("inputs")) return {network.last()};
  const json& names = fields.take("inputs");
  if (!names.is_array() || names.empty())
    bad_field(fields.where(), "inputs", "must be an array of the names of earlier layers");
  std::vector<std::size_t> inputs;
  for (const json& name : names) {
    if (!name.is_string()) bad_field(fields.where(), "inputs", "has an entry that is not a name");
    const std::size_t input = network.find(name.get<std::string>(), fields.where());
    if (std::find(inputs.begin(), inputs.end(), input) != inputs.end())
      bad_field(fields.where(), "inputs",
                "has " + detail::in_quotes(name.get<std::string>()) + " twice");
    inputs.push_back(input);
  }
  return inputs;
}

void read_name(Fields& fields, Layer& layer, const std::string& kind) {
  layer.name = kind + std::to_string(layer.number);
  if (!fields.has("name")) return;
  layer.name = fields.text("name");
  const bool word = layer.name.find_first_not_of(
                        "abcdefghijklmnopqrstuvwxyz"
                        "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                        "0123456789_-.") == std::string::npos;
  if (!word)
    bad_field(
        fields.where(), "name",
        detail::in_quotes(layer.name) + " has other characters than letters, digits, _, - and .");
}

void read_windowed(Fields& fields, Layer layer, Network& network) {
  const bool is_cnn = layer.kind == LayerKind::kCnn;
  const auto [height, width] = fields.height_width("input_hw");
  layer.input = {fields.number("in_channels"), height, width};
  const auto window = fields.height_width(is_cnn ? "filter_hw" : "pool_hw");
  layer.window = {window.height, window.width, fields.number_or("stride", 1, 1),
                  is_cnn ? fields.number_or("padding", 0, 0) : 0};
  const std::uint64_t out = is_cnn ? fields.number("out_channels") : layer.input.channels;
  fields.finish();
  network.add_windowed(std::move(layer), out, fields.where());
}

void read_stage(Fields& fields, Layer layer, Network& network) {
  if (fields.has("protocol"))
    bad_field(fields.where(), "protocol", "a res layer stands for layers of several kinds",
              "Leave it out, or write the blocks' layers one by one.");
  const auto [height, width] = fields.height_width("input_hw");
  const detail::Stage stage{fields.number("in_planes"), fields.number("out_planes"),
                            fields.number("num_blocks"), fields.number_or("stride", 1, 1),
                            fields.number_or("expansion", 1, 1)};
  fields.finish();
  layer.input = {stage.in_planes, height, width};
  network.add_stage(layer, stage, fields.where());
}

void read_layer(const json& object, std::size_t number, Network& network) {
  const std::string place = "layer " + std::to_string(number);
  Fields fields(object, place);
  const std::string kind = fields.text("layer");
  static constexpr LayerKind kKinds[] = {
      LayerKind::kCnn, LayerKind::kMaxPool, LayerKind::kAveragePool, LayerKind::kRelu,
      LayerKind::kFc,  LayerKind::kLn,      LayerKind::kAdd,         LayerKind::kConversion};
  const auto* const found = std::find_if(std::begin(kKinds), std::end(kKinds),
                                         [&](LayerKind known) { return kind == to_string(known); });
  if (found == std::end(kKinds) && kind != "res")
    bad_field(
        place, "layer",
        detail::in_quotes(kind) +
            " is unknown; there are cnn, maxpool, averagepool, relu, fc, ln, add, res, conversion");
  Layer layer;
  layer.number = number;
  fields.set_where(place + " (" + kind + ")");
  read_name(fields, layer, kind);
  layer.inputs = read_inputs(fields, network);
  if (kind == "res") return read_stage(fields, std::move(layer), network);

  layer.kind = *found;
  fields.set_where(describe(layer));
  read_protocol(fields, layer);
  if (layer.kind != LayerKind::kAdd && layer.inputs.size() > 1)
    bad_field(fields.where(), "inputs", "only an add layer can have several");
  switch (layer.kind) {
    case LayerKind::kCnn:
    case LayerKind::kMaxPool:
    case LayerKind::kAveragePool:
      return read_windowed(fields, std::move(layer), network);
    case LayerKind::kRelu:
    case LayerKind::kLn: {
      const std::uint64_t input_dim = fields.number("input_dim");
      fields.finish();
      return network.add_elementwise(std::move(layer), input_dim, fields.where());
    }
    case LayerKind::kFc: {
      const std::uint64_t input_dim = fields.number("input_dim");
      const std::uint64_t output_dim = fields.number("output_dim");
      fields.finish();
      return network.add_fc(std::move(layer), input_dim, output_dim, fields.where());
    }
    case LayerKind::kAdd:
      fields.finish();
      return network.add_sum(std::move(layer), fields.where());
    case LayerKind::kConversion:
      layer.to = read_form(fields, layer.kind);
      fields.finish();
      return network.add_conversion(std::move(layer), fields.where());
  }
}

json parse_text(std::string_view text) {
  const auto limit_depth = [](int depth, json::parse_event_t, json&) {
    if (depth > kMaxDepth)
      throw Error(ErrorCode::kInvalidArgument, "the model's JSON is nested more than " +
                                                   std::to_string(kMaxDepth) + " levels deep");
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), limit_depth);
  } catch (const json::parse_error& error) {
    // The library's text may quote the file; where it breaks off says enough.
    const std::string_view good = text.substr(0, error.byte > 0 ? error.byte - 1 : 0);
    throw Error(ErrorCode::kInvalidArgument,
                "the model is not JSON: it breaks off in line " +
                    std::to_string(1 + std::count(good.begin(), good.end(), '\n')));
  } catch (const json::exception& error) {
    throw Error(ErrorCode::kInvalidArgument,
                "the model has a number that JSON readers cannot hold");
  }
}

}  // namespace

std::string describe(const Layer& layer) {
  const std::string kind(to_string(layer.kind));
  const std::string number = std::to_string(layer.number);
  const bool named = layer.name != kind + number;
  return "layer " + number + " (" + kind + (named ? " '" + layer.name + "'" : "") + ")";
}

Model read_model(std::string_view text) {
  if (text.size() > kMaxModelBytes)
    throw Error(ErrorCode::kTooLarge, "the model has " + std::to_string(text.size()) +
                                          " bytes, above " + std::to_string(kMaxModelBytes));
  const json object = parse_text(text);
  Fields fields(object, "the model");
  Model model;
  if (fields.has("name")) model.name = fields.text("name");
  if (fields.has("dataset")) model.dataset = fields.text("dataset");
  model.batch_size = fields.number("batch_size");
  model.input_size = fields.number("input_size");
  model.num_classes = fields.number("num_classes");
  const json& layers = fields.take("model");
  if (!layers.is_array() || layers.empty())
    bad_field("the model", "model", "must be an array of at least one layer");
  fields.finish();

  Network network(model.input_size);
  std::size_t number = 0;
  for (const json& layer : layers) read_layer(layer, ++number, network);
  model.layers = network.finish(model.num_classes);
  return model;
}

Model load_model(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxModelBytes + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad())
    throw Error(
        ErrorCode::kInvalidArgument,
        path + ": cannot be read: " + std::error_code(errno, std::generic_category()).message(),
        "Name a file with a model.", errno);
  text.resize(static_cast<std::size_t>(file.gcount()));
  try {
    return read_model(text);
  } catch (const Error& error) {
    throw Error(error.code(), path + ": " + error.what());
  }
}

}  // namespace leat::scml

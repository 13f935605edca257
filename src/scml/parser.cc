// Walks the model and lays down the graph of operations; what each sends is in layer_arrays.h.
#include "leat/scml/parser.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "leat/error.h"
#include "scml/layer_arrays.h"

namespace leat::scml {
namespace {

using detail::ArrayBuilder;
using detail::TripleDemand;

// The paper's choice: sharing for sums and products, garbled circuits for ReLU (section 3.1), which
// SecureML has, too, shared bits for max pooling (section 3.2.2) and for three and four parties,
// which garbling is not for. The other profiles compare with edaBits (section 6.3).
Protocol default_protocol(LayerKind kind, const ParseOptions& options) {
  if (kind == LayerKind::kRelu && options.parties == 2 && options.profile == Profile::kSecureMlAby3)
    return Protocol::kGc;
  if (kind == LayerKind::kRelu) return Protocol::kBoolean;
  if (kind == LayerKind::kConversion) return Protocol::kConversion;
  return kind == LayerKind::kMaxPool ? Protocol::kBoolean : Protocol::kSs;
}

// That of such a layer which consumes triples, for which they are made ahead.
Protocol protocol_with_triples(LayerKind kind) {
  if (kind == LayerKind::kConversion) return Protocol::kConversion;
  return detail::chooses(kind) ? Protocol::kBoolean : Protocol::kSs;
}

class TaskBuilder {
 public:
  TaskBuilder(const Model& model, const ParseOptions& options) : model_(model) {
    task_.model = model.name;
    task_.options = options;
    if (options.batch == 0) task_.options.batch = model.batch_size;
    choose_protocols();
  }

  Task build() {
    for (std::size_t layer = 0; layer < model_.layers.size(); ++layer) add_forward(layer);
    const std::size_t result = data_of(model_.layers.size() - 1, Protocol::kSs, last_layer());
    if (task_.options.train) add_backward(result);
    if (task_.options.parties == 2) add_offline();
    return std::move(task_);
  }

 private:
  std::size_t last_layer() const { return model_.layers.size() - 1; }

  void choose_protocols() {
    const unsigned parties = task_.options.parties;
    if (parties < 2 || parties > 4)
      throw Error(ErrorCode::kInvalidArgument,
                  std::to_string(parties) + " parties: there are protocols for 2, 3 and 4");
    if (model_.layers.empty()) throw Error(ErrorCode::kInvalidArgument, "the model has no layers");
    for (const Layer& layer : model_.layers) {
      const Protocol protocol =
          layer.protocol.value_or(default_protocol(layer.kind, task_.options));
      if (layer.is_offline && parties != 2)
        throw Error(ErrorCode::kInvalidArgument,
                    describe(layer) + ", field 'protocol': offline is for two parties, not " +
                        std::to_string(parties),
                    "Leave the field out: replicated shares need no triples.");
      require_parties(layer, "protocol", protocol);
      if (layer.kind == LayerKind::kConversion) require_parties(layer, "to", layer.to);
      protocols_.push_back(layer.is_offline ? protocol_with_triples(layer.kind) : protocol);
    }
  }

  void require_parties(const Layer& layer, const char* field, Protocol protocol) const {
    const unsigned parties = task_.options.parties;
    if (parties == 2 || protocol == Protocol::kSs || protocol == Protocol::kBoolean ||
        protocol == Protocol::kConversion)
      return;
    throw Error(ErrorCode::kInvalidArgument,
                describe(layer) + ", field '" + field + "': " + std::string(to_string(protocol)) +
                    " is for two parties, not " + std::to_string(parties),
                "Set ss or boolean, or leave the field out.");
  }

  // In which a layer, or the model's input, leaves its data.
  Protocol form_left(std::size_t source) const {
    if (source == kModelInput) return Protocol::kSs;
    const Layer& layer = model_.layers[source];
    return form_of(layer.kind == LayerKind::kConversion ? layer.to : protocols_[source]);
  }

  Protocol form_of(Protocol protocol) const {
    return detail::form_of_data(protocol, task_.options.profile);
  }

  ArrayBuilder arrays_for(std::size_t layer) const {
    return ArrayBuilder(task_.options, describe(model_.layers[layer]));
  }

  std::size_t add(Operation operation, ArrayBuilder& arrays) {
    operation.arrays = std::move(arrays.arrays());
    task_.operations.push_back(std::move(operation));
    demands_.push_back(arrays.demand());
    return task_.operations.size() - 1;
  }

  // The operation that gives the data of `source` in the form that `reader` takes; a conversion is
  // added unless there is one. Shared numbers of the model's input are there before the first.
  std::optional<std::size_t> find_data(std::size_t source, Protocol form, std::size_t reader) {
    const bool is_input = source == kModelInput;
    const Protocol left = form_left(source);
    if (left == form) return is_input ? std::nullopt : std::optional(forward_[source]);
    const auto [entry, is_new] = converted_.try_emplace({source, form}, 0);
    if (is_new) {
      const std::uint64_t elements =
          is_input ? model_.input_size : model_.layers[source].output.elements();
      ArrayBuilder arrays = arrays_for(is_input ? reader : source);
      conversion_arrays(left, form, arrays.product({task_.options.batch, elements}), arrays);
      const std::string name = is_input ? "input" : model_.layers[source].name;
      Operation operation{name + " to " + std::string(to_string(form)),
                          is_input ? reader : source,
                          Pass::kForward,
                          Protocol::kConversion,
                          {}};
      if (!is_input) operation.inputs = {forward_[source]};
      entry->second = add(std::move(operation), arrays);
    }
    return entry->second;
  }

  std::size_t data_of(std::size_t source, Protocol form, std::size_t reader) {
    return find_data(source, form, reader).value();
  }

  // A layer of the file that does what find_data does by itself, and takes its place.
  void add_conversion(std::size_t index) {
    const Layer& layer = model_.layers[index];
    const std::size_t source = layer.inputs.front();
    const Protocol left = form_left(source), to = form_of(layer.to);
    const auto complain = [&](const std::string& problem) {
      throw Error(ErrorCode::kInvalidArgument,
                  describe(layer) + ", field 'to': what it reads " + problem + " in the form " +
                      std::string(to_string(layer.to)),
                  "Take the layer out.");
    };
    // Shared bits are no form of their own in all profiles.
    if (left == to && to == layer.to) complain("is already");
    if (left != to && converted_.contains({source, to})) complain("was put before");
    ArrayBuilder arrays = arrays_for(index);
    conversion_arrays(left, to, arrays.product({task_.options.batch, layer.output.elements()}),
                      arrays);
    Operation operation{layer.name, index, Pass::kForward, Protocol::kConversion, {}};
    if (source != kModelInput) operation.inputs = {forward_[source]};
    forward_.push_back(add(std::move(operation), arrays));
    if (left != to) converted_[{source, to}] = forward_.back();
  }

  void add_forward(std::size_t index) {
    const Layer& layer = model_.layers[index];
    if (layer.kind == LayerKind::kConversion) return add_conversion(index);
    const Protocol protocol = protocols_[index];
    Operation operation{layer.name, index, Pass::kForward, protocol, {}};
    for (const std::size_t source : layer.inputs) {
      if (const auto data = find_data(source, form_of(protocol), index))
        operation.inputs.push_back(*data);
    }
    ArrayBuilder arrays = arrays_for(index);
    forward_arrays(layer, protocol, task_.options.batch, arrays);
    forward_.push_back(add(std::move(operation), arrays));
  }

  // Whether a gradient for that layer's output is of use.
  std::vector<bool> find_trained() const {
    std::vector<bool> trained;
    for (const Layer& layer : model_.layers) {
      trained.push_back(detail::has_weights(layer.kind) || layer.kind == LayerKind::kLn ||
                        reads_trained(layer, trained));
    }
    return trained;
  }

  static bool reads_trained(const Layer& layer, const std::vector<bool>& trained) {
    return std::any_of(layer.inputs.begin(), layer.inputs.end(),
                       [&](std::size_t input) { return input != kModelInput && trained[input]; });
  }

  // `result`: the operation whose data the loss is computed from, locally.
  void add_backward(std::size_t result) {
    const std::vector<bool> trained = find_trained();
    // For each layer, the operations that give its output's gradient; their sum is local.
    std::vector<std::vector<std::size_t>> gradients(model_.layers.size());
    gradients.back() = {add_loss(result)};
    for (std::size_t index = model_.layers.size(); index-- > 0;) {
      const Layer& layer = model_.layers[index];
      if (!trained[index]) continue;
      // Gradients are shared numbers, whatever form the data had.
      if (layer.kind == LayerKind::kConversion) {
        auto& before = gradients[layer.inputs.front()];
        before.insert(before.end(), gradients[index].begin(), gradients[index].end());
        continue;
      }
      std::vector<std::size_t> opened;
      if (detail::has_weights(layer.kind)) opened = add_weight_gradient(index, gradients[index]);
      // Normalisation has weights too, whose gradient comes with its input's.
      if (layer.kind != LayerKind::kLn && !reads_trained(layer, trained)) continue;
      const std::size_t gradient = add_input_gradient(index, gradients[index], std::move(opened));
      for (const std::size_t input : layer.inputs) {
        if (input != kModelInput && trained[input]) gradients[input].push_back(gradient);
      }
    }
  }

  // Piranha opens the outputs for it.
  std::size_t add_loss(std::size_t result) {
    if (task_.options.profile != Profile::kPiranha) return result;
    ArrayBuilder arrays = arrays_for(last_layer());
    arrays.reveal_for_loss(
        arrays.product({task_.options.batch, model_.layers.back().output.elements()}));
    return add({model_.layers.back().name + " loss",
                last_layer(),
                Pass::kBackward,
                Protocol::kSs,
                {result}},
               arrays);
  }

  // The operations that have opened factors of the input gradient.
  std::vector<std::size_t> add_weight_gradient(std::size_t index,
                                               const std::vector<std::size_t>& inputs) {
    const Layer& layer = model_.layers[index];
    const Protocol protocol = protocols_[index];
    ArrayBuilder arrays = arrays_for(index);
    weight_gradient_arrays(layer, protocol, task_.options.batch, arrays);
    std::vector<std::size_t> opened;
    if (protocol == Protocol::kSs && arrays.keeps_opened()) opened.push_back(forward_[index]);
    const std::size_t gradient =
        add({layer.name + " weight gradient", index, Pass::kBackward, protocol, inputs, {}, opened},
            arrays);
    if (!opened.empty()) opened.push_back(gradient);
    return opened;
  }

  std::size_t add_input_gradient(std::size_t index, std::vector<std::size_t> inputs,
                                 std::vector<std::size_t> reuses) {
    const Layer& layer = model_.layers[index];
    Protocol protocol = protocols_[index];
    if (detail::chooses(layer.kind)) {
      ArrayBuilder bits = arrays_for(index);
      if (bits.is_on_numbers(protocol)) {
        reuses.push_back(forward_[index]);
      } else {
        choice_bit_arrays(layer, protocol, task_.options.batch, bits);
        inputs.push_back(add({layer.name + " bits to ss",
                              index,
                              Pass::kBackward,
                              Protocol::kConversion,
                              {},
                              {},
                              {forward_[index]}},
                             bits));
      }
    }
    ArrayBuilder arrays = arrays_for(index);
    input_gradient_arrays(layer, protocol, task_.options.batch, arrays);
    if (detail::chooses(layer.kind)) protocol = Protocol::kSs;
    return add({layer.name + " input gradient",
                index,
                Pass::kBackward,
                protocol,
                std::move(inputs),
                {},
                std::move(reuses)},
               arrays);
  }

  // Triples depend on nothing, and are made before all else: for all operations, or those of the
  // layers whose protocol is offline.
  void add_offline() {
    std::vector<Operation> operations;
    std::vector<bool> served(model_.layers.size());
    for (std::size_t i = 0; i < demands_.size(); ++i) {
      const TripleDemand& demand = demands_[i];
      const Operation& reader = task_.operations[i];
      if (demand.empty()) continue;
      if (task_.options.triples == Triples::kNone && !model_.layers[reader.layer].is_offline)
        continue;
      served[reader.layer] = true;
      ArrayBuilder arrays = arrays_for(reader.layer);
      const bool is_he = demand.matrix && task_.options.triples == Triples::kHe;
      const Protocol protocol = is_he ? Protocol::kHe : Protocol::kOt;
      arrays.make_triples(demand, protocol);
      operations.push_back({reader.name + " triples",
                            reader.layer,
                            Pass::kOffline,
                            protocol,
                            {},
                            std::move(arrays.arrays())});
    }
    for (std::size_t layer = 0; layer < served.size(); ++layer) {
      if (model_.layers[layer].is_offline && !served[layer])
        throw Error(ErrorCode::kInvalidArgument,
                    describe(model_.layers[layer]) +
                        ", field 'protocol': is offline, but it takes no triples, so there is "
                        "nothing to make ahead",
                    "Leave the field out.");
    }
    const std::size_t offline = operations.size();
    for (Operation& operation : task_.operations) {
      for (std::size_t& input : operation.inputs) input += offline;
      for (std::size_t& reused : operation.reuses) reused += offline;
    }
    std::move(task_.operations.begin(), task_.operations.end(), std::back_inserter(operations));
    task_.operations = std::move(operations);
  }

  const Model& model_;
  Task task_;
  std::vector<Protocol> protocols_;    // of each layer
  std::vector<std::size_t> forward_;   // the operation of each layer so far
  std::vector<TripleDemand> demands_;  // of each operation
  std::map<std::pair<std::size_t, Protocol>, std::size_t> converted_;
};

}  // namespace

std::uint64_t MessageArray::message_count() const noexcept {
  return std::accumulate(round_messages.begin(), round_messages.end(), std::uint64_t{0});
}

Task parse(const Model& model, const ParseOptions& options) {
  return TaskBuilder(model, options).build();
}

}  // namespace leat::scml

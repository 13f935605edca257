// Small models, and what the Parser makes of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "leat/error.h"
#include "leat/scml/parser.h"

namespace leat::scml {

using Rounds = std::vector<std::uint64_t>;

inline const std::vector<Flow> kBothWays{{0, 1}, {1, 0}};
inline const std::vector<Flow> kRingOfThree{{0, 1}, {1, 2}, {2, 0}};

// Layers for layer_model().
inline constexpr const char* kRelu = R"({"layer": "relu", "input_dim": 5, "protocol": "boolean"})";
inline constexpr const char* kPool =
    R"({"layer": "maxpool", "input_hw": [3, 3], "in_channels": 1, "pool_hw": [3, 3]})";

// Three samples of 4 x 5 (a fully connected layer): M = 3, N = 4, P = 5.
Model fc_model(const std::string& protocol = "ss");
// Three samples of 4 to 5 to 2: two fully connected layers.
Model two_layer_model();
// One layer between nothing: `layer` maps `input` numbers to `classes`; two samples.
Model layer_model(const std::string& layer, int input, int classes);

// With SecureML's and ABY3's protocols.
Task parse_aby3(const Model& model, ParseOptions options = {});

// EXPECTs that there is one of that name.
const Operation& find(const Task& task, const std::string& name);
std::vector<std::string> names(const Task& task);
// EXPECTs the array of that place.
void expect_array(const Operation& operation, std::size_t index, std::uint64_t message_bytes,
                  const Rounds& rounds, const std::vector<Flow>& flows);

// EXPECTs that parse_aby3 fails with that code; what the error says.
std::string parse_error(const Model& model, const ParseOptions& options, ErrorCode code);

}  // namespace leat::scml

#include "support/parsed_task.h"

#include <gtest/gtest.h>

#include "support/errors.h"

namespace leat::scml {

Model fc_model(const std::string& protocol) {
  return read_model(
      R"({"batch_size": 3, "input_size": 4, "num_classes": 5, "model": [
          {"layer": "fc", "input_dim": 4, "output_dim": 5, "protocol": ")" +
      protocol + R"("}]})");
}

Model two_layer_model() {
  return read_model(
      R"({"batch_size": 3, "input_size": 4, "num_classes": 2, "model": [
          {"layer": "fc", "input_dim": 4, "output_dim": 5},
          {"layer": "fc", "input_dim": 5, "output_dim": 2}]})");
}

Model layer_model(const std::string& layer, int input, int classes) {
  return read_model(R"({"batch_size": 2, "input_size": )" + std::to_string(input) +
                    R"(, "num_classes": )" + std::to_string(classes) + R"(, "model": [)" + layer +
                    "]}");
}

Task parse_aby3(const Model& model, ParseOptions options) {
  options.profile = Profile::kSecureMlAby3;
  return parse(model, options);
}

const Operation& find(const Task& task, const std::string& name) {
  for (const Operation& operation : task.operations) {
    if (operation.name == name) return operation;
  }
  static const Operation none{"none: " + name};
  ADD_FAILURE() << "no operation " << name;
  return none;
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

std::string parse_error(const Model& model, const ParseOptions& options, ErrorCode code) {
  return leat::detail::error_of(code, [&] { parse_aby3(model, options); });
}

}  // namespace leat::scml

// Model files from any source, and what can be planned from one that was accepted.
#include "leat/scml/model.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fuzz/property.h"
#include "leat/error.h"
#include "leat/scml/planner.h"

namespace {

using namespace leat::scml;
using leat::detail::require;

void check_shapes(const Model& model) {
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const Layer& layer = model.layers[i];
    require(layer.output.elements() > 0, "a layer gives something");
    require(!layer.inputs.empty(), "a layer reads something");
    for (const std::size_t input : layer.inputs) {
      require(input == kModelInput || input < i, "layers stand after their inputs");
      const std::uint64_t given =
          input == kModelInput ? model.input_size : model.layers[input].output.elements();
      require(given == layer.input.elements(), "shapes agree");
    }
  }
  require(model.layers.back().output.elements() == model.num_classes, "the end has the classes");
}

void check_plan(const Model& model) {
  try {
    const Plan plan = make_plan(parse(model, {.train = true, .triples = Triples::kOt}), {});
    for (const Placement& placement : plan.placements) {
      require(placement.base_bytes % kAlignmentBytes == 0, "bases are aligned");
      require(placement.base_bytes + placement.messages.bytes() <= plan.peak_bytes, "all is in");
    }
  } catch (const leat::Error& error) {
    require(
        error.code() == leat::ErrorCode::kTooLarge || error.code() == leat::ErrorCode::kResource,
        "a good model fails only by its size");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const Model model = read_model(text);
    check_shapes(model);
    check_plan(model);
  } catch (const leat::Error& error) {
    require(error.code() == leat::ErrorCode::kInvalidArgument ||
                error.code() == leat::ErrorCode::kTooLarge,
            "a bad model is a bad argument, or too large");
  }
  return 0;
}

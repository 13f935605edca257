// Plans a task of one layer.
#include <leat/scml/planner.h>

#include <cstdio>

int main() {
  const leat::scml::Model model = leat::scml::read_model(
      R"({"batch_size": 3, "input_size": 4, "num_classes": 5, "model": [
          {"layer": "fc", "input_dim": 4, "output_dim": 5}]})");
  const leat::scml::Plan plan = leat::scml::make_plan(leat::scml::parse(model, {}), {});
  std::printf("%llu bytes\n", static_cast<unsigned long long>(plan.peak_bytes));
  // 32 words open 3x4 and 4x5, 15 truncate 3x5.
  return plan.peak_bytes == 128 + 64 ? 0 : 1;
}

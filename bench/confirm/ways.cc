#include "confirm/ways.h"

#include <string_view>

#include "confirm/star.h"

namespace leat::bench {
namespace {

bool is_batched(const Way& way) { return way.transport == std::string_view("batched"); }

}  // namespace

std::string Way::name() const {
  std::string name = is_batched(*this) && !bundles ? "unbundled" : transport;
  if (threshold) name += " " + std::to_string(*threshold) + "%";
  return name;
}

void Way::describe(nlohmann::ordered_json& row) const {
  row["transport"] = transport;
  if (is_batched(*this)) row["bundles"] = bundles;
  if (threshold) row["threshold"] = *threshold;
}

Options Way::options(const std::string& device) const {
  Options options = lane_options(device, transport);
  options.batched_bundles = bundles;
  options.batched_confirm_threshold = threshold;
  return options;
}

}  // namespace leat::bench

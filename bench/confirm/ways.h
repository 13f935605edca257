// What leat-bench confirm and resnet152 set against each other.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "leat/options.h"

namespace leat::bench {

// A transport and, of batched, the settings that matter here.
struct Way {
  const char* transport = "";
  bool bundles = false;
  std::optional<std::size_t> threshold;  // percent; no value: as leat is configured

  // "confirm-each", "batched", "unbundled 40%".
  std::string name() const;
  // In front of the names of its ratios: none with bundles.
  const char* prefix() const { return bundles ? "" : "unbundled_"; }
  // What says in JSON whose row it is.
  void describe(nlohmann::ordered_json& row) const;
  // That transport on that device ("": the best for this host).
  Options options(const std::string& device) const;
};

}  // namespace leat::bench

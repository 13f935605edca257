// What the roles of leat-provision share: their folders and their output.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "trusted/remote/files.h"

namespace leat::tools {

// For its owner only. It must not exist.
void make_folder(const std::string& path);
std::string hex_of(trusted::remote::View bytes);
// Prints the one line or object that ends a command.
void print(const nlohmann::ordered_json& object, const std::string& text, bool json);

}  // namespace leat::tools

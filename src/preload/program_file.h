// The file of a program that is about to be executed.
#pragma once

#include <optional>
#include <string>

namespace leat::preload {

// Where execvp(3) finds it.
std::optional<std::string> find_program(const std::string& name);
// Why the dynamic linker will not load libleat_preload.so into it, or null.
const char* obstacle(const std::string& path) noexcept;

}  // namespace leat::preload

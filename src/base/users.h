// Users by name and number.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace leat::detail {

// The user of that name or, where there is none of that name, of that number. Any thread; may ask
// a name service.
std::optional<uid_t> user_of(const std::string& name_or_number);

// For people: "alice (1000)", or "user 1000" if it has no name. The same.
std::string describe_user(uid_t user);

}  // namespace leat::detail

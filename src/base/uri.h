// Parses "leat://host:port?key=value&..." and "host:port". Pure.
#pragma once

#include <cstdint>
#include <string>

#include "base/settings.h"

namespace leat::detail {

struct Uri {
  std::string host;  // empty: all addresses (listening); without the brackets of IPv6
  std::uint16_t port = 0;
  UriParameters parameters;  // as written; resolve_settings() checks them
};

// Throws kInvalidArgument, quoting the part that is wrong.
Uri parse_uri(const std::string& text);

}  // namespace leat::detail

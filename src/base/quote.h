// Makes text from outside (a peer, a user, a file) fit for messages and logs.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace leat::detail {

inline constexpr std::size_t kMaxQuotedBytes = 200;

// `text` on one line: bytes other than printable ASCII become \xNN, and it ends with "..." after
// `max_bytes`.
std::string printable(std::string_view text, std::size_t max_bytes = kMaxQuotedBytes);

// The same between single quotes.
std::string quoted(std::string_view text, std::size_t max_bytes = kMaxQuotedBytes);

// Whether `text` contains a byte that no line of text has, such as a zero, an escape or a tab.
bool has_control_characters(std::string_view text);

}  // namespace leat::detail

#include "base/quote.h"

#include <algorithm>

namespace leat::detail {

std::string printable(std::string_view text, std::size_t max_bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  const bool cut = text.size() > max_bytes;
  std::string out;
  for (const char c : text.substr(0, max_bytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += "\\x";
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
  }
  if (cut) out += "...";
  return out;
}

bool has_control_characters(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7f;
  });
}

std::string quoted(std::string_view text, std::size_t max_bytes) {
  return "'" + printable(text, max_bytes) + "'";
}

}  // namespace leat::detail

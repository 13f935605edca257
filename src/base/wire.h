// Writes and reads fixed-size fields, little-endian, in a buffer whose size was checked before.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace leat::detail {

// Positions never pass the end. A field that does not fit is a mistake of the program, whose frame
// sizes are constants; it stops constant evaluation or is caught by the span of a debug build.
class WireWriter {
 public:
  constexpr explicit WireWriter(std::span<std::byte> buffer) : rest_(buffer) {}

  template <std::unsigned_integral T>
  constexpr void number(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      rest_[i] = static_cast<std::byte>((value >> (8 * i)) & 0xff);
    }
    rest_ = rest_.subspan(sizeof(T));
  }

  // Padded with zeros, cut to `width`.
  constexpr void bytes(std::span<const std::byte> bytes, std::size_t width) {
    const auto used = bytes.first(std::min(bytes.size(), width));
    std::fill(std::copy(used.begin(), used.end(), rest_.begin()), rest_.begin() + width,
              std::byte{0});
    rest_ = rest_.subspan(width);
  }

  // The same for text. A character that is not printable ASCII becomes '?', because the reader
  // refuses it.
  constexpr void text(std::string_view text, std::size_t width) {
    for (std::size_t i = 0; i < width; ++i) {
      const char c = i < text.size() ? text[i] : '\0';
      rest_[i] = static_cast<std::byte>(i >= text.size() || (c >= 0x20 && c < 0x7f) ? c : '?');
    }
    rest_ = rest_.subspan(width);
  }

 private:
  std::span<std::byte> rest_;
};

class WireReader {
 public:
  constexpr explicit WireReader(std::span<const std::byte> buffer) : rest_(buffer) {}

  template <std::unsigned_integral T>
  constexpr T number() {
    T value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      value = static_cast<T>(
          value | static_cast<T>(T{std::to_integer<unsigned char>(rest_[i])} << (8 * i)));
    }
    rest_ = rest_.subspan(sizeof(T));
    return value;
  }

  constexpr std::span<const std::byte> bytes(std::size_t width) {
    const auto taken = rest_.first(width);
    rest_ = rest_.subspan(width);
    return taken;
  }

  // Returns false if the field is not printable ASCII padded with zeros.
  constexpr bool text(std::string& text, std::size_t width) {
    const auto field = bytes(width);
    text.clear();
    bool ended = false;
    for (const std::byte byte : field) {
      const auto c = std::to_integer<unsigned char>(byte);
      if (c == 0) {
        ended = true;
      } else if (ended || c < 0x20 || c >= 0x7f) {
        return false;
      } else {
        text += static_cast<char>(c);
      }
    }
    return true;
  }

  // Returns false if any of these bytes is not zero.
  constexpr bool zeros(std::size_t width) {
    const auto field = bytes(width);
    return std::all_of(field.begin(), field.end(), [](std::byte b) { return b == std::byte{0}; });
  }

 private:
  std::span<const std::byte> rest_;
};

}  // namespace leat::detail

// Checks the values of arguments, and describes the allowed ones in the same words in all programs.
// For ranges of numbers CLI::Range does that.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace leat::cli {

// "64", "4K", "1MiB": a unit is K, M, G or T, of either case and with or without B or iB, and means
// powers of 1024. No value if the text is not a size, or too large.
inline std::optional<std::uint64_t> size_of(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  std::string unit = CLI::detail::to_lower(std::string(end, text.data() + text.size()));
  if (unit.ends_with('b')) unit.pop_back();
  if (unit.size() == 2 && unit.ends_with('i')) unit.pop_back();
  if (unit.empty()) return number;
  constexpr std::string_view kUnits = "kmgt";
  const std::size_t place = kUnits.find(unit);
  if (place == std::string_view::npos || unit.size() != 1) return std::nullopt;
  const unsigned shift = 10 * (static_cast<unsigned>(place) + 1);
  if (number > std::numeric_limits<std::uint64_t>::max() >> shift) return std::nullopt;
  return number << shift;
}

// As users write it: "64", "4K", "1M".
inline std::string size_text(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"", "K", "M", "G", "T"};
  unsigned unit = 0;
  while (bytes != 0 && bytes % 1024 == 0 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return std::to_string(bytes) + kUnits[unit];
}

// A size from `least` to `most`; the option gets the number.
inline CLI::Validator size_between(std::uint64_t least,
                                   std::uint64_t most = std::numeric_limits<std::uint64_t>::max()) {
  return {[=](std::string& text) -> std::string {
            const std::optional<std::uint64_t> bytes = size_of(text);
            if (!bytes || *bytes < least || *bytes > most) {
              const bool bounded = most != std::numeric_limits<std::uint64_t>::max();
              return "'" + text + "' is not an allowed size. Give bytes" +
                     (bounded      ? ", " + size_text(least) + " to " + size_text(most)
                      : least != 0 ? ", at least " + size_text(least)
                                   : "") +
                     "; K, M, G and T stand for powers of 1024.";
            }
            text = std::to_string(*bytes);
            return {};
          },
          ""};
}

inline std::string not_among(const std::string& text, const std::vector<std::string>& names) {
  std::string list;
  for (std::size_t i = 0; i < names.size(); ++i)
    list += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  return "'" + text + "' is not allowed. Allowed: " + list + ".";
}

// One of these words.
inline CLI::Validator one_of(std::vector<std::string> names) {
  return {[names = std::move(names)](std::string& text) -> std::string {
            for (const std::string& name : names)
              if (name == text) return {};
            return not_among(text, names);
          },
          ""};
}

// One of these names; the option gets its value, a number or an enumerator.
template <typename Value>
CLI::Validator one_of(const std::map<std::string, Value>& values) {
  return {[values](std::string& text) -> std::string {
            const auto found = values.find(text);
            if (found != values.end()) {
              text = std::to_string(static_cast<std::int64_t>(found->second));
              return {};
            }
            std::vector<std::string> names;
            names.reserve(values.size());
            for (const auto& [name, value] : values) names.push_back(name);
            return not_among(text, names);
          },
          ""};
}

// Adds an option that takes one of these enumerators, by the name that to_string() gives it. CLI11
// binds none that have a to_string().
template <typename Enumerator, std::size_t kCount>
CLI::Option* add_choice(CLI::App& app, const std::string& option, Enumerator& value,
                        const Enumerator (&all)[kCount], const std::string& help) {
  std::vector<std::string> names;
  for (const Enumerator each : all) names.emplace_back(to_string(each));
  const auto set = [&value, &all](const std::string& name) {
    for (const Enumerator each : all)
      if (name == to_string(each)) value = each;
  };
  return app.add_option_function<std::string>(option, set, help)
      ->check(one_of(names))
      ->type_name(CLI::detail::join(names, "|"));
}

}  // namespace leat::cli

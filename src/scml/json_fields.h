// Reads the fields of a JSON object one by one; a field that is not read is an error.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

namespace leat::scml::detail {

// Text from a file, made fit for messages: in double quotes, printable, on one line, not long.
std::string in_quotes(std::string_view text);

// Throws kInvalidArgument: "<where>, field '<field>': <problem>".
[[noreturn]] void bad_field(const std::string& where, const std::string& field,
                            const std::string& problem, const std::string& advice = {});

// Borrows the object. Every error is one of bad_field().
class Fields {
 public:
  Fields(const nlohmann::json& object, std::string where);

  const std::string& where() const { return where_; }
  void set_where(std::string where) { where_ = std::move(where); }
  bool has(const char* field) const { return object_.contains(field); }

  // A field that must exist.
  const nlohmann::json& take(const char* field);
  // A whole number from `least` to kMaxDimension.
  std::uint64_t number(const char* field, std::uint64_t least = 1);
  std::uint64_t number_or(const char* field, std::uint64_t least, std::uint64_t fallback);
  struct HeightWidth {
    std::uint64_t height = 0, width = 0;
  };
  HeightWidth height_width(const char* field);
  // Printable ASCII, 1 to 64 characters.
  std::string text(const char* field);
  // Throws if a field was not taken.
  void finish() const;

 private:
  std::uint64_t check_number(const nlohmann::json& value, const char* field,
                             std::uint64_t least) const;

  const nlohmann::json& object_;
  std::string where_;
  std::set<std::string, std::less<>> taken_;
};

}  // namespace leat::scml::detail

#include "scml/json_fields.h"

#include <algorithm>

#include "leat/error.h"
#include "leat/scml/model.h"

namespace leat::scml::detail {

using nlohmann::json;

namespace {

constexpr std::size_t kMaxShownBytes = 60;
constexpr std::size_t kMaxTextBytes = 64;

// A value as JSON writes it, cut, without bytes that are not ASCII.
std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kMaxShownBytes) text = text.substr(0, kMaxShownBytes) + "...";
  return text;
}

}  // namespace

std::string in_quotes(std::string_view text) { return shown(json(text)); }

void bad_field(const std::string& where, const std::string& field, const std::string& problem,
               const std::string& advice) {
  throw Error(ErrorCode::kInvalidArgument, where + ", field '" + field + "': " + problem, advice);
}

Fields::Fields(const json& object, std::string where) : object_(object), where_(std::move(where)) {
  if (!object.is_object())
    throw Error(ErrorCode::kInvalidArgument, where_ + " is " + shown(object) + ", not an object");
}

const json& Fields::take(const char* field) {
  const auto found = object_.find(field);
  if (found == object_.end()) bad_field(where_, field, "is missing");
  taken_.insert(field);
  return *found;
}

std::uint64_t Fields::check_number(const json& value, const char* field,
                                   std::uint64_t least) const {
  const std::string range = "must be a whole number from " + std::to_string(least) + " to " +
                            std::to_string(kMaxDimension);
  if (!value.is_number_unsigned() && !(value.is_number_integer() && value.get<std::int64_t>() >= 0))
    bad_field(where_, field, "is " + shown(value) + ", but " + range);
  const auto number = value.get<std::uint64_t>();
  if (number < least || number > kMaxDimension)
    bad_field(where_, field, "is " + shown(value) + ", but " + range);
  return number;
}

std::uint64_t Fields::number(const char* field, std::uint64_t least) {
  return check_number(take(field), field, least);
}

std::uint64_t Fields::number_or(const char* field, std::uint64_t least, std::uint64_t fallback) {
  return has(field) ? number(field, least) : fallback;
}

Fields::HeightWidth Fields::height_width(const char* field) {
  const json& value = take(field);
  if (!value.is_array() || value.size() != 2)
    bad_field(where_, field, "is " + shown(value) + ", but must be [height, width]");
  return {check_number(value[0], field, 1), check_number(value[1], field, 1)};
}

std::string Fields::text(const char* field) {
  const json& value = take(field);
  if (!value.is_string()) bad_field(where_, field, "is " + shown(value) + ", but must be a text");
  const auto& text = value.get_ref<const std::string&>();
  const bool printable =
      std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
  if (text.empty() || text.size() > kMaxTextBytes || !printable)
    bad_field(where_, field,
              "is " + shown(value) + ", but must be 1 to " + std::to_string(kMaxTextBytes) +
                  " printable ASCII characters");
  return text;
}

void Fields::finish() const {
  for (const auto& [field, value] : object_.items()) {
    if (!taken_.contains(field))
      throw Error(ErrorCode::kInvalidArgument, where_ + ": unknown field " + in_quotes(field));
  }
}

}  // namespace leat::scml::detail

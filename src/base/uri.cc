#include "base/uri.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "base/quote.h"
#include "base/setting_values.h"
#include "leat/error.h"

namespace leat::detail {
namespace {

constexpr std::string_view kScheme = "leat://";
constexpr std::string_view kAdvice =
    "Write host:port, [IPv6]:port, or leat://host:port?setting=value&setting=value.";
constexpr std::size_t kMaxHostBytes = 255;

[[noreturn]] void fail(const std::string& text, const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, "address " + quoted(text) + ": " + why,
              std::string(kAdvice));
}

bool is_alphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool only(std::string_view text, std::string_view punctuation) {
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return is_alphanumeric(c) || punctuation.find(c) != std::string_view::npos;
  });
}

std::optional<unsigned> hex_digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A' + 10);
  return std::nullopt;
}

// %2F to /, as in every URI, for paths with odd characters.
std::string decode(std::string_view part, const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < part.size(); ++i) {
    if (part[i] != '%') {
      out += part[i];
      continue;
    }
    const auto high = i + 2 < part.size() ? hex_digit(part[i + 1]) : std::nullopt;
    const auto low = i + 2 < part.size() ? hex_digit(part[i + 2]) : std::nullopt;
    if (!high || !low || (*high == 0 && *low == 0)) {
      fail(text, "in " + quoted(part) + " % must be followed by two hexadecimal digits, not 00");
    }
    out += static_cast<char>(*high * 16 + *low);
    i += 2;
  }
  return out;
}

std::uint16_t parse_port(std::string_view port, const std::string& text) {
  const auto number = parse_number(port);
  if (!number || *number > std::numeric_limits<std::uint16_t>::max()) {
    fail(text, quoted(port) + " is not a port; a port is a number from 0 to 65535");
  }
  return static_cast<std::uint16_t>(*number);
}

// "host:port" or "[address]:port".
void parse_authority(std::string_view authority, const std::string& text, Uri& uri) {
  std::size_t colon = 0;
  if (authority.starts_with('[')) {
    const std::size_t bracket = authority.find(']');
    if (bracket == std::string_view::npos) fail(text, "the ] that ends an IPv6 address is missing");
    uri.host = std::string(authority.substr(1, bracket - 1));
    const std::size_t zone = std::min(uri.host.find('%'), uri.host.size());
    const std::string_view address = std::string_view(uri.host).substr(0, zone);
    if (address.find(':') == std::string_view::npos || !only(address, ":.") ||
        !only(std::string_view(uri.host).substr(zone), "%._-")) {
      fail(text, quoted(uri.host) + " is not an IPv6 address");
    }
    colon = bracket + 1;
  } else {
    colon = authority.find(':');
    uri.host = std::string(authority.substr(0, colon));
    if (!only(uri.host, ".-_")) fail(text, quoted(uri.host) + " is not a host name");
    if (colon != std::string_view::npos &&
        authority.find(':', colon + 1) != std::string_view::npos) {
      fail(text, "an IPv6 address must stand in brackets");
    }
  }
  if (uri.host.size() > kMaxHostBytes) fail(text, "the host name is longer than 255 characters");
  if (colon >= authority.size() || authority[colon] != ':') fail(text, "the port is missing");
  uri.port = parse_port(authority.substr(colon + 1), text);
}

void parse_parameters(std::string_view query, const std::string& text, Uri& uri) {
  while (!query.empty()) {
    const std::size_t end = std::min(query.find('&'), query.size());
    const std::string_view parameter = query.substr(0, end);
    const std::size_t equals = parameter.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      fail(text, "parameter " + quoted(parameter) + " is not of the form setting=value");
    }
    const std::string name = decode(parameter.substr(0, equals), text);
    if (!uri.parameters.emplace(name, decode(parameter.substr(equals + 1), text)).second) {
      fail(text, "parameter " + quoted(name) + " is given twice");
    }
    query.remove_prefix(std::min(end + 1, query.size()));
  }
}

}  // namespace

Uri parse_uri(const std::string& text) {
  Uri uri;
  std::string_view rest = text;
  if (has_control_characters(rest)) fail(text, "it contains a control character");
  if (rest.starts_with(kScheme)) {
    rest.remove_prefix(kScheme.size());
  } else if (const std::size_t scheme = rest.find("://"); scheme < rest.find('?')) {
    fail(text, "the scheme " + quoted(rest.substr(0, scheme)) + " is not leat");
  }
  const std::size_t question = std::min(rest.find('?'), rest.size());
  std::string_view authority = rest.substr(0, question);
  if (authority.ends_with('/')) authority.remove_suffix(1);
  parse_authority(authority, text, uri);
  if (question < rest.size()) parse_parameters(rest.substr(question + 1), text, uri);
  return uri;
}

}  // namespace leat::detail

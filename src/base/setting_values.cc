#include "base/setting_values.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>

namespace leat::detail {
namespace {

constexpr std::array<std::string_view, 3> kFallbacks = {"never", "warn", "allow"};
constexpr std::array<std::string_view, 2> kChunkModes = {"inplace", "header"};
constexpr std::array<std::string_view, 4> kAlgorithms = {"hmac-sha256", "hmac-sha384",
                                                         "hmac-sha512", "aes256-gmac"};
constexpr std::array<std::string_view, 3> kConfidentials = {"off", "prefer", "require"};
constexpr std::array<std::string_view, 4> kSealCiphers = {"auto", "aes-256-gcm", "aes-128-gcm",
                                                          "chacha20-poly1305"};
constexpr std::array<std::string_view, 3> kLinkEnables = {"off", "on", "auto"};
constexpr std::array<std::string_view, 5> kLevels = {"error", "warn", "info", "debug", "trace"};
constexpr std::array<std::pair<std::string_view, bool>, 8> kBools = {{{"yes", true},
                                                                      {"no", false},
                                                                      {"true", true},
                                                                      {"false", false},
                                                                      {"on", true},
                                                                      {"off", false},
                                                                      {"1", true},
                                                                      {"0", false}}};
constexpr std::array<std::pair<char, unsigned>, 3> kSuffixes = {{{'G', 30}, {'M', 20}, {'K', 10}}};

template <std::size_t kSize>
std::optional<int> index_of(const std::array<std::string_view, kSize>& names,
                            std::string_view text) {
  const auto* found = std::find(names.begin(), names.end(), text);
  if (found == names.end()) return std::nullopt;
  return static_cast<int>(found - names.begin());
}

}  // namespace

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end) return std::nullopt;
  return value;
}

std::optional<std::string> WordCodec::parse(std::string_view text) {
  const bool printable =
      std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
  if (text.empty() || !printable) return std::nullopt;
  return std::string(text);
}

std::optional<std::string> DigestCodec::parse(std::string_view text) {
  std::string digest(text);
  for (char& c : digest) {
    if (c >= 'A' && c <= 'F') c = static_cast<char>(c - 'A' + 'a');
    if ((c < '0' || c > '9') && (c < 'a' || c > 'f')) return std::nullopt;
  }
  if (digest.size() % 2 != 0 || digest.size() > 2 * kMaxBytes) return std::nullopt;
  return digest;
}

std::optional<std::string> PublicKeyCodec::parse(std::string_view text) {
  return text.empty() || text.size() == 2 * kMaxBytes ? DigestCodec::parse(text) : std::nullopt;
}

std::optional<Fallback> FallbackCodec::parse(std::string_view text) {
  const auto index = index_of(kFallbacks, text);
  if (!index) return std::nullopt;
  return static_cast<Fallback>(*index);
}

std::string FallbackCodec::format(Fallback value) {
  return std::string(kFallbacks[static_cast<std::size_t>(value)]);
}

std::optional<Confidential> ConfidentialCodec::parse(std::string_view text) {
  const auto index = index_of(kConfidentials, text);
  if (!index) return std::nullopt;
  return static_cast<Confidential>(*index);
}

std::string ConfidentialCodec::format(Confidential value) {
  return std::string(kConfidentials[static_cast<std::size_t>(value)]);
}

std::optional<ChunkMode> ChunkModeCodec::parse(std::string_view text) {
  const auto index = index_of(kChunkModes, text);
  if (!index) return std::nullopt;
  return static_cast<ChunkMode>(*index);
}

std::string ChunkModeCodec::format(ChunkMode value) {
  return std::string(kChunkModes[static_cast<std::size_t>(value)]);
}

std::optional<LinkEnable> LinkEnableCodec::parse(std::string_view text) {
  const auto index = index_of(kLinkEnables, text);
  if (!index) return std::nullopt;
  return static_cast<LinkEnable>(*index);
}

std::string LinkEnableCodec::format(LinkEnable value) {
  return std::string(kLinkEnables[static_cast<std::size_t>(value)]);
}

std::optional<trusted::Algorithm> AlgorithmCodec::parse(std::string_view text) {
  const auto index = index_of(kAlgorithms, text);
  if (!index) return std::nullopt;
  return static_cast<trusted::Algorithm>(*index + 1);
}

std::string AlgorithmCodec::format(trusted::Algorithm value) {
  return std::string(kAlgorithms[static_cast<std::size_t>(value) - 1]);
}

std::optional<SealCipher> SealCipherCodec::parse(std::string_view text) {
  const auto index = index_of(kSealCiphers, text);
  if (!index) return std::nullopt;
  return static_cast<SealCipher>(*index);
}

std::string SealCipherCodec::format(SealCipher value) {
  return std::string(kSealCiphers[static_cast<std::size_t>(value)]);
}

std::optional<std::size_t> ChunkBytesCodec::parse(std::string_view text) {
  const auto value = BytesCodec::parse(text);
  return value && *value >= 4096 && *value <= std::size_t{1} << 30 ? value : std::nullopt;
}

std::optional<std::size_t> WindowCodec::parse(std::string_view text) {
  if (text == "auto") return 0;
  const auto number = parse_number(text);
  return number && *number >= 1 && *number <= 256 ? number : std::nullopt;
}

std::string WindowCodec::format(std::size_t value) {
  return value == 0 ? "auto" : std::to_string(value);
}

std::optional<int> LogLevelCodec::parse(std::string_view text) { return index_of(kLevels, text); }

std::optional<bool> BoolCodec::parse(std::string_view text) {
  for (const auto& [name, value] : kBools) {
    if (name == text) return value;
  }
  return std::nullopt;
}

std::optional<std::size_t> BytesCodec::parse(std::string_view text) {
  unsigned shift = 0;
  for (const auto& [suffix, bits] : kSuffixes) {
    if (text.ends_with(suffix)) shift = bits;
  }
  if (shift != 0) text.remove_suffix(1);
  const auto number = parse_number(text);
  if (!number || *number > std::numeric_limits<std::size_t>::max() >> shift) return std::nullopt;
  return std::size_t{*number} << shift;
}

std::string BytesCodec::format(std::size_t value) {
  for (const auto& [suffix, bits] : kSuffixes) {
    if (value != 0 && value % (std::size_t{1} << bits) == 0) {
      return std::to_string(value >> bits) + suffix;
    }
  }
  return std::to_string(value);
}

std::optional<std::size_t> PositiveBytesCodec::parse(std::string_view text) {
  const auto value = BytesCodec::parse(text);
  return value && *value > 0 ? value : std::nullopt;
}

std::optional<std::size_t> SlotBytesCodec::parse(std::string_view text) {
  const auto value = BytesCodec::parse(text);
  return value && *value >= 64 && *value <= std::size_t{1} << 24 ? value : std::nullopt;
}

std::optional<std::int64_t> parse_count_or_inf(std::string_view text, std::int64_t limit) {
  if (text == "inf" || text == "-1") return -1;
  const auto number = parse_number(text);
  if (!number) return std::nullopt;
  return *number > static_cast<std::uint64_t>(limit) ? -1 : static_cast<std::int64_t>(*number);
}

std::string format_count_or_inf(std::int64_t value, std::int64_t limit) {
  return value < 0 || value > limit ? "inf" : std::to_string(value);
}

}  // namespace leat::detail

// The types that a setting's value can have: from text and back. Each codec has
//   kType, kAllowed       for leat-info and for errors
//   parse(text)           no value if the text is not allowed
//   format(value)         text that parse takes
// Pure.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/setting_types.h"

namespace leat::detail {

// The whole text as a decimal number; no sign, no blanks, no overflow.
std::optional<std::uint64_t> parse_number(std::string_view text);

struct WordCodec {
  static constexpr const char* kType = "text";
  static constexpr const char* kAllowed = "printable text that is not empty";
  static std::optional<std::string> parse(std::string_view text);
  static std::string format(const std::string& value) { return value; }
};

struct PathCodec {
  static constexpr const char* kType = "path";
  static constexpr const char* kAllowed = "the path of a file, or nothing";
  static std::optional<std::string> parse(std::string_view text) { return std::string(text); }
  static std::string format(const std::string& value) { return value; }
};

struct FallbackCodec {
  static constexpr const char* kType = "never|warn|allow";
  static constexpr const char* kAllowed = "never, warn, allow";
  static std::optional<Fallback> parse(std::string_view text);
  static std::string format(Fallback value);
  static std::string format(const std::string& value) { return value; }  // as Options has it
};

struct ConfidentialCodec {
  static constexpr const char* kType = "off|prefer|require";
  static constexpr const char* kAllowed = "off, prefer, require";
  static std::optional<Confidential> parse(std::string_view text);
  static std::string format(Confidential value);
  static std::string format(const std::string& value) { return value; }  // as Options has it
};

struct LogLevelCodec {
  static constexpr const char* kType = "error|warn|info|debug|trace";
  static constexpr const char* kAllowed = "error, warn, info, debug, trace";
  static std::optional<int> parse(std::string_view text);  // an index, as enum LogLevel counts
};

struct BoolCodec {
  static constexpr const char* kType = "yes|no";
  static constexpr const char* kAllowed = "yes, no, true, false, on, off, 1, 0";
  static std::optional<bool> parse(std::string_view text);
  static std::string format(bool value) { return value ? "yes" : "no"; }
};

struct BytesCodec {
  static constexpr const char* kType = "bytes";
  static constexpr const char* kAllowed =
      "a number of bytes, with K, M or G for 2^10, 2^20 or 2^30";
  static std::optional<std::size_t> parse(std::string_view text);
  static std::string format(std::size_t value);
};

struct PositiveBytesCodec : BytesCodec {
  static constexpr const char* kAllowed =
      "a number of bytes above 0, with K, M or G for 2^10, 2^20 or 2^30";
  static std::optional<std::size_t> parse(std::string_view text);
};

struct SlotBytesCodec : BytesCodec {
  static constexpr const char* kAllowed = "a number of bytes from 64 to 16M";
  static std::optional<std::size_t> parse(std::string_view text);
};

// A whole number from kLeast to kMost.
template <std::size_t kLeast, std::size_t kMost>
struct RangeCodec {
  static constexpr const char* kType = "number";
  static std::optional<std::size_t> parse(std::string_view text) {
    const auto value = parse_number(text);
    return value && *value >= kLeast && *value <= kMost ? value : std::nullopt;
  }
  static std::string format(std::size_t value) { return std::to_string(value); }
};

struct SlotCountCodec : RangeCodec<16, 1024> {
  static constexpr const char* kAllowed = "a number from 16 to 1024";
};

struct BacklogCodec : RangeCodec<1, 65535> {
  static constexpr const char* kAllowed = "a number from 1 to 65535";
};

struct PercentCodec : RangeCodec<0, 100> {
  static constexpr const char* kType = "percent";
  static constexpr const char* kAllowed = "a number from 0 to 100";
};

struct ChunkModeCodec {
  static constexpr const char* kType = "inplace|header";
  static constexpr const char* kAllowed = "inplace, header";
  static std::optional<ChunkMode> parse(std::string_view text);
  static std::string format(ChunkMode value);
  static std::string format(const std::string& value) { return value; }  // as Options has it
};

struct LinkEnableCodec {
  static constexpr const char* kType = "on|off|auto";
  static constexpr const char* kAllowed = "on, off, auto";
  static std::optional<LinkEnable> parse(std::string_view text);
  static std::string format(LinkEnable value);
  static std::string format(const std::string& value) { return value; }  // as Options has it
};

struct AlgorithmCodec {
  static constexpr const char* kType = "algorithm";
  static constexpr const char* kAllowed = "hmac-sha256, hmac-sha384, hmac-sha512, aes256-gmac";
  static std::optional<trusted::Algorithm> parse(std::string_view text);
  static std::string format(trusted::Algorithm value);
  static std::string format(const std::string& value) { return value; }  // as Options has it
};

struct SealCipherCodec {
  static constexpr const char* kType = "cipher";
  static constexpr const char* kAllowed = "auto, aes-256-gcm, aes-128-gcm, chacha20-poly1305";
  static std::optional<SealCipher> parse(std::string_view text);
  static std::string format(SealCipher value);
  static std::string format(const std::string& value) { return value; }  // as Options has it
};

struct KernelCodec {
  static constexpr const char* kType = "in-process|path";
  static constexpr const char* kAllowed = "in-process, or the absolute path of a socket";
  static std::optional<std::string> parse(std::string_view text) {
    if (text != kInProcess && !text.starts_with('/')) return std::nullopt;
    return std::string(text);
  }
  static std::string format(const std::string& value) { return value; }
};

struct UserCodec : PathCodec {
  static constexpr const char* kType = "user";
  static constexpr const char* kAllowed = "the name or number of a user, or nothing";
};

struct SessionCodec : RangeCodec<0, 0xffff'ffff> {
  static constexpr const char* kAllowed = "a number from 0 to 4294967295";
};

struct ChunkBytesCodec : BytesCodec {
  static constexpr const char* kAllowed = "a number of bytes from 4K to 1G";
  static std::optional<std::size_t> parse(std::string_view text);
};

// A count of chunks, or "auto", which is 0.
struct WindowCodec {
  static constexpr const char* kType = "number";
  static constexpr const char* kAllowed = "auto, or a number of chunks from 1 to 256";
  static std::optional<std::size_t> parse(std::string_view text);
  static std::string format(std::size_t value);
  static std::string format(const std::string& value) { return value; }  // as Options has it
};

struct RegionCountCodec : RangeCodec<2, 64> {
  static constexpr const char* kAllowed = "a number from 2 to 64";
};

struct DigestCodec {
  static constexpr const char* kType = "hexadecimal";
  static constexpr const char* kAllowed = "up to 64 hexadecimal digits, an even number of them";
  static constexpr std::size_t kMaxBytes = 32;
  static std::optional<std::string> parse(std::string_view text);  // in lower case
  static std::string format(const std::string& value) { return value; }
};

struct PublicKeyCodec : DigestCodec {
  static constexpr const char* kAllowed = "64 hexadecimal digits, or nothing";
  static std::optional<std::string> parse(std::string_view text);
};

// A count of whole units from 0, or "inf", which is -1. More than a hundred years is inf too, so
// that later conversions cannot overflow.
std::optional<std::int64_t> parse_count_or_inf(std::string_view text, std::int64_t limit);
std::string format_count_or_inf(std::int64_t value, std::int64_t limit);

template <typename Duration>
struct DurationCodec {
  static constexpr std::int64_t kLimit =
      std::chrono::duration_cast<Duration>(std::chrono::hours(24 * 365 * 100)).count();
  static std::optional<Duration> parse(std::string_view text) {
    const auto count = parse_count_or_inf(text, kLimit);
    if (!count) return std::nullopt;
    return Duration(*count);
  }
  static std::string format(Duration value) { return format_count_or_inf(value.count(), kLimit); }
};

struct MicrosecondsCodec : DurationCodec<std::chrono::microseconds> {
  static constexpr const char* kType = "microseconds";
  static constexpr const char* kAllowed = "a number of microseconds from 0, or inf";
};

struct MillisecondsCodec : DurationCodec<std::chrono::milliseconds> {
  static constexpr const char* kType = "milliseconds";
  static constexpr const char* kAllowed = "a number of milliseconds from 0, or inf";
};

}  // namespace leat::detail

// Every setting of leat: declared in one table in settings.cc with its type, default and help.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "leat/options.h"
#include "leat/trusted/attestation.h"

namespace leat::detail {

enum class Fallback { kNever, kWarn, kAllow };
// Of transport chunked: how a transfer's chunks reach their place, and whether a short one goes
// first.
enum class ChunkMode { kInPlace, kHeader };
enum class LinkEnable { kOff, kOn, kAuto };

// Of attest_kernel, beside paths.
inline constexpr const char* kInProcess = "in-process";

// All settings of one connection with their final values. Field names are the settings' names.
struct Settings {
  std::string device = "auto";
  std::string transport = "auto";
  Fallback fallback = Fallback::kAllow;
  std::chrono::microseconds spin{50};  // negative: never sleep
  std::chrono::milliseconds connect_timeout{10'000};
  std::chrono::milliseconds handshake_timeout{5'000};
  std::chrono::milliseconds timeout{-1};
  std::chrono::milliseconds linger{2'000};
  bool connect_retry = false;
  std::size_t ring_bytes = 0;          // 0: by device
  std::size_t context_ring_bytes = 0;  // 0: by device
  std::size_t max_message_bytes = std::size_t{1} << 30;
  std::size_t slot_bytes = 4096;
  std::size_t slot_count = 256;
  std::size_t confirm_threshold = 40;  // percent
  std::size_t planned_bytes = 0;       // 0: by device
  ChunkMode mode = ChunkMode::kInPlace;
  std::size_t chunk_bytes = std::size_t{4} << 20;
  std::size_t window = 0;  // chunks; 0: adaptive
  LinkEnable link_enable = LinkEnable::kAuto;
  std::size_t region_bytes = 0;  // 0: by device
  std::size_t region_count = 4;
  bool verify = false;
  std::chrono::milliseconds resume_timeout{20'000};
  std::string attest_kernel = kInProcess;
  std::size_t attest_session = 0;  // 0: leat-attestd's key file
  std::string attest_key_file;
  trusted::Algorithm attest_algorithm = trusted::Algorithm::kHmacSha256;
  std::string plan_digest;  // hexadecimal digits in lower case
  std::string tls_psk_file;
  std::string tls_cert_file;
  std::string tls_key_file;
  std::string tls_ca_file;
};

using UriParameters = std::map<std::string, std::string>;

// Options in code win over URI parameters, those over LEAT_* variables, those over configuration
// files, those over defaults. Throws kInvalidArgument that names the setting, where it came from
// and what is allowed. Unknown LEAT_* variables and unknown keys in files are logged once as
// warnings; unknown URI parameters throw.
Settings resolve_settings(const Options& options, const UriParameters& parameters);

struct SettingDescription {
  std::string name;      // "spin_us"
  std::string variable;  // "LEAT_SPIN_US"
  std::string type;      // "microseconds", "bytes", "text", "never|warn|allow"
  std::string value;     // in force for a connection without options or URI parameters
  std::string default_value;
  std::string help;
  std::string origin;  // "default", "environment", "/etc/leat.conf"
};
std::vector<SettingDescription> describe_settings();

}  // namespace leat::detail

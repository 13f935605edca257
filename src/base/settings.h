// Every setting of leat: declared in one table in settings.cc with its type, default and help.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "base/setting_types.h"
#include "leat/options.h"

namespace leat::detail {

// All settings of one connection with their final values. Field names are the settings' names.
struct Settings {
  std::string device = "auto";
  std::string transport = "auto";
  Fallback fallback = Fallback::kAllow;
  Confidential confidential = Confidential::kOff;
  std::chrono::microseconds spin{50};  // negative: never sleep
  std::chrono::milliseconds connect_timeout{10'000};
  std::chrono::milliseconds handshake_timeout{5'000};
  std::size_t backlog = 64;
  std::chrono::milliseconds timeout{-1};
  std::chrono::milliseconds linger{2'000};
  std::chrono::milliseconds ib_peer_timeout{1'800};
  bool connect_retry = false;
  std::size_t ring_bytes = 0;          // 0: by device
  std::size_t ring_context_bytes = 0;  // 0: by device
  std::size_t max_message_bytes = std::size_t{1} << 30;
  std::size_t slot_bytes = 4096;
  std::size_t slot_count = 256;
  std::size_t batched_confirm_threshold = 40;  // percent
  bool batched_bundles = true;
  std::size_t planned_bytes = 0;  // 0: by device
  ChunkMode chunked_mode = ChunkMode::kInPlace;
  std::size_t chunked_chunk_bytes = std::size_t{4} << 20;
  std::size_t chunked_window = 0;  // chunks; 0: adaptive
  LinkEnable chunked_link_enable = LinkEnable::kAuto;
  std::size_t chunked_region_bytes = 0;  // 0: by device
  std::size_t chunked_region_count = 4;
  bool chunked_verify = false;
  std::chrono::milliseconds chunked_resume_timeout{20'000};
  std::string attest_kernel = kInProcess;
  std::string attest_kernel_user = "leat-attestd";
  std::string attest_kernel_key;   // lower-case hexadecimal digits; empty: any
  std::size_t attest_session = 0;  // 0: the session of leat-attestd's key file
  std::string attest_key_file;
  trusted::Algorithm attest_algorithm = trusted::Algorithm::kHmacSha256;
  SealCipher sealed_cipher = SealCipher::kAuto;
  std::string planned_digest;  // lower-case hexadecimal digits
  std::string tls_psk_file;
  std::string tls_cert_file;
  std::string tls_key_file;
  std::string tls_ca_file;
  bool tls_check_names = true;
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
  std::string allowed;   // "a number from 16 to 1024"
  std::string value;     // in force for a connection without options or URI parameters
  std::string default_value;
  std::string help;
  std::string origin;  // "default", "environment", "/etc/leat.conf"
};
std::vector<SettingDescription> describe_settings();

}  // namespace leat::detail

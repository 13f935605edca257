#include "base/settings.h"

#include <optional>
#include <utility>

#include "base/log.h"
#include "base/quote.h"
#include "base/setting_sources.h"
#include "base/setting_values.h"
#include "leat/error.h"

namespace leat::detail {
namespace {

struct Row {
  const char* name;
  const char* type;
  const char* allowed;
  const char* help;
  bool (*set)(Settings&, std::string_view);  // false: the text is not allowed
  std::string (*get)(const Settings&);
  std::optional<std::string> (*option)(const Options&);
  const char* process_default;  // not null: not of one connection but of the process
};

template <typename Codec, auto kMember, auto kOption>
constexpr Row row(const char* name, const char* help) {
  return {name,
          Codec::kType,
          Codec::kAllowed,
          help,
          [](Settings& settings, std::string_view text) {
            const auto value = Codec::parse(text);
            if (value) settings.*kMember = *value;
            return value.has_value();
          },
          [](const Settings& settings) { return Codec::format(settings.*kMember); },
          [](const Options& options) -> std::optional<std::string> {
            if (!(options.*kOption)) return std::nullopt;
            return Codec::format(*(options.*kOption));
          },
          nullptr};
}

// log.cc reads these when the first line is logged; here they are checked and listed.
template <typename Codec>
constexpr Row process_row(const char* name, const char* default_value, const char* help) {
  return {name,
          Codec::kType,
          Codec::kAllowed,
          help,
          [](Settings&, std::string_view text) { return Codec::parse(text).has_value(); },
          nullptr,
          nullptr,
          default_value};
}

// Every setting. Defaults are those of struct Settings.
constexpr Row kTable[] = {
    row<WordCodec, &Settings::device, &Options::device>(
        "device",
        "auto, shm, ib, ib:NAME, tcp (no RDMA), or a list with commas; a leading ^ excludes the "
        "list, a leading = matches names exactly, NAME:PORT selects a port"),
    row<WordCodec, &Settings::transport, &Options::transport>(
        "transport", "auto (ring where there is RDMA, else tcp), or a transport's name"),
    row<FallbackCodec, &Settings::fallback, &Options::fallback>(
        "fallback",
        "whether to fall back if the best device cannot be used: fail instead, fall back and warn, "
        "or fall back"),
    row<ConfidentialCodec, &Settings::confidential, &Options::confidential>(
        "confidential",
        "whether messages that leave this host are encrypted: as the other settings say; wherever "
        "there is a key for TLS, over any transport; or else the connection fails"),
    row<MicrosecondsCodec, &Settings::spin, &Options::spin>(
        "spin_us",
        "the longest time that a wait spins before it sleeps; 0: sleep at once, inf: never sleep"),
    row<MillisecondsCodec, &Settings::connect_timeout, &Options::connect_timeout>(
        "connect_timeout_ms",
        "limit of connecting, including name resolution, retries and handshake"),
    row<MillisecondsCodec, &Settings::handshake_timeout, &Options::handshake_timeout>(
        "handshake_timeout_ms", "limit of the handshake of one client at a listener"),
    row<BacklogCodec, &Settings::backlog, &Options::backlog>(
        "backlog", "how many connections a listener completes before accept takes one"),
    row<MillisecondsCodec, &Settings::timeout, &Options::timeout>(
        "timeout_ms", "limit of one blocking send, receive, flush or accept"),
    row<MillisecondsCodec, &Settings::linger, &Options::linger>(
        "linger_ms",
        "how long a closed connection goes on sending what was not flushed, in the background"),
    row<BoolCodec, &Settings::connect_retry, &Options::connect_retry>(
        "connect_retry", "whether to try again while the peer refuses, until connect_timeout_ms"),
    row<BytesCodec, &Settings::ring_bytes, &Options::ring_bytes>(
        "ring_bytes", "receive memory of context 0; 0: depends on the device"),
    row<BytesCodec, &Settings::ring_context_bytes, &Options::ring_context_bytes>(
        "ring_context_bytes", "receive memory of each other context; 0: depends on the device"),
    row<PositiveBytesCodec, &Settings::max_message_bytes, &Options::max_message_bytes>(
        "max_message_bytes", "the largest message that this side sends or accepts"),
    row<SlotBytesCodec, &Settings::slot_bytes, &Options::slot_bytes>(
        "slot_bytes", "transports batched and confirm-each: message bytes in a slot"),
    row<SlotCountCodec, &Settings::slot_count, &Options::slot_count>(
        "slot_count", "transports batched and confirm-each: slots of context 0"),
    row<PercentCodec, &Settings::batched_confirm_threshold, &Options::batched_confirm_threshold>(
        "batched_confirm_threshold",
        "transport batched: read the peer's bitmap when less than this percentage of slots is "
        "free"),
    row<BoolCodec, &Settings::batched_bundles, &Options::batched_bundles>(
        "batched_bundles",
        "transport batched: whether small messages that this side sends share slots"),
    row<BytesCodec, &Settings::planned_bytes, &Options::planned_bytes>(
        "planned_bytes", "transport planned: memory for message arrays; 0: depends on the device"),
    row<DigestCodec, &Settings::planned_digest, &Options::planned_digest>(
        "planned_digest", "transport planned: the plan's digest, equal on both sides"),
    row<ChunkModeCodec, &Settings::chunked_mode, &Options::chunked_mode>(
        "chunked_mode",
        "transport chunked: inplace (chunks go straight to their place) or header (the receiver "
        "reassembles them)"),
    row<ChunkBytesCodec, &Settings::chunked_chunk_bytes, &Options::chunked_chunk_bytes>(
        "chunked_chunk_bytes", "transport chunked: the longest chunk"),
    row<WindowCodec, &Settings::chunked_window, &Options::chunked_window>(
        "chunked_window",
        "transport chunked: how many chunks may be on the path; auto: as many bytes as the path "
        "holds"),
    row<LinkEnableCodec, &Settings::chunked_link_enable, &Options::chunked_link_enable>(
        "chunked_link_enable", "transport chunked: whether a short chunk goes first and alone"),
    row<BytesCodec, &Settings::chunked_region_bytes, &Options::chunked_region_bytes>(
        "chunked_region_bytes",
        "transport chunked: receive memory of context 0 for one message in place; 0: depends on "
        "the device"),
    row<RegionCountCodec, &Settings::chunked_region_count, &Options::chunked_region_count>(
        "chunked_region_count", "transport chunked: how many such regions"),
    row<BoolCodec, &Settings::chunked_verify, &Options::chunked_verify>(
        "chunked_verify",
        "transport chunked: whether the receiver checks each message by its digest"),
    row<MillisecondsCodec, &Settings::ib_peer_timeout, &Options::ib_peer_timeout>(
        "ib_peer_timeout_ms",
        "device ib: how long, at least, to try to reach a peer that no longer answers; a device "
        "may take up to four times as long"),
    row<MillisecondsCodec, &Settings::chunked_resume_timeout, &Options::chunked_resume_timeout>(
        "chunked_resume_timeout_ms",
        "transport chunked: how long to keep trying to re-establish a failed queue pair; 0: do not "
        "try"),
    row<KernelCodec, &Settings::attest_kernel, &Options::attest_kernel>(
        "attest_kernel",
        "transports attested+X: where session keys and counters are held: in-process, or the path "
        "of leat-attestd's socket"),
    row<UserCodec, &Settings::attest_kernel_user, &Options::attest_kernel_user>(
        "attest_kernel_user",
        "transports attested+X with leat-attestd: the user as whom the daemon may run; root and "
        "this process's own user are always trusted"),
    row<PublicKeyCodec, &Settings::attest_kernel_key, &Options::attest_kernel_key>(
        "attest_kernel_key",
        "transports attested+X with leat-attestd: the public key that the daemon must prove to be "
        "its own, as it prints it"),
    row<SessionCodec, &Settings::attest_session, &Options::attest_session>(
        "attest_session",
        "transports attested+X with leat-attestd: the provisioned pair session that both sides "
        "use; 0: the one of leat-attestd's key file"),
    row<PathCodec, &Settings::attest_key_file, &Options::attest_key_file>(
        "attest_key_file",
        "transports attested+X in-process: the key that both sides share, a file of one line, at "
        "least 64 hex digits"),
    row<AlgorithmCodec, &Settings::attest_algorithm, &Options::attest_algorithm>(
        "attest_algorithm", "transports attested+X: how messages are authenticated"),
    row<SealCipherCodec, &Settings::sealed_cipher, &Options::sealed_cipher>(
        "sealed_cipher",
        "transports sealed+X: how messages are encrypted; auto: what the other side names, else "
        "AES-256-GCM where both processors have instructions for it, else ChaCha20-Poly1305"),
    row<PathCodec, &Settings::tls_psk_file, &Options::tls_psk_file>(
        "tls_psk_file", "TLS with a pre-shared key: a file of one line, at least 32 hex digits"),
    row<PathCodec, &Settings::tls_cert_file, &Options::tls_cert_file>(
        "tls_cert_file", "TLS with certificates: this side's certificate, PEM"),
    row<PathCodec, &Settings::tls_key_file, &Options::tls_key_file>(
        "tls_key_file", "the private key of tls_cert_file, PEM"),
    row<PathCodec, &Settings::tls_ca_file, &Options::tls_ca_file>(
        "tls_ca_file", "the authority that must have signed the peer's certificate, PEM"),
    row<BoolCodec, &Settings::tls_check_names, &Options::tls_check_names>(
        "tls_check_names",
        "whether the listener's certificate must name the host that the client connected to"),
    process_row<LogLevelCodec>("log_level", "warn", "log this level and more severe ones"),
    process_row<PathCodec>("log_file", "", "where the log goes; empty: standard error"),
};

const Row* find_row(std::string_view name) {
  for (const Row& row : kTable) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

void set(const Row& row, Settings& settings, const std::string& value, const std::string& place) {
  if (row.set(settings, value)) return;
  throw Error(ErrorCode::kInvalidArgument,
              place + ": " + quoted(value) + " is not allowed for " + row.name,
              std::string("Allowed: ") + row.allowed + ".");
}

using Origins = std::map<std::string_view, ConfiguredValue>;  // by a row's name

// The defaults, overridden by files and these by the environment; `origins` gets the last source
// of each value.
Settings configured_settings(Origins& origins) {
  Settings settings;
  std::vector<ConfiguredValue> values = file_values();
  for (ConfiguredValue& value : environment_values()) values.push_back(std::move(value));
  for (ConfiguredValue& value : values) {
    const Row* row = find_row(value.name);
    if (row == nullptr) {
      const bool variable = value.source == "environment";
      log_once(LogLevel::kWarn, printable(value.place) +
                                    (variable ? " is not a setting of leat"
                                              : ": " + quoted(value.name) + " is not a setting") +
                                    ", ignored. leat-info -c lists all settings.");
      continue;
    }
    set(*row, settings, value.value, value.place);
    origins[row->name] = std::move(value);
  }
  return settings;
}

}  // namespace

Settings resolve_settings(const Options& options, const UriParameters& parameters) {
  Origins origins;
  Settings settings = configured_settings(origins);
  for (const auto& [name, value] : parameters) {
    const Row* row = find_row(name);
    if (row == nullptr) {
      throw Error(ErrorCode::kInvalidArgument,
                  "URI parameter " + quoted(name) + " is not a setting",
                  "leat-info -c lists all settings.");
    }
    if (row->process_default != nullptr) {
      throw Error(ErrorCode::kInvalidArgument,
                  "URI parameter " + quoted(name) + " is a setting of the process",
                  "Set the variable " + variable_of(name) + " instead.");
    }
    set(*row, settings, value, "URI parameter " + name);
  }
  for (const Row& row : kTable) {
    if (row.option == nullptr) continue;
    if (const auto text = row.option(options)) {
      set(row, settings, *text, std::string("option ") + row.name);
    }
  }
  return settings;
}

std::vector<SettingDescription> describe_settings() {
  Origins origins;
  const Settings settings = configured_settings(origins);
  std::vector<SettingDescription> descriptions;
  for (const Row& row : kTable) {
    const auto found = origins.find(row.name);
    SettingDescription description;
    description.name = row.name;
    description.variable = variable_of(row.name);
    description.type = row.type;
    description.allowed = row.allowed;
    description.help = row.help;
    description.origin = found == origins.end() ? "default" : found->second.source;
    if (row.process_default == nullptr) {
      description.value = row.get(settings);
      description.default_value = row.get(Settings{});
    } else {
      description.value = found == origins.end() ? row.process_default : found->second.value;
      description.default_value = row.process_default;
    }
    descriptions.push_back(std::move(description));
  }
  return descriptions;
}

}  // namespace leat::detail

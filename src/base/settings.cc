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
        "auto, shm, ib, ib:NAME, tcp (no RDMA); or a list with commas; ^ in front excludes the "
        "list, = takes names exactly, NAME:PORT a port"),
    row<WordCodec, &Settings::transport, &Options::transport>(
        "transport", "auto (ring where there is RDMA, else tcp), or a transport's name"),
    row<FallbackCodec, &Settings::fallback, &Options::fallback>(
        "fallback", "what to do if the best device cannot be had: fail, warn, or go on"),
    row<MicrosecondsCodec, &Settings::spin, &Options::spin>(
        "spin_us", "how long a wait spins before it sleeps; 0: sleep at once, inf: never sleep"),
    row<MillisecondsCodec, &Settings::connect_timeout, &Options::connect_timeout>(
        "connect_timeout_ms", "limit of connecting, name look-up, retries and handshake included"),
    row<MillisecondsCodec, &Settings::handshake_timeout, &Options::handshake_timeout>(
        "handshake_timeout_ms", "limit of a listener for the handshake of one newcomer"),
    row<MillisecondsCodec, &Settings::timeout, &Options::timeout>(
        "timeout_ms", "limit of one blocking send, receive, flush or accept"),
    row<MillisecondsCodec, &Settings::linger, &Options::linger>(
        "linger_ms", "how long a closed connection goes on sending what was not flushed"),
    row<BoolCodec, &Settings::connect_retry, &Options::connect_retry>(
        "connect_retry", "try again while the peer refuses, until connect_timeout_ms"),
    row<BytesCodec, &Settings::ring_bytes, &Options::ring_bytes>(
        "ring_bytes", "receive memory of context 0; 0: by device"),
    row<BytesCodec, &Settings::context_ring_bytes, &Options::context_ring_bytes>(
        "context_ring_bytes", "receive memory of each other context; 0: by device"),
    row<PositiveBytesCodec, &Settings::max_message_bytes, &Options::max_message_bytes>(
        "max_message_bytes", "the largest message accepted from or sent to the peer"),
    row<SlotBytesCodec, &Settings::slot_bytes, &Options::slot_bytes>(
        "slot_bytes", "transports batched and confirm-each: bytes of message in a slot"),
    row<SlotCountCodec, &Settings::slot_count, &Options::slot_count>(
        "slot_count", "transports batched and confirm-each: slots of context 0"),
    row<PercentCodec, &Settings::confirm_threshold, &Options::confirm_threshold>(
        "confirm_threshold",
        "transport batched: percent of free slots under which the peer's bitmap is read"),
    row<BytesCodec, &Settings::planned_bytes, &Options::planned_bytes>(
        "planned_bytes", "transport planned: memory for message arrays; 0: by device"),
    row<DigestCodec, &Settings::plan_digest, &Options::plan_digest>(
        "plan_digest", "transport planned: the plan's digest, which must be the peer's too"),
    row<ChunkModeCodec, &Settings::mode, &Options::mode>(
        "mode",
        "transport chunked: inplace (chunks straight to their place) or header (put together)"),
    row<ChunkBytesCodec, &Settings::chunk_bytes, &Options::chunk_bytes>(
        "chunk_bytes", "transport chunked: the longest chunk"),
    row<WindowCodec, &Settings::window, &Options::window>(
        "window", "transport chunked: chunks on the path at once; auto: as many bytes as it holds"),
    row<LinkEnableCodec, &Settings::link_enable, &Options::link_enable>(
        "link_enable", "transport chunked: whether a short chunk goes first and alone"),
    row<BytesCodec, &Settings::region_bytes, &Options::region_bytes>(
        "region_bytes",
        "transport chunked: receive memory of context 0 for one message in place; 0: by device"),
    row<RegionCountCodec, &Settings::region_count, &Options::region_count>(
        "region_count", "transport chunked: how many such regions"),
    row<BoolCodec, &Settings::verify, &Options::verify>(
        "verify", "transport chunked: check each message by a digest over all of it"),
    row<MillisecondsCodec, &Settings::resume_timeout, &Options::resume_timeout>(
        "resume_timeout_ms",
        "transport chunked: how long a failed queue pair is tried to be made anew; 0: not at all"),
    row<KernelCodec, &Settings::attest_kernel, &Options::attest_kernel>(
        "attest_kernel",
        "transports attested+X: who holds keys and counters: in-process, or the leat-attestd whose "
        "socket is at this path"),
    row<SessionCodec, &Settings::attest_session, &Options::attest_session>(
        "attest_session",
        "transports attested+X with leat-attestd: the pair session that it was provisioned with, "
        "the peer's too; 0: its key file"),
    row<PathCodec, &Settings::attest_key_file, &Options::attest_key_file>(
        "attest_key_file",
        "transports attested+X: the key of both sides, a file of one line, at least 64 hex digits"),
    row<AlgorithmCodec, &Settings::attest_algorithm, &Options::attest_algorithm>(
        "attest_algorithm", "transports attested+X: how messages are authenticated"),
    row<PathCodec, &Settings::tls_psk_file, &Options::tls_psk_file>(
        "tls_psk_file", "TLS with a pre-shared key: a file of one line, at least 32 hex digits"),
    row<PathCodec, &Settings::tls_cert_file, &Options::tls_cert_file>(
        "tls_cert_file", "TLS with certificates: ours, PEM"),
    row<PathCodec, &Settings::tls_key_file, &Options::tls_key_file>(
        "tls_key_file", "the private key of tls_cert_file, PEM"),
    row<PathCodec, &Settings::tls_ca_file, &Options::tls_ca_file>(
        "tls_ca_file", "the authority that must have signed the peer's certificate, PEM"),
    process_row<LogLevelCodec>("log_level", "warn", "what is logged: this level and graver ones"),
    process_row<PathCodec>("log_file", "", "where the log goes; nothing: standard error"),
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

// Files and environment over the defaults; `origins` tells who set what last.
Settings configured_settings(Origins& origins) {
  Settings settings;
  std::vector<ConfiguredValue> values = file_values();
  for (ConfiguredValue& value : environment_values()) values.push_back(std::move(value));
  for (ConfiguredValue& value : values) {
    const Row* row = find_row(value.name);
    if (row == nullptr) {
      const bool variable = value.source == "environment";
      log_once(LogLevel::kWarn, printable(value.place) +
                                    (variable ? " is no setting of leat"
                                              : ": " + quoted(value.name) + " is no setting") +
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
      throw Error(ErrorCode::kInvalidArgument, "URI parameter " + quoted(name) + " is no setting",
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

// Where settings come from, which source wins, and what is said about mistakes.
#include "base/settings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "base/setting_sources.h"
#include "base/setting_values.h"
#include "leat/error.h"
#include "support/scratch.h"

namespace leat::detail {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// No LEAT_* variables and no files but the test's own, whatever the machine has set.
class SettingsTest : public testing::Test {
 protected:
  SettingsTest() {
    for (const ConfiguredValue& value : environment_values()) set(value.place, std::nullopt);
    set("HOME", folder_.path());
    set("LEAT_CONF_FILE", std::nullopt);
  }

  void set(const std::string& name, const std::optional<std::string>& value) {
    variables_.push_back(std::make_unique<ScratchVariable>(name, value));
  }

  static Settings resolve() { return resolve_settings({}, {}); }

  static void expect_error(const std::function<void()>& work,
                           std::initializer_list<const char*> words) {
    try {
      work();
      ADD_FAILURE() << "accepted; expected an error with " << *words.begin();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      for (const char* word : words) {
        EXPECT_NE(std::string(error.what()).find(word), std::string::npos)
            << "'" << word << "' is not in: " << error.what();
      }
    }
  }

  static SettingDescription describe(const std::string& name) {
    for (const SettingDescription& description : describe_settings()) {
      if (description.name == name) return description;
    }
    ADD_FAILURE() << name << " is not described";
    return {};
  }

  ScratchFolder folder_;

 private:
  std::vector<std::unique_ptr<ScratchVariable>> variables_;
};

TEST_F(SettingsTest, DefaultsAreThoseOfTheStruct) {
  const Settings settings = resolve();
  EXPECT_EQ(settings.device, "auto");
  EXPECT_EQ(settings.spin, microseconds(50));
  EXPECT_EQ(settings.timeout, milliseconds(-1));
  EXPECT_EQ(settings.max_message_bytes, std::size_t{1} << 30);
  EXPECT_EQ(settings.fallback, Fallback::kAllow);
}

TEST_F(SettingsTest, EachSourceWinsOverTheNext) {
  const auto spin = [&](const Options& options, const UriParameters& parameters) {
    return resolve_settings(options, parameters).spin.count();
  };
  folder_.write(".leat.conf", "spin_us = 1\n");
  EXPECT_EQ(spin({}, {}), 1);
  EXPECT_EQ(describe("spin_us").origin, folder_.path() + "/.leat.conf");
  set("LEAT_CONF_FILE", folder_.write("named.conf", "spin_us = 2\n"));
  EXPECT_EQ(spin({}, {}), 2);
  set("LEAT_SPIN_US", "3");
  EXPECT_EQ(spin({}, {}), 3);
  EXPECT_EQ(describe("spin_us").origin, "environment");
  EXPECT_EQ(spin({}, {{"spin_us", "4"}}), 4);
  Options options;
  options.spin = microseconds(5);
  EXPECT_EQ(spin(options, {{"spin_us", "4"}}), 5);
}

TEST_F(SettingsTest, EverySettingIsSetByItsVariableItsParameterAndItsOption) {
  const struct {
    const char* name;
    const char* text;
    std::function<bool(const Settings&)> holds;
    std::function<void(Options&)> choose;
  } cases[] = {
      {"device", "^shm", [](const Settings& s) { return s.device == "^shm"; },
       [](Options& o) { o.device = "^shm"; }},
      {"transport", "tcp", [](const Settings& s) { return s.transport == "tcp"; },
       [](Options& o) { o.transport = "tcp"; }},
      {"fallback", "never", [](const Settings& s) { return s.fallback == Fallback::kNever; },
       [](Options& o) { o.fallback = "never"; }},
      {"confidential", "require",
       [](const Settings& s) { return s.confidential == Confidential::kRequire; },
       [](Options& o) { o.confidential = "require"; }},
      {"spin_us", "inf", [](const Settings& s) { return s.spin < microseconds(0); },
       [](Options& o) { o.spin = microseconds(-7); }},
      {"connect_timeout_ms", "7",
       [](const Settings& s) { return s.connect_timeout == milliseconds(7); },
       [](Options& o) { o.connect_timeout = milliseconds(7); }},
      {"handshake_timeout_ms", "0",
       [](const Settings& s) { return s.handshake_timeout == milliseconds(0); },
       [](Options& o) { o.handshake_timeout = milliseconds(0); }},
      {"backlog", "7", [](const Settings& s) { return s.backlog == 7; },
       [](Options& o) { o.backlog = 7; }},
      {"tls_check_names", "no", [](const Settings& s) { return !s.tls_check_names; },
       [](Options& o) { o.tls_check_names = false; }},
      {"timeout_ms", "250", [](const Settings& s) { return s.timeout == milliseconds(250); },
       [](Options& o) { o.timeout = milliseconds(250); }},
      {"linger_ms", "inf", [](const Settings& s) { return s.linger < milliseconds(0); },
       [](Options& o) { o.linger = milliseconds::max(); }},
      {"connect_retry", "yes", [](const Settings& s) { return s.connect_retry; },
       [](Options& o) { o.connect_retry = true; }},
      {"ring_bytes", "64K", [](const Settings& s) { return s.ring_bytes == 65536; },
       [](Options& o) { o.ring_bytes = 65536; }},
      {"ring_context_bytes", "3M",
       [](const Settings& s) { return s.ring_context_bytes == 3U << 20; },
       [](Options& o) { o.ring_context_bytes = 3U << 20; }},
      {"max_message_bytes", "5G",
       [](const Settings& s) { return s.max_message_bytes == std::size_t{5} << 30; },
       [](Options& o) { o.max_message_bytes = std::size_t{5} << 30; }},
      {"chunked_mode", "header",
       [](const Settings& s) { return s.chunked_mode == ChunkMode::kHeader; },
       [](Options& o) { o.chunked_mode = "header"; }},
      {"chunked_chunk_bytes", "64K",
       [](const Settings& s) { return s.chunked_chunk_bytes == 64U << 10; },
       [](Options& o) { o.chunked_chunk_bytes = 64U << 10; }},
      {"chunked_window", "3", [](const Settings& s) { return s.chunked_window == 3; },
       [](Options& o) { o.chunked_window = "3"; }},
      {"chunked_link_enable", "on",
       [](const Settings& s) { return s.chunked_link_enable == LinkEnable::kOn; },
       [](Options& o) { o.chunked_link_enable = "on"; }},
      {"chunked_region_bytes", "1G",
       [](const Settings& s) { return s.chunked_region_bytes == 1U << 30; },
       [](Options& o) { o.chunked_region_bytes = 1U << 30; }},
      {"chunked_region_count", "2", [](const Settings& s) { return s.chunked_region_count == 2; },
       [](Options& o) { o.chunked_region_count = 2; }},
      {"chunked_verify", "yes", [](const Settings& s) { return s.chunked_verify; },
       [](Options& o) { o.chunked_verify = true; }},
      {"attest_kernel", "/run/leat-attestd/socket",
       [](const Settings& s) { return s.attest_kernel == "/run/leat-attestd/socket"; },
       [](Options& o) { o.attest_kernel = "/run/leat-attestd/socket"; }},
      {"attest_kernel_user", "daemon",
       [](const Settings& s) { return s.attest_kernel_user == "daemon"; },
       [](Options& o) { o.attest_kernel_user = "daemon"; }},
      {"attest_kernel_key", "ab11111111111111111111111111111111111111111111111111111111111111",
       [](const Settings& s) {
         return s.attest_kernel_key ==
                "ab11111111111111111111111111111111111111111111111111111111111111";
       },
       [](Options& o) {
         o.attest_kernel_key = "ab11111111111111111111111111111111111111111111111111111111111111";
       }},
      {"attest_session", "7", [](const Settings& s) { return s.attest_session == 7; },
       [](Options& o) { o.attest_session = 7; }},
      {"attest_key_file", "/keys/attest",
       [](const Settings& s) { return s.attest_key_file == "/keys/attest"; },
       [](Options& o) { o.attest_key_file = "/keys/attest"; }},
      {"attest_algorithm", "aes256-gmac",
       [](const Settings& s) { return s.attest_algorithm == trusted::Algorithm::kAes256Gmac; },
       [](Options& o) { o.attest_algorithm = "aes256-gmac"; }},
      {"sealed_cipher", "chacha20-poly1305",
       [](const Settings& s) { return s.sealed_cipher == SealCipher::kChaCha20Poly1305; },
       [](Options& o) { o.sealed_cipher = "chacha20-poly1305"; }},
      {"ib_peer_timeout_ms", "5000",
       [](const Settings& s) { return s.ib_peer_timeout == milliseconds(5000); },
       [](Options& o) { o.ib_peer_timeout = milliseconds(5000); }},
      {"chunked_resume_timeout_ms", "5000",
       [](const Settings& s) { return s.chunked_resume_timeout == milliseconds(5000); },
       [](Options& o) { o.chunked_resume_timeout = milliseconds(5000); }},
      {"slot_bytes", "8K", [](const Settings& s) { return s.slot_bytes == 8192; },
       [](Options& o) { o.slot_bytes = 8192; }},
      {"slot_count", "64", [](const Settings& s) { return s.slot_count == 64; },
       [](Options& o) { o.slot_count = 64; }},
      {"batched_confirm_threshold", "7",
       [](const Settings& s) { return s.batched_confirm_threshold == 7; },
       [](Options& o) { o.batched_confirm_threshold = 7; }},
      {"batched_bundles", "no", [](const Settings& s) { return !s.batched_bundles; },
       [](Options& o) { o.batched_bundles = false; }},
      {"planned_bytes", "8M", [](const Settings& s) { return s.planned_bytes == 8U << 20; },
       [](Options& o) { o.planned_bytes = 8U << 20; }},
      {"planned_digest", "00ff", [](const Settings& s) { return s.planned_digest == "00ff"; },
       [](Options& o) { o.planned_digest = "00FF"; }},
      {"tls_psk_file", "/k", [](const Settings& s) { return s.tls_psk_file == "/k"; },
       [](Options& o) { o.tls_psk_file = "/k"; }},
      {"tls_cert_file", "/c", [](const Settings& s) { return s.tls_cert_file == "/c"; },
       [](Options& o) { o.tls_cert_file = "/c"; }},
      {"tls_key_file", "/p", [](const Settings& s) { return s.tls_key_file == "/p"; },
       [](Options& o) { o.tls_key_file = "/p"; }},
      {"tls_ca_file", "/a", [](const Settings& s) { return s.tls_ca_file == "/a"; },
       [](Options& o) { o.tls_ca_file = "/a"; }},
  };
  std::vector<std::string> names;
  for (const auto& item : cases) {
    SCOPED_TRACE(item.name);
    names.push_back(item.name);
    EXPECT_FALSE(item.holds(Settings{})) << "the test would show nothing";
    EXPECT_TRUE(item.holds(resolve_settings({}, {{item.name, item.text}})));
    Options options;
    item.choose(options);
    EXPECT_TRUE(item.holds(resolve_settings(options, {})));
    const ScratchVariable variable(variable_of(item.name), item.text);
    EXPECT_TRUE(item.holds(resolve()));
    EXPECT_EQ(describe(item.name).value, item.text);
  }
  for (const SettingDescription& description : describe_settings()) {
    const bool tested = std::count(names.begin(), names.end(), description.name) == 1;
    EXPECT_TRUE(tested || description.name.starts_with("log_")) << description.name;
  }
}

TEST_F(SettingsTest, DescriptionsAreCompleteAndDefaultsParse) {
  for (const SettingDescription& description : describe_settings()) {
    SCOPED_TRACE(description.name);
    EXPECT_EQ(description.variable, variable_of(description.name));
    EXPECT_NE(description.type, "");
    EXPECT_NE(description.help, "");
    EXPECT_EQ(description.origin, "default");
    EXPECT_EQ(description.value, description.default_value);
    const ScratchVariable variable(description.variable, description.default_value);
    EXPECT_NO_THROW(resolve());
  }
  EXPECT_EQ(describe("log_level").default_value, "warn");
  EXPECT_EQ(describe("timeout_ms").default_value, "inf");
  EXPECT_EQ(describe("max_message_bytes").default_value, "1G");
  set("LEAT_LOG_LEVEL", "debug");
  EXPECT_EQ(describe("log_level").value, "debug");
  EXPECT_EQ(describe("log_level").origin, "environment");
}

TEST_F(SettingsTest, BadValuesNameThePlaceAndWhatIsAllowed) {
  const struct {
    const char* variable;
    const char* value;
    const char* allowed;
  } cases[] = {
      {"LEAT_SPIN_US", "fast", "microseconds from 0, or inf"},
      {"LEAT_SPIN_US", "5us", "microseconds"},
      {"LEAT_SPIN_US", " 5", "microseconds"},
      {"LEAT_SPIN_US", "-5", "microseconds"},
      {"LEAT_SPIN_US", "0x10", "microseconds"},
      {"LEAT_SPIN_US", "1e3", "microseconds"},
      {"LEAT_SPIN_US", "99999999999999999999", "microseconds"},
      {"LEAT_CONNECT_TIMEOUT_MS", "1.5", "milliseconds"},
      {"LEAT_FALLBACK", "maybe", "never, warn, allow"},
      {"LEAT_CONNECT_RETRY", "ja", "yes, no"},
      {"LEAT_BATCHED_BUNDLES", "2", "yes, no"},
      {"LEAT_BATCHED_BUNDLES", "off ", "yes, no"},
      {"LEAT_RING_BYTES", "64KB", "K, M or G"},
      {"LEAT_RING_BYTES", "K", "K, M or G"},
      {"LEAT_RING_BYTES", "64k", "K, M or G"},
      {"LEAT_RING_BYTES", "99999999999G", "K, M or G"},
      {"LEAT_MAX_MESSAGE_BYTES", "0", "above 0"},
      {"LEAT_DEVICE", "sh\xc3\xb6m", "printable"},
      {"LEAT_LOG_LEVEL", "loud", "error, warn, info, debug, trace"},
  };
  for (const auto& item : cases) {
    const ScratchVariable variable(item.variable, item.value);
    expect_error(resolve, {item.variable, item.allowed});
    expect_error([] { describe_settings(); }, {item.variable});
  }
  // Also where something else would win.
  set("LEAT_SPIN_US", "fast");
  Options options;
  options.spin = microseconds(5);
  expect_error([&] { resolve_settings(options, {}); }, {"LEAT_SPIN_US", "'fast'"});
}

TEST_F(SettingsTest, EmptyVariablesCountAsUnset) {
  set("LEAT_CONF_FILE", folder_.write("a.conf", "spin_us = 5\n"));
  set("LEAT_SPIN_US", "");
  set("LEAT_DEVICE", "");
  set("LEAT_FALLBACK", "");
  set("LEAT_NO_SUCH_THING", "");
  const Settings settings = resolve_settings({}, {});
  EXPECT_EQ(settings.spin, microseconds(5)) << "of the file";
  EXPECT_EQ(settings.device, "auto");
  EXPECT_EQ(describe("device").origin, "default");
  EXPECT_EQ(describe("log_level").value, "warn");
}

TEST_F(SettingsTest, BadOptionsAndParametersAreNamed) {
  Options options;
  options.fallback = "perhaps";
  expect_error([&] { resolve_settings(options, {}); }, {"option fallback", "'perhaps'", "never"});
  options = {};
  options.max_message_bytes = 0;
  expect_error([&] { resolve_settings(options, {}); }, {"option max_message_bytes"});
  for (const std::string& digest : {std::string("abc"), std::string("xy"), std::string(66, '0')})
    expect_error(
        [&] {
          resolve_settings({}, {{"planned_digest", digest}});
        },
        {"URI parameter planned_digest", "hexadecimal"});
  for (const std::string& key : {std::string("ab"), std::string(64, 'x'), std::string(66, '0')})
    expect_error(
        [&] {
          resolve_settings({}, {{"attest_kernel_key", key}});
        },
        {"URI parameter attest_kernel_key", "64 hexadecimal digits"});
  expect_error([] { resolve_settings({}, {{"spin_us", "x"}}); }, {"URI parameter spin_us", "'x'"});
  expect_error(
      [] {
        resolve_settings({}, {{"spinn_us", "1"}});
      },
      {"URI parameter 'spinn_us'", "leat-info -c"});
  expect_error(
      [] {
        resolve_settings({}, {{"log_level", "info"}});
      },
      {"'log_level'", "LEAT_LOG_LEVEL"});
}

TEST_F(SettingsTest, BadFilesAreNamedWithTheLine) {
  set("LEAT_CONF_FILE", folder_.write("a.conf", "# first\nspin_us = 5\nspin_us = soon\n"));
  expect_error(resolve, {"a.conf:3", "'soon'", "microseconds"});
  folder_.write("a.conf", "\n\nspin_us 5\n");
  expect_error(resolve, {"a.conf:3", "'spin_us 5'", "name = value"});
  set("LEAT_CONF_FILE", folder_.path() + "/missing.conf");
  expect_error(resolve, {"missing.conf", "No such file", "LEAT_CONF_FILE"});
  set("LEAT_CONF_FILE", folder_.path());
  expect_error(resolve, {"directory", "LEAT_CONF_FILE"});
  set("LEAT_CONF_FILE", folder_.write("huge.conf", std::string(70'000, '#')));
  expect_error(resolve, {"huge.conf", "64 KiB"});
}

TEST_F(SettingsTest, LinesOfFiles) {
  const auto values = parse_settings_file(
      "# comment\n"
      "\n"
      "  device =  ^shm  # why\r\n"
      "tls_psk_file=/a#b\n"
      "log_file =\n"
      "device = ib\n"
      "last = x",
      "f");
  ASSERT_EQ(values.size(), 5U);
  EXPECT_EQ(values[0].name, "device");
  EXPECT_EQ(values[0].value, "^shm");
  EXPECT_EQ(values[0].place, "f:3");
  EXPECT_EQ(values[1].value, "/a#b") << "a # within a word does not begin a comment";
  EXPECT_EQ(values[2].value, "");
  EXPECT_EQ(values[4].place, "f:7");
  EXPECT_THROW(parse_settings_file("= x", "f"), Error);
  EXPECT_THROW(parse_settings_file(std::string("a = b\0c", 7), "f"), Error);
  EXPECT_TRUE(parse_settings_file("", "f").empty());
  set("LEAT_CONF_FILE", folder_.write("twice.conf", "device = ib\ndevice = shm\n"));
  EXPECT_EQ(resolve().device, "shm") << "a later line wins";
}

TEST_F(SettingsTest, UnknownNamesAreReportedOnceAndOthersProgramsAreNot) {
  set("LEAT_SPIN", "5");
  set("LEAT_Device", "shm");
  set("LEAT_TEST_IB", "rxe0");
  set("LEAT_VM_MEMORY", "1G");
  folder_.write(".leat.conf", "spin = 5\n");
  testing::internal::CaptureStderr();
  EXPECT_EQ(resolve().device, "auto");
  resolve();
  const std::string said = testing::internal::GetCapturedStderr();
  const auto count = [&](const std::string& word) {
    std::size_t found = 0;
    for (std::size_t at = said.find(word); at != std::string::npos; at = said.find(word, at + 1)) {
      ++found;
    }
    return found;
  };
  EXPECT_EQ(count("LEAT_SPIN is not a setting"), 1U) << said;
  EXPECT_EQ(count("LEAT_Device is not a setting"), 1U) << said;
  EXPECT_EQ(count(".leat.conf:1: 'spin' is not a setting"), 1U) << said;
  EXPECT_EQ(count("LEAT_TEST_IB"), 0U) << said;
  EXPECT_EQ(count("LEAT_VM_MEMORY"), 0U) << said;
}

TEST(SettingValuesTest, NumbersAreStrict) {
  EXPECT_EQ(parse_number("0"), 0U);
  EXPECT_EQ(parse_number("18446744073709551615"), ~std::uint64_t{0});
  for (const char* text : {"", "-1", "+1", " 1", "1 ", "18446744073709551616", "0x1", "1.0"}) {
    EXPECT_FALSE(parse_number(text)) << text;
  }
}

TEST(SettingValuesTest, FormattedValuesParseToThemselves) {
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{1} << 10,
        std::size_t{3} << 20, std::size_t{7} << 30, ~std::size_t{0}}) {
    EXPECT_EQ(BytesCodec::parse(BytesCodec::format(bytes)), bytes);
  }
  for (const int ms : {-1, 0, 1, 10'000}) {
    EXPECT_EQ(MillisecondsCodec::parse(MillisecondsCodec::format(milliseconds(ms))),
              milliseconds(ms));
  }
  for (const Fallback fallback : {Fallback::kNever, Fallback::kWarn, Fallback::kAllow}) {
    EXPECT_EQ(FallbackCodec::parse(FallbackCodec::format(fallback)), fallback);
  }
  for (const char* text : {"off", "prefer", "require"}) {
    EXPECT_EQ(ConfidentialCodec::format(ConfidentialCodec::parse(text).value()), text);
  }
  for (const char* text : {"auto", "aes-256-gcm", "aes-128-gcm", "chacha20-poly1305"}) {
    EXPECT_EQ(SealCipherCodec::format(SealCipherCodec::parse(text).value()), text);
  }
}

TEST(SettingValuesTest, WhatIsTooLongForAClockIsForever) {
  EXPECT_EQ(MillisecondsCodec::format(milliseconds::max()), "inf");
  EXPECT_EQ(MillisecondsCodec::parse("9999999999999999"), milliseconds(-1));
  EXPECT_EQ(MicrosecondsCodec::format(microseconds::min()), "inf");
}

}  // namespace
}  // namespace leat::detail

// leat-info: which devices, transports and settings there are, and whether leat can run here.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/settings.h"
#include "leat/error.h"
#include "leat/version.h"
#include "tools/checks.h"
#include "transport/table.h"
#include "verbs/table.h"

namespace leat::tools {
namespace {

using nlohmann::ordered_json;

constexpr int kCannotRun = 1;
constexpr int kUsage = 2;

constexpr const char* kFooter = R"(Examples:
  leat-info                          devices and transports of this machine
  leat-info -c                       every setting: value, default, what it does, who set it
  LEAT_SPIN_US=0 leat-info -c        ... and what the environment makes of them
  leat-info --check                  can leat run here, and how well?
  leat-info --check --device ib      ... on an RDMA device? (exit code 1 if not)
  leat-info --check db7:18515        ... and reach a listener there?
  leat-info --json | jq .devices     for programs

Exit code: 0; 1 if leat cannot run as asked; 2 for wrong arguments. See leat-info(1).)";

// What is shown is gathered as JSON first, so that people and programs are told the same.
ordered_json gather_devices() {
  ordered_json devices = ordered_json::array();
  for (const detail::DeviceInfo& info : detail::probe_devices()) {
    ordered_json device{{"name", info.name},
                        {"usable", info.usable},
                        {"description", info.description},
                        {"why_not", info.why_not},
                        {"mtu_bytes", info.mtu_bytes}};
    if (info.usable) {
      const detail::Limits limits = detail::open_device(info.name, {})->limits();
      device["limits"] = {{"max_inline_bytes", limits.max_inline_bytes},
                          {"max_send_requests", limits.max_send_requests},
                          {"max_receive_requests", limits.max_receive_requests},
                          {"max_request_bytes", limits.max_request_bytes},
                          {"pins_memory", limits.pins_memory}};
    }
    devices.push_back(std::move(device));
  }
  return devices;
}

ordered_json gather_transports() {
  ordered_json transports = ordered_json::array();
  for (const detail::TransportDescription& transport : detail::describe_transports()) {
    transports.push_back(
        {{"name", transport.name}, {"needs_device", transport.rdma}, {"help", transport.help}});
  }
  return transports;
}

ordered_json gather_settings() {
  ordered_json settings = ordered_json::array();
  for (const detail::SettingDescription& setting : detail::describe_settings()) {
    settings.push_back({{"name", setting.name},
                        {"variable", setting.variable},
                        {"type", setting.type},
                        {"allowed", setting.allowed},
                        {"value", setting.value},
                        {"default", setting.default_value},
                        {"origin", setting.origin},
                        {"help", setting.help}});
  }
  return settings;
}

ordered_json gather_checks(const std::vector<Check>& checks) {
  ordered_json result = ordered_json::array();
  for (const Check& check : checks) {
    result.push_back({{"name", check.name},
                      {"verdict", to_string(check.verdict)},
                      {"finding", check.finding},
                      {"advice", check.advice}});
  }
  return result;
}

std::string text(const ordered_json& object, const char* key) {
  return object.at(key).get<std::string>();
}

void print_devices(const ordered_json& devices) {
  std::puts("Devices");
  for (const ordered_json& device : devices) {
    const bool usable = device.at("usable");
    std::printf("  %-16s %-12s %s\n", text(device, "name").c_str(),
                usable ? "usable" : "not usable",
                text(device, usable ? "description" : "why_not").c_str());
    if (!usable) continue;
    const ordered_json& limits = device.at("limits");
    std::printf(
        "  %-16s %-12s inline up to %s bytes, %s sends and %s receives at a time, requests "
        "up to %s bytes%s\n",
        "", "limits", limits.at("max_inline_bytes").dump().c_str(),
        limits.at("max_send_requests").dump().c_str(),
        limits.at("max_receive_requests").dump().c_str(),
        limits.at("max_request_bytes").dump().c_str(),
        limits.at("pins_memory").get<bool>() ? ", locks memory" : "");
  }
}

void print_transports(const ordered_json& transports) {
  std::puts("Transports");
  for (const ordered_json& transport : transports) {
    std::printf("  %-16s %-12s %s\n", text(transport, "name").c_str(),
                transport.at("needs_device").get<bool>() ? "on RDMA" : "on TCP",
                text(transport, "help").c_str());
  }
}

void print_settings(const ordered_json& settings) {
  std::puts("Settings in force here, unless a program or a URI overrides them");
  for (const ordered_json& setting : settings) {
    const std::string value = text(setting, "value");
    std::printf("  %s=%s\n", text(setting, "variable").c_str(), value.c_str());
    std::printf("      %s (%s; default: %s; from: %s)\n", text(setting, "help").c_str(),
                text(setting, "type").c_str(),
                text(setting, "default").empty() ? "none" : text(setting, "default").c_str(),
                text(setting, "origin").c_str());
  }
}

void print_checks(const std::vector<Check>& checks) {
  std::puts("Checks");
  for (const Check& check : checks) {
    std::printf("  %-8s %s: %s\n", to_string(check.verdict), check.name.c_str(),
                check.finding.c_str());
    if (!check.advice.empty()) std::printf("  %-8s > %s\n", "", check.advice.c_str());
  }
}

struct Arguments {
  bool devices = false;
  bool transports = false;
  bool settings = false;
  bool check = false;
  bool json = false;
  Wish wish;
};

int show(Arguments arguments) {
  const bool nothing_named =
      !arguments.devices && !arguments.transports && !arguments.settings && !arguments.check;
  if (nothing_named) {
    arguments.devices = arguments.transports = true;
    arguments.settings = arguments.json;
  }
  ordered_json object{{"leat", leat::version()}};
  if (arguments.devices) object["devices"] = gather_devices();
  if (arguments.transports) object["transports"] = gather_transports();
  if (arguments.settings) object["settings"] = gather_settings();
  std::vector<Check> checks;
  if (arguments.check) checks = run_checks(arguments.wish);
  const bool can_run = std::none_of(checks.begin(), checks.end(), [](const Check& check) {
    return check.verdict == Verdict::kFailed;
  });

  if (arguments.json) {
    if (arguments.check) {
      object["checks"] = gather_checks(checks);
      object["can_run"] = can_run;
    }
    std::cout << object.dump(2) << '\n';
  } else {
    std::printf("leat %s\n", leat::version());
    if (arguments.devices) print_devices(object.at("devices"));
    if (arguments.transports) print_transports(object.at("transports"));
    if (arguments.settings) print_settings(object.at("settings"));
    if (arguments.check) {
      print_checks(checks);
      std::puts(can_run ? "leat can run." : "leat cannot run as asked.");
    } else if (nothing_named) {
      std::puts(
          "leat-info -c lists the settings, --check tries whether leat can run, --help tells "
          "more.");
    }
  }
  return can_run ? 0 : kCannotRun;
}

int run(int argc, char** argv) {
  CLI::App app("Shows the devices, transports and settings of leat, and checks whether it can run.",
               "leat-info");
  app.footer(kFooter);
  app.set_version_flag("-v,--version", std::string("leat ") + leat::version());
  Arguments arguments;
  app.add_flag("-d,--devices", arguments.devices,
               "Devices: whether they can be used or why not, and their limits");
  app.add_flag("-l,--transports", arguments.transports, "Transports");
  app.add_flag("-c,--settings", arguments.settings,
               "Every setting with value, default, help and origin");
  CLI::Option* check =
      app.add_option("--check", arguments.wish.host,
                     "Check whether leat can run here and, if given, reach that host")
          ->expected(0, 1)
          ->type_name("[HOST[:PORT]]");
  app.add_option("--device", arguments.wish.device, "With --check: can this device be used?")
      ->needs(check)
      ->type_name("NAME");
  app.add_option("--transport", arguments.wish.transport,
                 "With --check: can this transport be used?")
      ->needs(check)
      ->type_name("NAME");
  app.add_flag("--json", arguments.json,
               "Print one JSON object (without other options: everything but checks)");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  arguments.check = check->count() > 0;
  return show(arguments);
}

}  // namespace
}  // namespace leat::tools

int main(int argc, char** argv) {
  try {
    return leat::tools::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "leat-info: %s\n", error.what());
    return leat::tools::kCannotRun;
  }
}

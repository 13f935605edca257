// leat-provision: manufacturer, vendor and controller of remote attestation.
#include <sys/prctl.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <string>

#include "leat/error.h"
#include "leat/version.h"
#include "tools/provision.h"

namespace leat::tools {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

constexpr const char* kFooter = R"(Once, in this order:
  leat-provision ca init ca                              a manufacturer, for tests
  leat-provision ca device ca device1 --device 1         a device of its
  leat-provision vendor init vendor                      a vendor
  leat-provision ca firmware device1 --vendor-key vendor/vendor.pub
                                                         what the device boots: this program, for that vendor
  leat-provision vendor allow vendor                     the vendor trusts this program with its key embedded

At each start of the device:
  leat-provision device device1 --vendor-key vendor/vendor.pub --listen 10.0.0.1:7001 -- KERNEL ARGUMENTS
  leat-provision vendor run vendor --ca ca --plan plan.json

The vendor checks that a genuine device has booted an allowed controller, gives it the keys of the plan's
sessions over TLS, and enables all devices once the last is done. The controller starts KERNEL, whose program
must be the one of the plan, and hands it the keys. docs/remote_attestation.md walks through all of it.

Exit code: 0; 1 if something was refused or failed; 2 for wrong arguments.)";

// Keeps secrets from core dumps and from processes that trace others.
void keep_secrets() {
  prctl(PR_SET_DUMPABLE, 0);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
}

class CommandLine {
 public:
  CommandLine()
      : app_("Manufacturer, vendor and controller of leat's remote attestation.",
             "leat-provision") {
    app_.footer(kFooter);
    app_.set_version_flag("-v,--version", std::string("leat ") + leat::version());
    app_.add_flag("--json", json_, "Print one JSON object for each line");
    app_.require_subcommand(1);
    app_.fallthrough();
    add_ca();
    add_vendor();
    add_device();
  }

  int run(int argc, char** argv) {
    try {
      app_.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      return app_.exit(error) == 0 ? 0 : kUsage;
    }
    chosen_();
    return 0;
  }

 private:
  template <typename Command>
  CLI::App* add(CLI::App* parent, const char* name, const char* help, Command& command) {
    CLI::App* app = parent->add_subcommand(name, help);
    app->fallthrough();
    app->callback([this, &command] { chosen_ = [this, &command] { tools::run(command, json_); }; });
    return app;
  }
  static CLI::App* group(CLI::App& app, const char* name, const char* help) {
    CLI::App* made = app.add_subcommand(name, help);
    made->require_subcommand(1);
    made->fallthrough();
    return made;
  }
  static void add_program(CLI::App* app, std::string& program) {
    app->add_option("--program", program,
                    "The controller's program, to be measured (default: this one)")
        ->default_val("/proc/self/exe")
        ->type_name("FILE");
  }
  static void add_version(CLI::App* app, std::uint32_t& version) {
    app->add_option("--firmware", version, "Version of the firmware (default: 1)")
        ->check(CLI::Range(std::uint32_t{1}, UINT32_MAX).description(""))
        ->type_name("N");
  }
  static void add_folder(CLI::App* app, std::string& folder, const char* help) {
    app->add_option("folder", folder, help)->required()->type_name("FOLDER");
  }

  void add_ca() {
    CLI::App* ca = group(app_, "ca", "The manufacturer of devices, for tests");
    CLI::App* init = add(ca, "init", "Make a manufacturer", ca_init_);
    add_folder(init, ca_init_.folder, "New folder");
    init->add_option("--name", ca_init_.name, "Its name")->capture_default_str();
    CLI::App* device = add(ca, "device", "Make a device: its secret and certificate", ca_device_);
    add_folder(device, ca_device_.folder, "The manufacturer's folder");
    device->add_option("device_folder", ca_device_.device_folder, "New folder for the device")
        ->required()
        ->type_name("DEVICE_FOLDER");
    device->add_option("--device", ca_device_.device, "Its number")
        ->required()
        ->check(CLI::Range(std::uint32_t{1}, UINT32_MAX).description(""))
        ->type_name("N");
    CLI::App* firmware =
        add(ca, "firmware", "Encrypt the firmware of a device: a controller and its vendor's key",
            ca_firmware_);
    add_folder(firmware, ca_firmware_.device_folder, "The device's folder");
    firmware->add_option("--vendor-key", ca_firmware_.vendor_key, "The vendor's vendor.pub")
        ->required()
        ->type_name("FILE");
    add_program(firmware, ca_firmware_.program);
    add_version(firmware, ca_firmware_.version);
    CLI::App* revoke = add(ca, "revoke", "Revoke a device", ca_revoke_);
    add_folder(revoke, ca_revoke_.folder, "The manufacturer's folder");
    revoke->add_option("--certificate", ca_revoke_.certificate, "The device's device.crt")
        ->required()
        ->type_name("FILE");
  }

  void add_vendor() {
    CLI::App* vendor = group(app_, "vendor", "The party that gives devices their keys");
    CLI::App* init = add(vendor, "init", "Make a vendor", vendor_init_);
    add_folder(init, vendor_init_.folder, "New folder");
    CLI::App* allow = add(vendor, "allow", "Allow a controller", vendor_allow_);
    add_folder(allow, vendor_allow_.folder, "The vendor's");
    add_program(allow, vendor_allow_.program);
    add_version(allow, vendor_allow_.version);
    allow->add_flag("--only", vendor_allow_.only,
                    "Allow no other controller and no older firmware");
    CLI::App* run = add(vendor, "run", "Attest and provision all devices of a plan", vendor_run_);
    add_folder(run, vendor_run_.folder, "The vendor's");
    run->add_option("--ca", vendor_run_.ca_folder,
                    "Folder with the manufacturer's ca.crt and ca.crl")
        ->required()
        ->type_name("FOLDER");
    run->add_option("--plan", vendor_run_.plan, "Devices, sessions and kernel")
        ->required()
        ->type_name("PLAN.json");
    run->add_option_function<unsigned>(
           "--timeout", [this](unsigned s) { vendor_run_.timeout = std::chrono::seconds(s); },
           "Limit of the whole run (default: 30)")
        ->check(CLI::Range(1, 3600))
        ->type_name("SECONDS");
  }

  void add_device() {
    CLI::App* device = add(&app_, "device",
                           "Boot a device: run the loader, then the controller until the "
                           "attestation kernel is enabled",
                           device_run_);
    add_folder(device, device_run_.folder, "The device's");
    device->add_option("--vendor-key", device_run_.vendor_key, "The vendor's vendor.pub")
        ->required()
        ->type_name("FILE");
    device->add_option("--listen", device_run_.listen, "Address at which the vendor connects")
        ->capture_default_str()
        ->type_name("HOST:PORT");
    add_program(device, device_run_.program);
    device
        ->add_option("kernel", device_run_.kernel,
                     "The attestation kernel's program and arguments, after --")
        ->required()
        ->type_name("KERNEL");
  }

  CLI::App app_;
  bool json_ = false;
  std::function<void()> chosen_;
  CaInit ca_init_;
  CaDevice ca_device_;
  CaFirmware ca_firmware_;
  CaRevoke ca_revoke_;
  VendorInit vendor_init_;
  VendorAllow vendor_allow_;
  VendorRun vendor_run_;
  DeviceRun device_run_;
};

}  // namespace
}  // namespace leat::tools

int main(int argc, char** argv) {
  leat::tools::keep_secrets();
  try {
    return leat::tools::CommandLine().run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "leat-provision: %s\n", error.what());
    return leat::tools::kFailed;
  }
}

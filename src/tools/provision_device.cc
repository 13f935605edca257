#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/uri.h"
#include "leat/error.h"
#include "net/tcp.h"
#include "tools/provision.h"
#include "tools/provision_files.h"
#include "trusted/remote/controller_service.h"
#include "trusted/remote/kernel_process.h"

namespace leat::tools {

using namespace trusted::remote;  // NOLINT(google-build-using-namespace): this is its program
using nlohmann::ordered_json;

void run(const DeviceRun& command, bool json) {
  const std::string record_path = command.folder + "/record";
  DeviceRecord record = read_record(record_path);
  const KeyHandle vendor = read_public_key(command.vendor_key);
  const CertificateHandle certificate = read_certificate(command.folder + "/device.crt");
  const Boot boot =
      boot_device(read_secret_file(command.folder + "/hardware.secret"), to_der(*certificate),
                  read_public_file(command.folder + "/firmware"), record.least_firmware,
                  command.program, std::time(nullptr));
  KernelProcess kernel(command.kernel);
  const leat::detail::Fd listener =
      leat::detail::listen_tcp(leat::detail::parse_uri(command.listen));
  const std::string address = leat::detail::local_address(listener.get());
  print({{"device", boot.device}, {"address", address}},
        "device " + std::to_string(boot.device) + " waits for its vendor at " + address, json);
  serve_until_enabled(
      listener.get(),
      {boot,
       *vendor,
       record,
       [&](const DeviceRecord& changed) { write_record(record_path, changed); },
       kernel,
       {},
       [](const std::string& why) { std::cerr << "leat-provision: sent away: " << why << '\n'; }});
  print({{"device", boot.device}, {"epoch", record.last_epoch}, {"kernel", kernel.pid()}},
        "device " + std::to_string(boot.device) + ": epoch " + std::to_string(record.last_epoch) +
            ", kernel is process " + std::to_string(kernel.pid()),
        json);
}

}  // namespace leat::tools

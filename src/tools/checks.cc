#include "tools/checks.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "base/asymmetric_barrier.h"
#include "base/settings.h"
#include "base/uri.h"
#include "handshake/choice.h"
#include "handshake/connection.h"
#include "leat/error.h"
#include "net/tcp.h"
#include "tools/verbs_ports.h"
#include "verbs/table.h"

namespace leat::tools {
namespace {

namespace fs = std::filesystem;

using detail::DeviceInfo;
using detail::DeviceList;
using detail::DeviceRow;
using detail::Settings;

constexpr const char* kInfiniband = "/dev/infiniband";
constexpr std::uint16_t kAnyPort = 18515;  // leat-bench's; closed is as good an answer as open
// What a default connection registers, with some air.
constexpr rlim_t kEnoughLockedBytes = rlim_t{64} << 20;

Check passed(std::string name, std::string finding) {
  return {std::move(name), Verdict::kOk, std::move(finding), {}};
}

bool may_lock_without_limit() {
  constexpr unsigned kIpcLock = 14;
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("CapEff:")) continue;
    return (std::stoull(line.substr(7), nullptr, 16) >> kIpcLock & 1) != 0;
  }
  return false;
}

Check check_locked_memory(bool has_verbs_device) {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  const bool unlimited = limit.rlim_cur == RLIM_INFINITY || may_lock_without_limit();
  const std::string text = unlimited ? "unlimited" : std::to_string(limit.rlim_cur / 1024) + " kB";
  Check check = passed("locked memory", "the limit is " + text);
  if (!has_verbs_device) {
    check.finding += "; no device of this machine needs it";
  } else if (!unlimited && limit.rlim_cur < kEnoughLockedBytes) {
    check.verdict = Verdict::kWarning;
    check.finding += ", which is enough for few or small connections over RDMA devices";
    check.advice =
        "Raise it: ulimit -l unlimited, memlock in /etc/security/limits.conf, "
        "LimitMEMLOCK=infinity "
        "in systemd, or docker run --ulimit memlock=-1.";
  }
  return check;
}

Check check_infiniband_folder(bool kernel_has_devices) {
  Check check = passed(kInfiniband, "can be read and written");
  std::error_code error;
  if (!fs::exists(kInfiniband, error)) {
    check.finding = "is not there; this machine has no RDMA device";
    if (kernel_has_devices) {
      check.verdict = Verdict::kWarning;
      check.finding = "is not there, although the kernel has RDMA devices";
      check.advice =
          "In a container: docker run --device=/dev/infiniband --cap-add=IPC_LOCK --ulimit "
          "memlock=-1 --network host. Else load the modules ib_uverbs and rdma_ucm.";
    }
    return check;
  }
  std::string closed;
  bool has_rdma_cm = false;
  for (fs::directory_iterator entry(kInfiniband, error), end; entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (!name.starts_with("uverbs") && name != "rdma_cm") continue;
    has_rdma_cm = has_rdma_cm || name == "rdma_cm";
    if (access(entry->path().c_str(), R_OK | W_OK) != 0) closed += " " + name;
  }
  if (!has_rdma_cm) {
    check.verdict = Verdict::kWarning;
    check.finding = "has no rdma_cm, by which leat connects RDMA devices";
    check.advice = "Load the module rdma_ucm: modprobe rdma_ucm.";
  } else if (!closed.empty()) {
    check.verdict = Verdict::kWarning;
    check.finding = "this user may not open:" + closed;
    check.advice =
        "Debian's rdma-core gives everybody access: install it, or chmod a+rw the files.";
  }
  return check;
}

Check check_port(const VerbsPort& port, const std::vector<DeviceInfo>& devices) {
  Check check = passed(port.device + ":" + std::to_string(port.port),
                       port.state + ", " + port.link_layer + ", " + port.rate);
  const auto probe = std::ranges::find_if(devices, [&](const DeviceInfo& device) {
    const DeviceRow* kind = detail::find_device_row(device.name);
    return kind != nullptr && kind->named && device.name == kind->kind + (":" + port.device);
  });
  if (probe != devices.end() && probe->mtu_bytes != 0) {
    check.finding += ", MTU " + std::to_string(probe->mtu_bytes);
  }
  for (const Gid& gid : port.gids) {
    check.finding += "; GID " + std::to_string(gid.index) + " " + gid.text + " " + gid.type +
                     (gid.network_device.empty() ? "" : " on " + gid.network_device);
  }
  if (port.state != "ACTIVE") {
    check.verdict = Verdict::kWarning;
    check.advice = port.link_layer == "Ethernet"
                       ? "Check the cable and bring its network device up (rdma link, ip link)."
                       : "Check the cable and that a subnet manager runs (ibstat).";
  } else if (port.gids.empty()) {
    check.verdict = Verdict::kWarning;
    check.finding += "; no GID";
    check.advice = "Give its network device an address (ip address add) and bring it up.";
  }
  return check;
}

Check check_membarrier() {
  Check check = passed("membarrier", "supported");
  if (!detail::register_for_heavy_barriers()) {
    check.verdict = Verdict::kWarning;
    check.finding = "not supported: over shared memory each message pays for a memory fence";
    check.advice = "Allow the system call membarrier (Linux 4.16, seccomp profile of containers).";
  }
  return check;
}

Check check_device(const DeviceInfo& device) {
  if (device.usable) return passed("device " + device.name, device.description);
  return {"device " + device.name, Verdict::kWarning, "not usable", device.why_not};
}

// Whether one of the devices that `settings` allow can be used, with the transport it wants.
Check check_wish(const Settings& settings, const std::vector<DeviceInfo>& devices) {
  Check check = passed("as asked", {});
  const std::string asked = "device " + settings.device + ", transport " + settings.transport;
  const DeviceList allowed(settings.device);
  detail::check_choice(settings, allowed);
  std::string unusable;
  const auto takes = [&](const DeviceRow& kind) {
    return settings.transport == "auto" ||
           !detail::transport_on(kind, {settings.transport}).empty();
  };
  const auto found = [&](const std::string& name) {
    check.finding = asked + ": " + name + " can be used";
    return check;
  };
  for (const DeviceInfo& device : devices) {
    if (!allowed.allows(device.name) || !takes(*detail::find_device_row(device.name))) continue;
    if (device.usable) return found(device.name);
    unusable += (unusable.empty() ? "" : " ") + device.name + ": " + device.why_not;
  }
  for (const DeviceRow& kind : detail::device_rows())
    if (!kind.rdma() && allowed.allows(kind) && takes(kind)) return found(kind.kind);
  check.verdict = Verdict::kFailed;
  check.finding = asked + ": no device of this machine can be used";
  check.advice = unusable.empty()
                     ? "leat-info -d lists the devices that there are, leat-info -l the transports."
                     : unusable;
  return check;
}

// A connection attempt that is refused reached the host, too.
Check check_host(const std::string& host, const Settings& settings) {
  Check check = passed("host " + host, {});
  // "::1" and "host" have no port, "[::1]:7" and "host:7" have.
  const bool has_port = host.find("]:") != std::string::npos ||
                        (host.find(':') != std::string::npos && host.find(':') == host.rfind(':'));
  const std::string bare =
      host.starts_with('[') || host.find(':') == std::string::npos ? host : "[" + host + "]";
  try {
    const detail::Uri uri =
        detail::parse_uri(has_port ? host : bare + ":" + std::to_string(kAnyPort));
    const auto socket =
        detail::connect_tcp(uri, detail::deadline_after(settings.connect_timeout), false);
    check.finding = "a TCP connection to " + detail::peer_address(socket.get()) + " works";
    std::string routed;
    for (const DeviceRow& kind : detail::device_rows())
      if (routed.empty() && kind.find != nullptr)
        routed =
            kind.find({detail::local_host(socket.get()), detail::peer_host(socket.get())}).name;
    check.finding +=
        routed.empty() ? "; no RDMA device routes there" : "; " + routed + " routes there";
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kRefused && !has_port) {
      check.finding = "answers; name the port of a listener (HOST:PORT) to try that, too";
      return check;
    }
    check.verdict = Verdict::kFailed;
    check.finding = error.what();
    check.advice = error.code() == ErrorCode::kRefused
                       ? "Start the listener there first, or check the port."
                       : "Check the name, and that a firewall lets TCP through to that port; RoCE "
                         "also needs UDP port 4791.";
  }
  return check;
}

}  // namespace

const char* to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kWarning:
      return "warning";
    case Verdict::kFailed:
      return "failed";
  }
  return "unknown";
}

std::vector<Check> run_checks(const Wish& wish) {
  std::vector<Check> checks;
  Options options;
  if (!wish.device.empty()) options.device = wish.device;
  if (!wish.transport.empty()) options.transport = wish.transport;

  const std::vector<DeviceInfo> devices = detail::probe_devices();
  const std::vector<VerbsPort> ports = verbs_ports();
  std::optional<Settings> settings;
  try {
    settings = detail::resolve_settings(options, {});
    checks.push_back(passed("settings", "all valid (leat-info -c lists them)"));
    checks.push_back(check_wish(*settings, devices));
  } catch (const Error& error) {
    checks.push_back({settings ? "as asked" : "settings", Verdict::kFailed, error.what(), {}});
  }
  for (const DeviceInfo& device : devices) checks.push_back(check_device(device));
  checks.push_back(check_membarrier());
  checks.push_back(check_infiniband_folder(!ports.empty()));
  for (const VerbsPort& port : ports) checks.push_back(check_port(port, devices));
  checks.push_back(check_locked_memory(!ports.empty()));
  if (!wish.host.empty() && settings) checks.push_back(check_host(wish.host, *settings));
  return checks;
}

}  // namespace leat::tools

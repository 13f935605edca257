#include "support/mesh_side.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/fd.h"
#include "support/devices.h"

namespace leat::scml {

using leat::detail::fill_pattern;
using leat::detail::hang_limit;
using leat::detail::run_parties;

bool is_ib(const std::string& device) { return device.starts_with("ib"); }

namespace {

// Of this host, and of this process alone: another test that runs now cannot take a port of it
// between our look and our listener.
std::string own_loopback_address() {
  const auto number = static_cast<unsigned>(getpid());
  return "127." + std::to_string(1 + (number >> 16) % 255) + "." +
         std::to_string(number >> 8 & 255) + "." + std::to_string(number & 255);
}

// A free port P, with P + 1 ... free too; below those that the system gives to sockets without one,
// and above those of free_port(), whose listeners have all addresses.
unsigned free_ports(const std::string& host) {
  static std::mt19937 random(static_cast<unsigned>(getpid()));
  for (;;) {
    const auto first =
        static_cast<unsigned>(20'000 + random() % 10'000 / kMaxThreads * kMaxThreads);
    std::vector<leat::detail::Fd> sockets;
    bool all_free = true;
    for (unsigned i = 0; i < kMaxThreads && all_free; ++i) {
      sockets.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(static_cast<std::uint16_t>(first + i));
      inet_pton(AF_INET, host.c_str(), &address.sin_addr);
      all_free = ::bind(sockets.back().get(), reinterpret_cast<const sockaddr*>(&address),
                        sizeof address) == 0;
    }
    if (all_free) return first;
  }
}

}  // namespace

std::vector<std::string> free_addresses(unsigned parties, const std::string& device) {
  std::string host = leat::detail::device_address(device);
  if (host.empty()) host = own_loopback_address();
  std::vector<std::string> addresses;
  while (addresses.size() < parties) {
    const std::string address = host + ":" + std::to_string(free_ports(host));
    if (std::find(addresses.begin(), addresses.end(), address) == addresses.end())
      addresses.push_back(address);
  }
  return addresses;
}

void PrintTo(const MeshKind& kind, std::ostream* out) {
  *out << (kind.sealed ? "sealed_" : "") << to_string(kind.carrier) << "_on_"
       << leat::detail::device_label(kind.device);
}

std::vector<MeshKind> mesh_kinds() {
  std::vector<MeshKind> all{{Carrier::kTcp, "tcp"}};
  for (const std::string& device : leat::detail::test_devices())
    for (const Carrier carrier : {Carrier::kUnified, Carrier::kContexts, Carrier::kPlanned}) {
      // The others are channels, which tests/transport has on every device, and a mesh on ib is
      // slow where its processors are emulated.
      if (is_ib(device) && carrier != Carrier::kPlanned) continue;
      all.push_back({carrier, device});
    }
  all.push_back({Carrier::kPlanned, "shm", true});
  return all;
}

MeshOptions MeshTest::options(const std::vector<std::string>& addresses, unsigned self) const {
  MeshOptions options;
  options.addresses = addresses;
  options.self = self;
  options.carrier = kind().carrier;
  options.options.device = kind().device;
  options.options.fallback = "never";
  options.options.connect_timeout = hang_limit();
  options.options.handshake_timeout = hang_limit();
  options.options.timeout = hang_limit();
  options.options.planned_bytes = kRegionBytes;
  if (kind().sealed) {
    options.options.confidential = "require";
    options.options.tls_psk_file = leat::detail::channel_key_file();
  }
  return options;
}

void MeshTest::run(unsigned parties, const std::function<void(Mesh&)>& body,
                   std::optional<unsigned> killed) const {
  const auto addresses = free_addresses(parties, kind().device);
  run_parties(
      mode(), parties,
      [&](unsigned self) {
        Mesh mesh(options(addresses, self));
        EXPECT_EQ(mesh.self(), self);
        EXPECT_EQ(mesh.parties(), parties);
        body(mesh);
      },
      killed);
}

std::string mesh_test_name(const testing::TestParamInfo<MeshTest::ParamType>& info) {
  return testing::PrintToString(std::get<0>(info.param)) + "_" + to_string(std::get<1>(info.param));
}

std::vector<Flow> all_flows(unsigned parties) {
  std::vector<Flow> flows;
  for (unsigned from = 0; from < parties; ++from)
    for (unsigned to = 0; to < parties; ++to)
      if (from != to) flows.push_back({from, to});
  return flows;
}

// Messages [index, index + count) of an array in a round, from one party to another.
std::vector<std::byte> messages(const leat::MessageArray& array, std::uint64_t round, unsigned from,
                                unsigned to, std::uint64_t index, std::uint64_t count) {
  std::vector<std::byte> bytes(array.message_bytes * count);
  for (std::uint64_t i = 0; i < count; ++i)
    fill_pattern(std::span(bytes).subspan(i * array.message_bytes, array.message_bytes),
                 ((round * kMaxParties + from) * kMaxParties + to) << 32 | (index + i));
  return bytes;
}

testing::AssertionResult same(std::span<const std::byte> got,
                              const std::vector<std::byte>& expected) {
  if (std::equal(got.begin(), got.end(), expected.begin(), expected.end()))
    return testing::AssertionSuccess();
  return testing::AssertionFailure() << got.size() << " bytes that differ from what was sent";
}

}  // namespace leat::scml

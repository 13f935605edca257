#include "support/packet_capture.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <stdexcept>
#include <vector>

#include "base/system_error.h"

namespace leat::detail {
namespace {

// The kernel doubles it, for what a frame costs beside its bytes.
constexpr int kBufferBytes = 128 << 20;
// Frames that the kernel would cut into segments only later have up to 64 KiB.
constexpr std::size_t kMostFrameBytes = 128 << 10;

std::size_t number_at(std::span<const std::byte> frame, std::size_t at) {
  return std::to_integer<std::size_t>(frame[at]) << 8 | std::to_integer<std::size_t>(frame[at + 1]);
}

// Frames that found no room since the last call.
unsigned dropped(int socket) {
  tpacket_stats statistics{};
  socklen_t bytes = sizeof(statistics);
  check(getsockopt(socket, SOL_PACKET, PACKET_STATISTICS, &statistics, &bytes),
        "getsockopt(PACKET_STATISTICS)");
  return statistics.tp_drops;
}

}  // namespace

PacketCapture::PacketCapture(const std::string& network_device)
    // Of no protocol, so that nothing comes before it is bound to the device.
    : socket_(check(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0), "socket(AF_PACKET)")) {
  check(setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUFFORCE, &kBufferBytes, sizeof(kBufferBytes)),
        "setsockopt(SO_RCVBUFFORCE)");
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(if_nametoindex(network_device.c_str()));
  if (address.sll_ifindex == 0) throw system_error("if_nametoindex " + network_device, errno);
  check(bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
        "bind(AF_PACKET)");
}

void PacketCapture::look_through(const Look& look) {
  std::vector<std::byte> frame(kMostFrameBytes);
  while (true) {
    sockaddr_ll from{};
    socklen_t from_bytes = sizeof(from);
    const ssize_t bytes =
        recvfrom(socket_.get(), frame.data(), frame.size(), MSG_DONTWAIT | MSG_TRUNC,
                 reinterpret_cast<sockaddr*>(&from), &from_bytes);
    if (bytes < 0 && errno == EAGAIN) break;
    if (bytes < 0) throw system_error("recvfrom(AF_PACKET)", errno);
    const auto length = static_cast<std::size_t>(bytes);
    if (length > frame.size()) throw std::runtime_error("a captured frame is too large");
    look(std::span(frame).first(length), from.sll_pkttype == PACKET_OUTGOING);
  }
  if (const unsigned frames = dropped(socket_.get()); frames > 0)
    throw std::runtime_error("the capture lacks " + std::to_string(frames) + " frames");
}

std::size_t payload_bytes(std::span<const std::byte> frame) {
  constexpr std::size_t kUdpBytes = 8, kBaseTransportBytes = 12, kChecksumBytes = 4;
  constexpr std::size_t kRocePort = 4791;
  constexpr std::size_t kIp = ETH_HLEN;
  if (frame.size() < kIp + 20 || number_at(frame, 12) != ETH_P_IP) return 0;
  const std::size_t ip_bytes = std::to_integer<std::size_t>(frame[kIp] & std::byte{15}) * 4;
  const std::size_t above = kIp + ip_bytes;
  const int protocol = std::to_integer<int>(frame[kIp + 9]);
  std::size_t headers = ip_bytes;
  if (protocol == IPPROTO_TCP && frame.size() >= above + 20) {
    headers += std::to_integer<std::size_t>(frame[above + 12] >> 4) * 4;
  } else if (protocol == IPPROTO_UDP && frame.size() >= above + kUdpBytes + kBaseTransportBytes &&
             number_at(frame, above + 2) == kRocePort) {
    headers += kUdpBytes + kBaseTransportBytes + kChecksumBytes;
  } else {
    return 0;
  }
  const std::size_t total = number_at(frame, kIp + 2);
  return total > headers ? total - headers : 0;
}

}  // namespace leat::detail

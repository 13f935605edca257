#include "preload/marks.h"

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

#include "preload/real.h"

namespace leat::preload {
namespace {

// All are below half of the window that a connection opens with, because the kernel would cut
// larger ones; the listener's are below the connector's, because each end learns the smaller of
// both.
constexpr int kListenerBase = 28'000;
constexpr int kListenerStep = 16;
constexpr int kConnectorBase = 32'448;
static_assert(kListenerBase + static_cast<int>(kCodes) * kListenerStep < kConnectorBase);

// Those of folders pass every network between containers, as no path of IPv6 lets less than 1,220
// pass. They are odd, as sizes that no program has set are not.
constexpr int kFolderListenerBase = 1031;
constexpr int kFolderListenerStep = 2;
constexpr int kFolderConnector = 1171;
static_assert(kFolderListenerBase + static_cast<int>(kFolderCodes) * kFolderListenerStep <
              kFolderConnector);

int steps(int size, int base, int step, unsigned count) {
  const int distance = size - base;
  if (distance < 0 || distance % step != 0) return -1;
  return distance / step < static_cast<int>(count) ? distance / step : -1;
}

// The kernel takes the timestamps off what a SYN said.
int size_in_syn(const tcp_info& info, std::uint32_t size) {
  const bool stamps = (info.tcpi_options & TCPI_OPT_TIMESTAMPS) != 0;
  return static_cast<int>(size) + (stamps ? TCPOLEN_TSTAMP_APPA : 0);
}

}  // namespace

bool may_be_cut(int size) noexcept { return size < kListenerBase; }

int listener_size(unsigned code) noexcept {
  return is_in_folder(code)
             ? kFolderListenerBase + static_cast<int>(code - kFirstFolderCode) * kFolderListenerStep
             : kListenerBase + static_cast<int>(code) * kListenerStep;
}

int listener_code(int size) noexcept {
  const int in_folder = steps(size, kFolderListenerBase, kFolderListenerStep, kFolderCodes);
  if (in_folder >= 0) return static_cast<int>(kFirstFolderCode) + in_folder;
  return steps(size, kListenerBase, kListenerStep, kCodes);
}

int listener_code(const tcp_info& info) noexcept {
  return listener_code(size_in_syn(info, info.tcpi_snd_mss));
}

int connector_size(int code) noexcept {
  return code == kOffersInFolder ? kFolderConnector : kConnectorBase + code;
}

int connector_code(int size) noexcept {
  return size == kFolderConnector ? kOffersInFolder : steps(size, kConnectorBase, 1, kUserCodes);
}

int sent_connector_code(const tcp_info& info) noexcept {
  return connector_code(size_in_syn(info, info.tcpi_advmss));
}

int connector_code_of_syn(int fd) noexcept {
  std::uint8_t syn[256];
  socklen_t bytes = sizeof(syn);
  if (real().getsockopt(fd, IPPROTO_TCP, TCP_SAVED_SYN, syn, &bytes) != 0 || bytes < 40) return -1;
  const std::size_t ip = (syn[0] >> 4) == 4 ? (syn[0] & 15U) * 4U : 40U;
  if (bytes < ip + 20) return -1;
  const std::size_t end = ip + (syn[ip + 12] >> 4) * 4U;
  for (std::size_t at = ip + 20; at + 3 < end && end <= bytes;) {
    if (syn[at] == TCPOPT_EOL) break;
    if (syn[at] == TCPOPT_NOP) {
      ++at;
    } else if (syn[at] == TCPOPT_MAXSEG) {
      return connector_code((syn[at + 2] << 8) | syn[at + 3]);
    } else {
      at += syn[at + 1] < 2 ? 2U : syn[at + 1];
    }
  }
  return -1;
}

}  // namespace leat::preload

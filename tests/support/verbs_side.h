// One side of a test of queue pairs, and the fixture that makes two of them and connects them.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "support/devices.h"
#include "support/pattern.h"
#include "support/peer_pair.h"
#include "support/scale.h"
#include "verbs/device.h"

namespace leat::detail {

inline constexpr std::byte kFilling{0xa5};
inline constexpr unsigned kRemoteReadWrite = kRemoteRead | kRemoteWrite;

// A test body gets it connected and may take it apart. Waits throw at hang_deadline().
class VerbsSide {
 public:
  VerbsSide(Peer& its_peer, const std::string& device_name);

  Peer& peer;
  std::unique_ptr<Device> device;
  std::unique_ptr<QueuePair> queue_pair;

  // Both sides call it with what they want the other to know.
  RemoteRegion exchange(const RemoteRegion& mine);
  // Memory of the device, filled, that lives until both sides have ended.
  const MemoryRegion& allocate(std::size_t bytes, unsigned access,
                               std::byte filling = std::byte{0});

  // Posts until it is accepted.
  void post(const SendRequest& request);
  void post_receives(std::size_t count);

  // The next completion, waited for by polling.
  Completion send_completion();
  Completion receive_completion();
  // The next completion, waited for in the kernel by arm() and poll(2).
  Completion sleep_for_send();
  Completion sleep_for_receive();
  // Sleeps until arm(side) says that there may be something. `ready` looks again after arm().
  void sleep(Side side, const std::function<bool()>& ready);

  // Posts and expects success.
  void complete(const SendRequest& request);
  // Polls often; EXPECTs that nothing comes.
  void expect_no_send_completion();
  void expect_no_receive_completion();

 private:
  std::vector<std::unique_ptr<MemoryRegion>> regions_;
};

// Requests between `offset` in our region and `remote_offset` in the peer's.
struct Transfer {
  const MemoryRegion& region;
  std::size_t offset = 0;
  RemoteRegion remote;
  std::size_t remote_offset = 0;
  std::size_t bytes = 0;
};
SendRequest write_request(const Transfer& transfer, std::uint64_t id = 0);
SendRequest read_request(const Transfer& transfer, std::uint64_t id = 0);
SendRequest immediate_request(std::uint32_t immediate, std::uint64_t id = 0);

using VerbsBody = std::function<void(VerbsSide&)>;

struct VerbsOptions {
  QueueDepths depths;
  SecondEnds second_ends = SecondEnds::kByReturning;
};

// Parameters: device name, threads or processes.
class VerbsTest : public testing::TestWithParam<std::tuple<std::string, PeerMode>> {
 protected:
  std::string device_name() const { return std::get<0>(GetParam()); }
  PeerMode mode() const { return std::get<1>(GetParam()); }

  // The first side offers, the second connects. Both sides are destroyed when their bodies return,
  // but not before both have returned (a killed second side excepted).
  void run(const VerbsBody& first, const VerbsBody& second, const VerbsOptions& options = {}) const;
  // The same body on both sides.
  void run_both(const VerbsBody& body, const VerbsOptions& options = {}) const;
};

}  // namespace leat::detail

// A device whose peer is the test: what the test says has arrived, and what is posted the test can
// look at. For hostile peers that no real device could have.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "verbs/arrivals.h"
#include "verbs/device.h"

namespace leat::detail {

// What test and device share; must outlive the device, its queue pairs and regions.
struct Script {
  Limits limits{.max_inline_bytes = 64,
                .max_send_requests = 256,
                .max_receive_requests = 1024,
                .max_request_bytes = std::size_t{1} << 20};
  // Called for each request at its post, which then completes.
  std::function<void(const SendRequest&)> posted = [](const SendRequest&) {};
  std::deque<Completion> arrivals;  // for poll_receives
  std::deque<Completion> done;      // for poll_sends
  // Not null: both sides share memory, all regions too, and what arrives comes by this.
  Arrivals* shared = nullptr;
  // Called by Device::connect with the peer's blob; may throw.
  std::function<void(std::span<const std::byte>)> connecting = [](auto) {};
};

std::unique_ptr<Device> scripted_device(Script& script);
std::unique_ptr<QueuePair> scripted_queue_pair(Script& script);

}  // namespace leat::detail

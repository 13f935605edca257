#include "support/verbs_side.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <thread>

#include "base/system_error.h"
#include "support/devices.h"
#include "verbs/table.h"

namespace leat::detail {
namespace {

constexpr int kPollsForNothing = 2000;

// Yields until `ready`; throws at the deadline.
void wait_until(const char* what, const std::function<bool()>& ready) {
  const Deadline deadline = hang_deadline();
  while (!ready()) {
    if (passed(deadline)) throw std::runtime_error(std::string("hangs: ") + what);
    std::this_thread::yield();
  }
}

}  // namespace

VerbsSide::VerbsSide(Peer& its_peer, const std::string& device_name)
    : peer(its_peer), device(open_device(device_name, device_address(device_name))) {}

RemoteRegion VerbsSide::exchange(const RemoteRegion& mine) {
  peer.tell_value(mine);
  return peer.hear_value<RemoteRegion>();
}

const MemoryRegion& VerbsSide::allocate(std::size_t bytes, unsigned access, std::byte filling) {
  regions_.push_back(device->allocate(bytes, access));
  std::ranges::fill(regions_.back()->memory(), filling);
  return *regions_.back();
}

void VerbsSide::post(const SendRequest& request) {
  wait_until("post_send", [&] { return queue_pair->post_send({&request, 1}) == 1; });
}

void VerbsSide::post_receives(std::size_t count) {
  wait_until("post_receives", [&] { return (count -= queue_pair->post_receives(count)) == 0; });
}

Completion VerbsSide::send_completion() {
  Completion completion;
  wait_until("send completion", [&] { return queue_pair->poll_sends({&completion, 1}) == 1; });
  return completion;
}

Completion VerbsSide::receive_completion() {
  Completion completion;
  wait_until("receive completion", [&] {
    return queue_pair->poll_receives({&completion, 1}) == 1;
  });
  return completion;
}

void VerbsSide::sleep(Side side, const std::function<bool()>& ready) {
  const Deadline deadline = hang_deadline();
  while (!ready()) {
    queue_pair->arm(side);
    if (ready()) return;
    pollfd wait{queue_pair->event_fd(side), POLLIN, 0};
    const int result = ::poll(&wait, 1, poll_timeout_ms(deadline));
    if (result < 0 && errno != EINTR) throw system_error("poll", errno);
    if (result == 0 && passed(deadline)) throw std::runtime_error("no event although armed");
  }
}

Completion VerbsSide::sleep_for_send() {
  Completion completion;
  sleep(Side::kSend, [&] { return queue_pair->poll_sends({&completion, 1}) == 1; });
  return completion;
}

Completion VerbsSide::sleep_for_receive() {
  Completion completion;
  sleep(Side::kReceive, [&] { return queue_pair->poll_receives({&completion, 1}) == 1; });
  return completion;
}

void VerbsSide::complete(const SendRequest& request) {
  post(request);
  const Completion completion = send_completion();
  if (completion.status != CompletionStatus::kSuccess || completion.id != request.id) {
    throw std::runtime_error(std::string("request failed: ") + to_string(completion.status));
  }
}

void VerbsSide::expect_no_send_completion() {
  Completion completion;
  for (int i = 0; i < kPollsForNothing; ++i) {
    if (queue_pair->poll_sends({&completion, 1}) != 0) {
      ADD_FAILURE() << "a send completion, " << to_string(completion.status);
      return;
    }
  }
}

void VerbsSide::expect_no_receive_completion() {
  Completion completion;
  for (int i = 0; i < kPollsForNothing; ++i) {
    if (queue_pair->poll_receives({&completion, 1}) != 0) {
      ADD_FAILURE() << "a receive completion, " << to_string(completion.status);
      return;
    }
  }
}

SendRequest write_request(const Transfer& transfer, std::uint64_t id) {
  SendRequest request;
  request.id = id;
  request.opcode = Opcode::kWrite;
  request.local = transfer.region.memory().data() + transfer.offset;
  request.bytes = transfer.bytes;
  request.local_key = transfer.region.local_key();
  request.remote_address = transfer.remote.address + transfer.remote_offset;
  request.remote_key = transfer.remote.key;
  return request;
}

SendRequest read_request(const Transfer& transfer, std::uint64_t id) {
  SendRequest request = write_request(transfer, id);
  request.opcode = Opcode::kRead;
  return request;
}

SendRequest immediate_request(std::uint32_t immediate, std::uint64_t id) {
  SendRequest request;
  request.id = id;
  request.opcode = Opcode::kWriteWithImmediate;
  request.immediate = immediate;
  return request;
}

void VerbsTest::run(const VerbsBody& first, const VerbsBody& second,
                    const VerbsOptions& options) const {
  const bool second_returns = options.second_ends == SecondEnds::kByReturning;
  run_pair(
      mode(),
      [&](Peer& peer) {
        VerbsSide side(peer, device_name());
        const auto offer = side.device->offer(options.depths, device_address(device_name()));
        const std::vector<std::byte> blob = offer->blob();
        peer.tell({reinterpret_cast<const char*>(blob.data()), blob.size()});
        side.queue_pair = offer->accept(hang_deadline(), -1);
        peer.barrier();
        first(side);
        if (second_returns) peer.barrier();
      },
      [&](Peer& peer) {
        VerbsSide side(peer, device_name());
        const std::string blob = peer.hear();
        side.queue_pair =
            side.device->connect(std::as_bytes(std::span(blob)), options.depths, hang_deadline());
        peer.barrier();  // leaving at once would end the connection before the peer has it
        second(side);
        if (second_returns) peer.barrier();
      },
      options.second_ends);
}

void VerbsTest::run_both(const VerbsBody& body, const VerbsOptions& options) const {
  run(body, body, options);
}

}  // namespace leat::detail

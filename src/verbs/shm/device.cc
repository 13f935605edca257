// The shm device, and how two of its queue pairs meet: over a unix socket with a random abstract
// name, between processes of the same user, which the kernel and a secret prove.
#include "verbs/shm/row.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <future>

#include "base/asymmetric_barrier.h"
#include "base/epoll.h"
#include "base/log.h"
#include "base/memfd.h"
#include "base/system_error.h"
#include "verbs/shm/queue_pair.h"

namespace leat::detail {
namespace {

using namespace shm;

constexpr std::size_t kMaxDepth = 65536;
constexpr std::size_t kMaxStrangers = 8;  // at one offer at a time

// Waits until `fd` is readable. Throws at the deadline, and once the lifeline is readable.
void wait_readable(int fd, int lifeline, Deadline deadline, const char* what) {
  for (;;) {
    pollfd fds[] = {{fd, POLLIN, 0}, {lifeline, POLLIN, 0}};
    const int ready = poll(fds, lifeline >= 0 ? 2 : 1, poll_timeout_ms(deadline));
    if (ready < 0 && errno != EINTR) throw system_error("poll", errno);
    if (ready > 0 && fds[0].revents != 0) return;
    if (ready > 0)
      throw Error(ErrorCode::kPeerDied,
                  std::string("device shm: the peer went away while ") + what);
    if (passed(deadline))
      throw Error(ErrorCode::kTimeout, std::string("device shm: no answer while ") + what);
  }
}

std::uint32_t ring_depth(std::size_t wanted) {
  return static_cast<std::uint32_t>(std::bit_ceil(std::clamp<std::size_t>(wanted, 1, kMaxDepth)));
}

// The blob: the socket's random name and the secret that opens it.
struct Blob {
  Secret name;
  Secret secret;
};
std::string socket_name(const Secret& name) { return "leat-shm-" + hex(name); }

void set_directions(Endpoint& endpoint, std::uint32_t outgoing_depth, std::uint32_t incoming_depth,
                    bool outgoing_first) {
  std::byte* first = endpoint.memory.data();
  const std::uint32_t first_depth = outgoing_first ? outgoing_depth : incoming_depth;
  std::byte* second = first + Direction::bytes(first_depth);
  endpoint.outgoing = Direction::at(outgoing_first ? first : second, outgoing_depth);
  endpoint.incoming = Direction::at(outgoing_first ? second : first, incoming_depth);
}

// The passive side makes everything that is shared and passes it on.
Endpoint welcome(Fd socket, const Join& join, const QueueDepths& depths) {
  Endpoint endpoint;
  const std::uint32_t to_active = ring_depth(join.receive_depth);
  const std::uint32_t to_passive = ring_depth(depths.receive_requests);
  endpoint.asymmetric_barriers = register_for_heavy_barriers() && join.asymmetric != 0;
  endpoint.send_depth = depths.send_requests;

  const std::size_t bytes = Direction::bytes(to_active) + Direction::bytes(to_passive);
  const Fd memory(check(new_memfd("leat-queues"), "memfd_create"));
  if (ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0)
    throw system_error("ftruncate(memfd)", errno);
  check(fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
        "fcntl(memfd, F_ADD_SEALS)");
  endpoint.memory =
      MappedMemory::of_file(memory.get(), bytes, MappedMemory::Protection::kReadWrite);
  set_directions(endpoint, to_active, to_passive, true);
  for (Fd* fd : {&endpoint.own_events[0], &endpoint.own_events[1], &endpoint.peer_events[0],
                 &endpoint.peer_events[1]})
    *fd = new_event();

  const Welcome answer{kMagic, to_passive, to_active, endpoint.asymmetric_barriers ? 1U : 0U, 0};
  const int fds[kWelcomeFds] = {memory.get(), endpoint.own_events[0].get(),
                                endpoint.own_events[1].get(), endpoint.peer_events[0].get(),
                                endpoint.peer_events[1].get()};
  if (!send_message(socket.get(), std::as_bytes(std::span(&answer, 1)), fds))
    throw Error(ErrorCode::kSystem, "device shm: the socket of a new connection takes no message");
  endpoint.socket = std::move(socket);
  return endpoint;
}

// The active side maps what it receives, and trusts none of it.
Endpoint take_welcome(Fd socket, const QueueDepths& depths, bool asymmetric) {
  Welcome answer;
  std::vector<Fd> fds;
  if (receive_message(socket.get(), std::as_writable_bytes(std::span(&answer, 1)), kWelcomeFds,
                      fds) != ReceiveMessage::kMessage ||
      answer.magic != kMagic || fds.size() != kWelcomeFds)
    throw Error(
        ErrorCode::kPeerDied, "device shm: the peer turned us away",
        "Both processes must run as the same user and the offer is for one connection only.");
  const auto valid = [](std::uint32_t depth) {
    return std::has_single_bit(depth) && depth <= kMaxDepth;
  };
  struct stat status {};
  const int seals = fcntl(fds[0].get(), F_GET_SEALS);
  const bool sound = valid(answer.depth_to_passive) && valid(answer.depth_to_active) &&
                     seals >= 0 && (seals & F_SEAL_SHRINK) != 0 &&
                     fstat(fds[0].get(), &status) == 0;
  const std::size_t bytes =
      sound ? Direction::bytes(answer.depth_to_active) + Direction::bytes(answer.depth_to_passive)
            : 0;
  if (!sound || static_cast<std::size_t>(status.st_size) != bytes)
    throw Error(ErrorCode::kProtocol, "device shm: the peer's welcome makes no sense");

  Endpoint endpoint;
  endpoint.memory =
      MappedMemory::of_file(fds[0].get(), bytes, MappedMemory::Protection::kReadWrite);
  set_directions(endpoint, answer.depth_to_passive, answer.depth_to_active, false);
  endpoint.peer_events[0] = std::move(fds[1]);
  endpoint.peer_events[1] = std::move(fds[2]);
  endpoint.own_events[0] = std::move(fds[3]);
  endpoint.own_events[1] = std::move(fds[4]);
  endpoint.asymmetric_barriers = asymmetric && answer.asymmetric != 0;
  endpoint.send_depth = depths.send_requests;
  endpoint.socket = std::move(socket);
  return endpoint;
}

class ShmOffer final : public Offer {
 public:
  ShmOffer(std::shared_ptr<OwnRegions> regions, const QueueDepths& depths)
      : regions_(std::move(regions)),
        depths_(depths),
        listener_(listen_at(socket_name(blob_.name))) {}

  std::vector<std::byte> blob() const override {
    const auto bytes = std::as_bytes(std::span(&blob_, 1));
    return {bytes.begin(), bytes.end()};
  }

  std::unique_ptr<QueuePair> accept(Deadline deadline, int lifeline) override {
    std::vector<Fd> newcomers;
    for (;;) {
      std::vector<pollfd> fds{{lifeline, POLLIN, 0}, {listener_.get(), POLLIN, 0}};
      for (const Fd& newcomer : newcomers) fds.push_back({newcomer.get(), POLLIN, 0});
      const int ready = poll(fds.data(), fds.size(), poll_timeout_ms(deadline));
      if (ready < 0 && errno != EINTR) throw system_error("poll", errno);
      for (std::size_t i = 0; i < newcomers.size();) {
        if (ready > 0 && fds[2 + i].revents != 0) {
          if (auto queue_pair = meet(std::move(newcomers[i]))) return queue_pair;
          newcomers.erase(newcomers.begin() + static_cast<std::ptrdiff_t>(i));
          fds.erase(fds.begin() + static_cast<std::ptrdiff_t>(2 + i));
        } else {
          ++i;
        }
      }
      if (ready > 0 && fds[1].revents != 0) admit(newcomers);
      if (ready > 0 && fds[0].revents != 0)
        throw Error(ErrorCode::kPeerDied, "device shm: the peer went away while it was awaited");
      if (passed(deadline))
        throw Error(ErrorCode::kTimeout, "device shm: the peer did not come to the offer in time");
    }
  }

 private:
  void admit(std::vector<Fd>& newcomers) {
    Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE) throw system_error("accept(shm socket)", errno);
      return;
    }
    if (!same_user(socket.get())) {
      log(LogLevel::kWarn, "device shm: another user's process knocked and was turned away");
    } else {
      if (newcomers.size() == kMaxStrangers) newcomers.erase(newcomers.begin());
      newcomers.push_back(std::move(socket));
    }
  }

  // Null for a stranger.
  std::unique_ptr<QueuePair> meet(Fd socket) {
    Join join;
    std::vector<Fd> none;
    if (receive_message(socket.get(), std::as_writable_bytes(std::span(&join, 1)), 0, none) !=
            ReceiveMessage::kMessage ||
        join.magic != kMagic || !same_secret(join.secret, blob_.secret)) {
      log(LogLevel::kWarn, "device shm: a stranger knocked and was turned away");
      return nullptr;
    }
    return std::make_unique<ShmQueuePair>(welcome(std::move(socket), join, depths_), regions_);
  }

  std::shared_ptr<OwnRegions> regions_;
  QueueDepths depths_;
  Blob blob_{random_secret(), random_secret()};
  Fd listener_;
};

DeviceInfo shm_info() {
  DeviceInfo info;
  info.name = "shm";
  info.usable = true;
  info.description = "shared memory between processes of one user on one host";
  return info;
}

class ShmDevice final : public Device {
 public:
  const DeviceInfo& info() const override { return info_; }

  Limits limits() const override {
    Limits limits;
    limits.max_request_bytes = std::size_t{1} << 30;
    limits.max_inline_bytes = limits.max_request_bytes;  // every request runs as it is posted
    limits.max_send_requests = kMaxDepth;
    limits.max_receive_requests = kMaxDepth;
    limits.shares_memory = true;
    return limits;
  }

  std::unique_ptr<MemoryRegion> allocate(std::size_t bytes, unsigned access) override {
    return OwnRegions::allocate(regions_, bytes, access);
  }
  std::unique_ptr<Offer> offer(const QueueDepths& depths, const std::string&) override {
    return std::make_unique<ShmOffer>(regions_, depths);
  }

  std::unique_ptr<QueuePair> connect(std::span<const std::byte> bytes, const QueueDepths& depths,
                                     Deadline deadline) override {
    Blob blob;
    if (bytes.size() != sizeof blob)
      throw Error(ErrorCode::kProtocol, "device shm: the peer's offer has the wrong size");
    std::memcpy(&blob, bytes.data(), sizeof blob);
    Fd socket = connect_to(socket_name(blob.name));
    const bool asymmetric = register_for_heavy_barriers();
    const Join join{kMagic, blob.secret, ring_depth(depths.receive_requests), asymmetric ? 1U : 0U};
    if (!same_user(socket.get()) ||
        !send_message(socket.get(), std::as_bytes(std::span(&join, 1)), {}))
      throw Error(ErrorCode::kAuthentication, "device shm: the peer runs as another user");
    wait_readable(socket.get(), -1, deadline, "joining the peer");
    return std::make_unique<ShmQueuePair>(take_welcome(std::move(socket), depths, asymmetric),
                                          regions_);
  }

 private:
  DeviceInfo info_ = shm_info();
  std::shared_ptr<OwnRegions> regions_ = std::make_shared<OwnRegions>();
};

}  // namespace

std::unique_ptr<Device> open_shm_device(const std::string& /*name*/,
                                        const std::string& /*peer_host*/) {
  return std::make_unique<ShmDevice>();
}

std::vector<DeviceInfo> probe_shm_devices() { return {probe_shm_device({})}; }

DeviceInfo probe_shm_device(const std::string& /*name*/) {
  DeviceInfo info = shm_info();
  try {
    ShmDevice device;
    const auto region = device.allocate(4096, kRemoteRead | kRemoteWrite);
    const auto offer = device.offer({1, 1}, {});
    const Deadline deadline = deadline_after(std::chrono::seconds(5));
    auto active = std::async(std::launch::async, [&] {
      return ShmDevice().connect(offer->blob(), {1, 1}, deadline);
    });
    const auto passive = offer->accept(deadline, -1);
    active.get();
  } catch (const Error& error) {
    info.usable = false;
    info.why_not = error.what();
  }
  return info;
}

Obstacle shm_obstacle(const HostIdentity& client, const HostIdentity& listener) {
  if (!client.boot_known() || !listener.boot_known()) return {"a host's boot id is not readable"};
  if (client.boot_id != listener.boot_id) return {"other host"};
  for (const auto& [side, host] : {std::pair("client", &client), std::pair("listener", &listener)})
    if (host->user == HostIdentity::kUnknownUser)
      return {std::string("the user namespace of the ") + side + " does not map its user", true};
  if (client.user != listener.user)
    return {"other user (client " + std::to_string(client.user) + ", listener " +
                std::to_string(listener.user) + ")",
            true};
  if (client.network != listener.network || client.network == 0)
    return {"other network namespace", true};
  return {};
}

bool shm_is_likely(const Route& route) { return route.local_host == route.peer_host; }

}  // namespace leat::detail

#include "scml/replay.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <random>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "forked_peer.h"
#include "machine.h"
#include "pattern.h"

namespace leat::bench {
namespace {

using scml::Mesh;
using scml::Placement;
using scml::Plan;

constexpr std::size_t kCacheLine = 64;
// A round is sent in pieces of about so many bytes, as a program computes it: out of the cache.
constexpr std::uint64_t kPieceBytes = 256 * 1024;

bool is_free(unsigned port) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool free =
      bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  close(listener);
  return free;
}

// Below the ports that the system gives to clients, so that none is taken in between.
std::vector<std::string> free_addresses(unsigned count) {
  std::mt19937 random(std::random_device{}());
  std::uniform_int_distribution<unsigned> ports(10'000, 32'000);
  std::vector<std::string> addresses;
  while (addresses.size() < count) {
    const unsigned port = ports(random);
    const std::string address = "127.0.0.1:" + std::to_string(port);
    if (std::find(addresses.begin(), addresses.end(), address) == addresses.end() && is_free(port))
      addresses.push_back(address);
  }
  return addresses;
}

// What one party does.
class Player {
 public:
  Player(const Plan& plan, Mesh& mesh, bool verify)
      : plan_(plan), mesh_(mesh), verify_(verify), buffer_(kPieceBytes, std::byte{1}) {}

  void play_batch() {
    for (const scml::Step& step : plan_.steps) {
      for (std::uint64_t i = 0; i < step.repeats; ++i) {
        for (const std::size_t placement : step.opens) mesh_.open(plan_.placements[placement]);
        for (const std::size_t placement : step.arrays) play(placement);
        for (const std::size_t placement : step.frees)
          mesh_.close(plan_.placements[placement].context);
      }
    }
  }
  // So that the looking cannot be left out.
  std::uint64_t sum() const { return sum_; }

 private:
  void play(std::size_t number) {
    const Placement& placement = plan_.placements[number];
    const std::uint64_t each = placement.messages.message_bytes;
    mesh_.select(placement.context);
    std::uint64_t first = 0;
    for (const std::uint64_t count : placement.messages.round_messages) {
      if (count == 0) continue;
      for (const scml::Flow& flow : placement.messages.flows)
        if (flow.sender == mesh_.self()) send_round(flow, first, count, each);
      for (const scml::Flow& flow : placement.messages.flows) {
        if (flow.receiver != mesh_.self()) continue;
        const auto received = mesh_.receive(flow.sender, first, count);
        if (verify_) check_round(flow, received, first, each);
        for (std::size_t i = 0; i < received.size(); i += kCacheLine)
          sum_ += static_cast<std::uint64_t>(received[i]);
      }
      first += count;
    }
  }

  static std::uint64_t piece_messages(std::uint64_t each) {
    return std::max<std::uint64_t>(1, kPieceBytes / each);
  }
  static std::uint64_t seed_of(const scml::Flow& flow) {
    return flow.sender * scml::kMaxParties + flow.receiver;
  }

  void send_round(const scml::Flow& flow, std::uint64_t index, std::uint64_t count,
                  std::uint64_t each) {
    for (const std::uint64_t end = index + count; index < end;) {
      const std::uint64_t part = std::min(piece_messages(each), end - index);
      if (buffer_.size() < part * each) buffer_.resize(part * each, std::byte{1});
      const auto piece = std::span(buffer_).first(part * each);
      if (verify_) fill_pattern(piece, seed_of(flow), index);
      mesh_.send(flow.receiver, index, piece);
      index += part;
    }
  }

  void check_round(const scml::Flow& flow, std::span<const std::byte> round, std::uint64_t index,
                   std::uint64_t each) const {
    while (!round.empty()) {
      const auto piece =
          round.first(std::min<std::size_t>(piece_messages(each) * each, round.size()));
      check_pattern(piece, seed_of(flow), index);
      index += piece.size() / each;
      round = round.subspan(piece.size());
    }
  }

  const Plan& plan_;
  Mesh& mesh_;
  const bool verify_;
  std::vector<std::byte> buffer_;
  std::uint64_t sum_ = 0;
};

// Parties that help others need not receive anything.
bool receives(const Plan& plan, unsigned self) {
  for (const Placement& placement : plan.placements) {
    for (const scml::Flow& flow : placement.messages.flows)
      if (flow.receiver == self) return true;
  }
  return false;
}

// By which a process lets those that it forked go on.
class Gate {
 public:
  Gate() {
    if (pipe2(ends_, O_CLOEXEC) != 0)
      throw std::system_error(errno, std::generic_category(), "pipe");
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() {
    close(ends_[0]);
    open();
  }
  void open() {
    if (ends_[1] >= 0) close(std::exchange(ends_[1], -1));
  }
  // In a child.
  void wait() {
    open();  // its own copy
    char byte = 0;
    while (read(ends_[0], &byte, 1) < 0 && errno == EINTR) {
    }
  }

 private:
  int ends_[2];
};

void play(const Plan& plan, const ReplayOptions& options, const std::vector<std::string>& addresses,
          unsigned self, const ForkedPeer::Tell& tell, Gate& go) {
  if (!options.cpus.empty()) pin_to_core(options.cpus[self]);
  scml::MeshOptions mesh_options;
  mesh_options.addresses = addresses;
  mesh_options.self = self;
  mesh_options.carrier = options.carrier;
  mesh_options.plan = &plan;
  mesh_options.options = options.options;
  Mesh mesh(mesh_options);
  Player player(plan, mesh, options.verify);
  std::ostringstream times;
  for (std::uint64_t batch = 0; batch < options.warmup + options.batches; ++batch) {
    mesh.barrier();
    const auto start = std::chrono::steady_clock::now();
    player.play_batch();
    mesh.barrier();
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    if (batch >= options.warmup) times << time.count() << ' ';
  }
  if (receives(plan, self) && player.sum() == 0) throw std::runtime_error("nothing was received");
  tell(times.str());
  go.wait();  // a process that ends takes along what it had not delivered
}

}  // namespace

std::vector<double> replay(const Plan& plan, const ReplayOptions& options) {
  const unsigned parties = plan.task_options.parties;
  const std::vector<std::string> addresses = free_addresses(parties);
  Gate go;
  std::vector<std::unique_ptr<ForkedPeer>> processes;
  for (unsigned self = 0; self < parties; ++self) {
    processes.push_back(std::make_unique<ForkedPeer>([&, self](const ForkedPeer::Tell& tell) {
      play(plan, options, addresses, self, tell, go);
    }));
  }
  std::istringstream told(processes[0]->listen());
  for (unsigned self = 1; self < parties; ++self) (void)processes[self]->listen();
  go.open();
  for (const auto& process : processes) process->wait();
  std::vector<double> times;
  for (double time = 0; told >> time;) times.push_back(time);
  return times;
}

}  // namespace leat::bench

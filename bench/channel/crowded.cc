#include "channel/crowded.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "bounds/plain_tcp.h"
#include "forked_peer.h"
#include "leat/leat.h"
#include "machine.h"
#include "steps_bar.h"

namespace leat::bench {
namespace {

using nlohmann::ordered_json;

// Each of TCP and of leat in turn, over a new connection.
constexpr unsigned kBlocks = 9;
constexpr unsigned kLoops = 2;

enum class Cores { kOneEach, kOne, kAny };

struct Place {
  const char* name;
  const char* caption;
  Cores cores;
  // The kernel shares a core between sessions first, and then within them.
  bool other_session;
  bool loops;
};

constexpr Place kPlaces[] = {
    {"apart", "a core for each side", Cores::kOneEach, false, false},
    {"apart_busy", "a core for each side, two busy loops", Cores::kOneEach, false, true},
    {"one_core", "one core", Cores::kOne, false, false},
    {"one_core_sessions", "one core, two sessions", Cores::kOne, true, false},
    {"one_core_busy", "one core, two busy loops", Cores::kOne, false, true},
    {"unpinned", "not pinned", Cores::kAny, false, false},
    {"unpinned_busy", "not pinned, two busy loops", Cores::kAny, false, true},
};

// Where this process could run at first.
class Affinity {
 public:
  Affinity() { sched_getaffinity(0, sizeof set_, &set_); }
  ~Affinity() { restore(); }
  Affinity(const Affinity&) = delete;
  Affinity& operator=(const Affinity&) = delete;

  // `side`: 0 measures, 1 is its peer.
  void settle(const Place& place, const CorePair& cores, unsigned side) const {
    if (place.cores == Cores::kAny) {
      restore();
    } else {
      pin_to_core(cores[place.cores == Cores::kOne ? 0 : side]);
    }
  }

 private:
  void restore() const { sched_setaffinity(0, sizeof set_, &set_); }

  cpu_set_t set_;
};

// Half round trips.
struct Block {
  double average_us = 0;
  double first_us = 0;
};

struct Blocks {
  std::vector<double> averages_us;
  std::vector<double> firsts_us;

  void add(const Block& block) {
    averages_us.push_back(block.average_us);
    firsts_us.push_back(block.first_us);
  }
  double average_us() const {
    double sum = 0;
    for (const double value : averages_us) sum += value;
    return sum / static_cast<double>(averages_us.size());
  }
  static double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
  }
};

template <typename RoundTrip>
Block measure(std::uint64_t rounds, const TickClock& clock, RoundTrip&& round_trip) {
  const std::uint64_t start = clock.now();
  round_trip();
  const std::uint64_t first = clock.now();
  for (std::uint64_t i = 1; i < rounds; ++i) round_trip();
  const std::uint64_t end = clock.now();
  return {clock.microseconds(end - start) / 2 / static_cast<double>(rounds),
          clock.microseconds(first - start) / 2};
}

Block measure_tcp(const std::string& address, std::size_t bytes, std::uint64_t rounds,
                  const TickClock& clock) {
  const TcpConnection connection = TcpConnection::connect(address);
  std::vector<std::byte> message(bytes);
  return measure(rounds, clock, [&] {
    connection.write_all(message);
    if (!connection.read_all(message)) throw std::runtime_error("the peer ended early");
  });
}

Block measure_leat(Channel& channel, std::size_t bytes, std::uint64_t rounds,
                   const TickClock& clock) {
  const std::vector<std::byte> message(bytes);
  return measure(rounds, clock, [&] {
    channel.send(message);
    if (channel.receive().size() != bytes) throw std::runtime_error("the peer ended early");
  });
}

// The peer: TCP and leat in turn, as often as they are measured.
void serve(const ChannelArguments& arguments, const ForkedPeer::Tell& tell) {
  const TcpListener tcp;
  Listener listener("127.0.0.1:0", arguments.options());
  tell(tcp.address() + " " + listener.address());
  for (const std::size_t bytes : arguments.sizes) {
    std::vector<std::byte> message(bytes);
    for (unsigned block = 0; block < kBlocks; ++block) {
      {
        const TcpConnection connection = tcp.accept();
        while (connection.read_all(message)) connection.write_all(message);
      }
      Channel channel = listener.accept();
      while (const Message received = channel.receive()) channel.send(received.bytes());
    }
  }
}

class CrowdedReport {
 public:
  explicit CrowdedReport(const ChannelArguments& arguments) : arguments_(arguments) {}

  void add(const Place& place, const Channel& channel, std::size_t bytes, const Blocks& tcp,
           const Blocks& leat) {
    if (results_.empty()) print_header(channel);
    const double ratio = leat.average_us() / tcp.average_us();
    const double tcp_first = Blocks::median(tcp.firsts_us);
    const double leat_first = Blocks::median(leat.firsts_us);
    const double typical = Blocks::median(leat.averages_us) / Blocks::median(tcp.averages_us);
    results_.push_back({{"place", place.name},
                        {"bytes", bytes},
                        {"iterations", kBlocks * arguments_.length.iterations},
                        {"tcp_us", tcp.average_us()},
                        {"leat_us", leat.average_us()},
                        {"tcp_first_us", tcp_first},
                        {"leat_first_us", leat_first}});
    const std::string name = std::string(place.name) + "_" + std::to_string(bytes) + "B";
    ratios_[name] = ratio;
    ratios_[name + "_median"] = typical;
    ratios_[name + "_first"] = leat_first / tcp_first;
    if (arguments_.json) return;
    std::printf(" %-38s %-8zu %-12.3f %-12.3f %-8.3f %-8.3f %-14.3f %-14.3f %.3f\n", place.caption,
                bytes, tcp.average_us(), leat.average_us(), ratio, typical, tcp_first, leat_first,
                leat_first / tcp_first);
    std::fflush(stdout);
  }

  void finish() const {
    if (!arguments_.json) return;
    const Machine machine = this_machine();
    std::cout << ordered_json{{"bench", "pingpong-crowded"},
                              {"device", device_},
                              {"transport", transport_},
                              {"host",
                               {{"cpu", machine.cpu},
                                {"cores", machine.cores},
                                {"kernel", machine.kernel}}},
                              {"results", results_},
                              {"ratios", ratios_}}
                     .dump(2)
              << '\n';
  }

 private:
  void print_header(const Channel& channel) {
    device_ = channel.device();
    transport_ = channel.transport();
    if (arguments_.json) return;
    std::printf(
        "leat on a crowded machine: half round trips beside those of plain TCP\n"
        " %-15s : %s\n %-15s : %s\n"
        " %-15s : %u x %llu there and back, TCP and leat in turn over new connections, all "
        "counted\n"
        " %-15s : median is of the %u, first of their first round trips\n"
        " %-38s %-8s %-12s %-12s %-8s %-8s %-14s %-14s %s\n",
        "Device", device_.c_str(), "Transport", transport_.c_str(), "Messages", kBlocks,
        static_cast<unsigned long long>(arguments_.length.iterations), "Ratios", kBlocks, "place",
        "#bytes", "tcp[usec]", "leat[usec]", "leat/tcp", "median", "tcp 1st[usec]",
        "leat 1st[usec]", "1st/1st");
  }

  const ChannelArguments& arguments_;
  std::string device_;
  std::string transport_;
  ordered_json results_ = ordered_json::array();
  ordered_json ratios_ = ordered_json::object();
};

// Other programs that want all the time that they can get.
std::vector<std::unique_ptr<ForkedPeer>> start_loops(unsigned count) {
  std::vector<std::unique_ptr<ForkedPeer>> loops;
  for (unsigned i = 0; i < count; ++i) {
    loops.push_back(std::make_unique<ForkedPeer>([](const ForkedPeer::Tell& tell) {
      setsid();
      tell("looping");
      // A program of its own: a copy of this one would count as a user of leat, which the kernel
      // must reach on its core at each barrier of another (base/asymmetric_barrier.h).
      execlp("sh", "sh", "-c", "while :; do :; done", nullptr);
    }));
    loops.back()->listen();
  }
  return loops;
}

void measure_place(const Place& place, const CorePair& cores, const ChannelArguments& arguments,
                   StepsBar& bar, CrowdedReport& report) {
  const Affinity affinity;
  const auto loops = start_loops(place.loops ? kLoops : 0);
  ForkedPeer peer([&](const ForkedPeer::Tell& tell) {
    if (place.other_session) setsid();
    affinity.settle(place, cores, 1);
    serve(arguments, tell);
  });
  affinity.settle(place, cores, 0);
  const std::string addresses = peer.listen();
  const std::size_t space = addresses.find(' ');
  const TickClock clock;
  const std::uint64_t rounds = arguments.length.iterations;
  for (const std::size_t bytes : arguments.sizes) {
    Blocks tcp;
    Blocks leat;
    for (unsigned block = 0;; ++block) {
      bar.update(static_cast<double>(block) / kBlocks);
      tcp.add(measure_tcp(addresses.substr(0, space), bytes, rounds, clock));
      Channel channel = Channel::connect(addresses.substr(space + 1), arguments.options());
      leat.add(measure_leat(channel, bytes, rounds, clock));
      if (block + 1 < kBlocks) continue;
      bar.step_done();
      report.add(place, channel, bytes, tcp, leat);
      break;
    }
  }
  peer.wait();
}

}  // namespace

void run_crowded(const ChannelArguments& arguments) {
  const auto cores = choose_cores(arguments.cpus);
  CrowdedReport report(arguments);
  StepsBar bar("crowded", std::size(kPlaces) * arguments.sizes.size());
  for (const Place& place : kPlaces) {
    if (cores) {
      measure_place(place, *cores, arguments, bar, report);
    } else if (place.cores == Cores::kAny) {
      // The only core there is.
      measure_place(place, {}, arguments, bar, report);
    }
  }
  report.finish();
}

}  // namespace leat::bench

#include "channel/crowded.h"

#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <functional>
#include <list>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "bounds/plain_tcp.h"
#include "channel/crowded_report.h"
#include "forked_peer.h"
#include "leat/leat.h"
#include "machine.h"
#include "steps_bar.h"

namespace leat::bench {
namespace {

constexpr unsigned kLoops = 2;
// In a ring all send before any receives: a message must fit into what lies between two of them.
constexpr std::size_t kMostInRing = std::size_t{32} << 10;

constexpr Place kPlaces[] = {
    {.name = "apart", .caption = "a core for each side", .cores = Cores::kOneEach},
    {.name = "apart_busy",
     .caption = "a core for each side, two busy loops",
     .cores = Cores::kOneEach,
     .loops = true},
    {.name = "one_core", .caption = "one core", .cores = Cores::kOne},
    {.name = "one_core_sessions",
     .caption = "one core, two sessions",
     .cores = Cores::kOne,
     .other_session = true},
    {.name = "one_core_busy",
     .caption = "one core, two busy loops",
     .cores = Cores::kOne,
     .loops = true},
    {.name = "unpinned", .caption = "not pinned", .cores = Cores::kAny},
    {.name = "unpinned_busy",
     .caption = "not pinned, two busy loops",
     .cores = Cores::kAny,
     .loops = true},
    {.name = "three_parties",
     .caption = "three parties on two cores",
     .cores = Cores::kBoth,
     .parties = 3},
    {.name = "four_parties",
     .caption = "four parties on two cores",
     .cores = Cores::kBoth,
     .parties = 4},
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
    switch (place.cores) {
      case Cores::kOneEach:
        return pin_to_core(cores[side]);
      case Cores::kOne:
        return pin_to_core(cores[0]);
      case Cores::kBoth:
        return tie_to(cores);
      case Cores::kAny:
        return restore();
    }
  }

 private:
  static void tie_to(const CorePair& cores) {
    cpu_set_t both;
    CPU_ZERO(&both);
    for (const int core : cores) CPU_SET(core, &both);
    if (sched_setaffinity(0, sizeof both, &both) != 0)
      throw std::system_error(errno, std::generic_category(), "sched_setaffinity");
  }
  void restore() const { sched_setaffinity(0, sizeof set_, &set_); }

  cpu_set_t set_;
};

// A block of rounds, each of which has so many steps: 2 there and back, 1 in a ring.
template <typename Round>
CrowdedBlock measure(std::uint64_t rounds, unsigned steps, const TickClock& clock, Round&& round) {
  const std::uint64_t start = clock.now();
  round();
  const std::uint64_t first = clock.now();
  for (std::uint64_t i = 1; i < rounds; ++i) round();
  const std::uint64_t end = clock.now();
  return {clock.microseconds(end - start) / steps / static_cast<double>(rounds),
          clock.microseconds(first - start) / steps};
}

// The same words for both carriers.
void send(const TcpConnection& to, std::span<const std::byte> message) { to.write_all(message); }
void send(Channel& to, std::span<const std::byte> message) { to.send(message); }
void receive(const TcpConnection& from, std::span<std::byte> message) {
  if (!from.read_all(message)) throw std::runtime_error("the peer ended early");
}
void receive(Channel& from, std::span<std::byte> message) {
  if (from.receive().size() != message.size()) throw std::runtime_error("the peer ended early");
}

// Sends to one peer and waits for a message of as many bytes from the other, round after round.
template <typename Connection>
CrowdedBlock exchange(Connection& to, Connection& from, std::size_t bytes, std::uint64_t rounds,
                      unsigned steps, const TickClock& clock) {
  std::vector<std::byte> message(bytes);
  return measure(rounds, steps, clock, [&] {
    send(to, message);
    receive(from, message);
  });
}

// Where a process listens for both carriers.
class Doors {
 public:
  explicit Doors(const ChannelArguments& arguments) : leat_("127.0.0.1:0", arguments.options()) {}

  std::string addresses() const { return tcp_.address() + " " + leat_.address(); }
  TcpConnection accept_tcp() const { return tcp_.accept(); }
  Channel accept_leat() { return leat_.accept(); }

 private:
  TcpListener tcp_;
  Listener leat_;
};
// Of addresses().
std::string tcp_of(const std::string& addresses) {
  return addresses.substr(0, addresses.find(' '));
}
std::string leat_of(const std::string& addresses) {
  return addresses.substr(addresses.find(' ') + 1);
}

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

// Blocks of both carriers in turn for each size; `tcp` and `leat` measure one.
void take_turns(const Place& place, const ChannelArguments& arguments, StepsBar& bar,
                CrowdedReport& report, const std::function<CrowdedBlock(std::size_t bytes)>& tcp,
                const std::function<CrowdedBlock(std::size_t bytes)>& leat) {
  for (const std::size_t bytes : arguments.sizes) {
    Blocks tcp_blocks;
    Blocks leat_blocks;
    for (unsigned block = 0; block < kBlocks; ++block) {
      bar.update(static_cast<double>(block) / kBlocks);
      tcp_blocks.add(tcp(bytes));
      leat_blocks.add(leat(bytes));
    }
    bar.step_done();
    report.add(place, bytes, tcp_blocks, leat_blocks);
  }
}

// --- two parties

// The peer: TCP and leat in turn, as often as they are measured.
void serve(const ChannelArguments& arguments, const ForkedPeer::Tell& tell) {
  Doors doors(arguments);
  tell(doors.addresses());
  for (const std::size_t bytes : arguments.sizes) {
    std::vector<std::byte> message(bytes);
    for (unsigned block = 0; block < kBlocks; ++block) {
      {
        const TcpConnection connection = doors.accept_tcp();
        while (connection.read_all(message)) connection.write_all(message);
      }
      Channel channel = doors.accept_leat();
      while (const Message received = channel.receive()) channel.send(received.bytes());
    }
  }
}

void measure_pair(const Place& place, const CorePair& cores, const ChannelArguments& arguments,
                  StepsBar& bar, CrowdedReport& report) {
  constexpr unsigned kThereAndBack = 2;
  const Affinity affinity;
  ForkedPeer peer([&](const ForkedPeer::Tell& tell) {
    if (place.other_session) setsid();
    affinity.settle(place, cores, 1);
    serve(arguments, tell);
  });
  affinity.settle(place, cores, 0);
  const std::string addresses = peer.listen();
  const TickClock clock;
  const std::uint64_t rounds = arguments.length.iterations;
  take_turns(
      place, arguments, bar, report,
      [&](std::size_t bytes) {
        TcpConnection connection = TcpConnection::connect(tcp_of(addresses));
        return exchange(connection, connection, bytes, rounds, kThereAndBack, clock);
      },
      [&](std::size_t bytes) {
        Channel channel = Channel::connect(leat_of(addresses), arguments.options());
        report.describe(channel);
        return exchange(channel, channel, bytes, rounds, kThereAndBack, clock);
      });
  peer.wait();
}

// --- a ring of more

// Lines of text to a process that is forked after it was made.
class Orders {
 public:
  Orders() {
    if (pipe(ends_) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  }
  Orders(const Orders&) = delete;
  Orders& operator=(const Orders&) = delete;
  ~Orders() {
    for (const int end : ends_) close(end);
  }

  void give(const std::string& order) const {
    const std::string line = order + "\n";
    if (write(ends_[1], line.data(), line.size()) != static_cast<ssize_t>(line.size()))
      throw std::runtime_error("cannot tell a party what to do");
  }
  std::string hear() const {
    std::string line;
    for (char letter = 0; read(ends_[0], &letter, 1) == 1 && letter != '\n';) line += letter;
    return line;
  }

 private:
  int ends_[2];
};

// One of a ring: it connects to the next, and the one before connects to it.
class RingParty {
 public:
  // What a party does once it has connected to the next, and once all of its connections stand.
  struct Meeting {
    std::function<void()> connected;
    std::function<void()> ready;
  };

  RingParty(const ChannelArguments& arguments, Meeting meeting)
      : arguments_(arguments), meeting_(std::move(meeting)), doors_(arguments) {}

  std::string addresses() const { return doors_.addresses(); }
  void set_next(std::string addresses) { next_ = std::move(addresses); }

  CrowdedBlock over_tcp(std::size_t bytes) {
    TcpConnection next = TcpConnection::connect(tcp_of(next_));
    meeting_.connected();
    TcpConnection before = doors_.accept_tcp();
    return go_round(next, before, bytes);
  }
  CrowdedBlock over_leat(std::size_t bytes) {
    Channel next = Channel::connect(leat_of(next_), arguments_.options());
    meeting_.connected();
    Channel before = doors_.accept_leat();
    return go_round(next, before, bytes);
  }

 private:
  template <typename Connection>
  CrowdedBlock go_round(Connection& next, Connection& before, std::size_t bytes) {
    meeting_.ready();
    return exchange(next, before, bytes, arguments_.length.iterations, 1, clock_);
  }

  const ChannelArguments& arguments_;
  const Meeting meeting_;
  const TickClock clock_;
  Doors doors_;
  std::string next_;
};

// A party that does not measure.
void stand_in_ring(const ChannelArguments& arguments, const ForkedPeer::Tell& tell,
                   const Orders& orders) {
  RingParty party(arguments, {.connected = [] {},
                              .ready =
                                  [&] {
                                    tell("ready");
                                    orders.hear();
                                  }});
  tell(party.addresses());
  party.set_next(orders.hear());
  for (const std::size_t bytes : arguments.sizes) {
    for (unsigned block = 0; block < kBlocks; ++block) {
      party.over_tcp(bytes);
      party.over_leat(bytes);
    }
  }
}

// This process is the first of the ring. In each block all begin once the connections of all stand.
void measure_ring(const Place& place, const CorePair& cores, const ChannelArguments& arguments,
                  StepsBar& bar, CrowdedReport& report) {
  const Affinity affinity;
  affinity.settle(place, cores, 0);  // the others inherit it
  std::list<Orders> orders(place.parties - 1);
  std::list<ForkedPeer> others;
  for (const Orders& its_orders : orders) {
    others.emplace_back(
        [&](const ForkedPeer::Tell& tell) { stand_in_ring(arguments, tell, its_orders); });
  }
  RingParty party(arguments, {.connected =
                                  [&] {
                                    // So that no accept() waits for a party that has failed.
                                    for (const ForkedPeer& other : others) other.listen();
                                  },
                              .ready =
                                  [&] {
                                    for (const Orders& its_orders : orders) its_orders.give("go");
                                  }});
  std::vector<std::string> addresses;
  for (const ForkedPeer& other : others) addresses.push_back(other.listen());
  party.set_next(addresses.front());
  addresses.push_back(party.addresses());
  auto next = addresses.begin();
  for (const Orders& its_orders : orders) its_orders.give(*++next);
  take_turns(
      place, arguments, bar, report, [&](std::size_t bytes) { return party.over_tcp(bytes); },
      [&](std::size_t bytes) { return party.over_leat(bytes); });
  for (ForkedPeer& other : others) other.wait();
}

void measure_place(const Place& place, const CorePair& cores, const ChannelArguments& arguments,
                   StepsBar& bar, CrowdedReport& report) {
  const auto loops = start_loops(place.loops ? kLoops : 0);
  if (place.parties == 2) return measure_pair(place, cores, arguments, bar, report);
  ChannelArguments fitting = arguments;
  for (auto left_out = std::erase_if(fitting.sizes, [](auto bytes) { return bytes > kMostInRing; });
       left_out != 0; --left_out)
    bar.step_done();
  measure_ring(place, cores, fitting, bar, report);
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

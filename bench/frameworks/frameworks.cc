// leat-bench frameworks: the messages of EMP's protocols over TCP as its NetIO, over leat's stream
// adapter, and over contexts with views, all in turn in one run.
#include <array>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "arguments.h"
#include "bounds/plain_tcp.h"
#include "cli/allowed.h"
#include "forked_peer.h"
#include "frameworks/net_io.h"
#include "frameworks/protocols.h"
#include "frameworks/report.h"
#include "leat/adapters/emp.h"
#include "leat/leat.h"
#include "machine.h"
#include "steps_bar.h"
#include "subcommand.h"

namespace leat::bench {
namespace {

using LeatIo = adapters::EmpChannel<Io>;

constexpr const char* kTogether = "together";

struct FrameworkArguments {
  std::vector<std::string> protocols{"iknp", "ferret", "triples", "gates", kTogether};
  std::uint64_t ots = std::uint64_t{1} << 22;
  unsigned rounds = 7;
  std::string device;
  std::string transport;
  std::string spin_us;
  std::vector<int> cpus;
  bool one_core = false;
  bool json = false;

  Options options() const {
    Options options;
    if (!device.empty()) options.device = device;
    if (!transport.empty()) options.transport = transport;
    if (!spin_us.empty()) options.spin = parse_spin(spin_us);
    return options;
  }
  std::uint64_t count(const ProtocolRow& row) const {
    return rounded(row.protocol, ots / row.share);
  }
};

// How one side gets a connection: by listening, or by connecting.
class Doors {
 public:
  explicit Doors(const Options& options) : leat_("127.0.0.1:0", options) {}
  std::string addresses() const { return tcp_.address() + " " + leat_.address(); }
  TcpConnection tcp() { return tcp_.accept(); }
  Channel leat() { return leat_.accept(); }
  static constexpr bool kServer = true;

 private:
  TcpListener tcp_;
  Listener leat_;
};

class Knocks {
 public:
  Knocks(const std::string& addresses, const Options& options)
      : tcp_(addresses.substr(0, addresses.find(' '))),
        leat_(addresses.substr(addresses.find(' ') + 1)),
        options_(options) {}
  TcpConnection tcp() const { return TcpConnection::connect(tcp_); }
  Channel leat() const { return Channel::connect(leat_, options_); }
  static constexpr bool kServer = false;

 private:
  const std::string tcp_;
  const std::string leat_;
  const Options options_;
};

// The channels of so many protocols that run at the same time.
template <typename Way>
std::vector<std::unique_ptr<Io>> connect(Way& way, FrameworkWay carrier, std::size_t count) {
  std::vector<std::unique_ptr<Io>> ios;
  for (std::size_t i = 0; i < count; ++i) {
    if (carrier == FrameworkWay::kTcp) {
      ios.push_back(std::make_unique<NetIo>(way.tcp(), Way::kServer));
    } else if (carrier == FrameworkWay::kStream || i == 0) {
      ios.push_back(std::make_unique<LeatIo>(way.leat(), Way::kServer));
    } else {
      const auto& first = static_cast<const LeatIo&>(*ios.front());
      ios.push_back(first.context(static_cast<unsigned>(i)));
    }
  }
  return ios;
}

// One protocol, or all in a thread each; returns when the last has ended.
void play_all(const std::vector<const ProtocolRow*>& rows, const FrameworkArguments& arguments,
              const std::vector<std::unique_ptr<Io>>& ios, bool server, bool in_place) {
  std::vector<std::exception_ptr> failures(rows.size());
  const auto play_one = [&](std::size_t i) {
    try {
      play(rows[i]->protocol, *ios[i], server, in_place, arguments.count(*rows[i]));
    } catch (...) {
      failures[i] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < rows.size(); ++i) threads.emplace_back(play_one, i);
  play_one(0);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

class FrameworkBench {
 public:
  explicit FrameworkBench(const FrameworkArguments& arguments)
      : arguments_(arguments), cores_(choose_cores(arguments.cpus)) {
    for (const std::string& name : arguments.protocols) {
      std::vector<const ProtocolRow*> rows;
      for (const ProtocolRow& row : kProtocols)
        if (name == kTogether || name == row.name) rows.push_back(&row);
      runs_.push_back(std::move(rows));
    }
  }

  void run() {
    ForkedPeer peer([this](const ForkedPeer::Tell& tell) {
      settle(1);
      Doors doors(arguments_.options());
      tell(doors.addresses());
      for (std::size_t i = 0; i < runs_.size(); ++i) take_turns(doors, i, nullptr);
    });
    settle(0);
    Knocks knocks(peer.listen(), arguments_.options());
    FrameworkReport report(arguments_.json, lines());
    StepsBar bar("frameworks", runs_.size());
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      FrameworkRow row = row_of(i);
      take_turns(knocks, i, &row);
      bar.step_done();
      report.add(row);
    }
    peer.wait();
    report.finish();
  }

 private:
  void settle(std::size_t side) const {
    if (cores_) pin_to_core((*cores_)[arguments_.one_core ? 0 : side]);
  }

  FrameworkRow row_of(std::size_t run) const {
    FrameworkRow row{.protocol = arguments_.protocols[run], .what = "runs", .count = 1};
    if (runs_[run].size() == 1) {
      row.what = runs_[run].front()->what;
      row.count = arguments_.count(*runs_[run].front());
    }
    return row;
  }

  // Both sides make the same turns; the first round does not count, as it touches memory for the
  // first time.
  template <typename Way>
  void take_turns(Way& way, std::size_t run, FrameworkRow* row) {
    using Clock = std::chrono::steady_clock;
    std::array<std::vector<std::unique_ptr<Io>>, kFrameworkWays.size()> carriers;
    for (std::size_t i = 0; i < carriers.size(); ++i)
      carriers[i] = connect(way, static_cast<FrameworkWay>(i), runs_[run].size());
    if (row != nullptr) {
      const Channel& channel = static_cast<LeatIo&>(*carriers.back().front()).channel();
      row->device = channel.device();
      row->transport = channel.transport();
    }
    for (unsigned round = 0; round <= arguments_.rounds; ++round) {
      for (std::size_t i = 0; i < carriers.size(); ++i) {
        const bool in_place = static_cast<FrameworkWay>(i) == FrameworkWay::kAware;
        for (const auto& io : carriers[i]) io->sync();
        const auto start = Clock::now();
        play_all(runs_[run], arguments_, carriers[i], Way::kServer, in_place);
        const std::chrono::duration<double, std::milli> time = Clock::now() - start;
        if (row != nullptr && round != 0) row->milliseconds[i].push_back(time.count());
      }
    }
  }

  std::vector<std::pair<std::string, std::string>> lines() const {
    return {{"Cores", arguments_.one_core ? "one for both sides" : describe_cores(cores_)},
            {"Rounds", std::to_string(arguments_.rounds) +
                           ", all ways in turn over their own connections; medians"},
            {"Ways", "tcp as NetIO; stream: EmpChannel; aware: contexts of one, views and places"}};
  }

  const FrameworkArguments& arguments_;
  const std::optional<CorePair> cores_;
  std::vector<std::vector<const ProtocolRow*>> runs_;
};

constexpr const char* kFooter =
    R"(Two processes send each other what emp-ot's protocols send, message by message and flush by flush;
every byte is written by the one and read by the other, and nothing else is computed. So the ratios are
those of the communication alone, above what a whole protocol gains.

iknp: rows of 256 bytes in one direction. ferret: 208 bytes and a flush for each tree. triples: batches
of rows and choice bits, answered by 256 KiB. gates: a byte each way. together: these four at the same
time, each in a thread: tcp and stream with a connection each, aware in contexts of one connection.

  leat-bench frameworks                          the table, in about a minute
  leat-bench frameworks --protocols gates        rounds of one byte
  leat-bench frameworks --one-core --spin-us 0   both sides on one core, waits that sleep at once)";

}  // namespace

Run declare_frameworks(CLI::App& command) {
  const auto arguments = std::make_shared<FrameworkArguments>();
  command
      .add_option("--protocols", arguments->protocols,
                  "iknp, ferret, triples, gates, together; several with commas")
      ->delimiter(',')
      ->check(cli::one_of({"iknp", "ferret", "triples", "gates", kTogether}))
      ->default_str("iknp,ferret,triples,gates,together")
      ->type_name("LIST");
  command
      .add_option("-n,--ots", arguments->ots,
                  "OTs of iknp and ferret; a triple for each 64, a round of gates for each 256")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 32).description(""))
      ->capture_default_str()
      ->type_name("N");
  add_rounds_argument(command, arguments->rounds);
  add_link_arguments(command, arguments->device, arguments->transport);
  add_spin_argument(command, arguments->spin_us);
  add_cpus_argument(command, arguments->cpus, "Cores of the two sides (default: two if there are)");
  command.add_flag("--one-core", arguments->one_core, "Both sides on the first of these cores");
  add_json_argument(command, arguments->json);
  command.footer(kFooter);
  return [arguments] { FrameworkBench(*arguments).run(); };
}

}  // namespace leat::bench

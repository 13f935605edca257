// leat-bench tcp-pingpong and tcp-stream: what a program gets from TCP on loopback, blocking or, to
// compare with what spins, spinning.
#include <cstring>
#include <memory>
#include <stdexcept>

#include "arguments.h"
#include "bounds/plain_tcp.h"
#include "forked_peer.h"
#include "machine.h"
#include "report.h"
#include "steps_bar.h"
#include "subcommand.h"

namespace leat::bench {
namespace {

// The first byte of a message of tcp-stream.
constexpr std::byte kMore{0};
constexpr std::byte kLast{1};  // asks for an answer

struct TcpBench {
  const char* name;
  const char* title;
  // Measures one size; the peer serves messages of that size until the connection ends, and reads
  // every byte of what came into its buffer if `reads`.
  void (*measure)(const TcpConnection& connection, std::size_t bytes, const RunLength& length,
                  const TickClock& clock, StepsBar& bar, Report& report);
  void (*serve)(const TcpConnection& connection, std::span<std::byte> message, bool reads);
};

void measure_round_trips(const TcpConnection& connection, std::size_t bytes,
                         const RunLength& length, const TickClock& clock, StepsBar& bar,
                         Report& report) {
  const Progress progress = [&bar](double fraction) { bar.update(fraction); };
  progress(0);
  std::vector<std::byte> message(bytes);
  const Latency latency = measure_latency(bytes, length, clock, progress, [&] {
    connection.write_all(message);
    if (!connection.read_all(message)) throw std::runtime_error("the peer ended early");
  });
  bar.step_done();
  report.add(latency);
}

void serve_round_trips(const TcpConnection& connection, std::span<std::byte> message,
                       bool /*reads*/) {
  while (connection.read_all(message)) connection.write_all(message);
}

void measure_stream(const TcpConnection& connection, std::size_t bytes, const RunLength& length,
                    const TickClock& clock, StepsBar& bar, Report& report) {
  const Progress progress = [&bar](double fraction) { bar.update(fraction); };
  progress(0);
  std::vector<std::byte> message(bytes, kMore);
  const auto send = [&](std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) connection.write_all(message);
  };
  const auto finish = [&] {
    message.front() = kLast;
    connection.write_all(message);
    message.front() = kMore;
    std::byte answer{};
    if (!connection.read_all({&answer, 1})) throw std::runtime_error("the peer ended early");
  };
  const Bandwidth bandwidth = measure_bandwidth(bytes, length, clock, progress, send, finish);
  bar.step_done();
  report.add(bandwidth);
}

void serve_stream(const TcpConnection& connection, std::span<std::byte> message, bool reads) {
  while (connection.read_all(message)) {
    if (reads) read_every_byte(message);
    if (message.front() == kLast) connection.write_all({&kLast, 1});
  }
}

void run(const TcpBench& bench, const RunArguments& arguments, bool spins, bool reads) {
  const auto cores = choose_cores(arguments.cpus);
  TcpListener listener;
  ForkedPeer peer([&](const ForkedPeer::Tell&) {
    if (cores) pin_to_core((*cores)[1]);
    for (const std::size_t bytes : arguments.sizes) {
      std::vector<std::byte> message(bytes);
      const TcpConnection connection = listener.accept();
      if (spins) connection.spin();
      bench.serve(connection, message, reads);
    }
  });
  if (cores) pin_to_core((*cores)[0]);
  const TickClock clock;
  Report report({.bench = bench.name,
                 .title = bench.title,
                 .device = "loopback",
                 .transport = "plain tcp",
                 .lines = {{"Cores", describe_cores(cores)},
                           {"Received", reads ? "copied, every byte read" : "copied"},
                           {"Waits", spins ? "spin" : "block"}}},
                arguments.json);
  StepsBar bar(bench.name, arguments.sizes.size());
  for (const std::size_t bytes : arguments.sizes) {
    const TcpConnection connection = TcpConnection::connect(listener.address());
    if (spins) connection.spin();
    bench.measure(connection, bytes, arguments.length, clock, bar, report);
  }
  report.finish();
  peer.wait();
}

Run declare(CLI::App& command, const TcpBench& bench, std::size_t bytes, std::uint64_t iterations) {
  const auto arguments = std::make_shared<RunArguments>();
  arguments->sizes = {bytes};
  arguments->length.iterations = iterations;
  add_run_arguments(command, *arguments);
  const auto spins = std::make_shared<bool>(false);
  command.add_flag("--spin", *spins, "Both ends spin instead of sleeping in their calls");
  const auto reads = std::make_shared<bool>(false);
  if (bench.serve == serve_stream) add_read_argument(command, *reads);
  return [bench, arguments, spins, reads] { run(bench, *arguments, *spins, *reads); };
}

}  // namespace

Run declare_tcp_pingpong(CLI::App& command) {
  return declare(command,
                 {"tcp-pingpong", "Plain TCP Latency Test", measure_round_trips, serve_round_trips},
                 2, 1000);
}

Run declare_tcp_stream(CLI::App& command) {
  return declare(command, {"tcp-stream", "Plain TCP BW Test", measure_stream, serve_stream}, 65536,
                 5000);
}

}  // namespace leat::bench

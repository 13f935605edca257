// A parameter server in small: a master broadcasts the parameters of a model, its workers send back
// gradients, each of its own part of the data, and the master gathers them and takes a step. A
// worker that dies is left out, and the others go on.
#include <leat/leat.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "local_processes.h"

namespace {

using Values = std::vector<float>;

struct Arguments {
  unsigned workers = 4;
  std::size_t values = 10'000;  // parameters of the model
  unsigned rounds = 100;
  std::size_t memory = 0;  // bytes; 0: as the transport has it
  std::string listen;
  std::string connect;
};

// --- the model: each sample is noise around the value that is to be found

float wanted(std::size_t i) { return std::sin(0.01F * static_cast<float>(i)); }

// Of the mean square distance from one worker's samples.
void add_gradient(const float* parameters, Values& gradient, std::mt19937& random) {
  std::uniform_real_distribution<float> noise(-0.5F, 0.5F);
  for (std::size_t i = 0; i < gradient.size(); ++i)
    gradient[i] = 2 * (parameters[i] - (wanted(i) + noise(random)));
}

double distance(const Values& parameters) {
  double sum = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) sum += std::pow(parameters[i] - wanted(i), 2);
  return std::sqrt(sum / static_cast<double>(parameters.size()));
}

// --- master and worker

void work(const std::string& address) {
  leat::GroupWorker worker = leat::GroupWorker::connect(address);
  std::mt19937 random(worker.rank());
  Values gradient;
  while (const leat::Message message = worker.receive()) {  // false when the master has ended
    gradient.resize(message.size() / sizeof(float));
    // The parameters are read where they arrived.
    add_gradient(reinterpret_cast<const float*>(message.data()), gradient, random);
    worker.send(std::as_bytes(std::span(gradient)));
  }
}

int lead(leat::Listener& listener, const Arguments& arguments) {
  leat::GroupMaster master = leat::GroupMaster::accept(listener, arguments.workers);
  std::printf("%s\n", master.describe().c_str());
  std::fflush(stdout);
  Values parameters(arguments.values);
  const double before = distance(parameters);
  const auto start = std::chrono::steady_clock::now();
  for (unsigned round = 0; round < arguments.rounds; ++round) {
    master.broadcast(std::as_bytes(std::span(parameters)));
    const std::vector<leat::GroupMessage> gradients = master.gather();
    const float step = 0.1F / static_cast<float>(std::max(1U, master.alive()));
    for (const leat::GroupMessage& gradient : gradients) {
      if (!gradient.message || gradient.message.size() != parameters.size() * sizeof(float))
        continue;  // this worker is gone
      const auto* values = reinterpret_cast<const float*>(gradient.message.data());
      for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i] -= step * values[i];
    }
  }
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  master.shutdown();
  const leat::Stats stats = master.stats();
  for (unsigned worker = 0; worker < master.size(); ++worker)
    if (const leat::WorkerEnd* end = master.end(worker); end != nullptr && !end->in_order)
      std::printf("lost: %s\n", end->reason.c_str());
  std::printf("%u rounds of %zu values with %u workers in %.3f s: %.0f rounds/s, %.2f GB/s\n",
              arguments.rounds, arguments.values, arguments.workers, time.count(),
              arguments.rounds / time.count(),
              static_cast<double>(stats.sent_bytes + stats.received_bytes) / time.count() / 1e9);
  if (stats.slot_memory_bytes != 0)
    std::printf("slots at the master: %.2f MB\n",
                static_cast<double>(stats.slot_memory_bytes) / 1e6);
  const double after = distance(parameters);
  std::printf("distance from what was wanted: %.4f, then %.4f\n", before, after);
  return after < before / 2 || arguments.rounds < 10 ? 0 : 1;
}

// --- processes

leat::Listener make_listener(const std::string& address, const Arguments& arguments) {
  leat::Options options;
  if (arguments.memory != 0) {
    options.transport = "batched";
    options = leat::with_slot_memory(arguments.memory, arguments.workers, options);
  }
  return leat::Listener(address, options);
}

// All on this host.
int run_here(const Arguments& arguments) {
  AddressPipe address;
  LocalProcesses workers;
  for (unsigned i = 0; i < arguments.workers; ++i) {
    workers.start([&] {
      try {
        work(address.wait());
        return 0;
      } catch (const std::exception& error) {
        std::fprintf(stderr, "gather: a worker: %s\n", error.what());
        return 1;
      }
    });
  }
  leat::Listener listener = make_listener("127.0.0.1:0", arguments);
  address.tell(listener.address(), arguments.workers);
  const int result = lead(listener, arguments);
  return workers.wait() ? result : 1;
}

constexpr const char* kFooter = R"(Examples:
  gather                                        master and 4 workers, processes on this host
  LEAT_TRANSPORT=batched gather --workers 8
  gather --workers 32 --memory 8000000          all workers' messages in 8 MB at the master
On several hosts:
  gather --listen :7000 --workers 2             the master
  gather --connect HOST:7000                    each worker

Exit code: 0 when the parameters came near to what was wanted, 1 if not, 2 for wrong arguments.)";

int run(int argc, char** argv) {
  CLI::App app(
      "A small parameter server: one master broadcasts to its workers and gathers from them.",
      "gather");
  app.footer(kFooter);
  Arguments arguments;
  app.add_option("--workers", arguments.workers, "Number of workers (default: 4)")
      ->check(CLI::Range(1U, leat::kMaxWorkers));
  app.add_option("--values", arguments.values, "Parameters of the model (default: 10000)")
      ->check(CLI::Range(1, 100'000'000));
  app.add_option("--rounds", arguments.rounds, "Broadcasts and gathers (default: 100)")
      ->check(CLI::Range(1, 1'000'000));
  CLI::Option* memory =
      app.add_option(
             "--memory", arguments.memory,
             "Memory for the slots of all workers together, in bytes; uses transport batched")
          ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40).description(""));
  CLI::Option* listen =
      app.add_option("--listen", arguments.listen, "Be the master, at [HOST]:PORT")
          ->type_name("ADDRESS");
  app.add_option("--connect", arguments.connect, "Be a worker of the master there")
      ->type_name("ADDRESS")
      ->excludes(listen)
      ->excludes(memory);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (!arguments.connect.empty()) {
    work(arguments.connect);
    return 0;
  }
  if (arguments.listen.empty()) return run_here(arguments);
  leat::Listener listener = make_listener(arguments.listen, arguments);
  std::printf("listening at leat://%s\n", listener.address().c_str());
  std::fflush(stdout);
  return lead(listener, arguments);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gather: %s\n", error.what());
    return 1;
  }
}

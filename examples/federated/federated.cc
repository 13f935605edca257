// Federated learning in small: a server and its clients exchange a model of GPT-2's size, each
// client trains it on data of its own, and the server goes on with the mean (FedAvg).
// docs/federated.md explains it; this file reads the command line.
#include <leat/leat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "client.h"
#include "local_processes.h"
#include "progress_bar.h"
#include "report.h"
#include "server.h"

namespace {

using namespace federated;

constexpr const char* kFooter = R"(Examples:
  federated                                     server and 2 clients, processes on this host
  federated --clients 3 --scale 4 --rounds 10   a smaller model
  federated --transport ring --json
On several hosts:
  federated --listen :7000 --clients 2          the server
  federated --connect HOST:7000 --samples 500   each client
With weights of your own, a folder as --output writes it:
  federated --model FOLDER --output FOLDER2

Client n is its rank: --rank says which, else as they come. Over ib set LEAT_CHUNKED_REGION_BYTES to the
largest tensor, if as much memory may be locked, to receive all in place.
Exit code: 0 when all rounds were done, 1 if not, 2 for wrong arguments.)";

struct Arguments {
  Task task;
  unsigned layers = 12;
  unsigned scale = 1;
  unsigned clients = 2;
  unsigned min_clients = 0;  // 0: all
  std::string transport = "chunked";
  std::string device;
  std::string listen;
  std::string connect;
  std::string model;
  std::string output;
  std::optional<unsigned> rank;
  std::vector<std::uint64_t> samples;
  unsigned wait = 60;    // seconds
  unsigned timeout = 0;  // seconds; 0: none
  bool json = false;

  std::uint64_t samples_of(unsigned client) const {
    if (samples.empty()) return 1000 * (client + std::uint64_t{1});
    return samples[std::min<std::size_t>(client, samples.size() - 1)];
  }
};

leat::Options options_of(const Arguments& arguments) {
  leat::Options options;
  options.transport = arguments.transport;
  if (!arguments.device.empty()) options.device = arguments.device;
  options.connect_timeout = std::chrono::seconds(arguments.wait);
  if (arguments.timeout != 0) options.timeout = std::chrono::seconds(arguments.timeout);
  return options;
}

std::string round_note(unsigned round, unsigned rounds, const char* what) {
  return (round > rounds ? "the end" : "round " + std::to_string(round)) + ": " + what;
}

// --- client and server

void take_part(const Arguments& arguments, const std::string& address, bool speaks) {
  leat::GroupWorkerOptions options;
  options.rank = arguments.rank;
  options.options = options_of(arguments);
  leat::GroupWorker worker = leat::GroupWorker::connect(address, options);
  ProgressBar bar("client " + std::to_string(worker.rank()));
  const ClientProgress progress = [&](unsigned round, const char* what, double fraction) {
    if (speaks) bar.update(fraction, "round " + std::to_string(round) + ": " + what);
  };
  Client client(worker, arguments.samples_of(worker.rank()), progress);
  const ClientReport report = client.run();
  bar.clear();
  if (speaks)
    std::printf("client %u: %u rounds, %u updates sent again\nSHA-256 of the model: %s\n",
                worker.rank(), report.rounds, report.sent_again, report.digest.c_str());
}

void serve(leat::Listener& listener, Model model, const Arguments& arguments) {
  leat::GroupMaster master = leat::GroupMaster::accept(listener, arguments.clients);
  const RunDescription run{master.channel(0).transport(), master.channel(0).device(),
                           arguments.clients, model.size(), model.values()};
  if (!arguments.json) print_beginning(run);
  Task task = arguments.task;
  task.shapes = model.shapes();
  ProgressBar bar("federated");
  ServerProgress progress;
  progress.step = [&](unsigned round, const char* what, double fraction) {
    bar.update(fraction, round_note(round, task.rounds, what));
  };
  progress.round = [&](const RoundReport& round) {
    bar.clear();
    if (!arguments.json) print_round(round);
  };
  Server server(master, task, std::move(model),
                arguments.min_clients == 0 ? arguments.clients : arguments.min_clients, progress);
  const Report report = server.run();
  bar.clear();
  if (!arguments.output.empty()) server.model().save(arguments.output);
  if (arguments.json) {
    print_json(run, report, master.stats());
  } else {
    print_end(report);
  }
}

Model first_model(const Arguments& arguments) {
  if (!arguments.model.empty()) return Model::load(arguments.model);
  return Model::seeded(gpt2_shapes(arguments.layers, arguments.scale), arguments.task.seed);
}

// --- processes

void run_here(const Arguments& arguments) {
  AddressPipe address;
  LocalProcesses clients;
  for (unsigned i = 0; i < arguments.clients; ++i) {
    clients.start([&, i] {
      try {
        Arguments own = arguments;
        own.rank = i;
        take_part(own, address.wait(), false);
        return 0;
      } catch (const std::exception& error) {
        std::fprintf(stderr, "federated, client %u: %s\n", i, error.what());
        return 1;
      }
    });
  }
  leat::Listener listener("127.0.0.1:0", options_of(arguments));
  address.tell(listener.address(), arguments.clients);
  serve(listener, first_model(arguments), arguments);
  clients.wait();  // one that was lost was the server's to judge
}

void require(bool holds, const std::string& else_what) {
  if (!holds) throw CLI::ValidationError(else_what);
}

void check_arguments(const Arguments& arguments) {
  require(arguments.min_clients <= arguments.clients, "--min-clients: more than --clients");
  require(!arguments.rank || !arguments.connect.empty(), "--rank is for a client, with --connect");
  require(arguments.samples.size() <= 1 || arguments.connect.empty(),
          "--samples: a client has one number");
}

void declare(CLI::App& app, Arguments& arguments) {
  Task& task = arguments.task;
  CLI::Option* listen =
      app.add_option("--listen", arguments.listen, "Be the server, at [HOST]:PORT")
          ->type_name("ADDRESS");
  CLI::Option* connect =
      app.add_option("--connect", arguments.connect, "Be a client of the server there")
          ->type_name("ADDRESS")
          ->excludes(listen);
  app.add_option("--clients", arguments.clients, "Number of clients")
      ->check(CLI::Range(1U, leat::kMaxWorkers))
      ->capture_default_str();
  app.add_option("--min-clients", arguments.min_clients,
                 "Go on when clients die, as long as this many are left (default: all)")
      ->check(CLI::Range(1U, leat::kMaxWorkers));
  app.add_option("--rank", arguments.rank, "Which client this is, from 0")
      ->check(CLI::Range(0U, leat::kMaxWorkers - 1));
  app.add_option("--samples", arguments.samples,
                 "The client's weight in the mean; without --connect a list (default: 1000 for "
                 "client 0, 2000 for client 1, ...)")
      ->delimiter(',')
      ->check(CLI::Range(std::uint64_t{1}, kMaxSamples));
  app.add_option("--rounds", task.rounds, "Models sent and updates collected")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--steps", task.steps, "Training steps in a round")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  app.add_option("--rate", task.rate, "Learning rate")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--seed", task.seed, "Seed of weights and data")->capture_default_str();
  CLI::Option* layers = app.add_option("--layers", arguments.layers, "Layers of the model")
                            ->check(CLI::Range(0, 1000))
                            ->capture_default_str();
  CLI::Option* scale = app.add_option("--scale", arguments.scale,
                                      "N for a model N times narrower, with an Nth of the "
                                      "vocabulary")
                           ->check(CLI::Range(1, 768))
                           ->capture_default_str();
  app.add_option("--model", arguments.model, "Start with these weights: tensors.txt and NAME.f32")
      ->type_name("FOLDER")
      ->excludes(layers)
      ->excludes(scale)
      ->excludes(connect);
  app.add_option("--output", arguments.output, "Write the final weights there (server)")
      ->type_name("FOLDER")
      ->excludes(connect);
  app.add_option("--transport", arguments.transport, "chunked, ring, batched, tcp, auto, ...")
      ->capture_default_str();
  app.add_option("--device", arguments.device, "shm, ib, ib:NAME, tcp");
  app.add_option("--wait", arguments.wait, "Seconds within which all clients must connect")
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
  app.add_option("--timeout", arguments.timeout,
                 "Seconds after which a silent peer counts as dead; longer than training, and than "
                 "the largest tensor takes (default: none)")
      ->check(CLI::Range(1, 86'400));
  app.add_flag("--json", arguments.json, "Print the results as one JSON object (server)");
}

int run(int argc, char** argv) {
  CLI::App app("Federated averaging of a model, over leat.", "federated");
  app.footer(kFooter);
  Arguments arguments;
  declare(app, arguments);
  try {
    app.parse(argc, argv);
    check_arguments(arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (!arguments.connect.empty()) {
    take_part(arguments, arguments.connect, true);
  } else if (arguments.listen.empty()) {
    run_here(arguments);
  } else {
    Model model = first_model(arguments);  // before a client comes in vain
    leat::Listener listener(arguments.listen, options_of(arguments));
    std::FILE* const out = arguments.json ? stderr : stdout;
    std::fprintf(out, "listening at leat://%s\n", listener.address().c_str());
    std::fflush(out);
    serve(listener, std::move(model), arguments);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "federated: %s\n", error.what());
    return 1;
  }
}

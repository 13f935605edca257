// Trains a network that recognises handwritten digits. No computing party sees the digits or
// the network: they hold random-looking shares, and send each other leat messages.
// docs/secure_training.md explains the protocols; this file reads the command line.
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "local_processes.h"
#include "processes.h"
#include "progress_bar.h"
#include "report.h"

namespace {

using leat::scml::Carrier;
using namespace training;

constexpr const char* kFooter =
    R"(Two parties (processes 0 and 1) compute on additive shares; the dealer (process 2) owns the digits,
deals random material ahead, and sleeps while they train. With --parties 3 process 2 computes too, on
replicated shares. Semi-honest security against any single process.

All on this machine, with digits that get_digits.sh has fetched:
  secure_training --local --digits digits.bin

Each by itself, in any order, with the same options:
  A=host0:7000,host1:7000,host2:7000
  secure_training --addresses $A --party 0
  secure_training --addresses $A --party 1
  secure_training --addresses $A --dealer --digits digits.bin

To compare transports, bit for bit (see the SHA-256):
  for t in tcp ring planned; do secure_training --local --digits digits.bin --seed 1 --transport $t; done

Between machines set tls_psk_file (LEAT_TLS_PSK_FILE) for all processes: keys cross the connections.)";

struct Arguments {
  Settings settings;
  OwnerSettings owner;
  std::vector<std::string> addresses;
  std::string transport = "planned";
  std::optional<unsigned> party;
  bool dealer = false;
  bool local = false;
  bool json = false;
};

Carrier carrier_of(const std::string& transport) {
  if (transport == "tcp") return Carrier::kTcp;
  return transport == "ring" ? Carrier::kContexts : Carrier::kPlanned;
}

Report train(const Arguments& arguments, unsigned self) {
  const Settings& settings = arguments.settings;
  std::optional<Owner> owner;
  if (self == kOwner) owner.emplace(settings, arguments.owner);
  const TrainingPlan plan = plan_training(settings);
  leat::scml::MeshOptions options;
  options.addresses = arguments.addresses;
  options.self = self;
  options.carrier = carrier_of(arguments.transport);
  options.plan = &plan.plan;
  leat::scml::Mesh mesh(options);

  ProgressBar bar("training");
  const Progress progress = [&](std::size_t epoch, double fraction) {
    if (arguments.local && self != 0) return;
    bar.update(fraction,
               "epoch " + std::to_string(epoch) + " of " + std::to_string(settings.epochs));
  };
  return self == kOwner ? owner->run(mesh, plan, progress)
                        : run_party(mesh, settings, plan, progress);
}

// Prints what came of it; the exit code.
int run_process(const Arguments& arguments, unsigned self) {
  try {
    const Report report = train(arguments, self);
    if (arguments.local && self != 0) return 0;
    const RunDescription run{arguments.settings, arguments.transport, self,
                             arguments.owner.seed.has_value()};
    (arguments.json ? print_json : print_table)(run, report);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "secure_training, process %u: %s\n", self, error.what());
    return 1;
  }
}

int run_local(Arguments arguments) {
  arguments.addresses = free_local_addresses(kProcesses);
  LocalProcesses processes;
  for (unsigned process = 0; process < kProcesses; ++process) {
    processes.start([&, process] {
      const int code = run_process(arguments, process);
      std::fflush(nullptr);
      return code;
    });
  }
  return processes.wait() ? 0 : 1;
}

void require(bool holds, const std::string& else_what) {
  if (!holds) throw CLI::ValidationError(else_what);
}

void check_arguments(Arguments& arguments) {
  const unsigned self = arguments.dealer ? kOwner : arguments.party.value_or(0);
  if (!arguments.local) {
    require(arguments.dealer || arguments.party,
            "Say which process this is: --party 0, --party 1 or --dealer; or --local for all");
    require(arguments.addresses.size() == kProcesses,
            "--addresses: give those of processes 0, 1 and 2, each HOST:PORT");
    arguments.party = self;
  }
  require(!arguments.owner.digits_file.empty() || !(arguments.local || self == kOwner),
          "--digits: process 2 needs the file; get_digits.sh fetches it");
  try {
    check(arguments.settings.network);
  } catch (const std::exception& error) {
    throw CLI::ValidationError(error.what());
  }
  require(steps_per_epoch(arguments.settings) > 0, "--samples: fewer than a batch");
}

int run(int argc, char** argv) {
  Arguments arguments;
  Settings& settings = arguments.settings;
  CLI::App app("Trains a network on secret-shared handwritten digits.", "secure_training");
  app.footer(kFooter);
  CLI::Option* local = app.add_flag("--local", arguments.local, "Run all three processes here");
  app.add_option("--party", arguments.party, "Which process this is")
      ->check(CLI::Range(0, 2))
      ->excludes(local);
  app.add_flag("--dealer", arguments.dealer, "The same as --party 2: owner of the digits, dealer")
      ->excludes(local)
      ->excludes("--party");
  app.add_option("--addresses", arguments.addresses, "HOST:PORT of processes 0, 1 and 2")
      ->delimiter(',')
      ->excludes(local);
  app.add_option("--parties", settings.parties, "Number of computing parties: 2 or 3")
      ->check(CLI::IsMember({2, 3}))
      ->capture_default_str();
  app.add_option("--transport", arguments.transport, "tcp, ring or planned")
      ->check(CLI::IsMember({"tcp", "ring", "planned"}))
      ->capture_default_str();
  app.add_option("--epochs", settings.epochs, "Number of passes over the samples")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  app.add_option("--batch", settings.network.batch, "Samples per step: a power of two")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  app.add_option("--samples", settings.samples, "Digits to train with; the others are for the test")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option(
         "--widths", settings.network.widths,
         "Widths of the input and of each layer's output (default: SecureML's 784,128,128,10)")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 14));
  app.add_option("--rate-bits", settings.network.rate_bits, "N for a learning rate of 1/2^N")
      ->check(CLI::Range(0, 16))
      ->capture_default_str();
  app.add_option("--digits", arguments.owner.digits_file,
                 "The file that get_digits.sh wrote (process 2)")
      ->type_name("FILE");
  app.add_option("--seed", arguments.owner.seed,
                 "A number that makes the run repeatable; nothing is secret then (process 2)");
  app.add_flag("--json", arguments.json, "Print the results as one JSON object");
  try {
    app.parse(argc, argv);
    check_arguments(arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return arguments.local ? run_local(arguments) : run_process(arguments, *arguments.party);
}

}  // namespace

int main(int argc, char** argv) {
  // Matrices come and go in every step: their memory stays with the process. No thread runs yet.
  mallopt(M_MMAP_THRESHOLD, 1 << 28);  // NOLINT(concurrency-mt-unsafe)
  mallopt(M_TRIM_THRESHOLD, 1 << 30);  // NOLINT(concurrency-mt-unsafe)
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "secure_training: %s\n", error.what());
    return 1;
  }
}

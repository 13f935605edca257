// leat-bench trusted: the trusted distributed systems, beside what was published of them.
#include "trusted/trusted.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>

#include "cli/allowed.h"
#include "machine.h"
#include "subcommand.h"

namespace leat::bench {
namespace {

// What holds the keys in TNIC's paper, which emulates the last three in its replicated systems:
// they wait for as long as the hardware took to attest.
struct Home {
  std::string_view system;
  const char* keys;
};
constexpr Home kHomes[] = {{"SSL-lib", "each process"},
                           {"SSL-server", "a server process each"},
                           {"SGX", "an emulated SGX enclave each"},
                           {"AMD-sev", "an emulated AMD SEV machine each"},
                           {"TNIC", "an emulated FPGA network card each"}};

void run(const TrustedArguments& arguments) {
  TrustedResult result;
  if (arguments.system == "peer-review") {
    result = measure_peer_review(arguments);
  } else if (arguments.system != "a2m") {
    result = measure_replicated(arguments);
  } else {
    result = measure_a2m(arguments);
  }
  if (!arguments.json) return;
  const Machine machine = this_machine();
  const nlohmann::ordered_json object{
      {"bench", "trusted"},
      {"system", arguments.system},
      {"kernel", arguments.kernel},
      {"host", {{"cpu", machine.cpu}, {"cores", machine.cores}, {"kernel", machine.kernel}}},
      {"results", result.results},
      {"ratios", result.ratios}};
  std::cout << object.dump(2) << '\n';
}

}  // namespace

void add_published(nlohmann::ordered_json& row, std::string_view system, double thousand_per_s,
                   std::string_view figure, const TrustedArguments& arguments) {
  const std::string_view home = std::ranges::find(kHomes, system, &Home::system)->keys;
  row["published"].push_back({{"system", system},
                              {"keys", home},
                              {"command_per_s", thousand_per_s * 1e3},
                              {"another_machine", "TNIC, ASPLOS 2025, " + std::string(figure)}});
  if (arguments.json) return;
  std::printf("   %10.1f published of %.*s (%.*s): keys in %.*s, nodes are machines on a network\n",
              thousand_per_s, static_cast<int>(system.size()), system.data(),
              static_cast<int>(figure.size()), figure.data(), static_cast<int>(home.size()),
              home.data());
}

Run declare_trusted(CLI::App& command) {
  const auto arguments = std::make_shared<TrustedArguments>();
  command
      .add_option("--system", arguments->system,
                  "What to measure: a2m, counter, chain, peer-review")
      ->check(tools::one_of({"a2m", "counter", "chain", "peer-review"}))
      ->capture_default_str()
      ->type_name("SYSTEM");
  command
      .add_option("--kernel", arguments->kernel,
                  "Where keys and counters are held: in-process, or isolated in a leat-attestd for "
                  "each party that attests")
      ->check(tools::one_of({"in-process", "isolated"}))
      ->capture_default_str()
      ->type_name("WHERE");
  command
      .add_option("--entries", arguments->entries,
                  "a2m: entries of 64 bytes to append and look up; the paper has 100 million")
      ->check(CLI::Range(std::uint64_t{1000}, std::uint64_t{1} << 32))
      ->capture_default_str();
  command.add_option("--folder", arguments->folder,
                     "a2m: keep the log in a new file there, which remains; default: in memory");
  command
      .add_option("--batch", arguments->batch,
                  "All but a2m: commands in one attested record; default: 1, 8 and 16 in turn")
      ->check(CLI::Range(1U, 1024U));
  command
      .add_option("--request", arguments->request,
                  "All but a2m: commands under one signature of a client")
      ->check(CLI::Range(1U, 4096U))
      ->capture_default_str();
  command
      .add_option("--commands", arguments->commands, "All but a2m: commands for each batch size")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 32))
      ->capture_default_str();
  command.add_flag("--json", arguments->json, "Print one JSON object instead of the table");
  command.footer(
      "Attestation kernels use HMAC-SHA-256. Lookups copy the whole attested entry out,\nready to "
      "be sent and verified; the paper's copy 16 bytes of it.");
  return [arguments] { run(*arguments); };
}

}  // namespace leat::bench

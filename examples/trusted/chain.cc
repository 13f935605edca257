// A key-value store on a chain of nodes: each executes what the head orders, proves it to the next,
// and answers the client, who believes what all say alike. With --lie one node stores something
// else, and is found out.
#include <leat/leat.h>
#include <leat/trusted/chain.h>
#include <leat/trusted/client.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "local_processes.h"
#include "parties.h"

namespace {

using namespace leat::trusted;

struct Arguments {
  unsigned nodes = 3;
  unsigned batch = 8;
  unsigned keys = 1000;
  unsigned lie = 0;
};

// Finds every key, with a value that nobody put.
class WrongStore final : public StateMachine {
 public:
  void execute(std::span<const std::byte> command, Bytes& output) override {
    store_.execute(command, output);
    if (output.size() > 1) output.back() ^= std::byte{1};
  }
  void keep() noexcept override { store_.keep(); }
  void undo() noexcept override { store_.undo(); }
  void save(Bytes& state) const override { store_.save(state); }
  bool load(std::span<const std::byte> state) override { return store_.load(state); }

 private:
  KeyValueMachine store_;
};

int run_node(PartyId id, const Directory& directory, const ChainOptions& options, bool lies) {
  LocalKernel kernel(id, kEpoch);
  provision(kernel, options.nodes, options.first_session);
  const SigningKey key = key_of(id);
  const MachineFactory make_machine = [lies]() -> std::unique_ptr<StateMachine> {
    if (lies) return std::make_unique<WrongStore>();
    return std::make_unique<KeyValueMachine>();
  };
  const FaultHook hook = [id](const Fault& fault) {
    std::printf("node %u accuses %u: %s%s\n", id, fault.accused,
                std::string(to_string(fault.kind)).c_str(),
                fault.evidence.empty() ? "" : ", with evidence");
    std::fflush(stdout);
  };
  ChainNode node(kernel, directory, key, make_machine, options, hook);
  serve(node, directory, key,
        {.self = id, .epoch = kEpoch, .nodes = options.nodes, .channel = channel_options()},
        [] { return false; });
  return 0;
}

// Puts all keys, takes every second away, and gets them all.
int run_client(PartyId id, const Directory& directory, const ChainOptions& options,
               const Arguments& arguments) {
  const SigningKey key = key_of(id);
  Client client(directory, key,
                {.self = id,
                 .epoch = kEpoch,
                 .nodes = options.nodes,
                 .quorum = options.nodes.size(),
                 .timeout = std::chrono::seconds(5),
                 .channel = channel_options()});
  const auto name = [](unsigned i) { return "key " + std::to_string(i); };
  std::vector<Bytes> puts, erasures, gets;
  for (unsigned i = 0; i < arguments.keys; ++i) {
    puts.push_back(KeyValueMachine::put(name(i), "value " + std::to_string(i)));
    if (i % 2 == 1) erasures.push_back(KeyValueMachine::erase(name(i)));
    gets.push_back(KeyValueMachine::get(name(i)));
  }
  client.call(puts);
  client.call(erasures);
  unsigned found = 0;
  for (const Bytes& output : client.call(gets)) {
    const auto value = KeyValueMachine::value_of(output);
    if (value) ++found;
  }
  std::printf("client %u: put %u keys, erased %zu, found %u; all %zu nodes said the same\n", id,
              arguments.keys, erasures.size(), found, options.nodes.size());
  std::fflush(stdout);
  return 0;
}

int run(const Arguments& arguments) {
  ChainOptions options{.batch = arguments.batch};
  for (PartyId id = 1; id <= arguments.nodes; ++id) options.nodes.push_back(id);
  const Directory directory(parties(arguments.nodes, 1));
  LocalProcesses nodes, client;
  for (const PartyId id : options.nodes)
    nodes.start(guarded("chain",
                        [&, id] { return run_node(id, directory, options, id == arguments.lie); }));
  client.start(
      guarded("chain", [&] { return run_client(kFirstClient, directory, options, arguments); }));
  return client.wait() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app(
      "A key-value store on chain replication, and its client, each a process of this machine.",
      "chain");
  app.add_option("--nodes", arguments.nodes, "Of the chain; all but one may lie")
      ->check(CLI::Range(1, 9))
      ->capture_default_str();
  app.add_option("--batch", arguments.batch, "Commands in one attested record")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--keys", arguments.keys, "That the client puts")
      ->check(CLI::Range(2, 4096))
      ->capture_default_str();
  app.add_option("--lie", arguments.lie, "The node that lies, 1 is the head; 0: none")
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    return run(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "chain: %s\n", error.what());
    return 1;
  }
}

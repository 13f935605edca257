// A key-value store on a chain of nodes: each executes what the head orders, proves it to the next,
// and answers the client, which believes equal answers of all. With --lie one node stores something
// else, and is found out; with --spares a configuration service then replaces it.
#include <leat/leat.h>
#include <leat/trusted/chain.h>
#include <leat/trusted/client.h>
#include <leat/trusted/configuration.h>

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
  unsigned spares = 0;
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

MachineFactory store(bool lies) {
  return [lies]() -> std::unique_ptr<StateMachine> {
    if (lies) return std::make_unique<WrongStore>();
    return std::make_unique<KeyValueMachine>();
  };
}

FaultHook accuse(const std::string& who) {
  return [who](const Fault& fault) {
    std::printf("%s accuses %u: %s%s\n", who.c_str(), fault.accused,
                std::string(to_string(fault.kind)).c_str(),
                fault.evidence.empty() ? "" : ", with evidence");
    std::fflush(stdout);
  };
}

int run_node(PartyId id, const Directory& directory, const ChainOptions& options, bool lies) {
  LocalKernel kernel(id, kEpoch);
  provision(kernel, options.nodes, options.first_session);
  const SigningKey key = key_of(id);
  ChainNode node(kernel, directory, key, store(lies), options,
                 accuse("node " + std::to_string(id)));
  serve(node, directory, key,
        {.self = id, .epoch = kEpoch, .nodes = options.nodes, .channel = channel_options()},
        [] { return false; });
  return 0;
}

// The service, or a node that is part of the chain when the service says so.
int run_configured(PartyId id, const Directory& directory, const ConfigurationOptions& options,
                   bool lies) {
  const SigningKey key = key_of(id);
  // In earnest a kernel is provisioned for the epoch by remote attestation.
  const KernelFactory make_kernel = [&](const Configuration& configuration) {
    auto kernel = std::make_unique<LocalKernel>(id, configuration.epoch);
    provision(*kernel, configuration.nodes, options.chain.first_session);
    return kernel;
  };
  std::unique_ptr<Participant> party;
  if (id == options.service) {
    const auto hook = [](const Configuration& configuration) {
      std::printf("epoch %llu: the chain is", static_cast<unsigned long long>(configuration.epoch));
      for (const PartyId node : configuration.nodes) std::printf(" %u", node);
      std::printf("\n");
      std::fflush(stdout);
    };
    party = std::make_unique<ConfigurationService>(directory, key, store(false), make_kernel,
                                                   options, hook, accuse("the service"));
  } else {
    party = std::make_unique<ChainMember>(id, directory, key, store(lies), make_kernel, options,
                                          accuse("node " + std::to_string(id)));
  }
  ServeOptions serving{.self = id, .epoch = kEpoch, .nodes = {options.service}};
  serving.nodes.insert(serving.nodes.end(), options.pool.begin(), options.pool.end());
  serving.channel = channel_options();
  serve(*party, directory, key, serving, [] { return false; });
  return 0;
}

// Puts all keys, takes every second away, and gets them all.
int run_client(PartyId id, const Directory& directory, const ClientOptions& options,
               const Arguments& arguments) {
  const SigningKey key = key_of(id);
  Client client(directory, key, options);
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
  std::printf("client %u: put %u keys, erased %zu, found %u; all %u nodes said the same\n", id,
              arguments.keys, erasures.size(), found, arguments.nodes);
  std::fflush(stdout);
  return 0;
}

int run(const Arguments& arguments) {
  ConfigurationOptions options{
      .length = arguments.nodes, .liars = arguments.nodes - 1, .chain = {.batch = arguments.batch}};
  for (PartyId id = 1; id <= arguments.nodes + arguments.spares; ++id) options.pool.push_back(id);
  const bool configured = arguments.spares > 0;
  const auto parties_count = static_cast<unsigned>(options.pool.size()) + (configured ? 1 : 0);
  const Directory directory(parties(parties_count, 1));
  ClientOptions its{.self = kFirstClient, .epoch = kEpoch, .timeout = std::chrono::seconds(5)};
  its.channel = channel_options();
  LocalProcesses nodes, client;
  if (configured) {
    options.service = its.service = parties_count;
    for (PartyId id = 1; id <= parties_count; ++id)
      nodes.start(guarded("chain", [&, id] {
        return run_configured(id, directory, options, id == arguments.lie);
      }));
  } else {
    options.chain.nodes = its.nodes = options.pool;
    its.quorum = its.nodes.size();
    for (const PartyId id : options.pool)
      nodes.start(guarded("chain", [&, id] {
        return run_node(id, directory, options.chain, id == arguments.lie);
      }));
  }
  client.start(
      guarded("chain", [&] { return run_client(kFirstClient, directory, its, arguments); }));
  return client.wait() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app(
      "A key-value store on chain replication, and its client, each a process of this machine.",
      "chain");
  app.add_option("--nodes", arguments.nodes, "Nodes of the chain; all but one may lie")
      ->check(CLI::Range(1, 9))
      ->capture_default_str();
  app.add_option("--spares", arguments.spares,
                 "Spare nodes; if any, a configuration service replaces nodes of the chain by them")
      ->check(CLI::Range(0, 9))
      ->capture_default_str();
  app.add_option("--batch", arguments.batch, "Commands in one attested record")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--keys", arguments.keys, "Keys that the client puts")
      ->check(CLI::Range(2, 4096))
      ->capture_default_str();
  app.add_option("--lie", arguments.lie, "The node that lies, 1 is the head; 0: none")
      ->capture_default_str();
  app.footer(
      "Exit code: 0 if all nodes answered the client alike, 1 if not, 2 for wrong arguments.");
  try {
    app.parse(argc, argv);
    if (const unsigned nodes = arguments.nodes + arguments.spares; arguments.lie > nodes)
      throw CLI::ValidationError("--lie", "there are " + std::to_string(nodes) + " nodes");
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

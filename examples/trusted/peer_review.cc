// Nodes that answer for what they do: a root passes what a client asks to its children, and a
// witness replays everybody's log. Each is a process. With --lie one node counts wrong; that has
// its effect, and the witness exposes it to all by evidence that anybody can verify.
#include <leat/leat.h>
#include <leat/trusted/client.h>
#include <leat/trusted/counter.h>
#include <leat/trusted/peer_review.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "local_processes.h"
#include "parties.h"
#include "wrong_counter.h"

namespace {

using namespace leat::trusted;

constexpr PartyId kNodes = 3, kWitness = 4;

struct Arguments {
  unsigned requests = 10;
  unsigned commands = 100;
  std::string lie = "nobody";
};

PeerReviewOptions tree() {
  return {.nodes = {{1, 0, {kWitness}}, {2, 1, {kWitness}}, {3, 1, {kWitness}}}, .batch = 8};
}

int run_party(PartyId id, const Directory& directory, bool lies) {
  const PeerReviewOptions options = tree();
  LocalKernel kernel(id, kEpoch);
  provision(kernel, {1, 2, kNodes}, options.first_session);
  const SigningKey key = key_of(id);
  const MachineFactory right = [] { return std::make_unique<CounterMachine>(); };
  const MachineFactory wrong = [] { return std::make_unique<WrongCounter>(); };
  // A third party of its own: what is exposed is judged once more, from the evidence alone.
  const StandingHook hook = [&](const StandingChange& change) {
    if (change.standing == Standing::kExposed) {
      const auto fault = judge(kernel, directory, right, options, change.fault.evidence);
      std::printf("%s %u exposes node %u: %s; its evidence %s\n",
                  id == kWitness ? "witness" : "node", id, change.node,
                  std::string(to_string(change.fault.kind)).c_str(),
                  fault ? "proves it" : "proves nothing");
    } else {
      std::printf("%u %s node %u\n", id,
                  change.standing == Standing::kSuspected ? "suspects" : "trusts again",
                  change.node);
    }
    std::fflush(stdout);
  };
  std::unique_ptr<Participant> party;
  if (id == kWitness)
    party = std::make_unique<PeerWitness>(id, kernel, directory, right, options, hook);
  else
    party = std::make_unique<PeerNode>(kernel, directory, key, lies ? wrong : right, options, hook);
  serve(*party, directory, key,
        {.self = id, .epoch = kEpoch, .nodes = {1, 2, 3, kWitness}, .channel = channel_options()},
        [] { return false; });
  return 0;
}

int run_client(const Directory& directory, const Arguments& arguments) {
  const SigningKey key = key_of(kFirstClient);
  Client client(directory, key,
                {.self = kFirstClient,
                 .epoch = kEpoch,
                 .nodes = {1},
                 .quorum = 1,
                 .timeout = std::chrono::seconds(3),
                 .channel = channel_options()});
  const std::vector<Bytes> commands(arguments.commands, CounterMachine::add(1));
  std::uint64_t value = 0;
  try {
    for (unsigned i = 0; i < arguments.requests; ++i)
      value = CounterMachine::value_of(client.call(commands).back()).value_or(0);
  } catch (const leat::Error& error) {
    std::printf("client: %s\n", error.what());
  }
  std::printf("client: the root says that it counted to %llu\n",
              static_cast<unsigned long long>(value));
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // for the audits
  return 0;
}

int run(const Arguments& arguments) {
  const Directory directory(parties(kWitness, 1));
  const PartyId liar = arguments.lie == "root" ? 1 : arguments.lie == "child" ? kNodes : 0;
  LocalProcesses nodes, clients;
  for (PartyId id = 1; id <= kWitness; ++id)
    nodes.start(guarded("peer_review", [&, id] { return run_party(id, directory, id == liar); }));
  clients.start(guarded("peer_review", [&] { return run_client(directory, arguments); }));
  return clients.wait() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("A root, two children and a witness that replays what they log, each a process.",
               "peer_review");
  Arguments arguments;
  app.add_option("--requests", arguments.requests, "Requests of the client")->capture_default_str();
  app.add_option("--commands", arguments.commands, "Additions of 1 in each request")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--lie", arguments.lie, "The node that counts wrong: nobody, root, child")
      ->check(CLI::IsMember({"nobody", "root", "child"}))
      ->capture_default_str();
  app.footer("Exit code: 0 if the client was answered, 1 if not, 2 for wrong arguments.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    return run(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "peer_review: %s\n", error.what());
    return 1;
  }
}

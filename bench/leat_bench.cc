// leat-bench: measures leat, and with the same clock and the same table what bounds it.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <new>
#include <utility>
#include <vector>

#include "leat/version.h"
#include "subcommand.h"

namespace {

using leat::bench::Run;

struct Subcommand {
  const char* name;
  const char* group;
  const char* summary;
  Run (*declare)(CLI::App& command);
};

constexpr const char* kChannels = "Over a leat channel";
constexpr const char* kTrusted = "Trusted systems";
constexpr const char* kBounds = "To compare with";

constexpr Subcommand kSubcommands[] = {
    {"pingpong", kChannels, "Half round trips of messages", leat::bench::declare_pingpong},
    {"stream", kChannels, "Bandwidth and message rate of one direction",
     leat::bench::declare_stream},
    {"server", kChannels, "One thread that serves many channels, beside plain TCP with epoll",
     leat::bench::declare_server},
    {"planned", kChannels, "Half round trips of planned messages, compared with the bare write",
     leat::bench::declare_planned},
    {"sealed", kChannels,
     "Encrypted messages, beside those in clear, TCP inside TLS, and the cipher",
     leat::bench::declare_sealed},
    {"confirm", kChannels, "Transport batched against confirm-each: one to one, broadcast, gather",
     leat::bench::declare_confirm},
    {"resnet152", kChannels,
     "The parameters of one training iteration: batched, confirm-each and tcp",
     leat::bench::declare_resnet152},
    {"scml", kChannels, "Secure machine learning: the messages of a model, over every carrier",
     leat::bench::declare_scml},
    {"frameworks", kChannels,
     "The messages of EMP's protocols: over TCP as its NetIO, and over leat's adapters",
     leat::bench::declare_frameworks},
    {"transfer", kChannels, "A large buffer over transport chunked, a raw write, TCP and gRPC",
     leat::bench::declare_transfer},
    {"attest", kTrusted, "Attesting and verifying messages, compared with OpenSSL's bare MAC",
     leat::bench::declare_attest},
    {"trusted", kTrusted, "Attested append-only memory, BFT counter, chain replication, PeerReview",
     leat::bench::declare_trusted},
    {"limits", kBounds, "What the machine allows: a cache line between two cores, and memcpy",
     leat::bench::declare_limits},
    {"tcp-pingpong", kBounds, "Half round trips over plain blocking TCP on loopback",
     leat::bench::declare_tcp_pingpong},
    {"tcp-stream", kBounds, "Bandwidth over plain blocking TCP on loopback",
     leat::bench::declare_tcp_stream},
};

constexpr const char* kFooter = R"(Examples:
  leat-bench pingpong -s 8,64,4K -n 100000       latency, this program starts its own peer
  leat-bench stream -s 1M --transport ring       bandwidth over the ring transport
  leat-bench pingpong -a --verify                all sizes, each byte checked
  leat-bench server --channels 1,100             a server of many channels, most of them idle
  leat-bench confirm --pattern gather            confirming in batches, against each by itself
  leat-bench scml --model all                    messages of secure machine learning
  leat-bench trusted --system a2m                an attested log, appended and looked up
  leat-bench limits                              what this machine allows at best
  leat-bench stream --listen                     on two machines: first here,
  leat-bench stream --connect HOST               then there

Latency is half a round trip, in microseconds; a MiB is 2^20 bytes. Flags with perftest's meaning have
perftest's names. leat's settings hold, as LEAT_CONFIDENTIAL=require with LEAT_TLS_PSK_FILE; what is there
to compare with (raw writes, plain TCP, gRPC) goes in clear. See leat-bench SUBCOMMAND --help and
leat-bench(1).)";

constexpr int kFailed = 1;
constexpr int kUsage = 2;

int run(int argc, char** argv) {
  CLI::App app(
      "Measures leat's latency and bandwidth, and the limits of the machine to compare them with.",
      "leat-bench");
  app.set_version_flag("-v,-V,--version", std::string("leat ") + leat::version());
  app.require_subcommand(1);
  app.footer(kFooter);

  std::vector<std::pair<CLI::App*, Run>> commands;
  for (const Subcommand& subcommand : kSubcommands) {
    CLI::App* command = app.add_subcommand(subcommand.name, subcommand.summary);
    command->group(subcommand.group);
    commands.emplace_back(command, subcommand.declare(*command));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  for (const auto& [command, measure] : commands) {
    if (command->parsed()) measure();
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "leat-bench: not enough memory. Measure smaller messages, or fewer.\n");
    return kFailed;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "leat-bench: %s\n", error.what());
    return kFailed;
  }
}

// leat-bench transfer: one large buffer to another process, over transport chunked and over what it
// is measured against.
#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "arguments.h"
#include "cli/allowed.h"
#include "machine.h"
#include "steps_bar.h"
#include "subcommand.h"
#include "transfer/remote.h"
#include "transfer/report.h"

namespace leat::bench {
namespace {

constexpr double kBitsOfAMegabit = 1e6;
constexpr double kBits = 8;

struct TransferArguments {
  std::vector<std::size_t> sizes{std::size_t{64} << 20};
  std::vector<std::size_t> chunks{std::size_t{4} << 20};
  std::vector<Carrier> carriers;
  unsigned repeat = 1;
  std::string link_enable = "auto";
  std::string device;
  std::string host = "127.0.0.1";
  std::string listen;
  std::string connect;
  double path_rate_mbit = 0;
  RunOptions run;
  bool json = false;
  std::string plots;
};

bool uses_chunks(Carrier carrier) {
  return carrier == Carrier::kHeader || carrier == Carrier::kInPlace || carrier == Carrier::kAuto;
}

std::vector<TransferRow> rows_of(const TransferArguments& arguments) {
  std::vector<TransferRow> rows;
  for (const std::size_t bytes : arguments.sizes) {
    for (const Carrier carrier : arguments.carriers) {
      for (const std::size_t chunk_bytes : arguments.chunks) {
        rows.push_back(
            {{carrier, bytes, chunk_bytes, arguments.link_enable, arguments.device, arguments.host},
             {}});
        if (!uses_chunks(carrier)) break;
      }
    }
  }
  return rows;
}

// With the receiving processes at another leat-bench, if one is named.
std::unique_ptr<RemoteHost> meet(TransferArguments& arguments) {
  if (arguments.connect.empty()) return nullptr;
  auto remote = std::make_unique<RemoteHost>(arguments.connect);
  arguments.host = remote->host();
  if (arguments.device.empty() && !remote->here()) arguments.device = "ib";
  return remote;
}

void run(TransferArguments arguments) {
  if (const auto cores = choose_cores(arguments.run.cpus))
    arguments.run.cpus.assign(cores->begin(), cores->end());
  if (!arguments.listen.empty()) {
    serve_transfers(arguments.listen, {arguments.device, arguments.run.cpus});
    return;
  }
  if (arguments.carriers.empty()) {
    for (const Carrier carrier : kCarriers) {
      if (built_with(carrier)) {
        arguments.carriers.push_back(carrier);
      } else {
        std::fprintf(stderr, "leat-bench: without %s, which this program was not built with\n",
                     title_of(carrier));
      }
    }
  }
  std::unique_ptr<Plotter> plotter;
  if (!arguments.plots.empty()) plotter = std::make_unique<Plotter>(arguments.plots);
  const std::unique_ptr<RemoteHost> remote = meet(arguments);
  StartReceiver start = start_receiver;
  if (remote) {
    start = [&](const TransferCase& transfer, const RunOptions& options) {
      return remote->start(transfer, options);
    };
  }

  std::vector<TransferRow> rows = rows_of(arguments);
  TransferReport report(arguments.json,
                        {{"repeat", arguments.repeat},
                         {"iterations", arguments.run.iterations},
                         {"limit_seconds", arguments.run.limit_seconds},
                         {"link_enable", arguments.link_enable},
                         {"path_rate_mbit", arguments.path_rate_mbit}},
                        arguments.path_rate_mbit * kBitsOfAMegabit / kBits);
  report.begin({{"Device", arguments.device.empty() ? "the best" : arguments.device},
                {"Receiver at", arguments.host},
                {"Runs", std::to_string(arguments.repeat) + " of each, medians of those that got "
                                                            "through; two new processes each"},
                {"Time", "until the sender knows that the receiver has all"},
                {"Checked", "SHA-256 of what arrived"}});
  StepsBar bar("transfer", rows.size() * arguments.repeat);
  for (TransferRow& row : rows) {
    for (unsigned i = 0; i < arguments.repeat; ++i) {
      bar.update(0);
      row.runs.push_back(run_transfer(row.transfer, arguments.run, start));
      bar.step_done();
    }
    report.add(std::move(row));
  }
  const std::size_t largest = *std::ranges::max_element(arguments.sizes);
  report.finish(static_cast<double>(largest) / memcpy_seconds(largest));
  if (plotter) report.draw(*plotter);
  if (report.failures() > 0)
    throw std::runtime_error(std::to_string(report.failures()) +
                             " transfers over transport chunked did not get through");
}

constexpr const char* kFooter =
    R"(Each run has two processes of its own: one listens at --host, the other connects and sends. Between
two hosts one leat-bench says --listen and starts the receiving processes, the other --connect: it
sends, has all other options, and prints the results. Its runs take ports of their own beside that
of --listen, which firewalls must let pass; the listener ends with it. What
arrives is checked by its digest after the time was taken. A run that fails or is not through within
--limit is shown as such; over transport chunked that is a failure of the program too (exit code 1).

  raw      all bytes in one RDMA write: what FedRDMA shows to collapse on far paths
  header   transport chunked, chunked_mode=header, chunked_window=1: FedRDMA
  inplace  transport chunked, chunked_mode=inplace, chunked_window=1: FedRDMA-E
  auto     transport chunked, chunked_mode=inplace, chunked_window=auto: the default
  tcp      a plain socket
  grpc     a client stream, pieces of 1 MiB: the transport of FATE

Resent packets: on a verbs device what it sent beyond the packets of the payload (so a few are
announcements and credits), if its driver counts; for tcp and grpc the segments that TCP of this
host sent again. Memory beyond the payload: resident memory from /proc/self/smaps (memory of device
shm counted at the receiver only) after a transfer, plus what had been given back since the peak,
less what the idle connection holds, which --json has beside it, and less the payload: after the
first transfer, and under "most" the receiver's after all of them: transport chunked has two
regions, each as long as a transfer, and the second one is first used by the second transfer. The
kernel's own buffers are not in it. The receiver's memory is untouched before the first transfer,
whatever the carrier. Processor time is that of the process, without what the kernel does on
its own (the work of Soft-RoCE). Ratios are of medians, but for memcpy: the best against the best.

  leat-bench transfer                              64 MiB on this host, every carrier
  leat-bench transfer -s 1G --carriers auto -n 7   speed and memory on shared memory
  leat-bench transfer -d ib --host 10.0.0.2 -s 16M --chunk-bytes 64K,256K,1M --path-rate 100
                                                   over a path; tests/vm/wan.sh emulates some
  leat-bench transfer --listen :7000               on two hosts: first here,
  leat-bench transfer --connect HOST:7000 -s 1G -n 5 --path-rate 10000
                                                   then there)";

std::map<std::string, Carrier> carriers_by_name() {
  std::map<std::string, Carrier> names;
  for (const Carrier carrier : kCarriers) names.emplace(name_of(carrier), carrier);
  return names;
}

}  // namespace

Run declare_transfer(CLI::App& command) {
  const auto arguments = std::make_shared<TransferArguments>();
  add_sizes_argument(command, arguments->sizes)
      ->description("Bytes of a transfer: 64M, 1G, or several: 1M,8M");
  command
      .add_option("--chunk-bytes", arguments->chunks,
                  "The longest chunk, or several: 64K,1M (K, M)")
      ->delimiter(',')
      ->transform(cli::size_between(4 << 10, 1 << 30))
      ->default_str("4M")
      ->type_name("BYTES");
  command
      .add_option("--carriers", arguments->carriers,
                  "raw, header, inplace, auto, tcp, grpc, or several (default: all)")
      ->delimiter(',')
      ->transform(cli::one_of(carriers_by_name()))
      ->type_name("NAMES");
  command.add_option("-r,--repeat", arguments->repeat, "Runs of each")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->type_name("N");
  command
      .add_option("-n,--iterations", arguments->run.iterations,
                  "Transfers over the connection of a run; of more than two all but the first two "
                  "are timed")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->type_name("N");
  command.add_option("--limit", arguments->run.limit_seconds, "Limit of a run, in seconds")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str()
      ->type_name("SECONDS");
  command
      .add_option("--link-enable", arguments->link_enable,
                  "The setting chunked_link_enable: on, off or auto")
      ->check(cli::one_of({"on", "off", "auto"}))
      ->capture_default_str()
      ->type_name("HOW");
  command
      .add_option("-d,--device", arguments->device,
                  "shm, ib or ib:NAME, for all but tcp and grpc (default: the best for this host)")
      ->type_name("NAME");
  CLI::Option* host = command
                          .add_option("--host", arguments->host,
                                      "The address of this host at which the receiver listens")
                          ->capture_default_str()
                          ->type_name("IPV4");
  CLI::Option* listen =
      command
          .add_option("--listen", arguments->listen,
                      "Receive there what a leat-bench on another host sends, and end when it "
                      "ends; of the other options only -d and --cpus have an effect")
          ->excludes(host)
          ->type_name("[IPV4]:PORT");
  command
      .add_option("--connect", arguments->connect,
                  "Send to the leat-bench that listens there (default device: ib)")
      ->excludes(host)
      ->excludes(listen)
      ->type_name("HOST:PORT");
  command
      .add_option("--path-rate", arguments->path_rate_mbit,
                  "The capacity of the path in Mbit/s, for the ratio auto_vs_path_rate")
      ->check(CLI::Range(0.001, 1e9).description(""))
      ->type_name("MBIT");
  add_cpus_argument(command, arguments->run.cpus,
                    "Cores of sender,receiver (default: two cores if there are two)");
  add_json_argument(command, arguments->json);
  add_plots_argument(command, arguments->plots,
                     "Draw goodput and times as SVG into this folder (needs gnuplot)");
  command.footer(kFooter);
  return [arguments] { run(*arguments); };
}

}  // namespace leat::bench

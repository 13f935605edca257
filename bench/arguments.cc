#include "arguments.h"

#include <chrono>
#include <optional>

#include "cli/allowed.h"

namespace leat::bench {
namespace {

std::size_t parse_size(const std::string& text, std::size_t least) {
  const std::optional<std::uint64_t> bytes = cli::size_of(text);
  if (!bytes || *bytes < least)
    throw CLI::ValidationError("-s", "'" + text + "' is no message size. Give bytes, at least " +
                                         std::to_string(least) +
                                         ", such as 64, 4K or 1M; several as 64,4K,1M.");
  return *bytes;
}

std::vector<std::size_t> all_sizes() {
  std::vector<std::size_t> sizes;
  for (unsigned power = 1; power <= 23; ++power) sizes.push_back(std::size_t{1} << power);
  return sizes;
}

}  // namespace

std::chrono::microseconds parse_spin(const std::string& text) {
  if (text == "inf") return std::chrono::microseconds(-1);
  return std::chrono::microseconds(std::stoll(text));
}

Options ChannelArguments::options() const {
  Options options;
  if (!device.empty()) options.device = device;
  if (!transport.empty()) options.transport = transport;
  if (!spin_us.empty()) options.spin = parse_spin(spin_us);
  return options;
}

CLI::Option* add_sizes_argument(CLI::App& command, std::vector<std::size_t>& sizes,
                                std::size_t least) {
  const auto set_sizes = [&sizes, least](const std::vector<std::string>& texts) {
    sizes.clear();
    for (const std::string& text : texts) sizes.push_back(parse_size(text, least));
  };
  std::string defaults;
  for (const std::size_t bytes : sizes)
    defaults += (defaults.empty() ? "" : ",") +
                (sizes.size() == 1 ? std::to_string(bytes) : cli::size_text(bytes));
  return command
      .add_option_function<std::vector<std::string>>(
          "-s,--size", set_sizes, "Bytes of a message: 64, 4K, 1M, or several: 8,64,4K")
      ->delimiter(',')
      ->default_str(defaults)
      ->type_name("BYTES");
}

void add_cpus_argument(CLI::App& command, std::vector<int>& cpus, const std::string& help) {
  command.add_option("--cpus", cpus, help)
      ->delimiter(',')
      ->expected(1, 2)
      ->check(CLI::Range(0, 65535).description(""))
      ->type_name("A,B");
}

void add_json_argument(CLI::App& command, bool& json) {
  command.add_flag("--json", json, "Print one JSON object instead of a table");
}

void add_read_argument(CLI::App& command, bool& read) {
  command.add_flag("--read", read, "The receiver reads every byte of each message once");
}

void add_plots_argument(CLI::App& command, std::string& folder, const std::string& help) {
  command.add_option("--plots", folder, help)->type_name("FOLDER");
}

void add_run_arguments(CLI::App& command, RunArguments& arguments) {
  CLI::Option* size = add_sizes_argument(command, arguments.sizes);
  command
      .add_flag_callback(
          "-a,--all", [&arguments] { arguments.sizes = all_sizes(); }, "All sizes from 2 to 2^23")
      ->excludes(size);
  command.add_option("-n,--iters", arguments.length.iterations, "Iterations of each size")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 32).description("1 to 2^32"))
      ->type_name("N");
  command
      .add_option("-D,--duration", arguments.length.seconds,
                  "Measure each size for so many seconds instead of -n iterations")
      ->check(CLI::Range(0.001, 86400.0).description("0.001 to 86400"))
      ->type_name("SECONDS");
  command
      .add_option("--warmup", arguments.length.warmup,
                  "Iterations before the counted ones (default: as many as fit into 100 ms)")
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1} << 32).description(""))
      ->type_name("N");
  add_cpus_argument(command, arguments.cpus,
                    "Cores to run on: this side,its peer (default: two cores if there are two)");
  add_json_argument(command, arguments.json);
}

void add_spin_argument(CLI::App& command, std::string& spin_us) {
  command
      .add_option("--spin-us", spin_us,
                  "How long a wait spins before it sleeps: microseconds, 0 or inf")
      ->check([](const std::string& text) {
        const bool digits = text.find_first_not_of("0123456789") == std::string::npos;
        return text == "inf" || (digits && !text.empty() && text.size() < 16)
                   ? std::string()
                   : "'" + text +
                         "' is not a time. Give microseconds, 0 (sleep at once) or inf (never).";
      })
      ->type_name("US");
}

void add_link_arguments(CLI::App& command, std::string& device, std::string& transport) {
  command
      .add_option(
          "-d,--device", device,
          "shm, ib, ib:NAME or tcp; leat-info -d lists them (default: the best for the peer)")
      ->type_name("NAME");
  command
      .add_option(
          "--transport", transport,
          "ring, batched, tcp and so on; leat-info -l lists them (default: ring where there is "
          "RDMA)")
      ->type_name("NAME");
}

void add_rounds_argument(CLI::App& command, unsigned& rounds) {
  command.add_option("-r,--rounds", rounds, "Rounds, all ways in turn")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->type_name("N");
}

void add_channel_arguments(CLI::App& command, ChannelArguments& arguments) {
  add_run_arguments(command, arguments);
  add_link_arguments(command, arguments.device, arguments.transport);
  add_spin_argument(command, arguments.spin_us);
  command.add_flag("--verify", arguments.verify,
                   "Check every byte that arrives against a seeded pattern");
  command.add_flag("--in-place", arguments.in_place,
                   "Fill the memory of reserve() and commit() it, instead of send()");
  CLI::Option* listen = command.add_flag(
      "--listen", arguments.listen, "Wait for a leat-bench on another machine, serve it and end");
  command
      .add_option("--connect", arguments.connect, "Measure with the leat-bench that listens there")
      ->excludes(listen)
      ->type_name("HOST[:PORT]");
  command.add_option("-p,--port", arguments.port, "Port of --listen and --connect")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535).description(""))
      ->type_name("PORT");
}

}  // namespace leat::bench

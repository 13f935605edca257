// The arguments that subcommands share, with perftest's letters where they mean the same.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "leat/options.h"
#include "measure.h"

namespace leat::bench {

// Of every subcommand.
struct RunArguments {
  std::vector<std::size_t> sizes;
  RunLength length;
  std::vector<int> cpus;
  bool json = false;
};

// Of those that measure a channel.
struct ChannelArguments : RunArguments {
  std::string device;
  std::string transport;
  std::string spin_us;
  bool verify = false;
  bool in_place = false;
  bool read = false;
  // Two machines: one listens, the other connects. Without both the program starts its own peer.
  bool listen = false;
  std::string connect;
  std::uint16_t port = 18515;

  Options options() const;
};

// The time that --spin-us names. Negative: never sleep, as LEAT_SPIN_US=inf.
std::chrono::microseconds parse_spin(const std::string& text);
void add_spin_argument(CLI::App& command, std::string& spin_us);

// Add the arguments to `command`. The values given by the caller in `arguments` are the defaults.
CLI::Option* add_sizes_argument(CLI::App& command, std::vector<std::size_t>& sizes,
                                std::size_t least = 1);
// --cpus A,B; `help` says whose they are.
void add_cpus_argument(CLI::App& command, std::vector<int>& cpus, const std::string& help);
void add_json_argument(CLI::App& command, bool& json);
// --read, of what has a receiver whose work is measured.
void add_read_argument(CLI::App& command, bool& read);
void add_plots_argument(CLI::App& command, std::string& folder, const std::string& help);
// --device and --transport.
void add_link_arguments(CLI::App& command, std::string& device, std::string& transport);
void add_rounds_argument(CLI::App& command, unsigned& rounds);
void add_run_arguments(CLI::App& command, RunArguments& arguments);
void add_channel_arguments(CLI::App& command, ChannelArguments& arguments);

}  // namespace leat::bench

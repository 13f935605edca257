// The subcommands of leat-bench: one source file each, one row in leat_bench.cc's table.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace leat::bench {

// What a subcommand does once its arguments are there. Throws on failure.
using Run = std::function<void()>;

// Each adds its arguments to `command`.
Run declare_pingpong(CLI::App& command);
Run declare_stream(CLI::App& command);
Run declare_server(CLI::App& command);
Run declare_planned(CLI::App& command);
Run declare_sealed(CLI::App& command);
Run declare_confirm(CLI::App& command);
Run declare_resnet152(CLI::App& command);
Run declare_scml(CLI::App& command);
Run declare_frameworks(CLI::App& command);
Run declare_trusted(CLI::App& command);
Run declare_transfer(CLI::App& command);
Run declare_attest(CLI::App& command);
Run declare_limits(CLI::App& command);
Run declare_tcp_pingpong(CLI::App& command);
Run declare_tcp_stream(CLI::App& command);

}  // namespace leat::bench

// leat-run: a program whose TCP connections go through leat where both ends can.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "leat/version.h"
#include "preload/program_file.h"

namespace leat::tools {
namespace {

constexpr int kUsage = 2;
constexpr int kCannotRun = 126;  // as a shell says it
constexpr int kNotFound = 127;

constexpr const char* kHelp = R"(Usage: leat-run [OPTIONS] PROGRAM [ARGUMENTS...]

Runs a program so that its TCP connections to programs on this host that also run under leat-run go through
shared memory. All other connections are ordinary TCP, which leat neither encrypts nor refuses: the setting
confidential holds for connections that leat makes, not for those of a program that runs here.

Options:
  -m, --match RULES   carry only matching connections: [^]ADDRESS[/BITS][:PORT[-PORT]], separated by commas; the
                      first rule that matches decides, ^ excludes (LEAT_PRELOAD_MATCH)
  -s, --spin US       look for data for at most US microseconds before sleeping; 0 sleeps at once, inf never
                      (LEAT_SPIN_US, default 50)
  -f, --meet FOLDER   also carry connections to programs of this host in other containers and of other users that
                      name the same folder; the file FOLDER/policy says which (LEAT_PRELOAD_MEET)
  -l, --log LEVEL     error, warn, info (one line per connection), debug (LEAT_LOG_LEVEL, default warn)
  -a, --all           also carry connections that are usually too short to gain from it (LEAT_PRELOAD_ALL=1)
  -d, --debug         log which descriptors escape to the kernel, where leat cannot see how they are used
                      (LEAT_PRELOAD_DEBUG=1)
  -v, --version       print the version
  -h, --help          print this

Examples:
  leat-run redis-server                       and   leat-run redis-benchmark
  leat-run --log info iperf3 -s               logs how each connection is carried, or why it is not
  leat-run --match 127.0.0.1:5432 psql        carries only connections to that port
  leat-run --meet /run/leat redis-server      carries clients in other containers that have the folder too

Statically linked and set-user-ID programs cannot be carried. See leat-run(1).)";

int fail(int code, const std::string& text) {
  std::cerr << "leat-run: " << text << "\n";
  return code;
}

std::optional<std::string> find_library() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return std::nullopt;
  for (const char* place :
       {LEAT_BIN_TO_LIB "/leat/libleat_preload.so", "../preload/libleat_preload.so"}) {
    const auto path = (program.parent_path() / place).lexically_normal();
    if (std::filesystem::exists(path, error)) return path.string();
  }
  return std::nullopt;
}

struct ValueOption {
  const char* letter;
  const char* name;
  const char* variable;
  const char* allowed;  // null: the library checks it, as it does the variable
  bool (*allows)(std::string_view value);
};

bool is_spin(std::string_view value) {
  if (value == "inf") return true;
  return !value.empty() && value.size() <= 9 &&
         std::all_of(value.begin(), value.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_level(std::string_view value) {
  return value == "error" || value == "warn" || value == "info" || value == "debug" ||
         value == "trace";
}

bool is_folder(std::string_view value) {
  std::error_code error;
  return std::filesystem::is_directory(value, error);
}

constexpr ValueOption kValueOptions[] = {
    {"-m", "--match", "LEAT_PRELOAD_MATCH", nullptr, nullptr},
    {"-s", "--spin", "LEAT_SPIN_US", "microseconds from 0, or inf", is_spin},
    {"-f", "--meet", "LEAT_PRELOAD_MEET", "a folder", is_folder},
    {"-l", "--log", "LEAT_LOG_LEVEL", "error, warn, info or debug", is_level},
};

// How many of the arguments were ours, or a value to exit with.
struct Parsed {
  int program = 0;
  std::optional<int> exit_code;
};

Parsed parse(int argc, char** argv) {
  int i = 1;
  for (; i < argc && argv[i][0] == '-'; ++i) {
    const std::string option = argv[i];
    if (option == "--") return {i + 1, {}};
    if (option == "-h" || option == "--help") {
      std::cout << kHelp << "\n";
      return {i, 0};
    }
    if (option == "-v" || option == "--version") {
      std::cout << "leat " << LEAT_VERSION_STRING << "\n";
      return {i, 0};
    }
    const char* flag = nullptr;
    if (option == "-a" || option == "--all") flag = "LEAT_PRELOAD_ALL";
    if (option == "-d" || option == "--debug") flag = "LEAT_PRELOAD_DEBUG";
    if (flag != nullptr) {
      setenv(flag, "1", 1);  // NOLINT(concurrency-mt-unsafe): no threads here
      continue;
    }
    const auto* known = std::find_if(
        std::begin(kValueOptions), std::end(kValueOptions),
        [&](const ValueOption& one) { return option == one.letter || option == one.name; });
    if (known == std::end(kValueOptions))
      return {i, fail(kUsage, "unknown option " + option + "; see --help")};
    if (i + 1 >= argc) return {i, fail(kUsage, option + " needs a value; see --help")};
    std::string value = argv[++i];
    if (known->allows != nullptr && !known->allows(value))
      return {i, fail(kUsage, (option + " ").append(value).append(": must be ") + known->allowed)};
    // The program may go to another folder.
    std::error_code error;
    if (known->allows == is_folder) value = std::filesystem::canonical(value, error).string();
    setenv(known->variable, value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): no threads here
  }
  return {i, {}};
}

// Nobody else would say so: the program does not know of leat's settings.
void warn_of_clear_connections() {
  // NOLINTBEGIN(concurrency-mt-unsafe): no threads here
  const char* confidential = std::getenv("LEAT_CONFIDENTIAL");
  const char* level = std::getenv("LEAT_LOG_LEVEL");
  // NOLINTEND(concurrency-mt-unsafe)
  if (confidential == nullptr || confidential != std::string_view("require")) return;
  if (level != nullptr && level == std::string_view("error")) return;
  std::cerr << "leat-run: LEAT_CONFIDENTIAL=require does not reach the program's connections to "
               "other hosts: they stay TCP, encrypted only if the program does it.\n";
}

int run(int argc, char** argv) {
  const Parsed parsed = parse(argc, argv);
  if (parsed.exit_code) return *parsed.exit_code;
  if (parsed.program >= argc) return fail(kUsage, "no program named; see --help");
  warn_of_clear_connections();
  const std::optional<std::string> library = find_library();
  if (!library)
    return fail(kCannotRun, "libleat_preload.so is not where it was installed, in " LEAT_BIN_TO_LIB
                            "/leat beside this program's folder");
  const std::string name = argv[parsed.program];
  char program[PATH_MAX];
  if (!preload::find_program(name.c_str(), program)) return fail(kNotFound, name + ": not found");
  if (const char* why = preload::obstacle(program); why != nullptr)
    std::cerr << "leat-run: " << name << " " << why << ", so its connections stay with TCP\n";
  const char* before = getenv("LD_PRELOAD");  // NOLINT(concurrency-mt-unsafe)
  const std::string all = before != nullptr && *before != '\0' ? *library + ":" + before : *library;
  setenv("LD_PRELOAD", all.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
  execv(program, argv + parsed.program);
  return fail(errno == ENOENT ? kNotFound : kCannotRun, name + ": " + strerrordesc_np(errno));
}

}  // namespace
}  // namespace leat::tools

int main(int argc, char** argv) { return leat::tools::run(argc, argv); }

// posix_fuzz: random sequences of calls, over TCP and under a runner, compared result by result.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "compare.h"
#include "generate.h"

namespace posix_fuzz {
namespace {

constexpr const char* kHelp =
    R"(Usage: posix_fuzz [--seed N] [--count K] [--runner COMMAND] [OPTIONS]

Makes a script of random calls from each of the seeds N, N+1, ...: sockets, files, pipes, epoll, signals, fork,
exec, kills, in two and more processes. Runs it over TCP and in processes started by COMMAND, such as leat-run, and
compares every result of every call. What differs is repeated slowly, and counts if TCP gives the same each time.
Without COMMAND both are TCP, which tells whether the scripts themselves are sound.

Options:
  --seed N          the first seed (default 1)
  --count K         how many scripts (default 1000)
  --runner COMMAND  what is compared with TCP: "build/release/src/tools/leat-run --all"
  --shrink          drop the steps that a difference does not need, and print what is left
  --show            print every script with its results
  --script FILE     run the script in FILE instead, "-" for standard input: lines as --show and --shrink print them
  --library-only    leave out syscall() and the system call instruction
  --tries T         how often what differs is repeated (default 3)
  --always          only what differs each of these times counts; the rest is counted apart
  --each E          print so many differences of a kind (default 1); the rest are counted
  --most M          stop after M kinds of differences (default 100)
  --seconds S       stop after S seconds, whatever --count says
  --json            end with a summary as JSON
  --help            print this

Examples:
  posix_fuzz --runner "leat-run --all" --count 2000
  posix_fuzz --runner "leat-run --all" --seed 4711 --count 1 --shrink
  posix_fuzz --runner "leat-run --all" --seed $RANDOM$RANDOM --count 1000000000 --seconds 14400 --shrink

Exits 1 if something differed.
)";

struct Options {
  std::uint64_t seed = 1;
  std::uint64_t count = 1000;
  std::string runner;
  std::string script;
  bool shrink = false;
  bool show = false;
  bool json = false;
  bool always = false;
  Taste taste;
  int tries = 3;
  std::uint64_t each = 1;
  std::uint64_t most = 100;
  std::uint64_t seconds = 0;
};

Options parse(const std::vector<std::string>& arguments) {
  Options options;
  for (auto word = arguments.begin(); word != arguments.end(); ++word) {
    const auto value = [&] {
      if (word + 1 == arguments.end()) throw std::runtime_error(*word + " needs a value");
      return *++word;
    };
    const auto number = [&] {
      const std::string name = *word;
      const std::string text = value();
      if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos)
        throw std::runtime_error(name + " needs a number, not " + text);
      return std::stoull(text);
    };
    if (*word == "--seed")
      options.seed = number();
    else if (*word == "--count")
      options.count = number();
    else if (*word == "--runner")
      options.runner = value();
    else if (*word == "--script")
      options.script = value();
    else if (*word == "--tries")
      options.tries = static_cast<int>(number());
    else if (*word == "--each")
      options.each = number();
    else if (*word == "--most")
      options.most = number();
    else if (*word == "--seconds")
      options.seconds = number();
    else if (*word == "--shrink")
      options.shrink = true;
    else if (*word == "--show")
      options.show = true;
    else if (*word == "--library-only")
      options.taste.library_only = true;
    else if (*word == "--json")
      options.json = true;
    else if (*word == "--always")
      options.always = true;
    else
      throw std::runtime_error("unknown option " + *word);
  }
  if (options.tries < 1) throw std::runtime_error("--tries must be at least 1");
  return options;
}

class Run {
 public:
  explicit Run(const Options& options)
      : options_(options), comparer_(options.runner, options.show) {}

  int seeds() {
    const auto begin = std::chrono::steady_clock::now();
    const auto seconds = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    for (std::uint64_t i = 0; i < options_.count && kinds_.size() < options_.most; ++i) {
      if (options_.seconds != 0 && seconds() > static_cast<double>(options_.seconds)) break;
      one("seed " + std::to_string(options_.seed + i), generate(options_.seed + i, options_.taste));
      if (isatty(STDERR_FILENO) != 0 && i % 16 == 0) progress(seconds());
    }
    if (isatty(STDERR_FILENO) != 0) std::fputs("\r\033[K", stderr);
    for (const auto& [kind, count] : kinds_)
      std::printf("%6llu  %s\n", static_cast<unsigned long long>(count), kind.c_str());
    if (options_.json) {
      std::printf(
          "{\"sequences\": %llu, \"steps\": %llu, \"differing\": %llu, \"sometimes\": %llu, "
          "\"unstable\": %llu, \"seconds\": %.1f}\n",
          sequences_, steps_, differing_, sometimes_, unstable_, seconds());
    } else {
      std::printf(
          "%llu sequences, %llu steps, %llu differ, %llu sometimes, %llu unstable on TCP itself, "
          "%.1f s\n",
          sequences_, steps_, differing_, sometimes_, unstable_, seconds());
    }
    return differing_ != 0 ? 1 : 0;
  }

  int script(const std::string& text) {
    one("script", parse_script(text));
    return differing_ != 0 ? 1 : 0;
  }

 private:
  void one(const std::string& name, const Script& script) {
    Comparison comparison = comparer_.compare(script, options_.tries);
    ++sequences_;
    steps_ += script.size();
    if (options_.show)
      std::printf("%s:\n%s", name.c_str(), side_by_side(script, comparison).c_str());
    if (comparison.verdict == Verdict::kUnstable) {
      ++unstable_;
      if (options_.show) std::printf("%s: TCP itself gives one or the other\n", name.c_str());
    }
    if (comparison.verdict != Verdict::kDiffers) return;
    if (options_.always && comparison.differing != comparison.tries) {
      ++sometimes_;
      return;
    }
    ++differing_;
    const std::string kind = kind_of(script, comparison);
    if (++kinds_[kind] > options_.each) return;
    Script smallest = script;
    if (options_.shrink) {
      Comparison of_smallest = comparison;
      const Script found = comparer_.shrink(script, of_smallest, options_.tries);
      if (!found.empty()) {
        smallest = found;
        comparison = of_smallest;
      }
    }
    std::printf("%s differs, %d of %d times, %s (- TCP, + %s):\n%s\n", name.c_str(),
                comparison.differing, comparison.tries, kind.c_str(),
                options_.runner.empty() ? "TCP again" : options_.runner.c_str(),
                side_by_side(smallest, comparison).c_str());
    std::fflush(stdout);
  }

  void progress(double seconds) const {
    std::fprintf(stderr, "\r%llu of %llu sequences, %llu differ, %.0f a second \033[K", sequences_,
                 static_cast<unsigned long long>(options_.count), differing_,
                 static_cast<double>(sequences_) / seconds);
  }

  const Options& options_;
  Comparer comparer_;
  unsigned long long sequences_ = 0;
  unsigned long long steps_ = 0;
  unsigned long long differing_ = 0;
  unsigned long long unstable_ = 0;
  unsigned long long sometimes_ = 0;
  std::map<std::string, std::uint64_t> kinds_;
};

std::string text_of(const std::string& file) {
  std::ifstream stream(file);
  if (file != "-" && !stream) throw std::runtime_error(file + " cannot be read");
  return {std::istreambuf_iterator<char>(file == "-" ? std::cin : stream), {}};
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() == 1 && arguments[0] == "--help") {
    std::fputs(kHelp, stdout);
    return 0;
  }
  // A process that runs scripts may die.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    const Options options = parse(arguments);
    Run run(options);
    return options.script.empty() ? run.seeds() : run.script(text_of(options.script));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "posix_fuzz: %s; see --help\n", error.what());
    return 2;
  }
}

}  // namespace
}  // namespace posix_fuzz

int main(int count, char** words) {
  const std::vector<std::string> arguments(words + 1, words + count);
  if (arguments.size() == 1 && arguments[0] == "--stagehand") posix_fuzz::work_as_stagehand();
  if (arguments.size() == 2 && arguments[0] == "--actor")
    posix_fuzz::act_after_exec(std::stoi(arguments[1]));
  return posix_fuzz::run(arguments);
}

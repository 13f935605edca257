#include "plots.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <system_error>

namespace leat::bench {
namespace {

// Okabe and Ito's colours, which people with any colour vision can tell apart.
constexpr const char* kColours[] = {"#d55e00", "#0072b2", "#009e73",
                                    "#e69f00", "#56b4e9", "#cc79a7"};

// Runs `gnuplot argument` in `folder`; returns its exit code. Throws std::system_error if it cannot
// be started.
int run_gnuplot(const std::string& folder, const std::string& argument) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const std::unique_ptr<posix_spawn_file_actions_t, int (*)(posix_spawn_file_actions_t*)> owner(
      &actions, posix_spawn_file_actions_destroy);
  posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  std::string program = "gnuplot";
  std::string word = argument;
  char* const arguments[] = {program.data(), word.data(), nullptr};
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, program.c_str(), &actions, nullptr, arguments, environ);
  if (error != 0) throw std::system_error(error, std::generic_category(), "gnuplot");
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

// A string of gnuplot's, in which nothing is special but the quote.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char letter : text) result += letter == '\'' ? std::string("''") : std::string{letter};
  return result + "'";
}

// A row for each tick: its text, its place, and the curves' values; "?" is none.
void write_data(std::ostream& file, const Chart& chart) {
  for (std::size_t row = 0; row < chart.ticks.size(); ++row) {
    file << '"' << chart.ticks[row].first << "\"\t" << chart.ticks[row].second;
    for (const Curve& curve : chart.curves) {
      if (std::isfinite(curve.values[row])) {
        file << '\t' << curve.values[row];
      } else {
        file << "\t?";
      }
    }
    file << '\n';
  }
}

void write_script(std::ostream& file, const Chart& chart) {
  const bool lines = chart.kind == Chart::Kind::kLines;
  file << "set terminal svg size 760,480 noenhanced font 'sans-serif,13' background 'white'\n"
       << "set output " << quoted(chart.name + ".svg") << "\n"
       << "set datafile separator tab\nset datafile missing '?'\n"
       << "set title " << quoted(chart.title) << "\n"
       << "set xlabel " << quoted(chart.x_label) << "\n"
       << "set ylabel " << quoted(chart.y_label) << "\n"
       << "set grid ytics linecolor '#dddddd'\nset border 3\nset tics nomirror\n";
  if (lines) {
    file << "set key below\nset logscale xy\n";
  } else {
    file << "set key off\nset style data histograms\nset style fill solid 0.8\n"
         << "set boxwidth 0.8\nset yrange [0:*]\n";
  }
  file << "plot ";
  for (std::size_t i = 0; i < chart.curves.size(); ++i) {
    const std::size_t colour = i % std::size(kColours);
    if (i > 0) file << ", ";
    file << quoted(chart.name + ".tsv") << " using ";
    if (lines) file << "2:";
    file << i + 3 << ":xtic(1) title " << quoted(chart.curves[i].title);
    if (lines)
      file << " with linespoints linewidth 2 pointsize 0.7 pointtype " << 5 + 2 * (colour % 2);
    file << " linecolor '" << kColours[colour] << "'";
  }
  file << "\n";
}

template <typename Write>
void write_file(const std::string& path, const Chart& chart, Write&& write) {
  std::ofstream file(path);
  write(file, chart);
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path + ": see --plots");
}

}  // namespace

Plotter::Plotter(std::string folder) : folder_(std::move(folder)) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error || access(folder_.c_str(), W_OK | X_OK) != 0)
    throw std::runtime_error(
        "--plots: cannot write to the folder '" + folder_ +
        "': " + (error ? error : std::error_code(errno, std::generic_category())).message());
  try {
    if (run_gnuplot(folder_, "--version") == 0) return;
  } catch (const std::system_error&) {
    // Told below, with what to do.
  }
  throw std::runtime_error(
      "--plots needs gnuplot, which cannot be run here. Install it (Debian: apt-get install "
      "gnuplot-nox), or take --json without --plots.");
}

void Plotter::draw(const Chart& chart) const {
  const std::string path = folder_ + "/" + chart.name;
  write_file(path + ".tsv", chart, write_data);
  write_file(path + ".gp", chart, write_script);
  const int exit_code = run_gnuplot(folder_, chart.name + ".gp");
  if (exit_code != 0)
    throw std::runtime_error("gnuplot failed with exit code " + std::to_string(exit_code) +
                             "; try it: cd " + folder_ + " && gnuplot " + chart.name + ".gp");
}

}  // namespace leat::bench

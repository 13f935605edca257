#include "compare.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <map>
#include <set>
#include <sstream>

namespace posix_fuzz {
namespace {

// What hangs takes seconds each time.
constexpr auto kShrinkTime = std::chrono::seconds(60);

// The lines of each step.
std::map<int, std::string> by_step(const std::string& transcript) {
  std::map<int, std::string> steps;
  std::istringstream lines(transcript);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t space = line.find(' ');
    const bool numbered = !line.empty() && line[0] >= '0' && line[0] <= '9';
    steps[numbered ? std::stoi(line) : 0] += (numbered ? line.substr(space + 1) : line) + "; ";
  }
  return steps;
}

// Results without their numbers, and without who it was.
std::string outline(const std::string& results) {
  std::string text;
  std::istringstream words(results);
  for (std::string word; words >> word;) {
    if (word.size() == 1 && std::isupper(static_cast<unsigned char>(word[0])) != 0) continue;
    if (word[0] == '#') continue;
    // The result itself; poll masks stay.
    const bool number = text.size() > 1 && text.back() == '=' && word[0] != '-' && word[0] != '0';
    text += " " + (number ? "N" : word);
  }
  return text;
}

}  // namespace

bool Comparer::once(const Script& script, bool patient, std::string& of_tcp,
                    std::string& of_runner) {
  tcp_.give(script, patient);
  runner_.give(script, patient);
  of_tcp = tcp_.transcript();
  of_runner = runner_.transcript();
  return of_tcp == of_runner;
}

Comparison Comparer::compare(const Script& script, int tries) {
  Comparison result;
  if (once(script, false, result.of_tcp, result.of_runner)) return result;
  // Where TCP does not give the same each time, it leaves open what it gives.
  std::set<std::string> of_tcp_found;
  std::string of_tcp;
  std::string of_runner;
  for (; result.tries < tries; ++result.tries) {
    if (!once(script, true, of_tcp, of_runner)) {
      ++result.differing;
      result.of_tcp = of_tcp;
      result.of_runner = of_runner;
    }
    of_tcp_found.insert(of_tcp);
  }
  const bool hangs = result.of_tcp.find(" HUNG") != std::string::npos;  // rule pipe_held
  if (result.differing != 0)
    result.verdict = hangs || of_tcp_found.size() > 1 ? Verdict::kUnstable : Verdict::kDiffers;
  return result;
}

Script Comparer::shrink(const Script& script, Comparison& comparison, int tries) {
  const auto deadline = std::chrono::steady_clock::now() + kShrinkTime;
  Script smallest = script;
  // Quickly and twice: a difference that comes now and then is not worth a long search. The same
  // kind, so that it does not become another one on the way.
  const std::string kind = kind_of(script, comparison);
  const auto differs = [&](const Script& candidate) {
    for (int i = 0; i < 2; ++i) {
      Comparison found;
      if (once(candidate, false, found.of_tcp, found.of_runner)) return false;
      if (kind_of(candidate, found) != kind) return false;
    }
    return true;
  };
  const auto late = [&] { return std::chrono::steady_clock::now() > deadline; };
  for (std::size_t part = std::max<std::size_t>(smallest.size() / 2, 1);;) {
    bool dropped = false;
    // From the end: what comes after the difference goes first.
    for (std::size_t end = smallest.size(); end > 0; end -= std::min(part, end)) {
      if (end > smallest.size()) end = smallest.size();
      const std::size_t first = end - std::min(part, end);
      Script candidate = smallest;
      candidate.erase(candidate.begin() + static_cast<std::ptrdiff_t>(first),
                      candidate.begin() + static_cast<std::ptrdiff_t>(end));
      if (candidate.empty() || late() || !differs(candidate)) continue;
      smallest = candidate;
      dropped = true;
      if (first == 0) break;
    }
    if (part > 1) {
      part /= 2;
    } else if (!dropped || late()) {
      const Comparison found = compare(smallest, tries);
      if (found.verdict != Verdict::kDiffers) return {};
      comparison = found;
      return smallest;
    }
  }
}

std::string kind_of(const Script& script, const Comparison& comparison) {
  auto of_tcp = by_step(comparison.of_tcp);
  auto of_runner = by_step(comparison.of_runner);
  for (std::size_t i = 0; i < script.size(); ++i) {
    const int number = static_cast<int>(i);
    if (of_tcp[number] == of_runner[number]) continue;
    const Operation& operation = operations()[static_cast<std::size_t>(script[i].operation)];
    return operation.name + (":" + outline(of_tcp[number])) + " |" + outline(of_runner[number]);
  }
  return "nothing";
}

std::string side_by_side(const Script& script, const Comparison& comparison) {
  auto of_tcp = by_step(comparison.of_tcp);
  auto of_runner = by_step(comparison.of_runner);
  std::string text;
  for (std::size_t i = 0; i < script.size(); ++i) {
    const int number = static_cast<int>(i);
    const std::string step = std::to_string(i) + " " + to_text(script[i]) + "   ";
    if (of_tcp[number] == of_runner[number]) {
      text += "  " + step + of_tcp[number] + "\n";
    } else {
      text += "- " + step + of_tcp[number] + "\n+ " + step + of_runner[number] + "\n";
    }
  }
  return text;
}

}  // namespace posix_fuzz

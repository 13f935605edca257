// A program of plain sockets that prints what it sees. leat_run_test runs it over TCP and under
// leat-run, and compares. It knows nothing of leat.
#include <csignal>
#include <cstdio>
#include <functional>
#include <map>
#include <string>

#include "preload/sockets_scenarios.h"

int main(int argc, char** argv) {
  using namespace sockets;  // NOLINT(google-build-using-namespace): this is its program
  std::signal(SIGPIPE, SIG_IGN);
  const std::map<std::string, std::function<void()>> scenarios = {
      {"bulk", bulk},
      {"half_close", half_close},
      {"closing", closing},
      {"killed", killed},
      {"flags", flags},
      {"signals", signals},
      {"epoll", epoll},
      {"selecting", selecting},
      {"children", children},
      {"standing_child", standing_child},
      {"elsewhere", elsewhere},
      {"standing", standing},
      {"following", [&] { following(argv[0]); }},
      {"executed", executed},
      {"streams", streams},
      {"files", files},
      {"connecting", connecting},
      {"prefork", prefork},
      {"waking", waking},
      {"refused", refused},
      {"refusing", refusing},
      {"escaping", escaping},
      {"writing_past", writing_past},
      {"minding_strangers", minding_strangers},
      {"reconnecting", reconnecting},
      {"serve", [&] { serve(argv[2], argv[3]); }},
      {"ask", [&] { ask(argv[2], argv[3]); }},
      {"spoil", [&] { spoil(argv[2], argv[3]); }},
  };
  const auto found = scenarios.find(argc > 1 ? argv[1] : "");
  if (found == scenarios.end()) {
    std::fprintf(stderr, "usage: sockets_program SCENARIO [HOST PORT]\n");
    return 2;
  }
  found->second();
  return 0;
}

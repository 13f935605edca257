// An echo server for many clients in one thread, with leat::Poller as its loop:
//   server_poller [ADDRESS]   prints its address, and serves until SIGINT or SIGTERM
//   ping_pong ADDRESS         is a client
// echo_clients.h has what it does for them.
#include <sys/signalfd.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>

#include "echo_clients.h"

int main(int argc, char** argv) try {
  // A signal does not end a wait, but a descriptor of signals does. No other thread takes them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  const int signal = signalfd(-1, &signals, SFD_CLOEXEC);
  EchoClients clients(argc > 1 ? argv[1] : "127.0.0.1:0");
  clients.stop_at(signal);
  while (clients.serve(std::chrono::nanoseconds(-1))) {
  }
  close(signal);
} catch (const leat::Error& error) {
  std::fprintf(stderr, "server_poller: %s\n", error.what());
  return 1;
}

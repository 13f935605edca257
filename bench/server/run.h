// A server with one thread, and the processes of its clients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "leat/leat.h"
#include "machine.h"

namespace leat::bench {

// How a server finds the messages of many connections.
enum class ServerWay {
  kEpoll,     // epoll on Channel::fd(), level-triggered; the server sleeps
  kPoller,    // leat::Poller
  kWaitAny,   // leat::wait_any over all channels
  kBlocking,  // Channel::receive() on the only channel
  kPoll,      // Channel::try_receive() on every channel in turn, without end
  kTcp,       // plain TCP with epoll, level-triggered; the server sleeps
  kTcpSpin    // the same, but epoll_wait returns at once
};
const char* to_string(ServerWay way);
bool is_tcp(ServerWay way);

struct ServerLoad {
  ServerWay way = ServerWay::kEpoll;
  std::size_t channels = 1;  // at least as many as `active`
  std::size_t active = 1;    // those that exchange messages all the time, at least 1
  std::size_t clients = 1;   // processes, at most as many as channels
  std::size_t bytes = 64;
  std::uint64_t warmup = 0;     // round trips of each active channel before those that count
  std::uint64_t exchanges = 1;  // those that count
  bool clients_spin = true;     // TCP's; a channel's say so in `options`
  Options options;
  std::optional<CorePair> cores;  // of the server, and of all clients
};

// What the server sees, but for the first two figures, which are the clients'.
struct ServerFigures {
  double round_trip_us = 0;  // median
  double messages_per_second = 0;
  double connect_s = 0;  // all connections
  double close_s = 0;
  double kib_each = 0;  // resident memory of the server, without what Linux keeps for it
  double fds_each = 0;
  // Of a channel; empty with TCP.
  std::string device;
  std::string transport;
  std::string link;
};

// Starts the server and its clients, each a process, measures, and ends them. Forks, so call it
// while this process has no other thread. Throws std::runtime_error if one of them fails or dies.
ServerFigures run_server(const ServerLoad& load);

}  // namespace leat::bench

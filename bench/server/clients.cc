#include "server/clients.h"

#include <poll.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <stdexcept>
#include <system_error>

#include "measure.h"
#include "tick_clock.h"

namespace leat::bench {
namespace {

constexpr std::byte kGo{1};

// Where to connect to, ended by a zero.
using AddressBlock = std::array<char, 64>;

struct Results {
  double seconds = 0;
  std::uint64_t round_trips = 0;  // so many times follow, of type double, in microseconds
};

std::size_t share_of(std::size_t total, std::size_t parts, std::size_t part) {
  return total / parts + (part < total % parts ? 1 : 0);
}

void put(Channel& channel, std::span<const std::byte> message) { channel.send(message); }
void put(const TcpConnection& connection, std::span<const std::byte> message) {
  connection.write_all(message);
}

void take(Channel& channel, std::span<std::byte> message) {
  if (channel.receive().size() != message.size())
    throw std::runtime_error("the server's answer has another size");
}
void take(const TcpConnection& connection, std::span<std::byte> message) {
  if (!connection.read_all(message)) throw std::runtime_error("the server ended early");
}

// Exchanges over `active` of the connections, spread evenly over them.
template <typename Link>
void exchange_over(std::vector<Link>& links, std::size_t active, const ServerLoad& load,
                   const TickClock& clock, const TcpConnection& control) {
  std::vector<Link*> chosen;
  for (std::size_t i = 0; i < active; ++i) chosen.push_back(&links[i * links.size() / active]);
  std::vector<std::byte> message(load.bytes);
  std::vector<std::uint64_t> sent(active);
  std::vector<double> times_us;
  times_us.reserve(active * load.exchanges);
  std::uint64_t start = clock.now();
  for (std::uint64_t i = 0; active > 0 && i < load.warmup + load.exchanges; ++i) {
    if (i == load.warmup) start = clock.now();
    for (std::size_t k = 0; k < active; ++k) {
      sent[k] = clock.now();
      put(*chosen[k], message);
    }
    for (std::size_t k = 0; k < active; ++k) {
      take(*chosen[k], message);
      if (i >= load.warmup) times_us.push_back(clock.microseconds(clock.now() - sent[k]));
    }
  }
  const Results results{clock.microseconds(clock.now() - start) * 1e-6, times_us.size()};
  control.write_all(std::as_bytes(std::span(&results, 1)));
  control.write_all(std::as_bytes(std::span(times_us)));
}

template <typename Link, typename Connect>
void be_client(std::size_t channels, std::size_t active, const ServerLoad& load,
               const TcpConnection& control, Connect&& connect) {
  const TickClock clock;
  AddressBlock address{};
  if (!control.read_all(std::as_writable_bytes(std::span(address)))) return;
  std::vector<Link> links;
  links.reserve(channels);
  for (std::size_t i = 0; i < channels; ++i) links.push_back(connect(std::string(address.data())));
  std::byte word{};
  if (!control.read_all({&word, 1})) return;
  exchange_over(links, active, load, clock, control);
  static_cast<void>(control.read_all({&word, 1}));  // the server has closed its connections
}

}  // namespace

Clients::Clients(const ServerLoad& load) {
  for (std::size_t client = 0; client < load.clients; ++client) {
    processes_.push_back(std::make_unique<ForkedPeer>([&](const ForkedPeer::Tell&) {
      controls_.clear();  // so that each ends with the server
      if (load.cores) pin_to_core((*load.cores)[1]);
      const TcpConnection control = TcpConnection::connect(control_listener_.address());
      const std::size_t channels = share_of(load.channels, load.clients, client);
      const std::size_t active = share_of(load.active, load.clients, client);
      if (is_tcp(load.way)) {
        be_client<TcpConnection>(channels, active, load, control, [&](const std::string& address) {
          TcpConnection connection = TcpConnection::connect(address);
          if (load.clients_spin) connection.spin();
          return connection;
        });
      } else {
        be_client<Channel>(channels, active, load, control, [&](const std::string& address) {
          return Channel::connect(address, load.options);
        });
      }
    }));
    wait_readable(control_listener_.fd());
    controls_.push_back(control_listener_.accept());
  }
}

void Clients::connect_to(const std::string& address) const {
  AddressBlock block{};
  if (address.size() >= block.size()) throw std::runtime_error("the server's address is too long");
  std::memcpy(block.data(), address.data(), address.size());
  for (const TcpConnection& control : controls_) control.write_all(std::as_bytes(std::span(block)));
}

void Clients::wait_readable(int fd) const {
  std::vector<pollfd> polled{{fd, POLLIN, 0}};
  for (const auto& process : processes_) polled.push_back({process->fd(), POLLIN, 0});
  while (poll(polled.data(), polled.size(), -1) < 0)
    if (errno != EINTR) throw std::system_error(errno, std::generic_category(), "poll");
  // A client says nothing by its pipe, so news there is its end.
  for (std::size_t i = 1; i < polled.size(); ++i)
    if (polled[i].revents != 0) throw std::runtime_error(kClientEnded);
}

void Clients::exchange() const {
  for (const TcpConnection& control : controls_) control.write_all({&kGo, 1});
}

void Clients::take_results(ServerFigures& figures) const {
  std::vector<double> times_us;
  for (const TcpConnection& control : controls_) {
    Results results;
    if (!control.read_all(std::as_writable_bytes(std::span(&results, 1))))
      throw std::runtime_error(kClientEnded);
    std::vector<double> times(results.round_trips);
    if (!control.read_all(std::as_writable_bytes(std::span(times))))
      throw std::runtime_error(kClientEnded);
    times_us.insert(times_us.end(), times.begin(), times.end());
    if (!times.empty())
      figures.messages_per_second += static_cast<double>(times.size()) / results.seconds;
  }
  figures.round_trip_us = distribution_of(std::move(times_us)).typical_us;
}

void Clients::end() {
  controls_.clear();
  for (const auto& process : processes_) process->wait();
}

bool Clients::ended() const {
  constexpr int kMomentMs = 1000;
  std::vector<pollfd> polled;
  for (const auto& process : processes_) polled.push_back({process->fd(), POLLIN, 0});
  return poll(polled.data(), polled.size(), kMomentMs) > 0;
}

}  // namespace leat::bench

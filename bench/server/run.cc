#include "server/run.h"

#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "base/epoll.h"
#include "forked_peer.h"
#include "process_usage.h"
#include "server/clients.h"

namespace leat::bench {
namespace {

using nlohmann::ordered_json;
using Steady = std::chrono::steady_clock;

double seconds_since(Steady::time_point start) {
  return std::chrono::duration<double>(Steady::now() - start).count();
}

// Calls `answer(i)`, which returns how many messages it answered, for connections that are
// readable, until all are answered.
template <typename Answer>
void answer_by_epoll(const detail::Fd& set, bool sleeps, std::uint64_t messages, Answer&& answer) {
  std::array<epoll_event, 64> events;
  while (messages > 0) {
    const int count =
        epoll_wait(set.get(), events.data(), static_cast<int>(events.size()), sleeps ? -1 : 0);
    if (count < 0 && errno != EINTR)
      throw std::system_error(errno, std::generic_category(), "epoll_wait");
    for (int i = 0; i < count; ++i)
      messages -= answer(static_cast<std::size_t>(events[static_cast<std::size_t>(i)].data.u64));
  }
}

void watch(const detail::Fd& set, int fd, std::size_t number) {
  detail::epoll_add(set, fd, EPOLLIN, EPOLL_CTL_ADD, number);
}

class ChannelServer {
 public:
  explicit ChannelServer(const ServerLoad& load)
      : load_(load), listener_("127.0.0.1:0", load.options), set_(detail::new_epoll_set()) {}

  std::string address() const { return listener_.address(); }

  void accept(const Clients& clients) {
    channels_.reserve(load_.channels);  // none is to move
    while (channels_.size() < load_.channels) {
      clients.wait_readable(listener_.fd());
      while (std::optional<Channel> channel = listener_.try_accept())
        channels_.push_back(std::move(*channel));
    }
    for (std::size_t i = 0; i < channels_.size(); ++i) {
      if (load_.way == ServerWay::kEpoll) watch(set_, channels_[i].fd(), i);
      if (load_.way == ServerWay::kPoller) poller_.add(channels_[i], Events::kReadable, i);
    }
  }

  void answer(std::uint64_t messages) {
    listener_.close();  // and with it ends every other thread
    switch (load_.way) {
      case ServerWay::kEpoll:
        return answer_by_epoll(set_, /*sleeps=*/true, messages,
                               [this](std::size_t i) { return answer_all(channels_[i]); });
      case ServerWay::kPoller:
        return answer_by_poller(messages);
      case ServerWay::kWaitAny:
        return answer_by_wait_any(messages);
      case ServerWay::kBlocking:
        for (; messages > 0; --messages) answer_one(channels_.front(), channels_.front().receive());
        return;
      case ServerWay::kPoll:
        while (messages > 0)
          for (Channel& channel : channels_) messages -= answer_all(channel);
        return;
      case ServerWay::kTcp:
      case ServerWay::kTcpSpin:
        break;
    }
    throw std::logic_error("a server of channels serves no TCP");
  }

  void close() { channels_.clear(); }

  void describe(ServerFigures& figures) const {
    figures.device = channels_.front().device();
    figures.transport = channels_.front().transport();
    figures.link = channels_.front().description();
  }

 private:
  static void answer_one(Channel& channel, const Message& message) {
    if (!message) throw std::runtime_error(kClientEnded);
    channel.send(message.bytes());
  }

  static std::uint64_t answer_all(Channel& channel) {
    std::uint64_t answered = 0;
    for (; const std::optional<Message> message = channel.try_receive(); ++answered)
      answer_one(channel, *message);
    return answered;
  }

  // A message for each event, as is fair.
  void answer_by_poller(std::uint64_t messages) {
    std::array<Event, 64> events;
    while (messages > 0) {
      const std::size_t count = poller_.wait(events);
      for (const Event& event : std::span(events).first(count)) {
        Channel& channel = channels_[event.token];
        answer_one(channel, *channel.try_receive());
      }
      messages -= count;
    }
  }

  void answer_by_wait_any(std::uint64_t messages) {
    std::vector<Channel*> all;
    for (Channel& channel : channels_) all.push_back(&channel);
    while (messages > 0) {
      const auto done = [&] {
        const std::uint64_t before = messages;
        for (Channel* channel : all) messages -= answer_all(*channel);
        return messages < before;
      };
      if (wait_any(all, WaitFor::kMessages, "server", done) != nullptr)
        throw std::runtime_error(kClientEnded);
    }
  }

  const ServerLoad& load_;
  Listener listener_;
  const detail::Fd set_;  // of kEpoll
  Poller poller_;         // of kPoller
  std::vector<Channel> channels_;
};

// The same with plain TCP.
class TcpServer {
 public:
  explicit TcpServer(const ServerLoad& load)
      : load_(load), set_(detail::new_epoll_set()), message_(load.bytes) {}

  std::string address() const { return listener_.address(); }

  void accept(const Clients& clients) {
    connections_.reserve(load_.channels);
    while (connections_.size() < load_.channels) {
      clients.wait_readable(listener_.fd());
      connections_.push_back(listener_.accept());
      connections_.back().spin();
      watch(set_, connections_.back().fd(), connections_.size() - 1);
    }
  }

  void answer(std::uint64_t messages) {
    answer_by_epoll(set_, load_.way == ServerWay::kTcp, messages, [this](std::size_t i) {
      if (!connections_[i].read_all(message_)) throw std::runtime_error(kClientEnded);
      connections_[i].write_all(message_);
      return std::uint64_t{1};
    });
  }

  void close() { connections_.clear(); }

  void describe(ServerFigures&) const {}

 private:
  const ServerLoad& load_;
  TcpListener listener_;
  const detail::Fd set_;
  std::vector<TcpConnection> connections_;
  std::vector<std::byte> message_;
};

std::uint64_t resident_bytes() {
  const ResidentMemory memory = resident_memory();
  return memory.own_bytes + memory.shared_bytes;
}

template <typename Server>
ServerFigures measure_server(const ServerLoad& load, Clients& clients) {
  ServerFigures figures;
  const auto each = [&load](auto after, auto before) {
    return (static_cast<double>(after) - static_cast<double>(before)) /
           static_cast<double>(load.channels);
  };
  Server server(load);
  const std::size_t fds = open_descriptors();
  const std::uint64_t bytes = resident_bytes();

  const auto first_connect = Steady::now();
  clients.connect_to(server.address());
  server.accept(clients);
  figures.connect_s = seconds_since(first_connect);
  figures.kib_each = each(resident_bytes(), bytes) / 1024;
  figures.fds_each = each(open_descriptors(), fds);
  server.describe(figures);

  clients.exchange();
  server.answer(load.active * (load.warmup + load.exchanges));
  clients.take_results(figures);

  const auto first_close = Steady::now();
  server.close();
  figures.close_s = seconds_since(first_close);
  clients.end();
  return figures;
}

ServerFigures serve(const ServerLoad& load) {
  Clients clients(load);
  if (load.cores) pin_to_core((*load.cores)[0]);
  try {
    return is_tcp(load.way) ? measure_server<TcpServer>(load, clients)
                            : measure_server<ChannelServer>(load, clients);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    if (text == kClientEnded || !clients.ended()) throw;
    throw std::runtime_error(std::string(kClientEnded) + ": " + text);
  }
}

// How the server's process says what it found, in one line.
ordered_json told_by(const ServerLoad& load) {
  try {
    const ServerFigures figures = serve(load);
    return {{"figures",
             {figures.round_trip_us, figures.messages_per_second, figures.connect_s,
              figures.close_s, figures.kib_each, figures.fds_each}},
            {"link", {figures.device, figures.transport, figures.link}}};
  } catch (const std::exception& error) {
    return {{"error", error.what()}};
  }
}

}  // namespace

const char* to_string(ServerWay way) {
  switch (way) {
    case ServerWay::kEpoll:
      return "epoll";
    case ServerWay::kPoller:
      return "poller";
    case ServerWay::kWaitAny:
      return "wait_any";
    case ServerWay::kBlocking:
      return "blocking";
    case ServerWay::kPoll:
      return "poll";
    case ServerWay::kTcp:
      return "tcp";
    case ServerWay::kTcpSpin:
      return "tcp_spin";
  }
  return "?";
}

bool is_tcp(ServerWay way) { return way == ServerWay::kTcp || way == ServerWay::kTcpSpin; }

ServerFigures run_server(const ServerLoad& load) {
  ForkedPeer server([&load](const ForkedPeer::Tell& tell) { tell(told_by(load).dump()); });
  const auto told = nlohmann::json::parse(server.listen());
  if (told.contains("error")) throw std::runtime_error(told.at("error").get<std::string>());
  server.wait();
  const auto& figures = told.at("figures");
  const auto& link = told.at("link");
  return {.round_trip_us = figures[0],
          .messages_per_second = figures[1],
          .connect_s = figures[2],
          .close_s = figures[3],
          .kib_each = figures[4],
          .fds_each = figures[5],
          .device = link[0],
          .transport = link[1],
          .link = link[2]};
}

}  // namespace leat::bench

// What an echo server in one thread does for its many clients, whatever loop calls it. The clients'
// channels are in a leat::Poller.
#pragma once

#include <leat/leat.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

class EchoClients {
 public:
  explicit EchoClients(const std::string& address) : listener_(address) {
    poller_.add(listener_, kListener);
    std::printf("listening at %s\n", listener_.address().c_str());
    std::fflush(stdout);
  }

  // For another loop that waits: readable while serve(0) would find something.
  int fd() { return poller_.fd(); }
  // Adds a descriptor of the caller's, for which serve() returns false once it is readable.
  void stop_at(int descriptor) { poller_.add(descriptor, leat::Events::kReadable, kStop); }

  // Waits for what clients want, at most so long (negative: without limit), and does it.
  bool serve(std::chrono::nanoseconds timeout) {
    std::array<leat::Event, 64> events;
    const std::size_t count = poller_.wait(events, timeout);
    for (const leat::Event& event : std::span(events).first(count)) {
      if (event.token == kStop) return false;
      if (event.token == kListener)
        accept();
      else
        serve(event);
    }
    return true;
  }

 private:
  static constexpr std::uint64_t kListener = 0, kStop = 1;  // tokens; clients have the next ones
  // Messages of one client, before the others have their turn.
  static constexpr int kMostAtOnce = 16;

  struct Client {
    leat::Channel channel;
    std::string unsent;  // an answer for which there was no room
    bool full = false;
  };

  void accept() {
    while (auto channel = listener_.try_accept()) {
      const auto [client, fresh] = clients_.emplace(++last_, Client{std::move(*channel), {}});
      poller_.add(client->second.channel, leat::Events::kReadable, last_);
    }
  }

  void serve(const leat::Event& event) {
    const auto found = clients_.find(event.token);
    try {
      if (answer(found->second)) return;
    } catch (const leat::Error& error) {
      std::fprintf(stderr, "a client: %s\n", error.what());
    }
    clients_.erase(found);  // the channel leaves the poller
  }

  // False: the client has ended.
  bool answer(Client& client) {
    // A client that does not take its answers is not listened to until it does.
    if (client.full && !client.channel.try_send(client.unsent)) return true;
    if (client.full) poller_.modify(client.channel, leat::Events::kReadable);
    client.full = false;
    for (int i = 0; i < kMostAtOnce; ++i) {
      const auto message = client.channel.try_receive();
      if (!message) return true;
      if (!*message) return false;
      if (client.channel.try_send(message->text())) continue;
      client.unsent = message->text();
      client.full = true;
      poller_.modify(client.channel, leat::Events::kRoom);
      return true;
    }
    return true;  // the rest is reported again
  }

  leat::Listener listener_;
  leat::Poller poller_;
  std::uint64_t last_ = kStop;
  std::unordered_map<std::uint64_t, Client> clients_;
};

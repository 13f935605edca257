// An echo server for many clients in one thread, with leat::Poller:
//   server_poller [ADDRESS]   prints its address, and serves until SIGINT or SIGTERM
//   ping_pong ADDRESS         is a client
#include <leat/leat.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unordered_map>

namespace {

constexpr std::uint64_t kListener = 0, kSignal = 1;  // tokens; clients have the next ones
constexpr int kMostAtOnce = 16;  // messages of one client, before the others have their turn

class Server {
 public:
  explicit Server(const std::string& address) : listener_(address) {
    poller_.add(listener_, kListener);
    // A signal does not end wait(), but a descriptor of signals does. No other thread takes them.
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    signal_ = signalfd(-1, &signals, SFD_CLOEXEC);
    poller_.add(signal_, leat::Events::kReadable, kSignal);
    std::printf("listening at %s\n", listener_.address().c_str());
    std::fflush(stdout);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server() { close(signal_); }

  void run() {
    std::array<leat::Event, 64> events;
    for (;;) {
      const std::size_t count = poller_.wait(events);
      for (const leat::Event& event : std::span(events).first(count)) {
        if (event.token == kSignal) return;
        if (event.token == kListener)
          accept();
        else
          serve(event);
      }
    }
  }

 private:
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
      std::fprintf(stderr, "server_poller: a client: %s\n", error.what());
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
  int signal_ = -1;
  std::uint64_t last_ = kSignal;
  std::unordered_map<std::uint64_t, Client> clients_;
};

}  // namespace

int main(int argc, char** argv) try {
  Server(argc > 1 ? argv[1] : "127.0.0.1:0").run();
} catch (const leat::Error& error) {
  std::fprintf(stderr, "server_poller: %s\n", error.what());
  return 1;
}

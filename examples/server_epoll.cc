// An echo server for many clients in one thread, with epoll on the descriptors of the channels, for
// programs that have an event loop already:
//   server_epoll [ADDRESS]    prints its address, and serves until it is killed
//   ping_pong ADDRESS         is a client
// leat::Poller (server_poller.cc) answers sooner, because it also spins; its fd() fits here too, in
// place of all these descriptors.
#include <leat/leat.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>
#include <unordered_map>

namespace {

class Server {
 public:
  explicit Server(const std::string& address)
      : listener_(address), set_(epoll_create1(EPOLL_CLOEXEC)) {
    watch(listener_.fd());
    std::printf("listening at %s\n", listener_.address().c_str());
    std::fflush(stdout);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server() { close(set_); }

  void run() {
    std::array<epoll_event, 64> events;
    for (;;) {
      const int count = epoll_wait(set_, events.data(), static_cast<int>(events.size()), -1);
      if (count < 0 && errno != EINTR)
        throw std::system_error(errno, std::generic_category(), "epoll_wait");
      for (int i = 0; i < count; ++i) {
        const int fd = events[static_cast<std::size_t>(i)].data.fd;
        if (fd == listener_.fd())
          accept();
        else
          serve(fd);
      }
    }
  }

 private:
  void watch(int fd) {
    epoll_event wanted{};
    wanted.events = EPOLLIN;
    wanted.data.fd = fd;
    if (epoll_ctl(set_, EPOLL_CTL_ADD, fd, &wanted) != 0)
      throw std::system_error(errno, std::generic_category(), "epoll_ctl");
  }

  void accept() {
    while (auto channel = listener_.try_accept()) {
      const int fd = channel->fd();
      watch(fd);
      channels_.emplace(fd, std::move(*channel));
    }
  }

  void serve(int fd) {
    const auto found = channels_.find(fd);
    try {
      if (answer(found->second)) return;
    } catch (const leat::Error& error) {
      std::fprintf(stderr, "server_epoll: a client: %s\n", error.what());
    }
    // First out of the set: a closed channel may live on in the background for what was not sent.
    epoll_ctl(set_, EPOLL_CTL_DEL, fd, nullptr);
    channels_.erase(found);
  }

  // False: the client has ended. Goes on until there is nothing more: only then does the descriptor
  // announce what comes next.
  static bool answer(leat::Channel& channel) {
    while (const auto message = channel.try_receive()) {
      if (!*message) return false;
      // Waits for a client that does not take its answers, as fd() does not tell of room.
      channel.send(message->bytes());
    }
    if (!channel.leaves_by_itself()) channel.flush();
    return true;
  }

  leat::Listener listener_;
  const int set_;
  std::unordered_map<int, leat::Channel> channels_;
};

}  // namespace

int main(int argc, char** argv) try {
  Server(argc > 1 ? argv[1] : "127.0.0.1:0").run();
} catch (const std::exception& error) {
  std::fprintf(stderr, "server_epoll: %s\n", error.what());
  return 1;
}

// The smallest use of leat: two processes exchange messages. The first one listens:
//   ping_pong            prints its address
//   ping_pong ADDRESS    connects to it
#include <leat/leat.h>

#include <chrono>
#include <cstdio>
#include <string>

int main(int argc, char** argv) try {
  constexpr int kRounds = 100'000;
  using Clock = std::chrono::steady_clock;
  if (argc < 2) {
    leat::Listener listener("127.0.0.1:0");
    std::printf("run in another terminal: %s %s\n", argv[0], listener.address().c_str());
    std::fflush(stdout);
    leat::Channel channel = listener.accept();
    while (leat::Message ping = channel.receive()) channel.send(ping.bytes());
  } else {
    leat::Channel channel = leat::Channel::connect(argv[1]);
    std::printf("%s\n", channel.description().c_str());
    const auto start = Clock::now();
    for (int i = 0; i < kRounds; ++i) {
      channel.send("hello");
      if (channel.receive().text() != "hello") return 1;
    }
    const std::chrono::duration<double, std::micro> time = Clock::now() - start;
    std::printf("half a round trip: %.3f us\n", time.count() / kRounds / 2);
  }
} catch (const leat::Error& error) {
  std::fprintf(stderr, "ping_pong: %s\n", error.what());
  return 1;
}

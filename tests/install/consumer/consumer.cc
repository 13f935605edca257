// Sends one message to itself, through leat as its users have it.
#include <leat/leat.h>

#include <iostream>
#include <string>
#include <thread>

int main() try {
  leat::Listener listener("127.0.0.1:0");
  std::thread server([&listener] {
    leat::Channel channel = listener.accept();
    channel.send(std::string(channel.receive().text()) + " and back");
    channel.flush();
    // Waits for the client's end, so that the connection does not go away under the answer.
    channel.shutdown();
    if (channel.receive()) std::cerr << "a message that nobody sent\n";
  });
  leat::Channel channel = leat::Channel::connect(listener.address());
  channel.send("there");
  const std::string answer(channel.receive().text());
  channel.shutdown();
  server.join();
  std::cout << "leat " << leat::version() << ": " << channel.description() << "\n";
  const bool headers_match = leat::version() == std::string(LEAT_VERSION_STRING);
  return answer == "there and back" && headers_match ? 0 : 1;
} catch (const leat::Error& error) {
  std::cerr << error.what() << "\n";
  return 1;
}

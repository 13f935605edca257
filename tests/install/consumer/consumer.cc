// Sends one message to itself, through leat as its users have it.
#include <leat/adapters/aby.h>
#include <leat/leat.h>

#include <future>
#include <iostream>
#include <string>

// As ABY declares its socket.
class CSocket : public leat::adapters::AbySocket<CSocket> {};

int main() try {
  leat::Listener listener("127.0.0.1:0");
  auto server = std::async(std::launch::async, [&listener] {
    leat::Channel channel = listener.accept();
    channel.send(std::string(channel.receive().text()) + " and back");
    channel.shutdown();
    return !channel.receive();  // the client's end; false if it sent more
  });
  leat::Channel channel = leat::Channel::connect(listener.address());
  channel.send("there");
  const std::string answer(channel.receive().text());
  channel.shutdown();
  const bool ended = server.get();
  std::cout << "leat " << leat::version() << ": " << channel.description() << "\n";
  const bool headers_match = leat::version() == std::string(LEAT_VERSION_STRING);
  const bool nobody_left = !CSocket().Connect("127.0.0.1", 1);
  return nobody_left && answer == "there and back" && ended && headers_match ? 0 : 1;
} catch (const leat::Error& error) {
  std::cerr << error.what() << "\n";
  return 1;
}

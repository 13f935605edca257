#include "transfer/remote.h"

#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "confirm/star.h"

namespace leat::bench {
namespace {

using nlohmann::json;

// What one side tells the other over a channel on TCP, each message a JSON object. First the
// sending side: {"leat-bench": kVersion, "bench": "transfer"}. Then for each run it says
// {"run": N, "carrier": ...}, hears lines of the receiving process as {"run": N, "line": "..."},
// and says {"run": N, "end": true} when it needs the process no more.
constexpr int kVersion = 1;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 40;
constexpr std::uint64_t kMostIterations = 1000;
constexpr std::uint64_t kMostSeconds = 86400;

Options control_options() {
  Options options = lane_options("tcp", "tcp");
  options.spin = std::chrono::microseconds(0);
  options.timeout.reset();  // as long as a run takes
  return options;
}

std::string host_of(const std::string& address) { return address.substr(0, address.rfind(':')); }

json parse(const Message& message) {
  json object = json::parse(message.text(), nullptr, /*allow_exceptions=*/false);
  if (!object.is_object())
    throw std::runtime_error("the program at the other end is not a leat-bench of this version");
  return object;
}

json order_of(std::uint64_t run, const TransferCase& transfer, const RunOptions& options) {
  return {{"run", run},
          {"carrier", name_of(transfer.carrier)},
          {"bytes", transfer.bytes},
          {"chunk_bytes", transfer.chunk_bytes},
          {"link_enable", transfer.link_enable},
          {"device", transfer.device.substr(0, transfer.device.find(':'))},
          {"iterations", options.iterations},
          {"limit_seconds", options.limit_seconds}};
}

std::uint64_t number_in(const json& order, const char* name, std::uint64_t most) {
  const json& value = order.at(name);
  if (!value.is_number_unsigned() || value < 1 || value > most)
    throw std::runtime_error(std::string("the other side orders a run with a senseless ") + name);
  return value;
}

Carrier carrier_in(const json& order) {
  const std::string name = order.at("carrier");
  const auto* found =
      std::ranges::find_if(kCarriers, [&](Carrier carrier) { return name == name_of(carrier); });
  if (found == std::ranges::end(kCarriers))
    throw std::runtime_error("the other side orders an unknown carrier, '" + name + "'");
  return *found;
}

// The receiving process of a run that the peer orders, until the peer needs it no more.
class Served {
 public:
  Served(Channel& channel, const json& order, const ServeOptions& options)
      : channel_(channel), run_(order.at("run")) {
    try {
      TransferCase transfer;
      transfer.carrier = carrier_in(order);
      transfer.bytes = number_in(order, "bytes", kMostBytes);
      transfer.chunk_bytes = number_in(order, "chunk_bytes", kMostBytes);
      transfer.link_enable = order.at("link_enable");
      transfer.device = options.device.empty() ? order.at("device") : json(options.device);
      transfer.host = host_of(channel.local_address());
      RunOptions run;
      run.iterations = static_cast<unsigned>(number_in(order, "iterations", kMostIterations));
      run.limit_seconds = static_cast<unsigned>(number_in(order, "limit_seconds", kMostSeconds));
      run.cpus = options.cpus;
      receiver_ = start_receiver(transfer, run);
    } catch (const std::exception& error) {
      fail(error);
    }
  }

  // False: the peer has ended.
  bool serve() {
    for (;;) {
      while (std::optional<Message> message = channel_.try_receive()) {
        if (!*message) return false;
        if (parse(*message).value("end", false)) return true;
      }
      relay();
      pollfd waits[] = {{channel_.fd(), POLLIN, 0}, {receiver_ ? receiver_->fd() : -1, POLLIN, 0}};
      poll(waits, 2, -1);
    }
  }

 private:
  void tell(const std::string& line) { channel_.send(json{{"run", run_}, {"line", line}}.dump()); }
  void fail(const std::exception& error) {
    receiver_.reset();
    tell(json{{"error", std::string("at the receiver: ") + error.what()}}.dump());
  }
  void relay() {
    while (receiver_) {
      std::optional<std::string> line;
      try {
        line = receiver_->try_hear();
      } catch (const std::runtime_error& ended) {
        fail(ended);
      }
      if (!line) return;
      tell(*line);
    }
  }

  Channel& channel_;
  const std::uint64_t run_;
  std::unique_ptr<ReceiverLink> receiver_;
};

}  // namespace

// --- the side that sends

class RemoteHost::Link final : public ReceiverLink {
 public:
  Link(Channel& channel, std::uint64_t run) : channel_(channel), run_(run) {}
  ~Link() override {
    try {
      channel_.send(json{{"run", run_}, {"end", true}}.dump());
    } catch (const std::exception&) {
      // A peer that is gone needs no word; the next run will report that it is.
    }
  }

  std::optional<std::string> try_hear() override {
    while (const std::optional<Message> message = channel_.try_receive()) {
      if (!*message) throw std::runtime_error("the leat-bench that listens has ended");
      const json object = parse(*message);
      // What the process of an earlier run still had to say.
      if (object.at("run") == run_) return object.at("line");
    }
    return std::nullopt;
  }
  int fd() override { return channel_.fd(); }

 private:
  Channel& channel_;
  const std::uint64_t run_;
};

RemoteHost::RemoteHost(const std::string& address)
    : channel_([&] {
        Options options = control_options();
        options.connect_retry = true;
        return Channel::connect(address, options);
      }()) {
  channel_.send(json{{"leat-bench", kVersion}, {"bench", "transfer"}}.dump());
}

std::string RemoteHost::host() const { return host_of(channel_.peer_address()); }
bool RemoteHost::here() const { return host() == host_of(channel_.local_address()); }

std::unique_ptr<ReceiverLink> RemoteHost::start(const TransferCase& transfer,
                                                const RunOptions& options) {
  channel_.send(order_of(++run_, transfer, options).dump());
  return std::make_unique<Link>(channel_, run_);
}

// --- the side that listens

void serve_transfers(const std::string& address, const ServeOptions& options) {
  Listener listener(address, control_options());
  std::fprintf(stderr, "leat-bench: waiting at %s for: leat-bench transfer --connect HOST:%u\n",
               listener.address().c_str(), listener.port());
  Channel channel = listener.accept();
  listener.close();
  Message message = channel.receive();
  const json hello = message ? parse(message) : json::object();
  if (hello.value("leat-bench", 0) != kVersion || hello.value("bench", "") != "transfer")
    throw std::runtime_error("the program at " + channel.peer_address() +
                             " is no leat-bench transfer of this version");
  while ((message = channel.receive())) {
    const json order = parse(message);
    message.release();
    // The end of a run that ended here before.
    if (order.contains("end")) continue;
    if (!Served(channel, order, options).serve()) break;
  }
  std::fprintf(stderr, "leat-bench: done, the results are on the other side\n");
}

}  // namespace leat::bench

#include "channel/channel_bench.h"

#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "forked_peer.h"
#include "machine.h"
#include "pattern.h"

namespace leat::bench {
namespace {

constexpr int kPlanVersion = 1;

void send_plan(Channel& channel, const Plan& plan) {
  const nlohmann::json object{{"leat-bench", kPlanVersion},
                              {"bench", plan.bench},
                              {"verify", plan.verify},
                              {"in_place", plan.in_place},
                              {"read", plan.read}};
  channel.send(object.dump());
}

Plan receive_plan(Channel& channel) {
  const Message message = channel.receive();
  const auto object = nlohmann::json::parse(message.text(), nullptr, /*allow_exceptions=*/false);
  if (!object.is_object() || object.value("leat-bench", 0) != kPlanVersion) {
    throw std::runtime_error("the program at " + channel.peer_address() +
                             " is not a leat-bench of this version");
  }
  return {object.value("bench", ""), object.value("verify", false), object.value("in_place", false),
          object.value("read", false)};
}

std::string with_port(const std::string& host, std::uint16_t port) {
  const bool ipv6 = host.find(':') != host.rfind(':') && host.back() != ']' &&
                    host.find("]:") == std::string::npos;
  if (ipv6) return "[" + host + "]:" + std::to_string(port);
  if (host.find(':') != std::string::npos && host.back() != ']') return host;
  return host + ":" + std::to_string(port);
}

void serve_one(Listener& listener, const std::string& name, const ChannelBench& bench) {
  Channel channel = listener.accept();
  listener.close();
  const Plan plan = receive_plan(channel);
  if (plan.bench != name) {
    throw std::runtime_error("the other side runs '" + plan.bench + "', this one '" + name +
                             "'. Start both with the same subcommand.");
  }
  bench.serve(channel, plan);
}

ReportHeader header_of(const std::string& name, const ChannelBench& bench, const Channel& channel,
                       const ChannelArguments& arguments, const std::string& cores) {
  const TickClock clock;
  char clock_text[64];
  std::snprintf(clock_text, sizeof clock_text, "%s, %.1f ns a read", clock.name().c_str(),
                clock.read_ns());
  return {.bench = name,
          .title = bench.title,
          .device = channel.device(),
          .transport = channel.transport(),
          .lines = {{"Link", channel.description()},
                    {"Send from", arguments.in_place ? "reserved memory" : "caller's buffer"},
                    {"Received", arguments.read ? "in place, every byte read" : "in place"},
                    {"Verified", arguments.verify ? "every byte" : "no"},
                    {"Cores", cores},
                    {"Clock", clock_text},
                    {"Local address", channel.local_address()},
                    {"Remote address", channel.peer_address()}}};
}

void measure_at(const std::string& address, const std::string& name, const ChannelBench& bench,
                const ChannelArguments& arguments, const std::string& cores) {
  Options options = arguments.options();
  options.connect_retry = true;
  Channel channel = Channel::connect(address, options);
  const Plan plan{name, arguments.verify, arguments.in_place, arguments.read};
  send_plan(channel, plan);
  Report report(header_of(name, bench, channel, arguments, cores), arguments.json);
  bench.measure(channel, plan, arguments, report);
  channel.close();  // the serving side ends by that
  report.finish();
}

std::string pin_one(const std::vector<int>& cpus) {
  if (cpus.empty()) return "not pinned";
  pin_to_core(cpus.front());
  return std::to_string(cpus.front()) + " (this side)";
}

void measure_with_own_peer(const std::string& name, const ChannelBench& bench,
                           const ChannelArguments& arguments) {
  const auto cores = choose_cores(arguments.cpus);
  ForkedPeer peer([&](const ForkedPeer::Tell& tell) {
    if (cores) pin_to_core((*cores)[1]);
    Listener listener("127.0.0.1:0", arguments.options());
    tell(listener.address());
    serve_one(listener, name, bench);
  });
  if (cores) pin_to_core((*cores)[0]);
  measure_at(peer.listen(), name, bench, arguments, describe_cores(cores));
  peer.wait();
}

}  // namespace

void Sender::send(std::size_t bytes) {
  if (buffer_.size() < bytes) buffer_.resize(bytes);
  if (in_place_) {
    const std::span<std::byte> room = channel_.reserve(bytes);
    // A program that fills in place writes each byte once; so do we.
    if (verify_) {
      fill_pattern(room, seed_, index_);
    } else {
      std::memset(room.data(), static_cast<int>(index_ & 0xff), bytes);
    }
    channel_.commit(bytes);
  } else {
    const std::span<std::byte> message(buffer_.data(), bytes);
    if (verify_) fill_pattern(message, seed_, index_);
    channel_.send(message);
  }
  ++index_;
}

void run_channel_bench(const std::string& name, const ChannelBench& bench,
                       const ChannelArguments& arguments) {
  if (arguments.listen) {
    pin_one(arguments.cpus);
    Listener listener(":" + std::to_string(arguments.port), arguments.options());
    std::fprintf(stderr, "leat-bench: waiting at %s for: leat-bench %s --connect THIS_HOST:%u\n",
                 listener.address().c_str(), name.c_str(), listener.port());
    serve_one(listener, name, bench);
    std::fprintf(stderr, "leat-bench: done, the results are on the other side\n");
  } else if (!arguments.connect.empty()) {
    const std::string cores = pin_one(arguments.cpus);
    measure_at(with_port(arguments.connect, arguments.port), name, bench, arguments, cores);
  } else {
    measure_with_own_peer(name, bench, arguments);
  }
}

}  // namespace leat::bench

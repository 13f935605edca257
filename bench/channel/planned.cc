// leat-bench planned: what message arrays add to the bare write with immediate data that carries
// them. Both take turns in one run, so that what disturbs one disturbs the other.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "arguments.h"
#include "forked_peer.h"
#include "leat/leat.h"
#include "machine.h"
#include "report.h"
#include "subcommand.h"
#include "verbs/table.h"

namespace leat::bench {
namespace {

// Messages of an array, and of a turn: so short that even on a busy machine many turns run without
// an interruption. Bare ones follow each other through as much memory.
constexpr std::uint64_t kMessages = 512;
// The turns that the ratio compares: those that were disturbed say nothing.
constexpr std::size_t kFastestShare = 10;
constexpr std::size_t kReceives = 1024;

using detail::QueuePair;

struct PlannedArguments : RunArguments {
  std::string device = "shm";
};

// What carries a ping-pong: message arrays.
class ArrayCarrier {
 public:
  ArrayCarrier(PlannedChannel& channel, std::size_t bytes) : channel_(channel) {
    array_.message_bytes = static_cast<std::uint32_t>(bytes);
    array_.count = kMessages;
  }
  void send(std::uint64_t index, std::span<const std::byte> message) {
    channel_.send(0, index, message);
  }
  std::span<const std::byte> receive(std::uint64_t index) { return channel_.receive(0, index); }
  void begin_turn() { channel_.open(0, array_); }
  void end_turn() { channel_.close(0); }

 private:
  PlannedChannel& channel_;
  MessageArray array_;
};

// Posts a write and polls for one, and nothing else but new receives, a quarter of them at a time.
class BareCarrier {
 public:
  // `offers`: one side of the two. They find each other by messages of the channel.
  BareCarrier(Channel& channel, const std::string& name, std::size_t bytes, bool offers)
      : bytes_(bytes), device_(detail::open_device(name, "")) {
    const detail::QueueDepths depths;
    const auto deadline = detail::deadline_after(std::chrono::seconds(10));
    if (offers) {
      const auto offer = device_->offer(depths, "");
      channel.send(offer->blob());
      queue_pair_ = offer->accept(deadline, -1);
    } else {
      const Message blob = channel.receive();
      queue_pair_ = device_->connect(blob.bytes(), depths, deadline);
    }
    region_ = device_->allocate(bytes * kMessages, detail::kRemoteWrite);
    post_receives(kReceives);
    const detail::RemoteRegion own = region_->remote();
    channel.send(std::as_bytes(std::span(&own, 1)));
    const Message theirs = channel.receive();
    std::memcpy(&peer_, theirs.data(), sizeof peer_);
  }

  void send(std::uint64_t index, std::span<const std::byte> message) {
    detail::SendRequest request;
    request.opcode = detail::Opcode::kWriteWithImmediate;
    request.signaled = false;
    request.inlined = true;
    request.local = const_cast<std::byte*>(message.data());
    request.bytes = message.size();
    request.remote_address = peer_.address + index * bytes_;
    request.remote_key = peer_.key;
    request.immediate = static_cast<std::uint32_t>(index);
    while (queue_pair_->post_send({&request, 1}) == 0) {
      if (queue_pair_->poll_sends(completions_) != 0) throw std::runtime_error("a write failed");
    }
  }
  void begin_turn() {}
  void end_turn() {}
  std::span<const std::byte> receive(std::uint64_t index) {
    while (queue_pair_->poll_receives(completions_) == 0) {
    }
    if (completions_[0].status != detail::CompletionStatus::kSuccess ||
        completions_[0].immediate != index)
      throw std::runtime_error("a write arrived that was not due");
    if (++used_ == kReceives / 4) {
      post_receives(used_);
      used_ = 0;
    }
    return region_->memory().subspan(index * bytes_, bytes_);
  }

 private:
  void post_receives(std::size_t count) {
    if (queue_pair_->post_receives(count) != count)
      throw std::runtime_error("cannot post receives");
  }

  const std::size_t bytes_;
  std::unique_ptr<detail::Device> device_;
  std::unique_ptr<QueuePair> queue_pair_;
  std::unique_ptr<detail::MemoryRegion> region_;
  detail::RemoteRegion peer_;
  std::size_t used_ = 0;
  std::array<detail::Completion, 1> completions_;
};

// One turn; returns what was received, so that it must be read.
template <typename Kind>
std::uint64_t exchange(Kind& carrier, std::span<std::byte> message, bool measures) {
  std::uint64_t sum = 0;
  carrier.begin_turn();
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    if (measures) carrier.send(i, message);
    const auto received = carrier.receive(i);
    sum += static_cast<std::uint64_t>(received.back());
    if (!measures) carrier.send(i, message);
  }
  carrier.end_turn();
  return sum;
}

Options options_for(const PlannedArguments& arguments) {
  Options options;
  options.device = arguments.device;
  options.transport = "planned";
  options.spin = std::chrono::microseconds(-1);
  options.connect_retry = true;
  return options;
}

// What each side has for its turns: a bare one, one of arrays, and so on; the first two do not
// count.
struct Sides {
  Sides(Channel connected, const PlannedArguments& arguments, std::size_t bytes, bool first)
      : channel(std::move(connected)),
        bare(channel.channel(), arguments.device, bytes, first),
        arrays(channel, bytes),
        message(bytes, std::byte{1}) {}

  PlannedChannel channel;
  BareCarrier bare;
  ArrayCarrier arrays;
  std::vector<std::byte> message;
};

std::uint64_t turns(const PlannedArguments& arguments) {
  return arguments.length.iterations / kMessages + 1;
}

void serve(Channel channel, const PlannedArguments& arguments, std::size_t bytes) {
  Sides sides(std::move(channel), arguments, bytes, false);
  for (std::uint64_t turn = 0; turn <= turns(arguments); ++turn) {
    exchange(sides.bare, sides.message, false);
    exchange(sides.arrays, sides.message, false);
  }
  sides.channel.channel().send("done");
  sides.channel.channel().flush();
}

void measure(Channel channel, const PlannedArguments& arguments, std::size_t bytes,
             Report& report) {
  const TickClock clock;
  Sides sides(std::move(channel), arguments, bytes, true);
  std::vector<double> bare_us;
  std::vector<double> arrays_us;
  for (std::uint64_t turn = 0; turn <= turns(arguments); ++turn) {
    const auto timed = [&](auto& carrier) {
      const std::uint64_t start = clock.now();
      exchange(carrier, sides.message, true);
      return clock.microseconds(clock.now() - start) / 2 / static_cast<double>(kMessages);
    };
    const double bare = timed(sides.bare);
    const double arrays = timed(sides.arrays);
    if (turn == 0) continue;
    bare_us.push_back(bare);
    arrays_us.push_back(arrays);
  }
  if (sides.channel.channel().receive().text() != "done")
    throw std::runtime_error("the peer ended in the middle of the benchmark");
  // Adds a row; returns the time of the slowest of the fastest turns.
  const auto row = [&](const char* part, const char* caption, std::vector<double>& times) {
    report.begin_part(part, caption);
    const std::uint64_t count = times.size();
    std::ranges::sort(times);
    const double fast = times[count / kFastestShare];
    const Latency::Distribution spread = distribution_of(std::move(times));
    report.add(Latency{bytes, count * kMessages, spread.typical_us, spread});
    return fast;
  };
  const double bare = row("write_imm", "Bare write with immediate data, means of turns", bare_us);
  const double arrays = row("planned", "Message arrays, means of turns", arrays_us);
  report.add_ratio("planned_vs_write_imm_" + std::to_string(bytes) + "B", arrays / bare);
}

void run(const PlannedArguments& arguments) {
  const auto cores = choose_cores(arguments.cpus);
  if (!cores || (*cores)[0] == (*cores)[1]) {
    throw std::runtime_error(
        "both sides spin all the time and need two cores. Allow this process two (taskset, --cpus "
        "A,B).");
  }
  Report report({.bench = "planned",
                 .title = "leat Message Array Latency Test",
                 .device = arguments.device,
                 .transport = "planned",
                 .lines = {{"Cores", describe_cores(cores)}}},
                arguments.json);
  for (const std::size_t bytes : arguments.sizes) {
    ForkedPeer peer([&](const ForkedPeer::Tell& tell) {
      pin_to_core((*cores)[1]);
      Listener listener("127.0.0.1:0", options_for(arguments));
      tell(listener.address());
      serve(listener.accept(), arguments, bytes);
    });
    pin_to_core((*cores)[0]);
    measure(Channel::connect(peer.listen(), options_for(arguments)), arguments, bytes, report);
    peer.wait();
  }
  report.finish();
}

}  // namespace

Run declare_planned(CLI::App& command) {
  const auto arguments = std::make_shared<PlannedArguments>();
  arguments->sizes = {64};
  arguments->length.iterations = 1'000'000;
  add_run_arguments(command, *arguments);
  command.add_option("-d,--ib-dev,--device", arguments->device, "shm, or ib:NAME")
      ->capture_default_str()
      ->type_name("NAME");
  return [arguments] { run(*arguments); };
}

}  // namespace leat::bench

// leat-bench stream: bandwidth and message rate of one direction of a channel.
#include <memory>
#include <stdexcept>

#include "channel/channel_bench.h"
#include "measure.h"
#include "pattern.h"
#include "steps_bar.h"
#include "subcommand.h"

namespace leat::bench {
namespace {

void measure_stream(Channel& channel, const Plan& plan, const ChannelArguments& arguments,
                    Report& report) {
  const TickClock clock;
  StepsBar bar("stream", arguments.sizes.size());
  const Progress progress = [&bar](double fraction) { bar.update(fraction); };
  Sender sender(channel, plan, kMeasuringSeed);
  for (const std::size_t bytes : arguments.sizes) {
    std::uint64_t sent = 0;
    const auto send = [&](std::uint64_t count) {
      for (std::uint64_t i = 0; i < count; ++i) sender.send(bytes);
      sent += count;
    };
    // The receiver answers an empty message with the number of messages that it received.
    const auto finish = [&] {
      channel.send(std::span<const std::byte>());
      const Message answer = channel.receive();
      if (answer.text() != std::to_string(sent)) {
        throw std::runtime_error("the peer received '" + std::string(answer.text()) +
                                 "' messages of " + std::to_string(sent));
      }
      sender.restart();
      sent = 0;
    };
    progress(0);
    const Bandwidth bandwidth =
        measure_bandwidth(bytes, arguments.length, clock, progress, send, finish);
    bar.step_done();
    report.add(bandwidth);
  }
}

void take_stream(Channel& channel, const Plan& plan) {
  std::uint64_t received = 0;
  while (const Message message = channel.receive()) {
    if (message.size() == 0) {
      channel.send(std::to_string(received));
      received = 0;
      continue;
    }
    // Received in place: without --verify and --read nothing looks at the bytes.
    if (plan.verify) check_pattern(message.bytes(), kMeasuringSeed, received);
    if (plan.read) read_every_byte(message.bytes());
    ++received;
  }
}

}  // namespace

Run declare_stream(CLI::App& command) {
  const auto arguments = std::make_shared<ChannelArguments>();
  arguments->sizes = {65536};
  arguments->length.iterations = 5000;
  add_channel_arguments(command, *arguments);
  add_read_argument(command, arguments->read);
  return [arguments] {
    run_channel_bench("stream", {"leat Send BW Test", measure_stream, take_stream}, *arguments);
  };
}

}  // namespace leat::bench

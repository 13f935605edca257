// leat-bench pingpong: half round trips of messages over a channel.
#include <memory>
#include <stdexcept>

#include "channel/channel_bench.h"
#include "channel/crowded.h"
#include "pattern.h"
#include "steps_bar.h"
#include "subcommand.h"

namespace leat::bench {
namespace {

Message receive_reply(Channel& channel) {
  Message reply = channel.receive();
  if (!reply) throw std::runtime_error("the peer ended in the middle of the benchmark");
  return reply;
}

void measure_round_trips(Channel& channel, const Plan& plan, const ChannelArguments& arguments,
                         Report& report) {
  const TickClock clock;
  StepsBar bar("pingpong", arguments.sizes.size());
  const Progress progress = [&bar](double fraction) { bar.update(fraction); };
  Sender sender(channel, plan, kMeasuringSeed);
  for (const std::size_t bytes : arguments.sizes) {
    progress(0);
    std::uint64_t index = 0;
    const Latency latency = measure_latency(bytes, arguments.length, clock, progress, [&] {
      sender.send(bytes);
      const Message reply = receive_reply(channel);
      if (reply.size() != bytes) throw std::runtime_error("the peer's answer has another size");
      if (plan.verify) check_pattern(reply.bytes(), kServingSeed, index++);
    });
    // An empty message ends a size on both sides.
    channel.send(std::span<const std::byte>());
    if (receive_reply(channel).size() != 0) throw std::runtime_error("the peer is out of step");
    sender.restart();
    bar.step_done();
    report.add(latency);
  }
}

void answer(Channel& channel, const Plan& plan) {
  Sender sender(channel, plan, kServingSeed);
  std::uint64_t index = 0;
  while (Message message = channel.receive()) {
    const std::size_t bytes = message.size();
    if (bytes == 0) {
      channel.send(std::span<const std::byte>());
      sender.restart();
      index = 0;
      continue;
    }
    if (plan.verify) check_pattern(message.bytes(), kMeasuringSeed, index++);
    message.release();
    sender.send(bytes);
  }
}

}  // namespace

Run declare_pingpong(CLI::App& command) {
  const auto arguments = std::make_shared<ChannelArguments>();
  arguments->sizes = {2};
  arguments->length.iterations = 1000;
  add_channel_arguments(command, *arguments);
  const auto crowded = std::make_shared<bool>(false);
  CLI::Option* flag = command.add_flag("--crowded", *crowded,
                                       "Compare with plain TCP where the two sides have no core "
                                       "each: on one core, beside busy loops, not pinned; and "
                                       "three and four parties on two cores");
  for (const char* other :
       {"--duration", "--warmup", "--verify", "--in-place", "--listen", "--connect"})
    flag->excludes(command.get_option(other));
  return [arguments, crowded] {
    if (*crowded) return run_crowded(*arguments);
    run_channel_bench("pingpong", {"leat Send Latency Test", measure_round_trips, answer},
                      *arguments);
  };
}

}  // namespace leat::bench

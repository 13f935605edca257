#include "confirm/star.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "machine.h"

namespace leat::bench {
namespace {

// As sender of messages the master is 0, worker i is i + 1.
constexpr std::uint64_t kMaster = 0;
std::uint64_t sender_of(unsigned worker) { return worker + 1; }

constexpr std::size_t kIdleBytes = 64;
constexpr std::uint64_t kMessagesBeforePause = 64;

// Orders and reports go over TCP and sleep, so that they cost next to nothing and are not counted.
// They may take as long as what is ordered.
Options control_options() {
  Options options = lane_options("tcp", "tcp");
  options.spin = std::chrono::microseconds(0);
  options.timeout.reset();
  return options;
}

// From the first that started, or `start_ns` if that was before, to the last that ended.
double seconds_of(const std::vector<Usage>& workers, std::int64_t start_ns = INT64_MAX) {
  std::int64_t end_ns = 0;
  for (const Usage& worker : workers) {
    start_ns = std::min(start_ns, worker.start_ns);
    end_ns = std::max(end_ns, worker.end_ns);
  }
  return static_cast<double>(end_ns - start_ns) * 1e-9;
}

}  // namespace

Options lane_options(const std::string& device, const std::string& transport) {
  constexpr auto kHang = std::chrono::minutes(2);
  Options options;
  if (!device.empty()) options.device = device;
  options.transport = transport;
  options.fallback = "never";
  options.connect_timeout = kHang;
  options.handshake_timeout = kHang;
  options.timeout = kHang;
  return options;
}

double Flow::worker_cpu_seconds() const {
  double sum = 0;
  for (const Usage& worker : workers) sum += worker.cpu_seconds;
  return sum;
}

// What a worker's process does: what it is ordered, until the master ends.
class Star::Worker {
 public:
  Worker(const std::vector<Lane>& lanes, unsigned number, const std::vector<std::size_t>& blocks,
         const ForkedPeer::Tell& tell)
      : number_(number), blocks_(blocks) {
    std::vector<Listener> listeners;
    listeners.emplace_back("127.0.0.1:0", control_options());
    for (const Lane& lane : lanes) listeners.emplace_back("127.0.0.1:0", lane.options);
    std::string addresses;
    for (const Listener& listener : listeners) addresses += listener.address() + " ";
    tell(addresses);
    for (Listener& listener : listeners) channels_.push_back(listener.accept());
  }

  void run() {
    while (const Message message = channels_.front().receive()) {
      Order order;
      if (message.size() != sizeof order) throw std::runtime_error("an odd order");
      std::memcpy(static_cast<void*>(&order), message.data(), sizeof order);
      const Usage usage = obey(order);
      channels_.front().send(std::as_bytes(std::span(&usage, 1)));
    }
  }

 private:
  Usage obey(const Order& order) {
    Channel& channel = channels_[order.lane + 1];
    Channel* const watched = &channel;
    Meter meter(std::span(&watched, 1));
    Traffic traffic(order.bytes == 0 ? blocks_ : std::vector<std::size_t>{order.bytes});
    const FlowLength& length = order.length;
    switch (order.task) {
      case Task::kReceive:
        receive(channel, traffic, length, &meter);
        break;
      case Task::kSend:
        send(channel, traffic, length, &meter);
        break;
      case Task::kExchange:
        (void)traffic.message(sender_of(number_), 0);  // makes the memory
        meter.start();
        send(channel, traffic, length, nullptr);
        receive(channel, traffic, length, nullptr);
        break;
      case Task::kAnswer:
        answer(channel, traffic, order, meter);
        break;
    }
    return meter.stop();
  }

  // Both start the meter after the warm-up, if there is one.
  void send(Channel& channel, Traffic& traffic, const FlowLength& length, Meter* meter) const {
    for (std::uint64_t i = 0; i < length.warmup + length.count; ++i) {
      if (i == length.warmup && meter != nullptr) meter->start();
      channel.send(traffic.message(sender_of(number_), i));
    }
    channel.flush();
  }

  static void receive(Channel& channel, const Traffic& traffic, const FlowLength& length,
                      Meter* meter) {
    for (std::uint64_t i = 0; i < length.warmup + length.count; ++i) {
      if (i == length.warmup && meter != nullptr) meter->start();
      traffic.check(channel.receive(), kMaster, i);
    }
  }

  void answer(Channel& channel, const Traffic& traffic, const Order& order, Meter& meter) const {
    Traffic answers({order.answer_bytes});
    meter.start();
    for (std::uint64_t i = 0; i < order.length.warmup + order.length.count; ++i) {
      traffic.check(channel.receive(), kMaster, i);
      channel.send(answers.message(sender_of(number_), i));
    }
  }

  const unsigned number_;
  const std::vector<std::size_t>& blocks_;
  std::vector<Channel> channels_;  // the control, then the lanes
};

Star::Star(std::vector<Lane> lanes, unsigned workers, const std::vector<int>& cpus,
           std::vector<std::size_t> blocks)
    : blocks_(std::move(blocks)) {
  for (unsigned worker = 0; worker < workers; ++worker) {
    processes_.push_back(std::make_unique<ForkedPeer>([&, worker](const ForkedPeer::Tell& tell) {
      if (!cpus.empty()) pin_to_core(cpus[worker + 1]);
      Worker(lanes, worker, blocks_, tell).run();
    }));
  }
  if (!cpus.empty()) pin_to_core(cpus[0]);
  lanes_.resize(lanes.size());
  channels_.reserve(workers * (lanes.size() + 1));  // none is to move: the lists below point there
  for (const auto& process : processes_) {
    std::istringstream addresses(process->listen());
    const auto connect = [&](const Options& options) {
      std::string address;
      addresses >> address;
      return &channels_.emplace_back(Channel::connect(address, options));
    };
    controls_.push_back(connect(control_options()));
    for (std::size_t i = 0; i < lanes.size(); ++i) lanes_[i].push_back(connect(lanes[i].options));
  }
}

Traffic Star::traffic(std::size_t bytes) const {
  return Traffic(bytes == 0 ? blocks_ : std::vector<std::size_t>{bytes});
}

void Star::order(const Order& order) {
  for (Channel* control : controls_) control->send(std::as_bytes(std::span(&order, 1)));
}

std::vector<Usage> Star::reports() {
  std::vector<Usage> usages;
  for (Channel* control : controls_) {
    const Message message = control->receive();
    Usage usage;
    if (message.size() != sizeof usage) throw std::runtime_error("a worker's process failed");
    std::memcpy(&usage, message.data(), sizeof usage);
    usages.push_back(usage);
  }
  return usages;
}

// --- the two patterns

void Star::broadcast(unsigned lane, std::span<const std::byte> message) {
  const std::vector<Channel*>& channels = lanes_[lane];
  if (channels.size() == 1) {  // as a program with a single channel would
    channels.front()->send(message);
    return;
  }
  unsent_ = channels;
  const auto try_all = [this, message] {
    std::erase_if(unsent_, [message](Channel* channel) { return channel->try_send(message); });
    return unsent_.empty();
  };
  if (!try_all() && wait_any(channels, WaitFor::kRoom, "broadcast", try_all) != nullptr)
    throw std::runtime_error("a worker's process ended early");
}

Message Star::receive_any(unsigned lane, unsigned& worker) {
  const std::vector<Channel*>& channels = lanes_[lane];
  if (channels.size() == 1) {
    worker = 0;
    return channels.front()->receive();
  }
  const auto try_each = [&] {
    for (std::size_t i = 1;; ++i) {
      worker = next_;
      next_ = next_ + 1 == channels.size() ? 0 : next_ + 1;
      std::optional<Message> message = channels[worker]->try_receive();
      if (message || i == channels.size()) return message;
    }
  };
  std::optional<Message> message = try_each();
  const auto done = [&] {
    message = try_each();
    return message.has_value();
  };
  if (!message && wait_any(channels, WaitFor::kMessages, "gather", done) != nullptr)
    throw std::runtime_error("a worker's process ended early");
  return std::move(*message);
}

// --- streams

void Star::send_all(unsigned lane, Traffic& traffic, const FlowLength& length, Meter* meter) {
  for (std::uint64_t i = 0; i < length.warmup + length.count; ++i) {
    if (i == length.warmup && meter != nullptr) meter->start();
    broadcast(lane, traffic.message(kMaster, i));
  }
  for (Channel* channel : lanes_[lane]) channel->flush();
}

void Star::receive_all(unsigned lane, const Traffic& traffic, const FlowLength& length,
                       Meter& meter) {
  const std::uint64_t workers = lanes_[lane].size();
  std::vector<std::uint64_t> received(workers);
  for (std::uint64_t i = 0; i < workers * (length.warmup + length.count); ++i) {
    if (i == workers * length.warmup) meter.start();
    unsigned worker = 0;
    const Message message = receive_any(lane, worker);
    traffic.check(message, sender_of(worker), received[worker]++);
  }
}

Flow Star::broadcast_flow(unsigned lane, std::size_t bytes, const FlowLength& length) {
  Traffic sent = traffic(bytes);
  (void)sent.message(kMaster, 0);  // makes the memory
  Meter meter(lanes_[lane]);
  order({Task::kReceive, lane, bytes, 0, length});
  send_all(lane, sent, length, &meter);
  Flow flow{.master = meter.stop(), .workers = reports()};
  flow.messages = flow.workers.size() * length.count;
  flow.seconds = seconds_of(flow.workers, length.warmup == 0 ? flow.master.start_ns : INT64_MAX);
  return flow;
}

Flow Star::gather_flow(unsigned lane, std::size_t bytes, const FlowLength& length) {
  const Traffic received = traffic(bytes);
  Meter meter(lanes_[lane]);
  order({Task::kSend, lane, bytes, 0, length});
  receive_all(lane, received, length, meter);
  Flow flow{.master = meter.stop(), .workers = reports()};
  flow.messages = flow.workers.size() * length.count;
  flow.seconds = flow.master.seconds();
  return flow;
}

Flow Star::exchange_flow(unsigned lane, std::size_t bytes, std::uint64_t count) {
  Traffic traffic = this->traffic(bytes);
  (void)traffic.message(kMaster, 0);  // makes the memory
  const FlowLength length{0, count};
  Meter meter(lanes_[lane]);
  order({Task::kExchange, lane, bytes, 0, length});
  receive_all(lane, traffic, length, meter);
  send_all(lane, traffic, length, nullptr);
  Flow flow{.master = meter.stop(), .workers = reports()};
  flow.messages = 2 * flow.workers.size() * count;
  flow.seconds = seconds_of(flow.workers);
  return flow;
}

std::vector<double> Star::round_trips(unsigned lane, std::size_t bytes, std::size_t answer_bytes,
                                      const FlowLength& length, const TickClock& clock) {
  Traffic sent = traffic(bytes);
  const Traffic answers({answer_bytes});
  order({Task::kAnswer, lane, bytes, answer_bytes, length});
  std::vector<double> times_us;
  times_us.reserve(length.count);
  for (std::uint64_t i = 0; i < length.warmup + length.count; ++i) {
    const std::uint64_t start = clock.now();
    broadcast(lane, sent.message(kMaster, i));
    for (std::size_t left = lanes_[lane].size(); left > 0; --left) {
      unsigned worker = 0;
      const Message answer = receive_any(lane, worker);
      answers.check(answer, sender_of(worker), i);
    }
    const std::uint64_t end = clock.now();
    if (i >= length.warmup) times_us.push_back(clock.microseconds(end - start));
  }
  (void)reports();
  return times_us;
}

// --- quiet channels

Flow Star::idle(unsigned lane, double seconds) {
  Traffic question({kIdleBytes});
  const Traffic answer({kIdleBytes});
  Meter meter(lanes_[lane]);
  order({Task::kAnswer, lane, kIdleBytes, kIdleBytes, {0, 1}});
  meter.start();
  // Both sides wait for a message all the time, as they would in a server: so another thread sends.
  const auto sent = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    channel(lane).send(question.message(kMaster, 0));
  });
  const Message message = channel(lane).receive();
  sent.wait();
  answer.check(message, sender_of(0), 0);
  Flow flow{.master = meter.stop(), .workers = reports()};
  flow.seconds = flow.master.seconds();
  return flow;
}

double Star::first_after_pause(unsigned lane, double pause_seconds) {
  Traffic sent({kIdleBytes});
  order({Task::kReceive, lane, kIdleBytes, 0, {kMessagesBeforePause, 1}});
  for (std::uint64_t i = 0; i < kMessagesBeforePause; ++i)
    channel(lane).send(sent.message(kMaster, i));
  std::this_thread::sleep_for(std::chrono::duration<double>(pause_seconds));
  const std::int64_t start_ns = now_ns();
  channel(lane).send(sent.message(kMaster, kMessagesBeforePause));
  return static_cast<double>(reports().front().end_ns - start_ns) * 1e-3;
}

}  // namespace leat::bench

#include "leat/trusted/client.h"

#include <algorithm>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/fork.h"
#include "base/log.h"
#include "leat/wait.h"
#include "trusted/parts/configuration_messages.h"
#include "trusted/parts/connector.h"
#include "trusted/parts/link.h"
#include "trusted/parts/quorum.h"

namespace leat::trusted {
namespace {

using namespace detail;
using leat::detail::Clock;

constexpr std::size_t kMaxBacklogBytes = std::size_t{64} << 20;
constexpr std::chrono::milliseconds kTick{20};
// How long connecting waits for nodes to introduce themselves, and how long they have in all.
constexpr std::chrono::milliseconds kAttachTime{500}, kMostAttachTime{5000};

// Larger than those of the same client when it ran before, unless the clock was set back: nodes
// refuse numbers that they have had, and are asked.
std::uint64_t first_number() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::system_clock::now().time_since_epoch())
                                        .count());
}

// Before the service has said who the nodes are: itself, and no epoch.
ClientOptions with_service(ClientOptions options) {
  if (options.service == 0) return options;
  options.epoch = 0;
  options.nodes = {options.service};
  options.quorum = 1;
  return options;
}

}  // namespace

struct Client::State {
  static constexpr const char* kWhenEmpty = "this client was moved from";
  State(const Directory& its_directory, const SigningKey& its_key, const ClientOptions& its_options)
      : options(its_options),
        directory(its_directory),
        self{its_directory, its_key, its_options.self, its_options.epoch},
        connector(std::make_unique<Connector>(channel_options())),
        quorum(directory, its_key, with_service(options), first_number()) {
    if (options.service != 0) {
      ask_service();
      return;
    }
    for (const PartyId node : options.nodes) connect(node);
    const std::size_t reached = links.size();
    if (reached < options.quorum)
      throw Error(ErrorCode::kUnavailable,
                  "only " + std::to_string(reached) + " of " +
                      std::to_string(options.nodes.size()) + " nodes can be reached, and " +
                      std::to_string(options.quorum) + " must answer",
                  "See whether the nodes run, at the addresses of the directory.");
    for (const PartyId witness : options.witnesses) connect(witness);
    wait_until_known();
    learn_number();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    // Its threads are the parent's: a child would wait for them in vain.
    if (!made_here) (void)connector.release();
  }

  // Waits until the service has named nodes, and those are connected.
  void ask_service() {
    connect(options.service);
    const auto until = Clock::now() + options.timeout;
    auto next = Clock::now();
    for (; !announced && Clock::now() < until; wait([this] { return take_answers(); })) {
      if (Clock::now() < next) continue;
      next = Clock::now() + options.retry_after;
      send_to(options.service, write_epoch(ConfigurationMessage::kJoin, 0));
    }
    if (!announced)
      throw Error(ErrorCode::kUnavailable,
                  "the configuration service, party " + std::to_string(options.service) +
                      ", names no nodes after " + std::to_string(options.timeout.count()) + " ms",
                  "See whether enough nodes run.");
    reconfigure();
    learn_number();
  }

  void reconfigure() {
    const Configuration configuration = *std::exchange(announced, std::nullopt);
    complained = false;
    links.remove_if([&](const Link& link) {
      return link.party() != options.service &&
             std::ranges::find(configuration.nodes, link.party()) == configuration.nodes.end();
    });
    for (const PartyId node : configuration.nodes)
      if (std::ranges::find(links, node, &Link::party) == links.end()) connect(node);
    wait_until_known();
    quorum.reconfigure(configuration.epoch, configuration.nodes);
    send_again();
  }

  // A node that has not seen the client yet would lose its answers, and the client much time.
  void wait_until_known() {
    const auto until = Clock::now() + kAttachTime;
    while (!std::ranges::all_of(links, &Link::introduced) && Clock::now() < until)
      wait([this] { return take_answers(); });
  }

  // Which number the nodes would take. One that does not say is not waited for any longer: then
  // the clock's number holds, and a request whose number was used has no answer.
  void learn_number() {
    for (const PartyId node : quorum.nodes()) send_to(node, write_number(0));
    const auto until = Clock::now() + kAttachTime;
    while (quorum.should_learn_more() && Clock::now() < until)
      wait([this] { return take_answers(); });
  }

  void connect(PartyId node) {
    const Party* party = directory.find(node);
    if (party == nullptr || party->address.empty())
      throw Error(ErrorCode::kInvalidArgument,
                  "node " + std::to_string(node) + " has no address in the directory");
    if (connector->wants(node)) return;
    try {
      leat::Options channel = channel_options();
      // The nodes of a configuration were there when it began: one that is not is dead.
      if (options.service != 0 && node != options.service) channel.connect_retry = false;
      attach(Channel::connect("leat://" + party->address, channel), node);
    } catch (const Error& error) {
      leat::detail::log(leat::detail::LogLevel::kWarn,
                        "node " + std::to_string(node) + " is left out for now: " + error.what());
      connector->want(node, party->address, Connector::kReconnectAfter);
    }
  }

  leat::Options channel_options() const {
    leat::Options channel = options.channel;
    channel.timeout = kTick;
    return channel;
  }

  void attach(Channel channel, PartyId node) {
    links.emplace_back(std::move(channel), self, node, kMaxBacklogBytes,
                       Clock::now() + kMostAttachTime);
  }

  // Whether the client still has to do with that party, which an earlier configuration may have
  // named.
  bool talks_to(PartyId party) const {
    return party == options.service || std::ranges::count(quorum.nodes(), party) > 0 ||
           std::ranges::count(options.witnesses, party) > 0;
  }

  // Lost connections are made again, and what has no answer is asked there again.
  void keep_connected() {
    for (Link& link : links) link.check_deadline(Clock::now());
    for (const Link& link : links)
      if (!link.alive() && talks_to(link.party()) && !connector->wants(link.party()))
        connector->want(link.party(), directory.find(link.party())->address,
                        Connector::kReconnectAfter);
    links.remove_if([](const Link& link) { return !link.alive(); });
    while (auto made = connector->take()) {
      const bool is_there = std::ranges::find(links, made->node, &Link::party) != links.end();
      if (is_there || !talks_to(made->node)) continue;
      attach(std::move(made->channel), made->node);
      if (made->node == options.service) continue;
      for (const View request : quorum.unanswered())
        if (std::ranges::count(quorum.nodes(), made->node) > 0) links.back().send(request);
    }
  }

  void send_to(PartyId party, View message) {
    for (Link& link : links)
      if (link.party() == party) link.send(message);
  }

  void send_again() {
    for (const View request : quorum.unanswered())
      for (Link& link : links)
        if (std::ranges::count(quorum.nodes(), link.party()) > 0) link.send(request);
  }

  // To the service: of what stays unanswered, or was answered in two ways.
  void complain() {
    complained = true;
    const Bytes complaint = quorum.complaint();
    if (!complaint.empty()) send_to(options.service, complaint);
  }

  template <typename Handle>
  bool take_in(Handle&& handle) {
    std::size_t received = 0;
    for (Link& link : links)
      received += link.receive(64, copy, [&](View message) { handle(link.party(), message); });
    for (Link& link : links) link.flush();
    return received > 0;
  }
  bool take_answers() {
    return take_in([this](PartyId from, View message) {
      if (configuration_message(message)) {
        on_configuration(message);
      } else if (const auto number = read_number(message)) {
        quorum.learn(from, *number);
      } else {
        // Also one that comes too late to count may be a lie.
        if (type_of(message) == MessageType::kReply)
          for (const PartyId witness : options.witnesses) send_to(witness, message);
        quorum.receive(message);
      }
    });
  }

  void on_configuration(View message) {
    const auto said = read_configuration(message);
    if (options.service != 0 && said && said->configuration.epoch > quorum.epoch() &&
        (!announced || said->configuration.epoch > announced->epoch) &&
        verify_configuration(directory, options.service, *said))
      announced = said->configuration;
  }

  // Until something has come by `take`, or for kTick.
  void wait(const std::function<bool()>& take) {
    if (take()) return;
    keep_connected();
    std::vector<Channel*> channels;
    for (Link& link : links) channels.push_back(&link.channel());
    if (channels.empty()) return std::this_thread::sleep_for(kTick);
    const bool backlog = std::ranges::any_of(links, &Link::has_backlog);
    try {
      if (Channel* gone = wait_any(channels, backlog ? WaitFor::kRoom : WaitFor::kMessages,
                                   "answers of nodes", take))
        for (Link& link : links)
          if (&link.channel() == gone) link.end();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kTimeout) throw;
    }
  }

  Answer receive() {
    if (quorum.under_way() == 0)
      throw Error(ErrorCode::kInvalidArgument,
                  "a client waits for an answer and has asked nothing");
    const auto deadline = Clock::now() + options.timeout;
    auto retry = Clock::now() + options.retry_after;
    for (;;) {
      if (auto answer = quorum.take()) return std::move(*answer);
      wait([this] { return take_answers(); });
      if (announced) reconfigure();
      const auto now = Clock::now();
      if (auto answer = quorum.take()) return std::move(*answer);
      quorum.check_refused();
      if (now >= deadline)
        throw Error(ErrorCode::kTimeout,
                    quorum.describe() + " after " + std::to_string(options.timeout.count()) + " ms",
                    "If the leader is silent, the system needs a new one.");
      if (options.service != 0 && !complained && quorum.in_conflict()) complain();
      if (now < retry) continue;
      retry = now + options.retry_after;
      send_again();
      if (options.service != 0) complain();
    }
  }

  // A child of fork() would give the numbers of this process to other requests.
  void check_here() const {
    if (!made_here)
      throw Error(ErrorCode::kClosed,
                  "client " + std::to_string(options.self) +
                      " belongs to the process that this one was forked from",
                  "Make clients after fork().");
  }

  const leat::detail::MadeHere made_here;
  const ClientOptions options;
  const Directory& directory;
  const Self self;
  std::unique_ptr<Connector> connector;
  Quorum quorum;
  std::optional<Configuration> announced;  // by the service, and to be taken up
  bool complained = false;                 // in this epoch
  std::list<Link> links;
  std::deque<Answer> early;  // taken by submit() to make room
  Bytes copy;
};

Client::Client(const Directory& directory, const SigningKey& key, const ClientOptions& options)
    : state_(std::make_unique<State>(directory, key, options)) {}
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;
Client::~Client() = default;

std::uint64_t Client::submit(std::span<const Bytes> commands) {
  state_->check_here();
  while (state_->quorum.under_way() >= state_->options.window)
    state_->early.push_back(state_->receive());
  const Bytes& request = state_->quorum.submit(commands);
  state_->send_to(state_->quorum.nodes().front(), request);
  return read_signed(request, MessageType::kRequest)->first;
}

Answer Client::receive() {
  state_->check_here();
  if (state_->early.empty()) return state_->receive();
  Answer answer = std::move(state_->early.front());
  state_->early.pop_front();
  return answer;
}

std::uint64_t Client::epoch() const { return state_->quorum.epoch(); }

std::vector<Bytes> Client::call(std::span<const Bytes> commands) {
  const std::uint64_t number = submit(commands);
  for (;;) {
    Answer answer = receive();
    if (answer.first == number) return std::move(answer.outputs);
  }
}

}  // namespace leat::trusted

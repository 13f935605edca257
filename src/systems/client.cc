#include "leat/trusted/client.h"

#include <algorithm>
#include <functional>
#include <list>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "leat/wait.h"
#include "systems/link.h"
#include "systems/quorum.h"

namespace leat::trusted {
namespace {

using namespace detail;
using leat::detail::Clock;

constexpr std::size_t kMaxBacklogBytes = std::size_t{64} << 20;
constexpr std::chrono::milliseconds kTick{20};
// How long connecting waits for nodes to say that they know the client.
constexpr std::chrono::milliseconds kAttachTime{500};

// Larger than those of the same client when it ran before: nodes refuse numbers that they have had.
std::uint64_t first_number() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::system_clock::now().time_since_epoch())
                                        .count());
}

}  // namespace

struct Client::State {
  State(const Directory& directory, const SigningKey& key, const ClientOptions& its_options)
      : options(its_options), quorum(directory, key, options, first_number()) {
    for (const PartyId node : options.nodes) connect(directory, key, node);
    if (links.size() < options.quorum)
      throw Error(ErrorCode::kUnavailable,
                  "only " + std::to_string(links.size()) + " of " +
                      std::to_string(options.nodes.size()) + " nodes can be reached, and " +
                      std::to_string(options.quorum) + " must answer",
                  "See whether the nodes run, at the addresses of the directory.");
    // A node that has not seen the client yet would lose its answers, and the client much time.
    const auto until = Clock::now() + kAttachTime;
    for (std::size_t attached = 0; attached < links.size() && Clock::now() < until;) {
      wait([&] { return take_in([&](View) { ++attached; }); });
    }
  }

  void connect(const Directory& directory, const SigningKey& key, PartyId node) {
    const Party* party = directory.find(node);
    if (party == nullptr || party->address.empty())
      throw Error(ErrorCode::kInvalidArgument,
                  "node " + std::to_string(node) + " has no address in the directory");
    try {
      leat::Options channel = options.channel;
      channel.timeout = kTick;
      Link& link = links.emplace_back(Channel::connect("leat://" + party->address, channel), node,
                                      kMaxBacklogBytes);
      link.send(write_signed(key, {.type = MessageType::kAttach,
                                   .sender = options.self,
                                   .target = node,
                                   .epoch = options.epoch}));
    } catch (const Error& error) {
      leat::detail::log(leat::detail::LogLevel::kWarn,
                        "node " + std::to_string(node) + " is left out: " + error.what());
    }
  }

  void send_to_first(View request) {
    for (Link& link : links)
      if (link.party() == options.nodes.front()) link.send(request);
  }

  void send_again() {
    for (const View request : quorum.unanswered())
      for (Link& link : links) link.send(request);
  }

  template <typename Handle>
  bool take_in(Handle&& handle) {
    std::size_t received = 0;
    for (Link& link : links) received += link.receive(64, copy, handle);
    for (Link& link : links) link.flush();
    return received > 0;
  }
  bool take_answers() {
    return take_in([this](View message) { quorum.receive(message); });
  }

  // Until something has come by `take`, or for kTick.
  void wait(const std::function<bool()>& take) {
    if (take()) return;
    links.remove_if([](const Link& link) { return !link.alive(); });
    std::vector<Channel*> channels;
    for (Link& link : links) channels.push_back(&link.channel());
    if (channels.empty())
      throw Error(ErrorCode::kPeerDied, "all nodes went away", "See whether they run.");
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
      const auto now = Clock::now();
      if (auto answer = quorum.take()) return std::move(*answer);
      if (now >= deadline)
        throw Error(ErrorCode::kTimeout,
                    quorum.describe() + " after " + std::to_string(options.timeout.count()) + " ms",
                    "If the leader is silent, the system needs a new one.");
      if (now < retry) continue;
      retry = now + options.retry_after;
      send_again();
    }
  }

  const ClientOptions options;
  Quorum quorum;
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
  while (state_->quorum.under_way() >= state_->options.window)
    state_->early.push_back(state_->receive());
  const Bytes& request = state_->quorum.submit(commands);
  state_->send_to_first(request);
  return read_signed(request, MessageType::kRequest)->first;
}

Answer Client::receive() {
  if (state_->early.empty()) return state_->receive();
  Answer answer = std::move(state_->early.front());
  state_->early.pop_front();
  return answer;
}

std::vector<Bytes> Client::call(std::span<const Bytes> commands) {
  const std::uint64_t number = submit(commands);
  for (;;) {
    Answer answer = receive();
    if (answer.first == number) return std::move(answer.outputs);
  }
}

}  // namespace leat::trusted

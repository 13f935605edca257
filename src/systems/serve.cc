#include <poll.h>

#include <algorithm>
#include <list>
#include <map>
#include <string>

#include "base/log.h"
#include "leat/listener.h"
#include "leat/trusted/participant.h"
#include "leat/wait.h"
#include "systems/link.h"

namespace leat::trusted {
namespace {

using namespace detail;

// From one peer before it is the next one's turn.
constexpr std::size_t kMostAtOnce = 64;
// Newcomers that have not said who they are.
constexpr std::size_t kMostStrangers = 64;

const std::string& address_of(const Directory& directory, PartyId id) {
  const Party* party = directory.find(id);
  if (party == nullptr || party->address.empty())
    throw Error(ErrorCode::kInvalidArgument,
                "node " + std::to_string(id) + " has no address in the directory");
  return party->address;
}

leat::Options with_tick(leat::Options options) {
  options.timeout = Participant::kTick;
  return options;
}

class Server final : public Outbox {
 public:
  Server(Participant& participant, const Directory& directory, const SigningKey& key,
         const ServeOptions& options)
      : participant_(participant),
        directory_(directory),
        key_(key),
        options_(options),
        channel_options_(with_tick(options.channel)),
        listener_(address_of(directory, options.self), channel_options_) {
    const auto self = std::ranges::find(options.nodes, options.self);
    if (self == options.nodes.end()) return;
    for (auto later = self + 1; later != options.nodes.end(); ++later) early_[*later];
  }

  void connect() {
    for (const PartyId node : options_.nodes) {
      if (node == options_.self) return;
      connect(node);
    }
  }

  void run(const std::function<bool()>& stop) {
    while (!stop()) {
      accept();
      links_.remove_if([](const Link& link) { return !link.alive(); });
      wait(stop);
    }
  }

  void send(PartyId to, std::span<const std::byte> message) override {
    const auto link = std::ranges::find_if(
        links_, [to](const Link& one) { return one.party() == to && one.alive(); });
    if (link != links_.end()) return link->send(message);
    const auto early = early_.find(to);
    if (early == early_.end()) return;
    early->second.bytes += message.size();
    if (early->second.bytes > options_.max_backlog_bytes)
      early_.erase(early);  // it will never catch up
    else
      early->second.messages.emplace_back(message.begin(), message.end());
  }

 private:
  void connect(PartyId node) {
    const std::string& address = address_of(directory_, node);
    try {
      leat::Options options = channel_options_;
      options.connect_retry = true;
      Link& link = links_.emplace_back(Channel::connect("leat://" + address, options), node,
                                       options_.max_backlog_bytes);
      link.send(write_signed(key_, {.type = MessageType::kAttach,
                                    .sender = options_.self,
                                    .target = node,
                                    .epoch = options_.epoch}));
    } catch (const Error& error) {
      leat::detail::log(leat::detail::LogLevel::kWarn,
                        "node " + std::to_string(node) + " is left out: " + error.what());
    }
  }

  void accept() {
    while (auto channel = listener_.try_accept()) {
      if (std::ranges::count(links_, PartyId{0}, &Link::party) ==
          static_cast<std::ptrdiff_t>(kMostStrangers))
        continue;  // closes it
      links_.emplace_back(std::move(*channel), PartyId{0}, options_.max_backlog_bytes);
    }
  }

  // The first message of a newcomer. Who comes anew takes the place of its older connection.
  void attach(Link& link, View message) {
    const auto content = read_signed(message, MessageType::kAttach);
    if (!content || content->target != options_.self || content->epoch != options_.epoch ||
        content->sender == options_.self || !verify_signed(directory_, message, *content))
      return link.end();
    for (Link& other : links_)
      if (other.party() == content->sender) other.end();
    link.set_party(content->sender);
    // So that it knows that answers will find it.
    link.send(write_signed(key_, {.type = MessageType::kAttach,
                                  .sender = options_.self,
                                  .target = content->sender,
                                  .epoch = options_.epoch}));
    const auto early = early_.extract(content->sender);
    if (early.empty()) return;
    for (const Bytes& kept : early.mapped().messages) link.send(kept);
  }

  std::size_t receive() {
    std::size_t received = 0;
    for (Link& link : links_)
      received += link.receive(kMostAtOnce, copy_, [&](View message) {
        if (link.party() == 0) return attach(link, message);
        participant_.receive(link.party(), message, std::chrono::steady_clock::now(), *this);
      });
    if (received == 0) participant_.idle(std::chrono::steady_clock::now(), *this);
    for (Link& link : links_) link.flush();
    return received;
  }

  void wait(const std::function<bool()>& stop) {
    std::vector<Channel*> channels;
    for (Link& link : links_) channels.push_back(&link.channel());
    if (channels.empty()) {
      participant_.idle(std::chrono::steady_clock::now(), *this);
      pollfd newcomer{listener_.fd(), POLLIN, 0};
      poll(&newcomer, 1, static_cast<int>(Participant::kTick.count()));
      return;
    }
    const bool backlog = std::ranges::any_of(links_, &Link::has_backlog);
    const auto wait_for = backlog ? WaitFor::kRoom : WaitFor::kMessages;
    const auto done = [this] {
      return receive() > 0 || !std::ranges::all_of(links_, &Link::alive);
    };
    try {
      // While there are messages nobody waits.
      while (done() && !stop() && std::ranges::all_of(links_, &Link::alive)) {
      }
      if (!stop() && std::ranges::all_of(links_, &Link::alive))
        if (Channel* gone = wait_any(channels, wait_for, "messages of nodes and clients", done))
          for (Link& link : links_)
            if (&link.channel() == gone) link.end();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kTimeout) throw;
    }
  }

  Participant& participant_;
  const Directory& directory_;
  const SigningKey& key_;
  const ServeOptions options_;
  const leat::Options channel_options_;
  leat::Listener listener_;
  std::list<Link> links_;
  // What was sent to nodes that have not connected yet: correct nodes lose nothing of each other.
  struct Early {
    std::vector<Bytes> messages;
    std::size_t bytes = 0;
  };
  std::map<PartyId, Early> early_;
  Bytes copy_;
};

}  // namespace

void serve(Participant& participant, const Directory& directory, const SigningKey& key,
           const ServeOptions& options, const std::function<bool()>& stop) {
  Server server(participant, directory, key, options);
  server.connect();
  server.run(stop);
}

}  // namespace leat::trusted

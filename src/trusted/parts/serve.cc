#include <poll.h>

#include <algorithm>
#include <list>
#include <map>
#include <random>
#include <set>
#include <string>

#include "base/log.h"
#include "leat/listener.h"
#include "leat/trusted/participant.h"
#include "leat/wait.h"
#include "trusted/parts/connector.h"
#include "trusted/parts/courier.h"
#include "trusted/parts/link.h"

namespace leat::trusted {
namespace {

using namespace detail;

// From one peer before it is the next one's turn.
constexpr std::size_t kMostAtOnce = 64;
// Rounds of messages before newcomers are looked at.
constexpr int kMostRounds = 64;

const std::string& address_of(const Directory& directory, PartyId id) {
  const Party* party = directory.find(id);
  if (party == nullptr || party->address.empty())
    throw Error(ErrorCode::kInvalidArgument,
                "node " + std::to_string(id) + " has no address in the directory");
  return party->address;
}

// Of this node: another one whenever it is started.
std::uint64_t new_life() {
  std::random_device random;
  return (std::uint64_t{random()} << 32 | random()) | 1;
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
        options_(options),
        self_{directory, key, options.self, options.epoch},
        channel_options_(with_tick(options.channel)),
        listener_(address_of(directory, options.self), channel_options_),
        connector_(channel_options_) {
    const std::uint64_t life = new_life();
    bool earlier = true;
    for (const PartyId node : options.nodes) {
      if (node == options.self) {
        earlier = false;
        continue;
      }
      couriers_.try_emplace(node, life, options.max_backlog_bytes);
      if (earlier) connector_.want(node, address_of(directory, node));
    }
  }

  void run(const std::function<bool()>& stop) {
    while (!stop()) {
      accept();
      while (auto made = connector_.take()) adopt(std::move(*made));
      drop_dead();
      wait(stop);
    }
  }

  void send(PartyId to, std::span<const std::byte> message) override {
    const auto link = std::ranges::find_if(
        links_, [to](const Link& one) { return one.party() == to && one.alive(); });
    const auto courier = couriers_.find(to);
    if (courier == couriers_.end()) {
      if (link != links_.end()) link->send(message);
      return;
    }
    const bool kept = courier->second.keep(message);
    if (link == links_.end()) return;
    if (!kept) return link->end();
    send_kept(*link);
  }

 private:
  // To a node before this one.
  void adopt(Connector::Made made) {
    add(std::move(made.channel), made.node);
    reached_.insert(made.node);
  }

  void add(Channel channel, PartyId party) {
    links_.emplace_back(std::move(channel), self_, party, options_.max_backlog_bytes,
                        std::chrono::steady_clock::now() + options_.attach_timeout);
  }

  // Those to which this node connects it tries to reach again.
  void drop_dead() {
    for (const Link& link : links_)
      if (!link.alive() && reached_.erase(link.party()) > 0)
        connector_.want(link.party(), address_of(directory_, link.party()),
                        Connector::kReconnectAfter);
    links_.remove_if([](const Link& link) { return !link.alive(); });
  }

  // To a node, of what is kept for it: as much as there is room for.
  void send_kept(Link& link) {
    if (!link.resumed()) return;
    Courier& courier = couriers_.at(link.party());
    while (link.alive() && !link.has_backlog()) {
      const auto message = courier.next();
      if (!message) return;
      link.send(*message);
    }
  }

  // The side that accepted the connection answers the other's word, which may change its own.
  void resume(Link& link, View message) {
    Courier& courier = couriers_.at(link.party());
    const auto theirs = read_resumption(message);
    if (!theirs || !courier.resume(*theirs)) return link.end();
    if (!reached_.contains(link.party())) link.send(write_resumption(courier.resumption()));
    link.set_resumed();
    send_kept(link);
  }

  void take(Link& link, View message) {
    if (const auto courier = couriers_.find(link.party()); courier != couriers_.end()) {
      if (!link.resumed()) return resume(link, message);
      if (type_of(message) == MessageType::kReceived) {
        if (const auto count = read_received(message)) courier->second.on_received(*count);
        return;
      }
      if (const auto count = courier->second.count_received(message.size()))
        link.send(write_received(*count));
    }
    participant_.receive(link.party(), message, std::chrono::steady_clock::now(), *this);
  }

  // Newcomers that do not say who they are stay for a while only; where too many do not, the oldest
  // goes, so that a client that speaks as soon as it is connected gets in.
  void accept() {
    const auto is_stranger = [](const Link& link) { return link.alive() && link.party() == 0; };
    while (auto channel = listener_.try_accept()) {
      if (std::ranges::count_if(links_, is_stranger) == ServeOptions::kMostStrangers)
        std::ranges::find_if(links_, is_stranger)->end();
      add(std::move(*channel), 0);
    }
    const auto now = std::chrono::steady_clock::now();
    for (Link& link : links_) link.check_deadline(now);
  }

  // A party that connects again replaces its older connection.
  void welcome(Link& link) {
    for (Link& other : links_)
      if (other.party() == link.party() && &other != &link) other.end();
    if (reached_.contains(link.party()))
      link.send(write_resumption(couriers_.at(link.party()).resumption()));
  }

  std::size_t receive() {
    std::size_t received = 0;
    for (Link& link : links_) {
      const bool known = link.introduced();
      received += link.receive(kMostAtOnce, copy_, [&](View message) { take(link, message); });
      if (link.introduced() && !known) welcome(link);
    }
    const auto now = std::chrono::steady_clock::now();
    if (received > 0)
      participant_.settle(now, *this);
    else
      participant_.idle(now, *this);
    for (Link& link : links_) {
      link.flush();
      send_kept(link);
    }
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
      // While there are messages nobody waits; but newcomers do not wait for their end.
      int rounds = 0;
      while (rounds < kMostRounds && done() && !stop() && std::ranges::all_of(links_, &Link::alive))
        ++rounds;
      if (rounds < kMostRounds && !stop() && std::ranges::all_of(links_, &Link::alive))
        if (Channel* gone = wait_any(channels, wait_for, "messages of nodes and clients", done))
          for (Link& link : links_)
            if (&link.channel() == gone) link.end();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kTimeout) throw;
    }
  }

  Participant& participant_;
  const Directory& directory_;
  const ServeOptions options_;
  const Self self_;
  const leat::Options channel_options_;
  leat::Listener listener_;
  Connector connector_;
  std::set<PartyId> reached_;            // connected to by this node
  std::list<Link> links_;                // in the order of arrival
  std::map<PartyId, Courier> couriers_;  // correct nodes that live lose nothing of each other
  Bytes copy_;
};

}  // namespace

void serve(Participant& participant, const Directory& directory, const SigningKey& key,
           const ServeOptions& options, const std::function<bool()>& stop) {
  Server server(participant, directory, key, options);
  server.run(stop);
}

}  // namespace leat::trusted

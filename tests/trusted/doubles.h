// Test doubles of nodes and clients: they speak the wire protocol, and do as a test likes.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "leat/channel.h"
#include "trusted/nodes.h"
#include "trusted/parts/link.h"
#include "trusted/parts/messages.h"

namespace leat::trusted {

using detail::Items;
using detail::MessageType;
using detail::Step;
using detail::View;

// A node that can attest and sign as it likes, and does nothing by itself.
class Double : public Participant {
 public:
  Double(PartyId id, AttestationKernel& kernel, const SigningKey& key, std::size_t nodes)
      : id_(id), kernel_(kernel), key_(key), nodes_(nodes) {}

  void receive(PartyId from, View message, Time, Outbox& outbox) override {
    if (detail::type_of(message) == MessageType::kRequest) return on_request(from, message, outbox);
    if (detail::type_of(message) == MessageType::kOrder)
      return on_order(message.subspan(1), outbox);
  }
  void idle(Time, Outbox&) override {}

 protected:
  virtual void on_request(PartyId, View, Outbox&) {}
  virtual void on_order(View, Outbox&) {}

  Bytes record(View payload) {
    return detail::attest(kernel_, {.session = kFirstSession + id_ - 1}, payload);
  }
  void order(PartyId to, const Step& step, Outbox& outbox) {
    outbox.send(to, detail::write_order(record(detail::write_step(step))));
  }
  void order_all(const Step& step, Outbox& outbox) {
    const Bytes message = detail::write_order(record(detail::write_step(step)));
    for (PartyId to = 1; to <= nodes_; ++to)
      if (to != id_) outbox.send(to, message);
  }
  void answer(const detail::Signed& request, Items items, Outbox& outbox) {
    const StateDigest digest = detail::digest_of_request(request);
    outbox.send(request.sender, detail::write_signed(key_, {.type = MessageType::kReply,
                                                            .sender = id_,
                                                            .target = request.sender,
                                                            .epoch = kSystemEpoch,
                                                            .first = request.first,
                                                            .request = digest,
                                                            .items = items}));
  }
  static Bytes outputs_from(std::uint64_t value, std::size_t count = 1) {
    Bytes outputs;
    for (std::size_t i = 0; i < count; ++i) Items::append(outputs, CounterMachine::add(value + i));
    return outputs;
  }

  const PartyId id_;
  AttestationKernel& kernel_;
  const SigningKey& key_;
  const std::size_t nodes_;
};

// A double that does `act` on each message of one type.
class Scripted final : public Double {
 public:
  using Act = std::function<void(Scripted&, View message, Outbox& outbox)>;
  Scripted(PartyId id, AttestationKernel& kernel, const SigningKey& key, std::size_t nodes,
           Act on_request, Act on_order)
      : Double(id, kernel, key, nodes),
        request_(std::move(on_request)),
        order_(std::move(on_order)) {}

  using Double::answer;
  using Double::order;
  using Double::order_all;
  using Double::outputs_from;
  using Double::record;
  const SigningKey& key() const { return key_; }
  PartyId id() const { return id_; }
  unsigned calls = 0;  // of whatever is scripted

 private:
  void on_request(PartyId, View message, Outbox& outbox) override {
    if (request_) request_(*this, message, outbox);
    ++calls;
  }
  void on_order(View message, Outbox& outbox) override {
    if (order_) order_(*this, message, outbox);
    ++calls;
  }
  const Act request_, order_;
};

inline Nodes::Make liar(const Scripted::Act& on_request, const Scripted::Act& on_order = {},
                        std::size_t nodes = 3) {
  return [=](PartyId id, AttestationKernel& kernel, const SigningKey& key, const FaultHook&) {
    return std::make_unique<Scripted>(id, kernel, key, nodes, on_request, on_order);
  };
}

// Does what a correct node does, but for what `change` does to what it sends; false: nothing.
class Deviant final : public Participant, private Outbox {
 public:
  using Change =
      std::function<bool(const SigningKey& key, PartyId to, Bytes& message, Outbox& outbox)>;
  Deviant(std::unique_ptr<Participant> node, const SigningKey& key, Change change)
      : node_(std::move(node)), key_(key), change_(std::move(change)) {}

  void receive(PartyId from, View message, Time now, Outbox& outbox) override {
    outbox_ = &outbox;
    node_->receive(from, message, now, *this);
  }
  void settle(Time now, Outbox& outbox) override {
    outbox_ = &outbox;
    node_->settle(now, *this);
  }
  void idle(Time now, Outbox& outbox) override {
    outbox_ = &outbox;
    node_->idle(now, *this);
  }

 private:
  void send(PartyId to, View message) override {
    Bytes changed(message.begin(), message.end());
    if (change_(key_, to, changed, *outbox_)) outbox_->send(to, changed);
  }

  const std::unique_ptr<Participant> node_;
  const SigningKey& key_;
  const Change change_;
  Outbox* outbox_ = nullptr;
};

// A client's connection without the client library.
class RawClient {
 public:
  // With another party's key it is an impostor, whom no node lets in.
  RawClient(const Nodes& nodes, PartyId node, PartyId self = kClient, PartyId key = 0)
      : key_(key_of(key == 0 ? self : key)),
        self_(self),
        link_(leat::Channel::connect("leat://" + nodes.directory().find(node)->address,
                                     options_of(nodes)),
              {nodes.directory(), key_, self, kSystemEpoch}, node, std::size_t{1} << 30,
              detail::Link::Time::max()) {
    while (link_.alive() && !link_.introduced()) take(received_);
  }
  Bytes request(std::uint64_t first, const std::vector<Bytes>& commands,
                std::uint64_t epoch = kSystemEpoch) const {
    Bytes body;
    for (const Bytes& command : commands) Items::append(body, command);
    return detail::write_signed(key_, {.type = MessageType::kRequest,
                                       .sender = self_,
                                       .epoch = epoch,
                                       .first = first,
                                       .items = *Items::read(body, commands.size())});
  }
  bool let_in() const { return link_.introduced(); }
  void send(View message) { link_.send(message); }
  // The next message. Throws if the node has ended the connection.
  Bytes receive() {
    while (received_.empty()) {
      if (!link_.alive()) throw std::runtime_error("the node has ended the connection");
      take(received_);
    }
    Bytes first = std::move(received_.front());
    received_.pop_front();
    return first;
  }

 private:
  static leat::Options options_of(const Nodes& nodes) {
    leat::Options options = nodes.client_options(1).channel;
    options.timeout = std::chrono::seconds(30);
    return options;
  }

  void take(std::deque<Bytes>& received) {
    link_.flush();
    Bytes copy;
    link_.receive(1, copy,
                  [&](View message) { received.emplace_back(message.begin(), message.end()); });
    std::this_thread::yield();
  }

  const SigningKey key_;
  const PartyId self_;
  detail::Link link_;
  std::deque<Bytes> received_;
};

}  // namespace leat::trusted

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/log.h"
#include "leat/error.h"
#include "leat/trusted/configuration.h"
#include "trusted/parts/configuration_messages.h"

namespace leat::trusted {

using namespace detail;

struct ChainMember::State {
  bool serves() const { return node && !sealed; }
  // Until all have begun, a head takes requests in, in their order, and sends nothing. One that it
  // left out would be refused for ever once the same client's next one was taken.
  bool may_send() const { return serves() && (enabled || !is_head); }

  void on_configuration(View message, Outbox& outbox) {
    const auto announced = read_configuration(message);
    if (!announced || announced->configuration.epoch <= last_epoch ||
        !verify_configuration(directory, options.service, *announced))
      return;
    const Configuration& configuration = announced->configuration;
    const bool member = std::ranges::find(configuration.nodes, self) != configuration.nodes.end();
    if (member && digest_of(announced->state) != announced->start) return;  // not the service's
    node.reset();
    kernel.reset();
    last_epoch = configuration.epoch;
    sealed = enabled = false;
    if (member && !begin(configuration, announced->state)) return;
    join(outbox);
  }

  bool begin(const Configuration& configuration, View start) {
    ChainOptions chain = options.chain;
    chain.nodes = configuration.nodes;
    chain.start.assign(start.begin(), start.end());
    is_head = self == chain.nodes.front();
    try {
      kernel = make_kernel(configuration);
      node = std::make_unique<ChainNode>(*kernel, directory, key, make_machine, chain,
                                         [this](const Fault& fault) { tell(fault); });
      return true;
    } catch (const Error& error) {
      leat::detail::log(leat::detail::LogLevel::kWarn,
                        "node " + std::to_string(self) + " stays out of epoch " +
                            std::to_string(configuration.epoch) + ": " + error.what());
      node.reset();
      return false;
    }
  }

  void on_seal(std::uint64_t epoch, Outbox& outbox) {
    // One that this node has not begun it will not begin either. It does not say that it executed
    // nothing there: that may have been before it started again.
    if (epoch > last_epoch) {
      node.reset();
      last_epoch = epoch;
    }
    if (epoch != last_epoch) return;
    sealed = true;
    outbox.send(options.service, write_history(epoch, node ? node->history() : Bytes()));
  }

  void tell(const Fault& fault) {
    if (!fault.evidence.empty()) current_outbox->send(options.service, fault.evidence);
    if (hook) hook(fault);
  }

  // Also to be known as there, from time to time.
  void join(Outbox& outbox) const {
    const std::uint64_t epoch = node ? last_epoch : 0;
    outbox.send(options.service, write_epoch(ConfigurationMessage::kJoin, epoch));
  }

  const PartyId self;
  const Directory& directory;
  const SigningKey& key;
  const MachineFactory make_machine;
  const KernelFactory make_kernel;
  const ConfigurationOptions options;
  const FaultHook hook;

  std::uint64_t last_epoch = 0;  // that it has been told of
  std::unique_ptr<AttestationKernel> kernel;
  std::unique_ptr<ChainNode> node;  // null: not part of the chain
  bool is_head = false;
  bool enabled = false;  // all nodes have begun
  bool sealed = false;
  Time next_join{};
  Outbox* current_outbox = nullptr;
};

ChainMember::ChainMember(PartyId self, const Directory& directory, const SigningKey& key,
                         const MachineFactory& make_machine, KernelFactory make_kernel,
                         const ConfigurationOptions& options, FaultHook hook)
    : state_(new State{self, directory, key, make_machine, std::move(make_kernel), options,
                       std::move(hook)}) {}
ChainMember::~ChainMember() = default;

void ChainMember::receive(PartyId from, std::span<const std::byte> message, Time now,
                          Outbox& outbox) {
  State& state = *state_;
  state.current_outbox = &outbox;
  if (!configuration_message(message)) {
    if (state.serves()) state.node->receive(from, message, now, outbox);
    return;
  }
  if (from != state.options.service) return;
  state.on_configuration(message, outbox);
  if (read_epoch(message, ConfigurationMessage::kEnable) == state.last_epoch) state.enabled = true;
  if (const auto epoch = read_epoch(message, ConfigurationMessage::kSeal))
    state.on_seal(*epoch, outbox);
}

void ChainMember::settle(Time now, Outbox& outbox) {
  State& state = *state_;
  state.current_outbox = &outbox;
  if (state.may_send()) state.node->settle(now, outbox);
}

void ChainMember::idle(Time now, Outbox& outbox) {
  State& state = *state_;
  state.current_outbox = &outbox;
  if (now >= state.next_join) {
    state.next_join = now + state.options.patience / 4;
    state.join(outbox);
  }
  if (state.serves() && state.enabled) state.node->idle(now, outbox);
}

}  // namespace leat::trusted

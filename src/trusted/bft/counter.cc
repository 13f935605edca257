#include "leat/trusted/counter.h"

#include "base/wire.h"

namespace leat::trusted {

Bytes CounterMachine::add(std::uint64_t number) {
  Bytes command(sizeof number);
  leat::detail::WireWriter(command).number(number);
  return command;
}

std::optional<std::uint64_t> CounterMachine::value_of(std::span<const std::byte> output) noexcept {
  if (output.size() != sizeof(std::uint64_t)) return std::nullopt;
  return leat::detail::WireReader(output).number<std::uint64_t>();
}

void CounterMachine::execute(std::span<const std::byte> command, Bytes& output) {
  const auto number = value_of(command);
  if (!number) return;
  value_ += *number;
  const Bytes value = add(value_);
  output.insert(output.end(), value.begin(), value.end());
}

void CounterMachine::save(Bytes& state) const {
  const Bytes value = add(kept_);
  state.insert(state.end(), value.begin(), value.end());
}

bool CounterMachine::load(std::span<const std::byte> state) {
  const auto value = value_of(state);
  if (value) value_ = kept_ = *value;
  return value.has_value();
}

}  // namespace leat::trusted

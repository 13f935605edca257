#include <algorithm>
#include <iterator>

#include "base/wire.h"
#include "leat/trusted/chain.h"

namespace leat::trusted {
namespace {

// A command: what (1), bytes of the key (2), key, value.
enum class What : std::uint8_t { kPut = 1, kGet = 2, kErase = 3 };
constexpr std::size_t kHeaderBytesOfCommand = 3;

Bytes write(What what, std::string_view key, std::string_view value) {
  Bytes command(kHeaderBytesOfCommand + key.size() + value.size());
  leat::detail::WireWriter writer(command);
  writer.number(static_cast<std::uint8_t>(what));
  writer.number(static_cast<std::uint16_t>(key.size()));
  writer.bytes(std::as_bytes(std::span(key)), key.size());
  writer.bytes(std::as_bytes(std::span(value)), value.size());
  return command;
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void append(Bytes& bytes, std::string_view text) {
  const auto added = std::as_bytes(std::span(text));
  bytes.insert(bytes.end(), added.begin(), added.end());
}

}  // namespace

Bytes KeyValueMachine::put(std::string_view key, std::string_view value) {
  return write(What::kPut, key, value);
}
Bytes KeyValueMachine::get(std::string_view key) { return write(What::kGet, key, {}); }
Bytes KeyValueMachine::erase(std::string_view key) { return write(What::kErase, key, {}); }

KeyValueMachine::Status KeyValueMachine::status_of(std::span<const std::byte> output) noexcept {
  return output.empty() ? Status::kNoCommand : static_cast<Status>(output[0]);
}
std::optional<std::string> KeyValueMachine::value_of(std::span<const std::byte> output) {
  if (status_of(output) != Status::kOk) return std::nullopt;
  return text_of(output.subspan(1));
}

void KeyValueMachine::execute(std::span<const std::byte> command, Bytes& output) {
  Status status = Status::kNoCommand;
  std::string_view found;
  if (command.size() >= kHeaderBytesOfCommand) {
    leat::detail::WireReader reader(command);
    const auto what = static_cast<What>(reader.number<std::uint8_t>());
    const std::size_t key_bytes = reader.number<std::uint16_t>();
    const std::size_t rest = command.size() - kHeaderBytesOfCommand;
    if (key_bytes <= rest && (what == What::kPut || key_bytes == rest)) {
      const std::string key = text_of(reader.bytes(key_bytes));
      const auto entry = values_.find(key);
      status = entry == values_.end() && what != What::kPut ? Status::kNotFound : Status::kOk;
      if (what == What::kPut) {
        remember(key);
        values_[key] = text_of(reader.bytes(rest - key_bytes));
      } else if (what == What::kGet) {
        if (entry != values_.end()) found = entry->second;
      } else if (what == What::kErase) {
        remember(key);
        values_.erase(key);
      } else {
        status = Status::kNoCommand;
      }
    }
  }
  output.push_back(static_cast<std::byte>(status));
  append(output, found);
}

void KeyValueMachine::remember(const std::string& key) {
  const auto entry = values_.find(key);
  journal_.emplace_back(key, entry == values_.end() ? std::nullopt : std::optional(entry->second));
}

void KeyValueMachine::undo() noexcept {
  for (; !journal_.empty(); journal_.pop_back()) {
    auto& [key, value] = journal_.back();
    if (value)
      values_[key].swap(*value);
    else
      values_.erase(key);
  }
}

// Keys in ascending order, each with its length (4) before it, and its value alike.
void KeyValueMachine::save(Bytes& state) const {
  for (const auto& [key, value] : values_)
    for (const std::string* text : {&key, &value}) {
      Bytes length(4);
      leat::detail::WireWriter(length).number(static_cast<std::uint32_t>(text->size()));
      state.insert(state.end(), length.begin(), length.end());
      append(state, *text);
    }
}

bool KeyValueMachine::load(std::span<const std::byte> state) {
  std::map<std::string, std::string> values;
  while (!state.empty()) {
    std::string texts[2];
    for (std::string& text : texts) {
      if (state.size() < 4) return false;
      const std::size_t length = leat::detail::WireReader(state).number<std::uint32_t>();
      if (length > state.size() - 4) return false;
      text = text_of(state.subspan(4, length));
      state = state.subspan(4 + length);
    }
    if (!values.empty() && texts[0] <= values.rbegin()->first) return false;
    values.emplace_hint(values.end(), std::move(texts[0]), std::move(texts[1]));
  }
  values_ = std::move(values);
  journal_.clear();
  return true;
}

}  // namespace leat::trusted

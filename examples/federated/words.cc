#include "words.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <stdexcept>

namespace federated {
namespace {

constexpr std::string_view kFirstWord = "leat-federated-1 ";
constexpr unsigned kMaxRounds = 1'000'000;
constexpr unsigned kMaxSteps = 1000;

// Takes "NAME VALUE " from the front.
template <typename Value>
Value take(std::string_view& text, std::string_view name) {
  Value value{};
  if (!text.starts_with(name)) throw std::runtime_error("the task has no " + std::string(name));
  text.remove_prefix(name.size());
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data() + text.size() || (*end != ' ' && *end != '\n'))
    throw std::runtime_error("the task's " + std::string(name) + "is not a number");
  text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
  return value;
}

// The shortest that is read back as the same number.
std::string exact(float number) {
  std::array<char, 32> text;
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), number);
  return {text.data(), end};
}

}  // namespace

std::string to_text(const Task& task) {
  return std::string(kFirstWord) + "rounds " + std::to_string(task.rounds) + " steps " +
         std::to_string(task.steps) + " rate " + exact(task.rate) + " seed " +
         std::to_string(task.seed) + "\n" + to_text(task.shapes);
}

Task parse_task(std::string_view text) {
  if (!text.starts_with(kFirstWord))
    throw std::runtime_error("the server does not run this version of federated");
  text.remove_prefix(kFirstWord.size());
  Task task;
  task.rounds = take<unsigned>(text, "rounds ");
  task.steps = take<unsigned>(text, "steps ");
  task.rate = take<float>(text, "rate ");
  task.seed = take<std::uint64_t>(text, "seed ");
  if (task.rounds > kMaxRounds || task.steps > kMaxSteps || !(task.rate >= 0 && task.rate <= 1))
    throw std::runtime_error("the task's numbers are out of range");
  task.shapes = parse_shapes(text);
  return task;
}

Word parse_word(std::span<const std::byte> message) {
  Word word;
  const std::uint32_t magic = word.magic;
  if (message.size() != sizeof word)
    throw std::runtime_error("a message of " + std::to_string(message.size()) +
                             " bytes where a word was due");
  std::memcpy(&word, message.data(), sizeof word);
  if (word.magic != magic || word.kind < Kind::kModel || word.kind > Kind::kGaveUp)
    throw std::runtime_error("something that is not a word");
  return word;
}

Digest to_digest(const std::string& hex) {
  Digest digest{};
  std::copy_n(hex.begin(), std::min(hex.size(), digest.size()), digest.begin());
  return digest;
}

}  // namespace federated

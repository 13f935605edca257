#include "script.h"

#include <map>
#include <sstream>
#include <stdexcept>

#include "steps.h"

namespace posix_fuzz {
namespace {

std::string argument_text(const Argument& argument, int value) {
  switch (argument.form) {
    case Form::kSlot:
      return value == kNoSlot ? "-" : std::string(1, static_cast<char>('a' + value));
    case Form::kActor:
      return std::string(1, static_cast<char>('A' + value));
    case Form::kWord:
      for (const Word& word : *argument.words)
        if (word.value == value) return word.text;
      break;
    case Form::kFlags: {
      std::string text;
      for (const Word& word : *argument.words) {
        if ((value & word.value) == 0) continue;
        text += (text.empty() ? "" : "|") + std::string(word.text);
      }
      return text.empty() ? "0" : text;
    }
    case Form::kNumber:
      break;
  }
  return std::to_string(value);
}

int letter_value(const std::string& text, char first, int count) {
  if (text.size() != 1 || text[0] < first || text[0] >= first + count)
    throw std::runtime_error("no such letter: " + text);
  return text[0] - first;
}

int argument_value(const Argument& argument, const std::string& text) {
  switch (argument.form) {
    case Form::kSlot:
      return text == "-" ? kNoSlot : letter_value(text, 'a', kSlots);
    case Form::kActor:
      return letter_value(text, 'A', kActors);
    case Form::kWord:
      return word_value(*argument.words, text);
    case Form::kFlags: {
      int value = 0;
      std::istringstream parts(text == "0" ? "" : text);
      for (std::string part; std::getline(parts, part, '|');)
        value |= word_value(*argument.words, part);
      return value;
    }
    case Form::kNumber:
      break;
  }
  return std::stoi(text);
}

Step parse_step(const std::string& line) {
  std::istringstream words(line);
  std::string actor;
  std::string name;
  words >> actor >> name;
  Step step;
  step.actor = letter_value(actor, 'A', kActors);
  step.operation = operation_named(name);
  const Operation& operation = operations()[static_cast<std::size_t>(step.operation)];
  for (std::size_t i = 0; i < operation.arguments.size(); ++i) {
    std::string text;
    if (!(words >> text)) throw std::runtime_error("too few arguments");
    step.arguments[i] = argument_value(operation.arguments[i], text);
  }
  return step;
}

}  // namespace

const std::vector<Operation>& operations() {
  static const std::vector<Operation> all = [] {
    std::vector<Operation> result;
    for (const auto& group : {socket_operations(), byte_operations(), descriptor_operations(),
                              waiting_operations(), process_operations()})
      result.insert(result.end(), group.begin(), group.end());
    return result;
  }();
  return all;
}

int operation_named(const std::string& name) {
  static const std::map<std::string, int> numbers = [] {
    std::map<std::string, int> result;
    for (const Operation& operation : operations())
      result.emplace(operation.name, static_cast<int>(result.size()));
    return result;
  }();
  const auto found = numbers.find(name);
  if (found == numbers.end()) throw std::runtime_error("no such step: " + name);
  return found->second;
}

int word_value(const Words& words, const std::string& text) {
  for (const Word& word : words)
    if (word.text == text) return word.value;
  throw std::runtime_error("no such word: " + text);
}

std::string to_text(const Step& step) {
  const Operation& operation = operations()[static_cast<std::size_t>(step.operation)];
  std::string text(1, static_cast<char>('A' + step.actor));
  text += std::string(" ") + operation.name;
  for (std::size_t i = 0; i < operation.arguments.size(); ++i)
    text += " " + argument_text(operation.arguments[i], step.arguments[i]);
  return text;
}

std::string to_text(const Script& script) {
  std::string text;
  for (const Step& step : script) text += to_text(step) + "\n";
  return text;
}

Script parse_script(const std::string& text) {
  Script script;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    try {
      script.push_back(parse_step(line));
    } catch (const std::exception& error) {
      throw std::runtime_error("'" + line + "': " + error.what());
    }
  }
  return script;
}

}  // namespace posix_fuzz

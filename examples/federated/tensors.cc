#include "tensors.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <stdexcept>

namespace federated {
namespace {

constexpr std::size_t kMaxNameBytes = 200;
constexpr std::size_t kMaxSizes = 8;

[[noreturn]] void refuse(std::string_view line, const std::string& why) {
  throw std::runtime_error("tensor \"" + std::string(line.substr(0, kMaxNameBytes)) + "\": " + why);
}

bool is_name(std::string_view name) {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  return !name.empty() && name.size() <= kMaxNameBytes && name.front() != '.' &&
         name.find_first_not_of(kLetters) == std::string_view::npos;
}

Shape parse_line(std::string_view line) {
  const std::size_t space = line.find(' ');
  Shape shape{std::string(line.substr(0, space)), {}};
  if (space == std::string_view::npos || !is_name(shape.name))
    refuse(line, "expected a name of letters, digits, '.', '_' and '-', and sizes as 768x2304");
  const char* at = line.data() + space;
  const char* const end = line.data() + line.size();
  std::uint64_t values = 1;
  while (at != end) {
    std::uint64_t size = 0;
    const auto [next, error] = std::from_chars(at + 1, end, size);
    if (error != std::errc() || (next != end && *next != 'x') || shape.sizes.size() == kMaxSizes)
      refuse(line, "the sizes are not written as 768x2304");
    if (size == 0 || size > kMaxTensorBytes / sizeof(float) / values)
      refuse(line, "it has no values, or more than 1 GiB of them");
    values *= size;
    shape.sizes.push_back(size);
    at = next;
  }
  return shape;
}

}  // namespace

std::uint64_t Shape::values() const {
  std::uint64_t values = 1;
  for (const std::uint64_t size : sizes) values *= size;
  return values;
}

Shapes gpt2_shapes(unsigned layers, unsigned scale) {
  const auto scaled = [&](std::uint64_t size) { return (size + scale - 1) / scale; };
  const std::uint64_t width = scaled(768);
  Shapes shapes{{"wte.weight", {scaled(50257), width}}, {"wpe.weight", {scaled(1024), width}}};
  const auto add_norm = [&](const std::string& name) {
    shapes.push_back({name + ".weight", {width}});
    shapes.push_back({name + ".bias", {width}});
  };
  const auto add_linear = [&](const std::string& name, std::uint64_t in, std::uint64_t out) {
    shapes.push_back({name + ".weight", {in, out}});
    shapes.push_back({name + ".bias", {out}});
  };
  for (unsigned layer = 0; layer < layers; ++layer) {
    const std::string prefix = "h." + std::to_string(layer) + ".";
    add_norm(prefix + "ln_1");
    add_linear(prefix + "attn.c_attn", width, 3 * width);  // queries, keys and values
    add_linear(prefix + "attn.c_proj", width, width);
    add_norm(prefix + "ln_2");
    add_linear(prefix + "mlp.c_fc", width, 4 * width);
    add_linear(prefix + "mlp.c_proj", 4 * width, width);
  }
  add_norm("ln_f");
  return shapes;
}

std::string to_text(const Shapes& shapes) {
  std::string text;
  for (const Shape& shape : shapes) {
    text += shape.name;
    char before = ' ';
    for (const std::uint64_t size : shape.sizes) {
      text += before + std::to_string(size);
      before = 'x';
    }
    text += '\n';
  }
  return text;
}

Shapes parse_shapes(std::string_view text) {
  Shapes shapes;
  std::set<std::string> names;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    shapes.push_back(parse_line(line));
    if (!names.insert(shapes.back().name).second) refuse(line, "the name is there twice");
    if (shapes.size() > kMaxTensors) refuse(line, "there are more than 10000 tensors");
  }
  if (shapes.empty()) throw std::runtime_error("the list of tensors is empty");
  return shapes;
}

}  // namespace federated

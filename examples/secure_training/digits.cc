#include "digits.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <numeric>
#include <random>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace training {
namespace {

constexpr std::size_t kMaxDigits = 1'000'000;

}  // namespace

Digits read_digits(const std::string& path, std::size_t pixels, std::size_t classes) {
  const auto fail = [&](const std::string& why) {
    throw std::runtime_error(path + ": " + why + ". get_digits.sh makes such a file.");
  };
  std::ifstream file(path, std::ios::binary);
  std::string line;
  if (!file) fail("cannot be opened");
  std::getline(file, line);
  std::istringstream head(line);
  std::string word;
  std::size_t version = 0, count = 0, file_pixels = 0, file_classes = 0;
  head >> word >> version >> count >> file_pixels >> file_classes;
  if (!head || word != "digits" || version != 1) fail("is not a file of digits");
  if (file_pixels != pixels || file_classes != classes)
    fail("has digits of " + std::to_string(file_pixels) + " pixels in " +
         std::to_string(file_classes) + " classes, the network takes " + std::to_string(pixels) +
         " in " + std::to_string(classes));
  if (count == 0 || count > kMaxDigits) fail("claims to have " + std::to_string(count) + " digits");

  Digits digits{{count, pixels, {}}, {}};
  std::vector<char> bytes(pixels + 1);
  for (std::size_t i = 0; i < count; ++i) {
    if (!file.read(bytes.data(), static_cast<std::streamsize>(bytes.size())))
      fail("ends after " + std::to_string(i) + " of " + std::to_string(count) + " digits");
    for (std::size_t pixel = 0; pixel < pixels; ++pixel)
      digits.pictures.words.push_back(encode(static_cast<std::uint8_t>(bytes[pixel]) / 255.0));
    digits.labels.push_back(static_cast<std::uint8_t>(bytes.back()));
    if (digits.labels.back() >= classes) fail("has a label that is not a class");
  }
  if (file.peek() != std::ifstream::traits_type::eof()) fail("goes on after its last digit");
  return digits;
}

Digits choose(const Digits& digits, const std::vector<std::size_t>& numbers) {
  Digits chosen{rows_of(digits.pictures, numbers), {}};
  for (const std::size_t number : numbers) chosen.labels.push_back(digits.labels.at(number));
  return chosen;
}

Matrix unit_vectors(const std::vector<std::uint8_t>& labels, std::size_t classes) {
  Matrix vectors{labels.size(), classes, Words(labels.size() * classes, 0)};
  for (std::size_t row = 0; row < labels.size(); ++row)
    vectors.words[row * classes + labels[row]] = encode(1);
  return vectors;
}

std::vector<std::size_t> shuffled(std::size_t count, std::uint64_t seed, std::uint64_t round) {
  std::mt19937_64 random(seed * 1'000'003 + round);
  std::vector<std::size_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  // Not std::shuffle, whose result each standard library chooses itself.
  for (std::size_t i = count; i > 1; --i) std::swap(numbers[i - 1], numbers[random() % i]);
  return numbers;
}

}  // namespace training
